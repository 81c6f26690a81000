"""train.py --task=prepare, training on what it wrote, and the flags for speed."""

import csv
import json
import os

import keras
import numpy as np
import pytest
from train_script import check_mistake, in_process, printed

from keras_spanbert.data.prepared import PreparedCorpus

pytestmark = pytest.mark.usefixtures("one_layer")

TINY = [
    "--batch_size=4", "--size=tiny", "--steps=8", "--eval_every=4", "--eval_steps=2",
    "--checkpoint_every=4",
]  # fmt: skip


@pytest.fixture(scope="module")
def prepared(texts, tmp_path_factory):
    output = tmp_path_factory.mktemp("prepared") / "corpus"
    in_process(
        "--task=prepare", f"--train_data={texts}", f"--output={output}",
        "--sequence_length=16", "--vocabulary_size=200", "--held_out=0.2", "--shards=2",
    )  # fmt: skip
    return output


def mistake(capsys, flags, *values):
    with pytest.raises(SystemExit) as error:
        in_process(*flags)
    check_mistake(error.value.code, capsys.readouterr().err, *values)


@pytest.mark.once
def test_prepared_folder_says_what_it_is(prepared):
    corpus = PreparedCorpus(str(prepared))
    figures = json.loads((prepared / "metrics.json").read_text())
    assert figures["blocks"] == corpus.num_blocks() > 20
    assert figures["held_out_blocks"] == corpus.num_blocks("held_out") > 2
    assert figures["tokens"] == corpus.token_counts()[0].sum()
    assert json.loads((prepared / "run.json").read_text())["flags"]["shards"] == 2


@pytest.mark.once
@pytest.mark.usefixtures("untraced")
def test_training_takes_length_and_vocabulary_from_it_and_goes_on(prepared, tmp_path, capsys):
    output = tmp_path / "run"
    in_process(f"--train_data={prepared}", f"--output={output}", *TINY)
    flags = json.loads((output / "run.json").read_text())["flags"]
    assert flags["sequence_length"] == 16
    corpus = PreparedCorpus(str(prepared))
    vocabulary = (output / "assets" / "tokenizer" / "vocabulary.txt").read_text().split("\n")
    assert [token for token in vocabulary if token] == corpus.vocabulary
    assert json.loads((output / "metrics.json").read_text())["steps"] == 8
    capsys.readouterr()
    in_process(f"--output={output}", "--resume")
    assert "Going on from step 8" in capsys.readouterr().out


@pytest.mark.once
@pytest.mark.usefixtures("untraced")
def test_mistakes_with_prepared_corpora(prepared, texts, tmp_path, capsys):
    output = f"--output={tmp_path / 'run'}"
    data = f"--train_data={prepared}"
    mistake(capsys, [data, output, "--sequence_length=24"], "length 24", "of 16")
    mistake(capsys, ["--task=prepare", data, output], "takes text", str(prepared))
    flags = ["--task=prepare", f"--train_data={texts}"]
    mistake(capsys, [*flags, f"--output={prepared}"], "must be new or empty")
    mistake(capsys, [*flags, output, "--resume"], "takes no --resume")
    mistake(capsys, [*flags, output, "--beam_runner=NoRunner"], "beam_runner")
    assert not (tmp_path / "run").exists()
    shard = prepared / "train-00000-of-00002.array_record"
    content = shard.read_bytes()
    try:
        shard.write_bytes(content[:-1])
        mistake(capsys, [data, output], shard.name, "instead of")
        in_process(data, output, "--damaged_shards=skip", *TINY)
    finally:
        shard.write_bytes(content)


@pytest.mark.once
@pytest.mark.usefixtures("untraced")
def test_mistake_of_pairs_of_blocks_that_cross_documents(texts, tmp_path, capsys):
    folder = tmp_path / "prepared"
    in_process(
        "--task=prepare", f"--train_data={texts}", f"--output={folder}", "--cross_documents",
        "--document_boundary=line", "--sequence_length=16", "--vocabulary_size=200",
    )  # fmt: skip
    flags = [f"--train_data={folder}", f"--output={tmp_path / 'run'}", *TINY]
    mistake(capsys, [*flags, "--objectives=mlm,nsp"], "of one document each", str(folder))
    assert not (tmp_path / "run").exists()


def test_figures_in_history_and_tensorboard_with_several_steps_a_call(prepared, tmp_path):
    output = tmp_path / "run"
    several = [] if keras.backend.backend() == "torch" else ["--steps_per_execution=2"]
    in_process(
        f"--train_data={prepared}", f"--output={output}", *TINY, "--tensorboard",
        "--rematerialize", "--gradient_accumulation=2", *several,
    )  # fmt: skip
    with open(output / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["4", "8"]
    # The rate is not 0 in the run's second half.
    assert len({row["val_mlm_cross_entropy"] for row in rows}) == 2
    for row in rows:
        assert float(row["step_ms"]) > 0 and float(row["tflops_per_second"]) > 0
    (events,) = os.listdir(output / "tensorboard")
    assert "tfevents" in events
    import tensorflow as tf

    records = tf.compat.v1.train.summary_iterator(str(output / "tensorboard" / events))
    found = {(v.tag, record.step) for record in records for v in record.summary.value}
    assert {("step_ms", 4), ("step_ms", 8), ("val_mlm_cross_entropy", 8)} <= found
    # Two updates of two batches each, in each half.
    with np.load(output / "checkpoints" / "step-8" / "arrays.npz") as arrays:
        assert "optimizer/0" in arrays.files
        assert int(arrays["optimizer/0"]) == 8


def test_mistake_of_steps_that_do_not_divide(prepared, tmp_path, capsys):
    flags = [f"--train_data={prepared}", f"--output={tmp_path / 'run'}", *TINY]
    if keras.backend.backend() == "torch":
        message = "takes TensorFlow or JAX"
    else:
        message = "must divide 8 steps"
    mistake(capsys, [*flags, "--steps_per_execution=3"], message)


@pytest.fixture(scope="module")
def with_spans(texts, tmp_path_factory):
    """Prepared with the fruits that a spaCy pipeline of rules takes for entities."""
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed (extra [spacy])")
    folder = tmp_path_factory.mktemp("with_spans")
    nlp = spacy.blank("en")
    patterns = [{"label": "FRUIT", "pattern": name} for name in ["apple", "melon", "plum"]]
    nlp.add_pipe("entity_ruler").add_patterns(patterns)
    nlp.to_disk(folder / "pipeline")
    out, _ = printed(
        "--task=prepare", f"--train_data={texts}", f"--output={folder / 'corpus'}",
        "--sequence_length=16", "--vocabulary_size=200", "--held_out=0.2", "--shards=2",
        f"--spans={folder / 'pipeline'}",
    )  # fmt: skip
    assert "With spans of each entity, for --scheme=entity" in out and "noun" not in out
    assert sorted(os.listdir(folder)) == ["corpus", "pipeline"]
    return folder / "corpus"


@pytest.mark.once
def test_blocks_with_spans_are_those_without(prepared, with_spans):
    plain, marked = PreparedCorpus(str(prepared)), PreparedCorpus(str(with_spans))
    assert marked.lacks_spans["entity"] == [] and plain.lacks_spans["entity"] == [str(prepared)]
    for split in ["train", "held_out"]:
        rows = np.arange(plain.num_blocks(split))
        np.testing.assert_array_equal(marked.read(rows, split), plain.read(rows, split))
    assert marked.read(np.arange(marked.num_blocks()), with_marks=True).max() >= 2**27


@pytest.mark.once
@pytest.mark.usefixtures("untraced")
def test_training_on_entities(prepared, with_spans, tmp_path, capsys):
    flags = [f"--output={tmp_path / 'run'}", "--scheme=entity", "--static_copies=3", *TINY]
    mistake(capsys, [f"--train_data={prepared}", *flags], "--scheme", str(prepared))
    assert not (tmp_path / "run").exists()
    in_process(f"--train_data={with_spans}", *flags)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["steps"] == 8


@pytest.mark.once
def test_mistakes_with_spans(texts, prepared, tmp_path, capsys):
    pytest.importorskip("spacy", reason="spaCy is not installed (extra [spacy])")
    flags = ["--task=prepare", f"--output={tmp_path / 'run'}"]
    (tmp_path / "a.jsonl").write_text('{"text": "a b"}\n{"text": "c"}\n')
    lines = f"--train_data={tmp_path / 'a.jsonl'}"
    mistake(capsys, [*flags, lines, "--spans=no_pipeline"], "takes plain text", "a.jsonl")
    names = ["--spans=no_pipeline", "installed", "no_pipeline"]
    mistake(capsys, [*flags, f"--train_data={texts}", names[0]], *names[1:])
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl"]


@pytest.mark.once
def test_spans_are_found_for_a_folder_of_any_name(texts, tmp_path):
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed (extra [spacy])")
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "FRUIT", "pattern": "apple"}])
    nlp.to_disk(tmp_path / "pipeline")
    output = tmp_path / "[1] of *" / "corpus"
    in_process(
        "--task=prepare", f"--train_data={texts}", f"--output={output}", "--sequence_length=16",
        "--vocabulary_size=200", "--held_out=0.2", f"--spans={tmp_path / 'pipeline'}",
    )  # fmt: skip
    assert PreparedCorpus(str(output)).lacks_spans["entity"] == []
