"""Runs of `train.py --task=classification`."""

import json

import pytest
from tiny_classifier import build_multi_label, multi_label_rows
from tiny_tasks import with_large_weights
from train_script import run_in_process

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.recipes import classification

TASK = "--task=classification"


@pytest.mark.parametrize(
    "name, flag, label",
    [
        ("train.tsv", "eval_data", "1"),
        ("rows.tsv", "train_data", "1"),
        ("test.tsv", "eval_data", None),
        ("rows.tsv", "predict_data", None),
    ],
)
def test_name_or_flag_of_a_file_is_its_split_of_glue(flags, folder, name, flag, label):
    flags(dataset="sst-2")
    (folder / name).write_text(
        "sentence\tlabel\nfine\t1\n" if label else "index\tsentence\n0\tfine\n"
    )
    (example,) = classification.read([name], flag, None)
    assert (example["text"], example["label"]) == ("fine", label)
    assert classification.model_arguments([example])["class_names"] == ["0", "1"]


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
