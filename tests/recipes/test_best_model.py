"""Every recipe writes files that agree, uses the best model, and resumes on the same data."""

import shutil

import pytest
from comparisons import assert_close
from small_runs import TASKS, start
from train_script import check_fails, run_and_capture, run_in_process

from keras_spanbert import files
from keras_spanbert.recipes.recipe import find_recipe
from keras_spanbert.tasks import model_class

pytestmark = pytest.mark.usefixtures("untraced")
# The endings of predictions that each task writes.
ENDINGS = {
    "classification": "csv",
    "relation_extraction": "txt",
    "multiple_choice": "csv",
    "token_classification": "jsonl",
    "coreference": "jsonlines",
    "question_answering": "json",
}


def test_patience_stops_a_run_for_good(tmp_path, monkeypatch, capsys):
    recipe = find_recipe("classification")
    evaluate, steps = recipe.evaluate, []

    def by_step(model, examples):
        scores = [10.0, 60.0, 60.0, 50.0, 90.0, 90.0]
        steps.append(len(steps) + 1)
        return {**evaluate(model, examples), "score": scores[steps[-1] - 1]}

    monkeypatch.setattr(recipe, "evaluate", by_step)
    flags = [*start("classification", tmp_path)[1], "--steps=6", "--eval_every=1", "--patience=2"]
    output = tmp_path / "run"
    run_in_process(*flags, "--checkpoint_every=1", "--keep_checkpoints=9", f"--output={output}")
    assert steps == [1, 2, 3, 4]  # An equal score is no improvement.
    assert "Stopping: 2 evaluations without a better score" in capsys.readouterr().out
    for kept in [4, 3]:  # All done, and killed before the last step.
        shutil.rmtree(output / "checkpoints" / f"step-{kept + 1}", ignore_errors=True)
        steps[:] = steps[:kept]
        run_in_process("--resume", f"--output={output}")
        assert steps == [1, 2, 3, 4]
        metrics = files.read_json(output / "metrics.json")
        assert (metrics["steps"], metrics["best_step"], metrics["score"]) == (4, 3, 60.0)


@pytest.mark.parametrize("task", TASKS)
def test_files_predictions_and_export_are_of_the_best_model(task, tmp_path, monkeypatch):
    recipe, cls, used = find_recipe(task), model_class(task), []
    evaluate, predict, scores = recipe.evaluate, recipe.predict, [90.0, 10.0]

    def falling(model, examples):
        found = evaluate(model, examples)
        return {**found, model.best_score: scores.pop(0)}

    def record(model, examples):
        used.append(model)
        predict(model, examples)

    monkeypatch.setattr(recipe, "evaluate", falling)
    monkeypatch.setattr(recipe, "predict", record)
    monkeypatch.setattr(
        "keras_spanbert.recipes.fit.export_saved_model", lambda model, *_, **__: used.append(model)
    )
    run, predictions = tmp_path / "run", tmp_path / f"out.{ENDINGS[task]}"
    _, flags = start(task, tmp_path)
    (data,) = [flag for flag in flags if flag.startswith("--eval_data=")]
    flags += [data.replace("eval", "predict"), f"--predictions={predictions}", f"--output={run}"]
    flags += ["--learning_rate=1e-2", "--steps=2", "--eval_every=1", "--dropout=0.2"]
    out, _ = run_and_capture(*flags, f"--export={tmp_path / 'served'}")
    assert scores == [] and len(used) == 2 and predictions.stat().st_size > 0
    best = cls.from_preset(str(run))
    assert best.backbone.dropout == 0.2
    for model in used:
        assert_close(model.weights, best.weights, 1e-6)
    assert f"the head of {cls.__name__}, which starts from random weights" in out
    assert "To train: 2 steps, each with 4 of " in out and f"{predictions}" in out
    assert " 90.00" in out and out.splitlines()[-1].endswith(f"loss.png to {run}")
    names = {path.name for path in run.iterdir()}
    assert {"metrics.json", "history.csv", "run.json", "loss.png", "task.json"} <= names
    final, rows = files.read_json(run / "metrics.json"), files.read_csv(run / "history.csv")
    score = final["best_score"]
    assert (score, final["best_step"], final[score]) == (best.best_score, 1, 90.0)
    assert [(row["step"], row[score]) for row in rows] == [("1", "90.0"), ("2", "10.0")]
    assert files.read_json(run / "run.json")["flags"]["batch_size"] == 4


@pytest.mark.usefixtures("one_layer")
def test_changed_text_is_refused(tmp_path, capsys):
    path = tmp_path / "text.txt"
    path.write_text("One two three four five six seven eight. Nine ten. " * 40)
    run = f"--output={tmp_path / 'run'}"
    run_in_process(
        f"--train_data={path}", f"--eval_data={path}", run, "--steps=2", "--batch_size=2",
        "--sequence_length=16", "--vocabulary_size=100", "--eval_steps=1", "--checkpoint_every=1",
    )  # fmt: skip
    path.write_text(path.read_text() + "Eleven.")
    check_fails(capsys, ["--resume", run], f"{path}, which has changed")
