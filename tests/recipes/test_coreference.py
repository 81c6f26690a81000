"""Runs of `train.py --task=coreference`."""

import json
from types import SimpleNamespace

import pytest
import tiny_resolver
from absl.testing import flagsaver
from small_runs import start
from train_script import check_fails, check_flags_only, check_resumes, run_in_process

import keras_spanbert as ks
from keras_spanbert.data import coreference
from keras_spanbert.recipes import coreference as recipe
from keras_spanbert.recipes.run import parse_flags

pytestmark = pytest.mark.usefixtures("untraced")


def test_clusters_of_a_text_are_printed_and_written(folder, monkeypatch, capsys):
    tiny_resolver.build().save_to_preset("preset")
    mentions = [{"text": "ann", "start": 0, "end": 3, "link_score": None}]
    mentions += [
        {"text": "she", "start": 14, "end": 17, "link_score": 0.75, "antecedent": {"text": "ann"}}
    ]
    found = {"clusters": [mentions], "cluster_scores": [0.5]}
    monkeypatch.setattr(ks.SpanBertCoreferenceResolver, "resolve", lambda *_, **__: [found])
    (folder / "story.txt").write_text("ann wrote it. she read it.\n")
    flags = ["--task=coreference", "--preset=preset", "--predict_data=st*y.txt"]
    run_in_process(*flags, "--html=story.html", "--predictions=found.jsonl", "--output=out")
    out = capsys.readouterr().out
    assert "story.txt:\n1. ann (0 to 3), 2 mentions: she (14 to 17)" in out
    assert json.loads((folder / "found.jsonl").read_text()) == {"path": "story.txt", **found}
    page = (folder / "story.html").read_text()
    assert "<title>story.txt" in page and page.count("data-cluster=") == 2
    assert page.count("linked to") == 1 and ', 0.75">' in page
    (folder / "story.txt").write_text(" \n")
    check_fails(capsys, flags, "story.txt: a text must not be empty")
    check_flags_only(*flags)  # Clusters can also be printed only.


@pytest.mark.torch_first
def test_resumed_run_equals_uninterrupted_run(tmp_path, capsys, caplog):
    _, flags = start("coreference", tmp_path)
    flags += ["--steps=6", "--eval_every=3", "--checkpoint_every=2"]
    resolver = ks.SpanBertCoreferenceResolver
    check_resumes(capsys, tmp_path / "run", resolver, flags, kept=[2, 4, 6], steps=[3, 6])
    assert caplog.text.count("random weights") == 1  # When resuming, the checkpoint replaces them.


@pytest.mark.parametrize("ending", ["conll", "jsonlines"])
def test_mentions_in_the_same_word_are_skipped_only_in_conll(ending, tmp_path, capsys):
    document = {"doc_key": "a", "sentences": [["ann", "saw", "bob", "."]]}
    clusters = [[[0, 1], [1, 2], [3, 3]]]
    resolver = SimpleNamespace(predict_clusters=lambda documents, **arguments: [clusters])
    (tmp_path / "a.conll").touch()
    path = tmp_path / f"found.{ending}"
    with flagsaver.flagsaver():
        parse_flags(["train.py", f"--predict_data={tmp_path / 'a.conll'}", f"--predictions={path}"])
        recipe.RECIPE.predict(resolver, [document])
    is_conll = ending == "conll"
    assert ("Left out 1 mention" in capsys.readouterr().out) == is_conll
    (found,) = coreference.read(path)
    written = found["clusters" if is_conll else "predicted_clusters"]
    assert written == ([[[0, 1], [3, 3]]] if is_conll else clusters)


# tests/data/test_coreference.py tests more errors in files.
def test_documents_without_clusters_are_refused(tmp_path, capsys):
    _, flags = start("coreference", tmp_path)
    bare = tmp_path / "bare.jsonlines"
    bare.write_text('{"doc_key": "st/1", "sentences": [["ann"]]}\n')
    flags += [f"--eval_data={bare}", f"--output={tmp_path / 'run'}"]
    check_fails(capsys, flags, "clusters", "st/1")
