"""Checkpoints of whole training runs, to go on as if nothing had happened."""

import contextlib
import itertools
import json
import math
import secrets
import threading
import weakref

import keras
import numpy as np

from keras_spanbert import distribution, files, stores
from keras_spanbert.keras_private import set_initial_epoch
from keras_spanbert.runs import checkpoint_parts, torch_generators
from keras_spanbert.runs.checkpoint_folder import PARTS_VERSION, VERSION, open_folder
from keras_spanbert.runs.checkpoint_parts import CheckpointParts, StoredParts

# A value of `stop_training` that is not another callback's.
_CUT = 2


class TrainingCheckpoint(keras.callbacks.Callback):
    """Writes all that a run needs to go on exactly, and restores it.

    A checkpoint is a folder `step-...`: the variables of model, optimizer and
    metrics (seeds of dropout among them), the place in the data and the state
    of other callbacks, with SHA-256 sums (`sha256sum -c SHA256SUMS`). It is
    written in the background beside the others and renamed when it is whole. A
    damaged one is set aside with a warning and the one before it used.

    `fit` then starts within its epoch where the run stood, and ends as an
    uninterrupted run would: with the same weights, and the same logs at the end
    of each epoch. (The `History` that it returns begins anew.) At an epoch's end
    the checkpoint is written after the evaluation.

    It also stops a run whose loss is not finite, before such weights are
    written. Of several processes that train together, each is given one and the
    first writes; their number may change between runs. Where JAX spreads the
    model over processes, each writes its part and reads what it needs.

    Args:
        folder: string. Where checkpoints are written; locked against other
            runs while this object lives, but for one of a store (`s3://...`),
            where there are no locks.
        every: int. Steps between checkpoints.
        keep: int. How many are kept, the newest. Defaults to `3`.
        data: `TrainingStream` or `ArrayStream`, where the dataset of `fit`
            comes from. It is set to the place where the run stood: make the
            dataset after this object. Defaults to `None`: no place is kept, and
            an epoch's metrics start anew.
        parts: dict of objects with `get_state()`, which returns a dict of JSON
            values, and `set_state(state)`, to keep along: callbacks, which must
            come before this one. Defaults to `None`.
        identity: dict of JSON values that must be those of the run to go on
            with, for example a hash of the vocabulary. Defaults to `None`.

    Attributes:
        step: int, the steps done so far.
        newest: string, path of the newest whole checkpoint, or `None`.

    Raises:
        ValueError: where another process uses `folder`, its checkpoints are all
            damaged, or are of another model or `identity`.
        OSError: in `fit`, where a checkpoint cannot be written.
        FloatingPointError: in `fit`, where the loss is not finite.

    Example:
    ```python
    stream = TrainingStream(corpus, preprocessor, batch_size=32, seed=1)
    checkpoint = keras_spanbert.TrainingCheckpoint("run/checkpoints", every=500, data=stream)
    model.fit(stream.dataset(), epochs=10, steps_per_epoch=1000, callbacks=[checkpoint])
    # Killed? The same script goes on.
    ```
    """

    def __init__(
        self,
        folder: str,
        every: int,
        keep: int = 3,
        data=None,
        parts: dict | None = None,
        identity: dict | None = None,
    ):
        super().__init__()
        for name, value in [("every", every), ("keep", keep)]:
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}")
            if int(value) != value:
                raise ValueError(f"`{name}` must be whole. Received: {name}={value}")
        if data is not None and not hasattr(data, "start_at"):
            raise ValueError(
                "`data` must be a stream, as `TrainingStream` or `ArrayStream`, and not its "
                f"dataset. Received: {type(data).__name__}"
            )
        self.folder = folder
        self.every = every
        self.keep = keep
        self.data = data
        self.parts = parts or {}
        self.identity = identity or {}
        self.step = 0
        self._is_main = distribution.process_index() == 0
        self._checkpoints = open_folder(folder, keep)
        self._lock = contextlib.ExitStack()
        if self._is_main:
            self._lock.callback(self._checkpoints.lock())
            weakref.finalize(self, self._lock.close)
        else:
            distribution.barrier()
        # What is restored, arrays and state, until `fit` begins.
        self.newest = self._restored = None
        self._epoch = 0
        self._batches_before = 0  # Of the epoch, in an earlier process.
        self._batches = 0  # Of the epoch, in all.
        self._writer = self._error = None
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        if self._is_main:
            distribution.barrier()  # What is set aside here is not seen by the others.
        # None still reads when the first checkpoint is written.
        if len(set(distribution.all_gather(self.step))) > 1:
            raise ValueError(
                f"All processes must see the same folder. Received: {folder}, where this one "
                f"finds a checkpoint of step {self.step:,}, another one does not"
            )
        self._written = self.step
        starts = distribution.all_gather(secrets.randbelow(2**31))
        self._joint = (StoredParts if stores.is_store(folder) else CheckpointParts)(
            folder, distribution.process_index(), len(starts), start=starts[0]
        )

    def set_model(self, model):
        super().set_model(model)
        # `self.model` would bring JAX's state up to date, which is dear at each step.
        self._trained = model

    # === Restoring ===
    def on_train_begin(self, logs=None):
        steps = self.params["steps"]
        if steps is None:
            raise CheckpointError(
                "`fit` must be given `steps_per_epoch` with a TrainingCheckpoint. Received: None"
            )
        if self._restored is None:
            return
        arrays, state = self._restored
        self._build()
        variables = self._variables()
        for group in variables:
            described = _described(variables[group]), state["variables"][group]
            for mine, theirs in itertools.zip_longest(*described):
                if group == "metrics" and self.data is None:
                    break
                if mine is None or theirs is None or mine[1:] != theirs[1:]:
                    raise CheckpointError(
                        f"A checkpoint must be of the same model. Received: {self.newest}, with "
                        f"{theirs} where the {group} has {mine}"
                    )
            if group != "metrics":
                _assign(variables[group], arrays, group)
        if state["steps_per_epoch"] != steps:
            raise CheckpointError(
                "`steps_per_epoch` must be as it was. Received: "
                f"{steps}, where {self.newest} has {state['steps_per_epoch']}"
            )
        self._epoch = state["epoch"]
        set_initial_epoch(self.model, self._epoch)

    def _build(self):
        """Makes the variables that TensorFlow would make in the first step."""
        model = self.model
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        if self.data is None or keras.backend.backend() != "tensorflow":
            return
        import tensorflow as tf

        def zeros_like(spec):  # Batches may differ in length.
            return tf.zeros([1 if size is None else size for size in spec.shape], spec.dtype)

        zeros = tf.nest.map_structure(zeros_like, self.data.dataset().element_spec)
        dataset = tf.data.Dataset.from_tensors(zeros)
        keras.Model.evaluate(model, dataset, verbose=0)  # Not our models' own, which prepares.

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        self._batches_before = self._batches = 0
        if self._restored is None:
            return
        arrays, state = self._restored
        set_initial_epoch(self.model, None)
        self._batches_before = self._batches = state["batches"]
        # The epoch's metrics go on; PyTorch's processes add theirs to those of all, of the first.
        if self._batches and self.data is not None:
            if self._is_main or keras.backend.backend() != "torch":
                _assign(self._variables()["metrics"], arrays, "metrics")

    def on_train_batch_begin(self, batch, logs=None):
        if self._restored is not None:
            # Here because PyTorch draws a seed when an iterator is made.
            torch_generators.restore(self._restored[0])
            self._restored = None

    # === Saving ===
    def on_train_batch_end(self, batch, logs=None):
        # Several at once where the model has `steps_per_execution`.
        batches = self._batches_before + batch + 1
        self.step += batches - self._batches
        self._batches = batches
        self._raise_error()
        if logs and not math.isfinite(float(logs["loss"])):
            self._stop_at(float(logs["loss"]))
        if self.data is not None:
            self.data.consumed(self.step)
        ends_epoch = self._batches >= self.params["steps"]
        if ends_epoch and self._batches_before and not self._trained.stop_training:
            self.model.stop_training = _CUT  # This epoch only.
        if not (ends_epoch or self._trained.stop_training):
            self._save_if_due()

    def on_epoch_end(self, epoch, logs=None):
        if self._trained.stop_training is _CUT:
            self.model.stop_training = False
        self._epoch, self._batches = epoch + 1, 0
        self._save_if_due()

    def on_train_end(self, logs=None):
        self.save()
        self.wait()

    def _save_if_due(self):
        if self.step - self._written >= self.every:
            self.save()

    def save(self) -> None:
        """Has a checkpoint of the step just done written, if there is none.

        Not between an epoch's last step and the end of its evaluation.
        """
        self.wait()
        if self._written == self.step:
            return
        variables = self._variables()
        with distribution.summed_over_processes(self._trained.metrics):
            arrays, shards = checkpoint_parts.values(variables, self._is_main)
        arrays.update(torch_generators.states())
        state = {
            "version": VERSION,
            "step": self.step,
            "epoch": self._epoch,
            "batches": self._batches,
            "steps_per_epoch": self.params["steps"],
            "identity": self.identity,
            "variables": {group: _described(members) for group, members in variables.items()},
            "data": {},
            "parts": {name: part.get_state() for name, part in self.parts.items()},
        }
        for name, value in (self.data.state(self.step) if self.data else {}).items():
            if isinstance(value, np.ndarray):
                arrays[f"data/{name}"] = value
            else:
                state["data"][name] = value
        if shards is not None:
            joint = {"num_parts": self._joint.num_processes, "start": self._joint.start}
            state.update(version=PARTS_VERSION, **joint)
        self._written = self.step
        if not self._is_main and shards is None:
            return
        # What parts gave may be their own lists, which grow while this is written.
        arguments = (self.step, arrays, shards, json.dumps(state))
        self._writer = threading.Thread(target=self._write, args=arguments)
        self._writer.start()

    def wait(self) -> None:
        """Waits until what is being written is on the disk."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        self._raise_error()

    def close(self) -> None:
        """Lets others use the folder."""
        self._lock.close()

    def _variables(self):
        # `self.model` brings JAX's state up to date.
        model = self.model
        return {
            "model": model.variables,
            "optimizer": model.optimizer.variables,
            "metrics": [v for metric in model.metrics for v in metric.variables],
        }

    def _write(self, step, arrays, shards, state):
        try:
            for array in [*arrays.values(), *(array for _, array in (shards or {}).values())]:
                if array.dtype.kind == "f" and not np.isfinite(array).all():
                    raise FloatingPointError(
                        f"Weights must be finite. Received: others after step {step:,}; "
                        f"{self._checkpoints.last_good()}"
                    )
            if shards is not None:
                self._joint.write(step, shards)
            if self._is_main:
                parts = None if shards is None else self._joint
                self.newest = self._checkpoints.write(step, arrays, state, parts)
        except Exception as error:  # Whatever it is, `fit` must not go on without.
            self._error = error

    def _raise_error(self):
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _stop_at(self, loss):
        text = f"The loss must be finite. Received: {loss} at step {self.step:,}"
        batch = None
        if self.data is not None:
            try:
                # All must ask, the first one too where its writing was an error.
                batch = self.data.batch(self.step - 1)
            except OSError as error:
                text += f"; its batch cannot be read: {error}"
        self.wait()
        if batch is not None:
            path = stores.join(self.folder, f"bad-batch-step-{self.step}.npz")
            try:
                if self._is_main:
                    with files.replacing(path, "wb") as file:
                        np.savez(file, **_flat(batch))
                text += f"; its batch is in {path}"
            except OSError as error:
                text += f"; its batch cannot be written: {error}"
        raise FloatingPointError(f"{text}; {self._checkpoints.last_good()}")

    # === Reading ===
    def _open(self):
        found = self._checkpoints.read_newest(self._is_main)
        if found is None:
            return
        self.newest, arrays, state = found
        self.step = state["step"]
        self._restored = arrays, state
        self._check_identity(state["identity"])
        if self.data is not None:
            place = {k.removeprefix("data/"): v for k, v in arrays.items() if "data/" in k}
            self.data.start_at(self.step, {**state["data"], **place})
        for name, part in self.parts.items():
            part.set_state(state["parts"][name])

    def _check_identity(self, theirs):
        for name in theirs:
            mine = json.loads(json.dumps(self.identity.get(name)))
            if mine != theirs.get(name):
                raise ValueError(
                    f"A checkpoint must be of the same run. Received: {self.newest}, where "
                    f"{name} is {theirs.get(name)!r}, here {mine!r}"
                )


class CheckpointError(ValueError):
    """A checkpoint is not of the model that is trained, or cannot be used by `fit`."""


def _described(variables):
    return [[v.path, list(v.shape), v.dtype] for v in variables]


def _assign(variables, arrays, group):
    for i, variable in enumerate(variables):
        distribution.assign(variable, arrays[f"{group}/{i}"])


def _flat(batch, prefix=""):
    """Arrays of nested tuples and dicts, by their paths."""
    if isinstance(batch, (tuple, list)):
        batch = dict(zip(["x", "y", "sample_weight"], batch))
    if not isinstance(batch, dict):
        return {prefix: np.asarray(batch)}
    flat = {}
    for name, value in batch.items():
        flat.update(_flat(value, f"{prefix}.{name}" if prefix else name))
    return flat
