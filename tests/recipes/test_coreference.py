"""`train.py --task=coreference` as its users run it."""

import csv
import json
import os
import shutil

import keras
import numpy as np
import pytest
from train_script import check_mistake, in_process, run

import keras_spanbert as ks
from keras_spanbert import metrics
from keras_spanbert.data import coreference

NAMES = {"ann": "she", "eve": "she", "ida": "she", "bob": "he", "tom": "he", "max": "he"}
VERBS = ["wrote", "read", "sold", "saw"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NAMES, *VERBS, "she", "he", "it", "."]
SIZES = [
    "--sequence_length=16", "--max_span_width=2", "--max_top_antecedents=6", "--ffnn_size=32",
    "--max_training_sentences=2", "--coref_depth=1", "--batch_size=4", "--genres=st",
]  # fmt: skip


def write_conll(path, count, seed):
    """Two people who do something, and pronouns, each of one of them."""
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
        documents.append(
            {
                "doc_key": f"st/{i}_0",
                "part": "0",
                "sentences": sentences,
                "speakers": [["-"] * 4] * 6,
                "clusters": several,
            }
        )
    coreference.write_conll(path, documents, [document["clusters"] for document in documents])
    return path


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preset") / "preset"
    keras.utils.set_random_seed(3)
    backbone = ks.SpanBertBackbone(
        len(VOCABULARY), 2, 4, 32, 64, dropout=0.0, max_sequence_length=16
    )
    ks.SpanBertPretrainer(
        backbone,
        ks.SpanBertPretrainerPreprocessor(ks.SpanBertTokenizer(VOCABULARY), sequence_length=16),
    ).save_to_preset(folder)
    return folder


@pytest.fixture(scope="module")
def trained(preset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_conll(folder / "train.conll", 80, seed=1)
    write_conll(folder / "dev.conll", 10, seed=2)
    code, out, err = run(
        "--task=coreference", f"--preset={preset}", f"--output={folder / 'run'}",
        f"--train_data={folder / 'train.conll'}", f"--eval_data={folder / 'dev.conll'}",
        f"--predict_data={folder / 'dev.conll'}", f"--predictions={folder / 'found.conll'}",
        "--epochs=4", "--learning_rate=3e-3", "--head_learning_rate=5e-3", *SIZES,
    )  # fmt: skip
    assert code == 0, err
    return folder, out


def test_run_learns_and_its_files_agree(trained):
    folder, out = trained
    final = json.loads((folder / "run" / "metrics.json").read_text())
    assert final["average_f1"] > 85.0 and final["total"] == 10
    assert f"average F1 {final['average_f1']:.2f} of 10" in out
    with open(folder / "run" / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["20", "40", "60", "80"]
    assert max(float(row["average_f1"]) for row in rows) == pytest.approx(final["average_f1"])
    record = json.loads((folder / "run" / "run.json").read_text())["flags"]
    assert record["sequence_length"] == 16 and record["top_span_ratio"] == 0.4
    gold, found = (coreference.read(folder / name) for name in ["dev.conll", "found.conll"])
    assert [x["sentences"] for x in gold] == [x["sentences"] for x in found]
    scores = metrics.coreference(*([x["clusters"] for x in part] for part in (gold, found)))
    assert scores["average_f1"] == pytest.approx(final["average_f1"])
    assert scores["muc"]["recall"] == pytest.approx(final["muc_recall"])
    assert (folder / "run" / "loss.png").is_file()


@pytest.mark.once
def test_preset_is_scored_and_predicts_as_it_is(trained, tmp_path):
    folder, _ = trained
    in_process(
        "--task=coreference", f"--preset={folder / 'run'}", f"--output={tmp_path / 'again'}",
        f"--eval_data={folder / 'dev.conll'}", f"--predict_data={folder / 'dev.conll'}",
        f"--predictions={tmp_path / 'found.jsonlines'}",
    )  # fmt: skip
    again = json.loads((tmp_path / "again" / "metrics.json").read_text())
    final = json.loads((folder / "run" / "metrics.json").read_text())
    assert {name: final[name] for name in again} == again
    lines = coreference.read(tmp_path / "found.jsonlines")
    in_conll = coreference.read(folder / "found.conll")
    for line, document in zip(lines, in_conll, strict=True):
        found = sorted(sorted(cluster) for cluster in line["predicted_clusters"])
        assert found == sorted(sorted(cluster) for cluster in document["clusters"])


def test_run_that_goes_on_ends_like_the_one_before(preset, tmp_path, capsys):
    data = write_conll(tmp_path / "data.conll", 10, seed=1)
    in_process(
        "--task=coreference", f"--preset={preset}", f"--output={tmp_path / 'run'}",
        f"--train_data={data}", f"--eval_data={data}", "--steps=6", "--eval_every=3",
        "--checkpoint_every=2", *SIZES,
    )  # fmt: skip
    history, weights = read_run(tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    for name in set(os.listdir(checkpoints)) - {".lock", "step-2"}:
        shutil.rmtree(checkpoints / name)
    capsys.readouterr()
    in_process(f"--output={tmp_path / 'run'}", "--resume")
    assert "Going on from step 2" in capsys.readouterr().out
    again, weights_again = read_run(tmp_path / "run")
    for row, before in zip(again, history, strict=True):
        assert float(row["loss"]) == pytest.approx(float(before["loss"]), rel=1e-5)
        assert float(row["average_f1"]) == float(before["average_f1"])
    for array, before in zip(weights_again, weights, strict=True):
        np.testing.assert_allclose(array, before, atol=1e-5)


def read_run(output):
    """Rows of the history, and the weights of the preset."""
    with open(output / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return rows, ks.SpanBertCoreferenceResolver.from_preset(str(output)).get_weights()


@pytest.mark.once
def test_mistakes_in_files_are_told_in_one_line(preset, tmp_path, capsys):
    good = write_conll(tmp_path / "good.conll", 2, seed=1)
    text = good.read_text().replace("(0)", "(0", 1)
    (tmp_path / "open.conll").write_text(text)
    (tmp_path / "bare.jsonlines").write_text('{"doc_key": "st/1", "sentences": [["ann"]]}\n')
    (tmp_path / "text.doc").write_text("Ann wrote.")
    for name, *values in [
        ("open.conll", f"{tmp_path / 'open.conll'}", "must close"),
        ("bare.jsonlines", "clusters", "st/1"),
        ("text.doc", "must end in", "text.doc"),
    ]:
        with pytest.raises(SystemExit) as stop:
            in_process(
                "--task=coreference", f"--preset={preset}", f"--output={tmp_path / 'run'}",
                f"--train_data={tmp_path / name}", *SIZES,
            )  # fmt: skip
        check_mistake(stop.value.code, capsys.readouterr().err.splitlines()[-1], *values)
