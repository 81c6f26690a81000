"""After training, every recipe predicts and exports with the model whose score was best."""

import keras
import numpy as np
import pytest
import squad_runs
from small_runs import TASKS
from train_script import run_in_process, save_encoder

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


def flags_of(task, folder):
    if task == "question_answering":
        preset = squad_runs.save_preset(folder / "preset")
        path, flags = squad_runs.write_squad(folder / "data.json", 12, seed=1), squad_runs.SIZES
    else:
        path, tiny, flags = TASKS[task](folder)
        keras.utils.set_random_seed(1)
        preset = save_encoder(folder / "preset", tiny.build().backbone, tiny.VOCABULARY)
    data = [f"--{name}={path}" for name in ["train_data", "eval_data", "predict_data"]]
    return [
        f"--task={task}", f"--preset={preset}", *data, *flags, "--batch_size=4",
        "--learning_rate=1e-2", "--steps=2", "--eval_every=1", f"--output={folder / 'run'}",
        f"--predictions={folder / f'out.{ENDINGS[task]}'}", f"--export={folder / 'served'}",
    ]  # fmt: skip


@pytest.mark.once("torch")
@pytest.mark.parametrize("task", [*TASKS, "question_answering"])
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
    run_in_process(*flags_of(task, tmp_path))
    assert scores == [] and len(used) == 2
    best = cls.from_preset(str(tmp_path / "run"))
    for model in used:
        for mine, theirs in zip(model.weights, best.weights, strict=True):
            np.testing.assert_allclose(
                keras.ops.convert_to_numpy(mine), keras.ops.convert_to_numpy(theirs), atol=1e-6
            )
