"""train.py --task=prepare, training on a prepared corpus, and the flags for speed."""

import os

import keras
import numpy as np
import pytest
from train_script import check_fails, run_and_capture, run_in_process

from keras_spanbert import files
from keras_spanbert.data.prepared import PreparedCorpus

pytestmark = pytest.mark.usefixtures("one_layer")

TINY = [
    "--batch_size=4", "--size=tiny", "--steps=8", "--eval_every=4", "--eval_steps=2",
    "--checkpoint_every=4",
]  # fmt: skip


PREPARE = [
    "--task=prepare", "--sequence_length=16", "--vocabulary_size=200", "--held_out=0.2",
    "--shards=2", "--min_block_tokens=6",
]  # fmt: skip


@pytest.fixture(scope="module")
def prepared(texts, tmp_path_factory):
    output = tmp_path_factory.mktemp("prepared") / "corpus"
    run_in_process(*PREPARE, f"--train_data={texts}", f"--output={output}")
    return output


def test_prepared_corpus_has_the_values_of_the_flags(prepared):
    corpus, figures = PreparedCorpus(str(prepared)), files.read_json(prepared / "metrics.json")
    assert (corpus.sequence_length, corpus.min_tokens) == (16, 6)
    assert len(list(prepared.glob("train-*"))) == 2
    blocks, held_out = corpus.num_blocks(), corpus.num_blocks("held_out")
    assert (figures["blocks"], figures["held_out_blocks"]) == (blocks, held_out)
    assert held_out / (blocks + held_out) == pytest.approx(0.2, abs=0.05)
    assert figures["tokens"] == corpus.token_counts()[0].sum() > 10 * blocks


def test_invalid_flags_with_prepared_corpora(prepared, texts, tmp_path, capsys):
    output, data = f"--output={tmp_path / 'run'}", f"--train_data={prepared}"
    other_length = [data, output, "--sequence_length=24"]
    check_fails(capsys, other_length, "sequence_length=24", "sequence_length=16")
    check_fails(capsys, [data, output, "--masking_scheme=entity"], "--masking_scheme", prepared)
    check_fails(capsys, ["--task=prepare", data, output], "needs text", prepared)
    old = tmp_path / "old"  # An earlier version wrote no other settings.
    old.mkdir()
    (old / "prepared.json").write_text('{"version": 2}')
    check_fails(capsys, [f"--train_data={old}", output], "must have version 3", "Prepare it again")
    flags = ["--task=prepare", f"--train_data={texts}"]
    check_fails(capsys, [*flags, f"--output={prepared}"], "must be new or empty")
    check_fails(capsys, [*flags, output, "--beam_runner=NoRunner"], "beam_runner")
    shard = prepared / "train-00000-of-00002.array_record"
    content = shard.read_bytes()
    try:
        shard.write_bytes(content[:-1])
        check_fails(capsys, [data, output], shard.name, "instead of")
        # Opens the corpus.
        check_fails(capsys, [*other_length, "--damaged_shards=skip"], "sequence_length=24")
    finally:
        shard.write_bytes(content)
    assert not (tmp_path / "run").exists()


@pytest.mark.every_backend
def test_training_uses_prepared_settings_shows_its_speed_and_resumes(prepared, tmp_path, capsys):
    output = tmp_path / "run"
    several = [] if keras.backend.backend() == "torch" else ["--steps_per_execution=2"]
    run_in_process(
        f"--train_data={prepared}", f"--output={output}", *TINY, "--tensorboard",
        "--rematerialize", "--gradient_accumulation=2", *several,
    )  # fmt: skip
    assert files.read_json(output / "run.json")["flags"]["sequence_length"] == 16
    vocabulary = (output / "assets" / "tokenizer" / "vocabulary.txt").read_text().split("\n")
    assert [token for token in vocabulary if token] == PreparedCorpus(str(prepared)).vocabulary
    rows = files.read_csv(output / "history.csv")
    assert [row["step"] for row in rows] == ["4", "8"]
    # The rate is not 0 in the second half of the run.
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
    capsys.readouterr()
    run_in_process(f"--output={output}", "--resume")
    assert "Continuing from step 8" in capsys.readouterr().out


@pytest.fixture(scope="module")
def with_spans(texts, tmp_path_factory):
    """A corpus prepared with a rule-based spaCy pipeline that marks fruits as entities.

    The name of its folder has special characters of globs.
    """
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed (extra [spacy])")
    folder = tmp_path_factory.mktemp("with_spans")
    nlp = spacy.blank("en")
    patterns = [{"label": "FRUIT", "pattern": name} for name in ["apple", "melon", "plum"]]
    nlp.add_pipe("entity_ruler").add_patterns(patterns)
    nlp.to_disk(folder / "pipeline")
    output = folder / "[1] of *" / "corpus"
    annotator = f"--span_annotator={folder / 'pipeline'}"
    out, _ = run_and_capture(*PREPARE, f"--train_data={texts}", f"--output={output}", annotator)
    assert "Keeping entity spans, for --masking_scheme=entity" in out and "noun" not in out
    assert os.listdir(output.parent) == ["corpus"]  # Temporary files are removed.
    return output


def test_blocks_do_not_depend_on_spans(prepared, with_spans):
    plain, marked = PreparedCorpus(str(prepared)), PreparedCorpus(str(with_spans))
    assert marked.lacks_spans["entity"] == [] and plain.lacks_spans["entity"] == [str(prepared)]
    for split in ["train", "held_out"]:
        rows = np.arange(plain.num_blocks(split))
        np.testing.assert_array_equal(marked.read(rows, split), plain.read(rows, split))
    assert marked.read(np.arange(marked.num_blocks()), with_marks=True).max() >= 2**27


def test_invalid_flags_with_spans(texts, prepared, tmp_path, capsys):
    pytest.importorskip("spacy", reason="spaCy is not installed (extra [spacy])")
    flags = ["--task=prepare", f"--output={tmp_path / 'run'}"]
    (tmp_path / "a.jsonl").write_text('{"text": "a b"}\n{"text": "c"}\n')
    lines = f"--train_data={tmp_path / 'a.jsonl'}"
    annotator = "--span_annotator=no_pipeline"
    check_fails(capsys, [*flags, lines, annotator], "needs plain text", "a.jsonl")
    check_fails(capsys, [*flags, f"--train_data={texts}", annotator], "installed", "no_pipeline")
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl"]
