"""Runs of `train.py --task=multiple_choice`."""

import csv
import json

import numpy as np
import pytest
from tiny_chooser import build, examples
from tiny_tasks import with_large_weights
from train_script import run_in_process

import keras_spanbert as ks
from keras_spanbert import data, files

TASK = "--task=multiple_choice"


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """A preset with large weights, so that answers differ clearly."""
    folder = tmp_path_factory.mktemp("preset")
    with_large_weights(build()).save_to_preset(folder)
    return folder


def test_json_lines_with_choice_lists_and_contexts(preset, folder):
    rows = examples(5, seed=2)
    given = [{"q": x["prompt"], "answers": x["choices"], "story": "it and it"} for x in rows]
    files.write_json_lines("test.jsonl", given)
    columns = ["--question_column=q", "--choice_columns=answers", "--context_column=story"]
    flags = [f"--preset={preset}", "--predict_data=test.jsonl", "--predictions=a.jsonl"]
    run_in_process(TASK, *flags, *columns)
    model = ks.SpanBertMultipleChoice.from_preset(preset)
    prompts, choices = ([row[name] for row in rows] for name in ["prompt", "choices"])
    expected = model.choose(prompts, choices, ["it and it"] * 5)
    found = [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()]
    assert [row["choice"] for row in found] == [answer["choice"] for answer in expected]
    assert [row["id"] for row in found] == ["0", "1", "2", "3", "4"]


# tests/data/test_choices.py tests the formats of all benchmarks.
def test_released_format_and_its_predictions(preset, folder):
    names = ["", "sent1", "sent2", *(f"ending{i}" for i in range(4)), "label"]
    with open("data", "w", newline="") as file:
        rows = examples(6, seed=3, choices=4)
        cells = [[r["id"], "it", r["prompt"], *r["choices"], r["label"]] for r in rows]
        csv.writer(file).writerows([names, *cells])
    flags = ["--eval_data=data", "--predict_data=data", "--predictions=a.csv", "--output=run"]
    run_in_process(TASK, f"--preset={preset}", "--dataset=swag", *flags)
    model = ks.SpanBertMultipleChoice.from_preset(preset)
    read = data.swag.read("data")
    found = model.logits_of(read).argmax(axis=1).tolist()
    scores = files.read_json("run/metrics.json")
    accuracy = np.mean([a == r["label"] for a, r in zip(found, read)])
    assert scores == {"accuracy": pytest.approx(100.0 * accuracy), "total": 6}
    lines = (folder / "a.csv").read_text().splitlines()
    assert lines == [",pred", *(f"{i},{choice}" for i, choice in enumerate(found))]
