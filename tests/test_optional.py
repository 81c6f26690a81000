"""Errors about missing packages say what to install."""

import sys

import numpy as np
import pytest
from processes import run_python
from tiny_models import pretrainer

import keras_spanbert as ks


def test_missing_tensorflow_error_says_what_to_install(tmp_path, monkeypatch):
    model, corpus = pretrainer(), tmp_path / "a.txt"
    corpus.write_text("a b c")
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    for use in [
        lambda: ks.serving.export_saved_model(model, tmp_path / "served"),
        lambda: ks.Corpus(corpus).training_dataset(model.preprocessor, batch_size=2, seed=1),
        ks.Batches((np.ones(2),), batch_size=1, seed=1).dataset,
    ]:
        with pytest.raises(
            ImportError, match="needs the package tensorflow, .* install tensorflow tensorflow-t"
        ):
            use()
    assert not (tmp_path / "served").exists()


CONVERT = "import keras_spanbert_commands; keras_spanbert_commands.convert()"


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (["-c", CONVERT], "spanbert-convert"),
        (["-m", "keras_spanbert.checkpoints"], "python -m keras_spanbert.checkpoints"),
    ],
)
def test_invalid_backend_is_one_line_with_the_name_of_the_command(start, name):
    _, err = run_python(*start, "a", "b", code=2, KERAS_BACKEND="bogus")
    rule = "KERAS_BACKEND must be one of tensorflow, jax, torch. Received: KERAS_BACKEND=bogus\n"
    assert err == f"{name}: {rule}"


def test_missing_packages_name_the_extra(monkeypatch):
    from keras_spanbert import stores

    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ValueError, match=r"s3://bucket/x.*Install s3fs.*spanbert\[s3\]"):
        stores.kind("s3://bucket/x")


def test_public_modules_are_listed_and_unknown_names_are_errors():
    for name in ["checkpoints", "data", "metrics", "serving"]:
        assert name in ks.__all__ and name in dir(ks)
    with pytest.raises(AttributeError, match="no attribute 'SpanBert'"):
        ks.SpanBert  # noqa: B018
