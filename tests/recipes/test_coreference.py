"""`train.py --task=coreference` as its users run it."""

import csv
import json
import os
import shutil

import keras
import numpy as np
import pytest
from train_script import check_alone, check_mistake, in_process, printed

import keras_spanbert as ks
from keras_spanbert import metrics
from keras_spanbert.data import coreference

# The run of `trained`, made for all tests of the module, is traced.
pytestmark = pytest.mark.usefixtures("untraced")

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
    out, err = printed(
        "--task=coreference", f"--preset={preset}", f"--output={folder / 'run'}",
        f"--train_data={folder / 'train.conll'}", f"--eval_data={folder / 'dev.conll'}",
        f"--predict_data={folder / 'dev.conll'}", f"--predictions={folder / 'found.conll'}",
        "--epochs=4", "--learning_rate=3e-3", "--head_learning_rate=5e-3", *SIZES,
    )  # fmt: skip
    return folder, out


@pytest.mark.once
def test_run_learns_and_its_files_agree(trained):
    folder, out = trained
    final = json.loads((folder / "run" / "metrics.json").read_text())
    assert final["average_f1"] > 85.0 and final["total"] == 10
    assert f"average F1 {final['average_f1']:.2f}, on 10 examples" in out
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


@pytest.mark.once
def test_clusters_of_a_text_are_shown_and_written(trained, tmp_path, capsys):
    folder, _ = trained
    text = "ann wrote it. she read it.\n\nbob saw it. he sold it. she saw it.\n"
    (tmp_path / "story.txt").write_text(text)
    in_process(
        "--task=coreference", f"--preset={folder / 'run'}", f"--output={tmp_path / 'out'}",
        f"--predict_data={tmp_path / 'story.txt'}", f"--html={tmp_path / 'story.html'}",
        f"--predictions={tmp_path / 'found.jsonl'}",
    )  # fmt: skip
    out = capsys.readouterr().out
    (row,) = map(json.loads, (tmp_path / "found.jsonl").read_text().splitlines())
    names = {tuple(mention["text"] for mention in cluster) for cluster in row["clusters"]}
    assert {("ann", "she", "she"), ("bob", "he")} <= names
    assert all(text[m["start"] : m["end"]] == m["text"] for c in row["clusters"] for m in c)
    assert f"{tmp_path / 'story.txt'}:\n1. ann (0 to 3), 3 mentions: she (14 to 17)" in out
    page = (tmp_path / "story.html").read_text()
    assert "<title>story.txt" in page and page.count("data-cluster=") > len(row["clusters"])
    # Shown alone, without a file.
    in_process(
        "--task=coreference", f"--preset={folder / 'run'}", f"--output={tmp_path / 'out2'}",
        f"--predict_data={tmp_path / 'st*y.txt'}", "--genre=st",
    )  # fmt: skip
    assert "1. ann (0 to 3)" in capsys.readouterr().out


@pytest.mark.once
def test_gap_is_scored_and_predicted(trained, tmp_path, capsys):
    folder, _ = trained
    header = "ID Text Pronoun Pronoun-offset A A-offset A-coref B B-offset B-coref URL".split()
    rows = [header]
    for i, (pronoun, is_a) in enumerate([("she", True), ("he", False), ("she", True)]):
        text = f"ann wrote it. bob saw it. {pronoun} read it."
        labels = [str(is_a).upper(), str(not is_a).upper()]
        rows.append([
            f"test-{i}", text, pronoun, "26", "ann", "0", labels[0], "bob", "14", labels[1], "u"
        ])  # fmt: skip
    data = tmp_path / "gap.tsv"
    data.write_text("".join("\t".join(row) + "\n" for row in rows))
    in_process(
        "--task=coreference", f"--preset={folder / 'run'}", f"--output={tmp_path / 'out'}",
        f"--eval_data={data}", f"--predict_data={data}", f"--predictions={tmp_path / 'found.tsv'}",
    )  # fmt: skip
    found = [line.split("\t") for line in (tmp_path / "found.tsv").read_text().splitlines()]
    assert found == [[row[0], row[6], row[9]] for row in rows[1:]]
    assert (
        "overall F1 100.00, masculine F1 100.00, feminine F1 100.00, bias 1.000, on 3 pronouns"
        in (capsys.readouterr().out)
    )
    scores = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert scores["overall"]["f1"] == 100.0


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


@pytest.mark.once
@pytest.mark.parametrize(
    "flags, values",
    [
        (["--train_data={}/a.txt"], ["--train_data", "documents with clusters"]),
        (["--train_data={}/a.conll", "--eval_data={}/a.tsv"], ["--eval_data", "documents"]),
        (["--predict_data={}/a.txt,{}/a.conll", "--predictions={}/b.jsonl"], ["must be all"]),
        (["--predict_data={}/a.txt", "--predictions={}/b.conll"], ["--predictions", ".jsonl"]),
        (["--predict_data={}/a.tsv", "--predictions={}/b.conll"], ["--predictions", ".tsv"]),
        (["--predict_data={}/a.conll"], ["--predictions"]),
        (["--predict_data={}/a.conll", "--predictions={}/b.conll", "--html={}/c"], ["--html"]),
        (["--predict_data={}/a.txt", "--html={}/a.conll"], ["--html must be", "new file"]),
        (["--predict_data={}/a.txt", "--max_spans=0"], ["--max_spans"]),
        (["--predict_data={}/*.txt", "--html={}/c.html"], ["--html shows one text", "2 files"]),
        (["--predict_data={}/preset"], ["must end in", ".txt.gz"]),
    ],
)
def test_mistakes_in_flags_are_told_before_anything_is_read(tmp_path, flags, values, capsys):
    for name in ["a.txt", "b.txt", "a.conll", "a.tsv"]:
        (tmp_path / name).touch()
    (tmp_path / "preset").mkdir()
    flags = [flag.replace("{}", str(tmp_path)) for flag in flags]
    with pytest.raises((ValueError, SystemExit)) as mistake:
        check_alone("--task=coreference", f"--preset={tmp_path / 'preset'}", *flags)
    told = str(mistake.value) + capsys.readouterr().err
    for value in values:
        assert value in told.replace("`", "")


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
        ("text.doc", "must end in", ".conll", "text.doc"),
    ]:
        flag = "--eval_data" if name == "bare.jsonlines" else "--train_data"
        with pytest.raises(SystemExit) as stop:
            in_process(
                "--task=coreference", f"--preset={preset}", f"--output={tmp_path / 'run'}",
                f"--train_data={good}", f"{flag}={tmp_path / name}", *SIZES,
            )  # fmt: skip
        check_mistake(stop.value.code, capsys.readouterr().err.splitlines()[-1], *values)
