"""Runs of `train.py --task=classification`."""

import json

import pytest
from tiny_classifier import VOCABULARY, build, build_multi_label, multi_label_rows, rows
from tiny_tasks import with_large_weights
from train_script import run_in_process, save_encoder

import keras_spanbert as ks
from keras_spanbert import files

TASK = "--task=classification"


def write_sst(path, count, seed, has_labels=True):
    header = "sentence\tlabel\n" if has_labels else "index\tsentence\n"
    columns = enumerate(zip(*rows(count, seed)))
    lines = [f"{t}\t{int(y == 'good')}\n" if has_labels else f"{i}\t{t}\n" for i, (t, y) in columns]
    path.write_text("".join([header, *lines]))


def test_benchmark_layout_scores_and_submission(folder):
    save_encoder(folder / "preset", build().backbone, VOCABULARY)
    write_sst(folder / "train.tsv", 64, seed=1)
    write_sst(folder / "dev.tsv", 16, seed=2)
    write_sst(folder / "test.tsv", 5, seed=3, has_labels=False)
    run_in_process(
        TASK, "--dataset=sst-2", "--preset=preset", "--output=run", "--train_data=train.tsv",
        "--eval_data=dev.tsv", "--predict_data=test.tsv", "--predictions=SST-2.tsv", "--steps=4",
        "--batch_size=16", "--sequence_length=16",
    )  # fmt: skip
    final = files.read_json("run/metrics.json")
    assert final["score"] == final["accuracy"] and final["total"] == 16
    lines = (folder / "SST-2.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 6
    assert {line.split("\t")[1] for line in lines[1:]} <= {"0", "1"}


@pytest.mark.parametrize("ending, other", [("csv", "jsonl"), ("jsonl", "csv")])
def test_multi_label_preset_is_recognized(folder, capsys, ending, other):
    """Labels are lists in JSON lines. In tables they are joined."""
    with_large_weights(build_multi_label()).save_to_preset("preset")
    texts, labels = multi_label_rows(40)
    given = [{"id": f"t{i}", "text": t, "label": y} for i, (t, y) in enumerate(zip(texts, labels))]
    data, predictions = f"dev.{ending}", f"found.{other}"
    if ending == "csv":
        files.write_csv(data, [{**row, "label": "|".join(row["label"])} for row in given])
    else:
        files.write_json_lines(data, given)
    flags = ["--preset=preset", "--output=run", "--id_column=id", "--selection_metric=macro_f1"]
    flags += [f"--eval_data={data}", f"--predict_data={data}", f"--predictions={predictions}"]
    run_in_process(TASK, *flags)
    model = ks.SpanBertTextClassifier.from_preset("preset")
    answers = [
        {n: answer["scores"][n] for n in answer["labels"]} for answer in model.classify(texts)
    ]
    if other == "csv":
        found = files.read_csv(predictions)
        expected = [
            {"labels": "|".join(x), "scores": "|".join(map(str, x.values()))} for x in answers
        ]
    else:
        found = [json.loads(line) for line in (folder / predictions).read_text().splitlines()]
        expected = [{"labels": list(x), "scores": list(x.values())} for x in answers]
    assert found == [{"id": row["id"], **x} for row, x in zip(given, expected)]
    final = files.read_json("run/metrics.json")
    assert final == model.evaluate_texts(given, selection_metric="macro_f1")
    assert final["score"] == final["macro_f1"] != final["micro_f1"] > 0
    assert f"micro F1 {final['micro_f1']:.2f}" in capsys.readouterr().out
