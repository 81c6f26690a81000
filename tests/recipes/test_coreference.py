"""Runs of `train.py --task=coreference`."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from absl.testing import flagsaver
from train_script import check_fails, check_flags_only, check_resumes, run_in_process, save_encoder

import keras_spanbert as ks
from keras_spanbert.data import coreference
from keras_spanbert.recipes import coreference as recipe
from keras_spanbert.recipes.run import parse_flags

# The run of `trained`, which all tests of the module share, is traced.
pytestmark = pytest.mark.usefixtures("untraced")

TASK = "--task=coreference"
NAMES = {"ann": "she", "eve": "she", "ida": "she", "bob": "he", "tom": "he", "max": "he"}
VERBS = ["wrote", "read", "sold", "saw"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NAMES, *VERBS, "she", "he", "it", "."]
SIZES = [
    "--sequence_length=16", "--max_span_width=2", "--max_top_antecedents=6", "--ffnn_size=32",
    "--max_training_segments=2", "--coref_depth=1", "--batch_size=4", "--genres=st",
]  # fmt: skip


def write_conll(path, count, seed):
    """Writes documents about two people and their pronouns."""
    rng = np.random.default_rng(seed)
    documents = []
    for i in range(count):
        people = [str(rng.choice([n for n in NAMES if NAMES[n] == p])) for p in ("she", "he")]
        sentences, clusters = [], {person: [] for person in people}
        for number in range(6):
            person = people[int(rng.integers(2))]
            word = person if number < 2 or rng.random() < 0.3 else NAMES[person]
            clusters[person].append([4 * number, 4 * number])
            sentences.append([word, str(rng.choice(VERBS)), "it", "."])
        several = [cluster for cluster in clusters.values() if len(cluster) > 1]
        document = {"doc_key": f"st/{i}_0", "part": "0", "sentences": sentences}
        documents.append({**document, "speakers": [["-"] * 4] * 6, "clusters": several})
    coreference.write_conll(path, documents, [document["clusters"] for document in documents])
    return path


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preset") / "preset"
    keras.utils.set_random_seed(3)
    backbone = ks.SpanBertBackbone(
        len(VOCABULARY), 2, 4, 32, 64, dropout=0.0, max_sequence_length=16
    )
    return save_encoder(folder, backbone, VOCABULARY)


@pytest.fixture(scope="module")
def trained(preset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_conll(folder / "train.conll", 80, seed=1)
    write_conll(folder / "dev.conll", 10, seed=2)
    run_in_process(
        TASK, f"--preset={preset}", f"--output={folder / 'run'}",
        f"--train_data={folder / 'train.conll'}", f"--eval_data={folder / 'dev.conll'}",
        f"--predict_data={folder / 'dev.conll'}", f"--predictions={folder / 'found.conll'}",
        "--epochs=4", "--learning_rate=3e-3", "--head_learning_rate=5e-3", *SIZES,
    )  # fmt: skip
    return folder


def test_clusters_of_a_text_are_printed_and_written(trained, folder, capsys):
    text = "ann wrote it. she read it.\n\nbob saw it. he sold it. she saw it.\n"
    (folder / "story.txt").write_text(text)
    preset = f"--preset={trained / 'run'}"
    flags = ["--html=story.html", "--predictions=found.jsonl", "--output=out"]
    run_in_process(TASK, preset, "--predict_data=st*y.txt", "--document_genre=st", *flags)
    out = capsys.readouterr().out
    (row,) = map(json.loads, (folder / "found.jsonl").read_text().splitlines())
    names = {tuple(mention["text"] for mention in cluster) for cluster in row["clusters"]}
    assert {("ann", "she", "she"), ("bob", "he")} <= names
    assert all(text[m["start"] : m["end"]] == m["text"] for c in row["clusters"] for m in c)
    assert "story.txt:\n1. ann (0 to 3), 3 mentions: she (14 to 17)" in out
    page = (folder / "story.html").read_text()
    assert "<title>story.txt" in page and page.count("data-cluster=") > len(row["clusters"])
    # The page and the file show how sure the links are.
    scores = [m["link_score"] for cluster in row["clusters"] for m in cluster if m["link_score"]]
    assert len(row["cluster_scores"]) == len(row["clusters"]) and 0 < min(scores) < 1
    assert page.count("linked to") == len(scores) and f', {min(scores):.2f}">' in page
    (folder / "story.txt").write_text(" \n")
    flags = [TASK, preset, "--predict_data=story.txt"]
    check_fails(capsys, flags, "story.txt: a text must not be empty")
    check_flags_only(*flags)  # Clusters can also be printed only.


@pytest.mark.torch_first
def test_resumed_run_equals_uninterrupted_run(preset, tmp_path, capsys, caplog):
    data = write_conll(tmp_path / "data.conll", 10, seed=1)
    flags = [TASK, f"--preset={preset}", f"--train_data={data}", f"--eval_data={data}", *SIZES]
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


def test_brackets_in_file_names_are_not_globs():
    assert recipe.find_format(["a[1].txt"]) == recipe.FORMATS["texts"]


# tests/data/test_coreference.py tests more errors in files.
def test_documents_without_clusters_are_refused(preset, tmp_path, capsys):
    good, bare = write_conll(tmp_path / "good.conll", 2, seed=1), tmp_path / "bare.jsonlines"
    bare.write_text('{"doc_key": "st/1", "sentences": [["ann"]]}\n')
    flags = [f"--preset={preset}", f"--train_data={good}", f"--eval_data={bare}", *SIZES]
    check_fails(capsys, [TASK, *flags, f"--output={tmp_path / 'run'}"], "clusters", "st/1")
