"""Runs of `train.py --task=question_answering`."""

import os

import pytest
from small_runs import start, write_squad
from train_script import StoppedError, run_in_process, stop

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.data import squad

pytestmark = pytest.mark.usefixtures("untraced")

TASK = "--task=question_answering"


@pytest.fixture(scope="module")
def trained(trained_answerer, tmp_path_factory):
    """A folder with questions, the preset of a trained model, its answers and scores."""
    folder = tmp_path_factory.mktemp("trained")
    examples = squad.read(write_squad(folder / "dev.json", 40, seed=2))
    trained_answerer.save_to_preset(folder / "run")
    answers = trained_answerer.answer(examples.questions, examples.contexts)
    answers = {name: found[0]["answer"] for name, found in zip(examples.ids, answers)}
    files.write_json(folder / "answers.json", answers)
    files.write_json(folder / "metrics.json", trained_answerer.evaluate_squad(examples))
    return folder


@pytest.mark.parametrize("output", [[], ["--output=out"]])
def test_questions_without_answers_are_predicted(trained, folder, capsys, output):
    content = files.read_json(trained / "dev.json")
    for paragraph in content["data"][0]["paragraphs"]:
        del paragraph["qas"][0]["answers"]
    files.write_json("questions.json", content)
    flags = [f"--preset={trained / 'run'}", "--predict_data=questions.json"]
    run_in_process(TASK, *flags, "--predictions=answers.json", *output)
    assert files.read_json("answers.json") == files.read_json(trained / "answers.json")
    for name, found in files.read_json("answers.nbest.json").items():
        assert found[0]["answer"] == files.read_json("answers.json")[name]
        assert sum(item["score"] for item in found) == pytest.approx(1.0)
    # A folder is written only if --output is given.
    names = ["answers.json", "answers.nbest.json", *(["out"] if output else []), "questions.json"]
    assert sorted(os.listdir()) == names
    last = capsys.readouterr().out.splitlines()[-1]
    if output:
        assert last == "Wrote metrics.json, run.json to out"
    else:
        assert last.startswith("Wrote 40 answers to answers.json")


def test_question_about_a_text_is_answered_on_stdout(trained, folder, capsys):
    (folder / "story.txt").write_bytes(b"it and ann wrote it and sold it.\n\xe9")
    flags = ["--question=who wrote it", "--predict_data=*", "--encoding_errors=replace"]
    run_in_process(TASK, f"--preset={trained / 'run'}", *flags)
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("story.txt:")
    assert lines[at + 1].startswith("  ann  ") and lines[at + 1].endswith("%")
    assert [line[:2] for line in lines[at + 1 : at + 5]] != ["  "] * 4  # The three best answers.
    assert lines[-1] == "Wrote no file. --predictions=FILE writes the predictions to a file"
    assert os.listdir() == ["story.txt"]


def test_export_without_training(trained, folder, monkeypatch):
    monkeypatch.setattr("keras_spanbert.recipes.fit.export_saved_model", stop)
    with pytest.raises(StoppedError) as error:
        run_in_process(TASK, f"--preset={trained / 'run'}", "--export=served", "--output=again")
    model, path = error.value.args
    assert path == "served/1" and error.value.kwargs == {"max_answer_length": 30}
    # With the windows of the preset, not the defaults of the flags.
    flags = files.read_json("again/run.json")["flags"]
    assert model.preprocessor.sequence_length == flags["sequence_length"] == 24
    assert model.preprocessor.doc_stride == flags["doc_stride"] == 8


def test_unanswerable_questions_set_the_threshold(folder):
    _, flags = start("question_answering", folder)
    write_squad(folder / "a.json", 60, seed=3, unanswerable=30)
    flags += ["--train_data=a.json", "--eval_data=a.json", "--output=run", "--steps=4"]
    run_in_process(*flags, "--batch_size=16")
    scores = files.read_json("run/metrics.json")
    assert scores["NoAns_total"] == 30 and scores["HasAns_total"] == 30
    assert scores["f1"] == pytest.approx(scores["best_f1"]) and scores["f1"] >= 50.0
    answerer = ks.SpanBertQuestionAnswerer.from_preset("run")
    assert answerer.null_threshold == pytest.approx(scores["best_f1_thresh"])
