"""Every public callback of Keras with every task and its default `compile()`; configs; clones."""

import inspect

import keras
import numpy as np
import pytest
import tiny_pretrainer
import tiny_resolver
from comparisons import assert_close
from tiny_tasks import TASKS

import keras_spanbert as ks

TORCH = keras.backend.backend() == "torch"
# The first needs Orbax, which is not a requirement.
LEFT_OUT = {"OrbaxCheckpoint", "CallbackList"}
NAMES = sorted(
    name
    for name, cls in vars(keras.callbacks).items()
    if isinstance(cls, type) and name not in LEFT_OUT
)
ALL = [*TASKS, "pretraining", "coreference"]


def task(name):
    """Returns a task's model, and its rows for `fit`."""
    if name == "pretraining":
        model = tiny_pretrainer.build(objectives={"next_sentence": True})
        return model, (tiny_pretrainer.texts(10), None)
    if name == "coreference":
        return tiny_resolver.build(), ([tiny_resolver.document()] * 2, None)
    return TASKS[name].build(), TASKS[name].forms["lists"]


def make(name, folder):
    """Returns a callback."""
    arguments = {
        "BackupAndRestore": [folder / "backup"],
        "CSVLogger": [folder / "log.csv"],
        "EarlyStopping": ["loss"],
        "LambdaCallback": [lambda epoch, logs: (folder / f"{epoch}.txt").touch()],
        "LearningRateScheduler": [lambda epoch, rate: rate / 2],
        "ModelCheckpoint": [folder / "best.keras", "loss"],
        "ReduceLROnPlateau": ["loss", 0.5, 1],
        "RemoteMonitor": ["http://localhost:1"],
        "TensorBoard": [folder / "board"],
    }.get(name, [])
    options = {
        "EarlyStopping": {"restore_best_weights": True},
        "ModelCheckpoint": {"save_best_only": True},
        "ReduceLROnPlateau": {"min_delta": 1e9},
        "SwapEMAWeights": {"swap_on_epoch": True},
    }.get(name, {})
    return getattr(keras.callbacks, name)(*arguments, **options)


@pytest.mark.once("torch")
@pytest.mark.parametrize("of_task", ALL)
def test_configs_have_all_arguments(of_task):
    model, _ = task(of_task)
    for thing in [model, model.preprocessor]:
        arguments = {*inspect.signature(type(thing).__init__).parameters} - {"self", "kwargs"}
        arguments.update(getattr(thing, "masking_config", {}))
        assert arguments <= thing.get_config().keys()


# The tests of two tasks on PyTorch are quick, as nothing is compiled.
QUICK = ["texts", "coreference"] if TORCH else []


@pytest.mark.filterwarnings("ignore:Could not reach RemoteMonitor")
@pytest.mark.parametrize(
    "of_task", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in ALL]
)
def test_callbacks(of_task, tmp_path):
    model, (x, y) = task(of_task)
    model.optimizer.use_ema = True  # For `SwapEMAWeights`.
    first = float(model.optimizer.learning_rate)
    callbacks = [make(name, tmp_path) for name in NAMES]
    data = {"validation_data": (x, y), "batch_size": 5} if of_task != "coreference" else {}
    history = model.fit(x, y, epochs=2, callbacks=callbacks, verbose=0, **data)
    assert len(history.epoch) == 2 and np.isfinite(history.history["loss"]).all()
    # `LearningRateScheduler` and `ReduceLROnPlateau` change it.
    assert float(model.optimizer.learning_rate) == pytest.approx(first * 0.25 * 0.5)
    for name in ["log.csv", "1.txt", "best.keras", "board/train"]:
        assert (tmp_path / name).exists(), name


@pytest.mark.once("torch")
def test_list_of_callbacks():
    model, (x, y) = task("texts")
    callbacks = keras.callbacks.CallbackList(
        [callback() for callback in model.string_callbacks], add_history=True, model=model
    )
    history = model.fit(x, y, epochs=2, callbacks=callbacks, verbose=0)
    assert len(history.epoch) == 2


@pytest.mark.parametrize("of_task", ALL)
def test_clone_takes_the_weights_in_order(of_task):
    model, (x, y) = task(of_task)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    arrays = model.preprocess(x, y)[0]
    arrays = {name: arrays[name] for name in model.input}
    assert_close(*(each(arrays, training=False) for each in [clone, model]), atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}], ids=str)
def test_training_after_the_decay_is_logged_once(options, caplog):
    model, (x, y) = task("texts")
    model.compile(ks.AdamW(ks.LinearWarmupDecay(1e-3, 1, 4), **options))
    for epochs, expected in [(2, []), (3, ["in the last 2 of 6 steps"])]:  # Two steps per epoch.
        model.fit(x, y, batch_size=5, epochs=epochs, verbose=0, callbacks=keras.callbacks.History())
        found = [message for message in caplog.messages if "learning rate was 0" in message]
        assert len(found) == len(expected) and all(text in found[0] for text in expected)


@pytest.mark.once("torch")
def test_averages_of_weights_need_an_optimizer_that_has_them():
    model, (x, y) = task("texts")
    swap = keras.callbacks.SwapEMAWeights()
    with pytest.raises(ValueError, match="`SwapEMAWeights` needs .* Received: use_ema=False"):
        model.fit(x, y, callbacks=[[swap]], verbose=0)
    model.compile(keras.optimizers.LossScaleOptimizer(ks.AdamW()))
    with pytest.raises(ValueError, match="Received: use_ema=False"):
        model.fit(x, y, callbacks=swap, verbose=0)
    model.compile(ks.AdamW(use_ema=True))
    model.fit(x, y, callbacks=swap, verbose=0)
