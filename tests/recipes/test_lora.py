"""Runs of `train.py --lora_rank`: every task trains its head and LoRA weights, and nothing else."""

import keras
import numpy as np
import pytest
from comparisons import assert_close
from small_runs import TASKS, start
from train_script import check_resumes, run_and_capture, run_in_process

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.tasks import model_class

pytestmark = pytest.mark.usefixtures("untraced")


def run_flags(task, folder):
    """Returns the class of a task, its encoder to start from, and the flags of a run."""
    backbone, flags = start(task, folder)
    return model_class(task), backbone, [*flags, "--lora_rank=2", "--learning_rate=1e-2"]


def changed_weights(backbone, model):
    """Returns the names of the weights in which two encoders differ."""
    return {
        "/".join(mine.path.split("/")[-2:])
        for mine, theirs in zip(model.backbone.weights, backbone.weights, strict=True)
        if np.any(keras.ops.convert_to_numpy(mine) != keras.ops.convert_to_numpy(theirs))
    }


@pytest.mark.once("torch")
@pytest.mark.parametrize("task", TASKS)
def test_every_task_trains_only_query_value_and_head(task, tmp_path):
    cls, backbone, flags = run_flags(task, tmp_path)
    out, _ = run_and_capture(f"--output={tmp_path / 'run'}", *flags, "--steps=3")
    assert " of them trained)" in out and "To train: 3 steps" in out
    trained = cls.from_preset(str(tmp_path / "run"))
    assert changed_weights(backbone, trained) == {"query/kernel", "value/kernel"}
    assert not trained.untrained_heads()
    assert files.read_json(tmp_path / "run" / "run.json")["flags"]["lora_rank"] == 2


@pytest.mark.torch_first
def test_question_answering_resumes_and_is_exported_without_lora(tmp_path, capsys, monkeypatch):
    cls, encoder, flags = run_flags("question_answering", tmp_path)
    flags += ["--steps=6"]
    more = ["--eval_every=3", "--checkpoint_every=2"]
    check_resumes(capsys, tmp_path / "run", cls, [*flags, *more], kept=[2, 4, 6], steps=[3, 6])

    # Without an evaluation, the model of the last step is exported.
    exported = []
    monkeypatch.setattr(
        "keras_spanbert.recipes.fit.export_saved_model", lambda x, *_, **__: exported.append(x)
    )
    flags = [flag for flag in flags if not flag.startswith("--eval_data")]
    run_in_process(*flags, f"--output={tmp_path / 'last'}", f"--export={tmp_path / 'served'}")
    (model,) = exported
    saved = cls.from_preset(str(tmp_path / "last"))
    assert_close(model.weights, saved.weights, 1e-6)
    assert changed_weights(encoder, saved) == {"query/kernel", "value/kernel"}


@pytest.mark.once("torch")
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_quantized_presets_are_trained_as_float_models(tmp_path, without_collections):
    cls, _, flags = run_flags("classification", tmp_path)
    run_in_process(f"--output={tmp_path / 'run'}", *flags, "--steps=1")
    model = cls.from_preset(str(tmp_path / "run"))
    model.quantize("int8")
    model.save_to_preset(str(tmp_path / "int8"))
    run_in_process(
        *flags, f"--preset={tmp_path / 'int8'}", f"--output={tmp_path / 'again'}", "--steps=1"
    )
    again = cls.from_preset(str(tmp_path / "again"))
    encoder = ks.SpanBertBackbone.from_preset(str(tmp_path / "int8"), dtype="float32")
    assert changed_weights(encoder, again) == {"query/kernel", "value/kernel"}
