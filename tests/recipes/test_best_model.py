"""After training, every recipe predicts and exports with the model whose score was best."""

import keras
import numpy as np
import pytest
from small_runs import TASKS, start
from train_script import run_in_process

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


@pytest.mark.once("torch")
@pytest.mark.parametrize("task", TASKS)
def test_predictions_and_export_use_the_best_model(task, tmp_path, monkeypatch):
    recipe, cls, used = find_recipe(task), model_class(task), []
    evaluate, scores = recipe.evaluate, [90.0, 10.0]

    def falling(model, examples):
        found = evaluate(model, examples)
        return {**found, model.best_score: scores.pop(0)}

    monkeypatch.setattr(recipe, "evaluate", falling)
    monkeypatch.setattr(recipe, "predict", lambda model, _: used.append(model))
    monkeypatch.setattr(
        "keras_spanbert.recipes.fit.export_saved_model", lambda model, *_, **__: used.append(model)
    )
    _, flags = start(task, tmp_path)
    (data,) = [flag for flag in flags if flag.startswith("--eval_data=")]
    run_in_process(
        *flags, data.replace("eval", "predict"), "--learning_rate=1e-2", "--steps=2",
        "--eval_every=1", f"--output={tmp_path / 'run'}", f"--export={tmp_path / 'served'}",
        f"--predictions={tmp_path / f'out.{ENDINGS[task]}'}",
    )  # fmt: skip
    assert scores == [] and len(used) == 2
    best = cls.from_preset(str(tmp_path / "run"))
    for model in used:
        for mine, theirs in zip(model.weights, best.weights, strict=True):
            np.testing.assert_allclose(
                keras.ops.convert_to_numpy(mine), keras.ops.convert_to_numpy(theirs), atol=1e-6
            )
