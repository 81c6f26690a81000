"""`train.py --task=question_answering` as its users run it."""

import csv
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from squad_runs import SIZES, VOCABULARY, save_preset, write_squad
from train_script import check_mistake, in_process, run

import keras_spanbert as ks
from keras_spanbert import files, metrics
from keras_spanbert.data import squad

# The run of `trained` is traced, in a process of its own: all that it writes to stderr counts.
pytestmark = pytest.mark.usefixtures("untraced")


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    return save_preset(tmp_path_factory.mktemp("preset") / "preset")


@pytest.fixture(scope="module")
def trained(preset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_squad(folder / "train.json", 200, seed=1)
    write_squad(folder / "dev.json", 40, seed=2)
    code, out, err = run(
        "--task=question_answering", f"--preset={preset}", f"--output={folder / 'run'}",
        f"--train_data={folder / 'train.json'}", f"--eval_data={folder / 'dev.json'}",
        f"--predict_data={folder / 'dev.json'}", f"--predictions={folder / 'answers.json'}",
        f"--export={folder / 'served'}", "--epochs=6", "--learning_rate=5e-3", *SIZES,
    )  # fmt: skip
    assert code == 0, err
    return folder, out, err


@pytest.mark.once
def test_run_learns_and_its_files_agree(trained, preset):
    folder, out, err = trained
    assert err == (
        f"train.py: {preset} has no weights for the head of SpanBertQuestionAnswerer, which "
        "starts fresh\n"
    )
    dataset = json.loads((folder / "dev.json").read_text())
    predictions = json.loads((folder / "answers.json").read_text())
    scores = metrics.squad(dataset, predictions)
    final = json.loads((folder / "run" / "metrics.json").read_text())
    assert scores["f1"] > 90.0
    assert {name: final[name] for name in scores} == scores
    assert f"exact match {scores['exact']:.2f}, F1 {scores['f1']:.2f}, on 40 examples" in out
    with open(folder / "run" / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    # 6 * 200 / 16 steps, an evaluation each 13.
    assert [row["step"] for row in rows] == ["13", "26", "39", "52", "65", "75"]
    assert max(float(row["f1"]) for row in rows) == pytest.approx(scores["f1"])
    n_best = json.loads((folder / "answers.nbest.json").read_text())
    for name, found in n_best.items():
        assert found[0]["answer"] == predictions[name]
        assert sum(item["score"] for item in found) == pytest.approx(1.0)
    written = {path.name for path in (folder / "run").iterdir()}
    assert {"metrics.json", "history.csv", "run.json", "loss.png", "task.json"} <= written
    record = json.loads((folder / "run" / "run.json").read_text())
    assert record["flags"]["sequence_length"] == 24 and record["flags"]["beta_2"] == 0.999


@pytest.mark.once
def test_exported_model_gives_the_predictions(trained):
    folder, out, _ = trained
    assert f"Wrote the SavedModel {folder / 'served' / '1'}" in out
    served = tf.saved_model.load(str(folder / "served" / "1")).signatures["serving_default"]
    examples = squad.read([folder / "dev.json"])
    outputs = served(
        question=tf.constant(examples.questions), context=tf.constant(examples.contexts)
    )
    predictions = json.loads((folder / "answers.json").read_text())
    answers = [answer.decode() for answer in outputs["answer"].numpy()]
    assert answers == [predictions[name] for name in examples.ids]


@pytest.mark.once
def test_export_writes_the_next_version_of_a_preset_as_it_is(trained, tmp_path, capsys):
    folder, *_ = trained
    for name in ["1", "9", "10", "notes"]:
        (tmp_path / "served" / name).mkdir(parents=True)
    in_process(
        "--task=question_answering", f"--preset={folder / 'run'}",
        f"--export={tmp_path / 'served'}", f"--output={tmp_path / 'again'}",
    )  # fmt: skip
    # With the preset's own windows, not the flags' defaults.
    record = json.loads((tmp_path / "again" / "run.json").read_text())
    assert record["flags"]["sequence_length"] == 24 and record["flags"]["doc_stride"] == 8
    assert (tmp_path / "served" / "11" / "saved_model.pb").is_file()
    assert len(list((tmp_path / "served").iterdir())) == 5


@pytest.mark.once
def test_saved_preset_is_the_best_of_the_run(trained, tmp_path, capsys):
    folder, *_ = trained
    in_process(
        "--task=question_answering", f"--preset={folder / 'run'}",
        f"--eval_data={folder / 'dev.json'}", f"--output={tmp_path / 'again'}", *SIZES,
    )  # fmt: skip
    again = json.loads((tmp_path / "again" / "metrics.json").read_text())
    final = json.loads((folder / "run" / "metrics.json").read_text())
    assert {name: final[name] for name in again} == again
    assert not (tmp_path / "again" / "task.json").exists()


@pytest.mark.once
def test_better_preset_takes_the_place_of_the_one_before(preset, tmp_path):
    # As where F1 rises from one evaluation to the next.
    for threshold in [1.0, 2.0]:
        answerer = ks.SpanBertQuestionAnswerer.from_preset(
            preset,
            preprocessor=ks.SpanBertQuestionAnswererPreprocessor.from_preset(
                preset, sequence_length=24, doc_stride=8, max_question_length=6
            ),
        )
        answerer.null_threshold = threshold
        with files.added_to_folder(tmp_path) as folder:
            answerer.save_to_preset(folder)
    again = ks.SpanBertQuestionAnswerer.from_preset(tmp_path)
    assert again.null_threshold == 2.0
    assert again.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_run_that_goes_on_ends_like_the_one_before(preset, tmp_path, capsys):
    data = write_squad(tmp_path / "data.json", 40, seed=1)
    in_process(
        "--task=question_answering", f"--preset={preset}", f"--output={tmp_path / 'run'}",
        f"--train_data={data}", f"--eval_data={data}", "--steps=8", "--eval_every=3",
        "--checkpoint_every=2", *SIZES,
    )  # fmt: skip
    history, weights = read_run(tmp_path / "run")
    # Steps 2 and 4, then 6 behind its evaluation, and 8.
    checkpoints = tmp_path / "run" / "checkpoints"
    assert sorted(os.listdir(checkpoints)) == [".lock", "step-4", "step-6", "step-8"]
    shutil.rmtree(checkpoints / "step-6")
    shutil.rmtree(checkpoints / "step-8")
    capsys.readouterr()
    in_process(f"--output={tmp_path / 'run'}", "--resume")
    assert "Going on from step 4" in capsys.readouterr().out
    again, weights_again = read_run(tmp_path / "run")
    assert [row["step"] for row in again] == ["3", "6", "8"]
    for row, before in zip(again, history):
        assert float(row["loss"]) == pytest.approx(float(before["loss"]), abs=1e-5)
        assert float(row["f1"]) == float(before["f1"])
    for array, before in zip(weights_again, weights):
        np.testing.assert_allclose(array, before, atol=1e-5)


def read_run(output):
    """Rows of the history, and the weights of the preset."""
    with open(output / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return rows, ks.SpanBertQuestionAnswerer.from_preset(str(output)).get_weights()


@pytest.mark.once
def test_questions_without_answer_set_the_threshold_of_the_preset(preset, tmp_path):
    write_squad(tmp_path / "train.json", 60, seed=3, unanswerable=30)
    in_process(
        "--task=question_answering", f"--preset={preset}",
        f"--output={tmp_path / 'run'}", f"--train_data={tmp_path / 'train.json'}",
        f"--eval_data={tmp_path / 'train.json'}", "--steps=4", *SIZES,
    )  # fmt: skip
    scores = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert scores["NoAns_total"] == 30 and scores["HasAns_total"] == 30
    assert scores["f1"] == pytest.approx(scores["best_f1"]) and scores["f1"] >= 50.0
    answerer = ks.SpanBertQuestionAnswerer.from_preset(tmp_path / "run")
    assert answerer.null_threshold == pytest.approx(scores["best_f1_thresh"])


@pytest.mark.once
def test_mrqa_is_scored_on_all_of_its_answers(trained, tmp_path, capsys):
    folder, *_ = trained
    examples = squad.read([folder / "dev.json"])
    with open(tmp_path / "dev.jsonl", "w") as file:
        file.write(json.dumps({"header": {"dataset": "Test"}}) + "\n")
        for name, question, context, golds in zip(
            examples.ids, examples.questions, examples.contexts, examples.golds
        ):
            place = context.index(golds[0])
            spans = [{"text": golds[0], "char_spans": [[place, place + len(golds[0]) - 1]]}]
            qa = {"qid": name, "question": question, "answers": ["other", *golds]}
            line = {"context": context, "qas": [{**qa, "detected_answers": spans}]}
            file.write(json.dumps(line) + "\n")
    in_process(
        "--task=question_answering", f"--preset={folder / 'run'}",
        f"--eval_data={tmp_path / 'dev.jsonl'}", f"--output={tmp_path / 'again'}", *SIZES,
    )  # fmt: skip
    again = json.loads((tmp_path / "again" / "metrics.json").read_text())
    final = json.loads((folder / "run" / "metrics.json").read_text())
    assert {name: final[name] for name in again} == again and again["f1"] > 90.0


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments, values",
    [
        (["--eval_data=dev.json"], ["--preset"]),
        (["--preset={preset}"], ["--train_data", "--eval_data", "--predict_data"]),
        (["--preset={preset}", "--predict_data=dev.json"], ["--predictions"]),
        (["--preset={preset}", "--train_data=none.json"], ["none.json"]),
        *(
            (["--preset={preset}", *asked], ["trained head", "--train_data", "qa_outputs"])
            for asked in [
                ["--eval_data=dev.json"],
                ["--predict_data=dev.json", "--predictions=answers.json"],
                ["--export=answers"],
            ]
        ),
        (["--preset={preset}", "--export=bad.json/answers"], ["bad.json/answers"]),
        (["--preset={preset}", "--train_data=dev.json,other.jsonl"], ["dev.json", "other.jsonl"]),
        (["--preset={preset}", "--train_data=bad.json"], ["bad.json, line 1"]),
        (["--preset={preset}", "--train_data=dev.json", "--doc_stride=500"], ["doc_stride=500"]),
        (
            ["--preset={preset}", "--train_data=dev.json", "--sequence_length=48"],
            ["--sequence_length", "24", "48"],
        ),
        (
            ["--preset={preset}", "--train_data=dev.json", "--batch_size=99999"],
            ["--batch_size", "99"],
        ),
        (["--preset={preset}", "--train_data=misplaced.json", "--strict"], ["question 0", "'bob'"]),
        (
            ["--preset={preset}", "--train_data=broken.json"],
            ["broken.json", "(id 5-0)", "lone surrogates"],
        ),
    ],
)
def test_mistake_names_what_is_wrong(preset, tmp_path, capsys, monkeypatch, arguments, values):
    monkeypatch.chdir(tmp_path)
    write_squad(tmp_path / "dev.json", 4, seed=5)
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "other.jsonl").write_text("")
    content = json.loads((tmp_path / "dev.json").read_text())
    question = content["data"][0]["paragraphs"][0]["qas"][0]
    question["answers"] = [{"text": "bob", "answer_start": 700}]
    (tmp_path / "misplaced.json").write_text(json.dumps(content))
    question["question"] = "who \ud800"
    (tmp_path / "broken.json").write_text(json.dumps(content))
    arguments = [argument.format(preset=preset) for argument in arguments]
    names = {argument.split("=")[0] for argument in arguments}
    sizes = [size for size in SIZES if size.split("=")[0] not in names]
    with pytest.raises(SystemExit) as error:
        in_process("--task=question_answering", "--output=out", *sizes, *arguments)
    check_mistake(error.value.code, capsys.readouterr().err, *values)
    assert not (tmp_path / "out").exists()
