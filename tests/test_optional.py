"""What cannot do without TensorFlow says so, and what to install."""

import sys

import pytest

import keras_spanbert as ks
from keras_spanbert.data.array_stream import ArrayStream
from keras_spanbert.data.corpus import Corpus


def export(answerer, folder):
    ks.serving.export_saved_model(answerer, str(folder / "served"))


def read_corpus(answerer, folder):
    (folder / "a.txt").write_text("ann wrote it")
    tokenizer = answerer.preprocessor.tokenizer
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=8)
    Corpus(str(folder / "a.txt")).training_dataset(preprocessor, batch_size=2, seed=1)


def stream(answerer, folder):
    ArrayStream([[1, 2]], batch_size=1, seed=1)


@pytest.mark.parametrize("use", [export, read_corpus, stream])
def test_use_without_tensorflow_is_an_error_that_says_what_to_install(use, tmp_path, monkeypatch):
    import tiny_answerer

    answerer = tiny_answerer.build()
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError, match="takes TensorFlow, .* install tensorflow tensorflow-tex"):
        use(answerer, tmp_path)
    assert not (tmp_path / "served").exists()
