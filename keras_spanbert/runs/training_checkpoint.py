"""Checkpoints from which a training run resumes exactly."""

import contextlib
import itertools
import json
import math
import threading
import weakref

import keras
import numpy as np

from keras_spanbert import distribution, files, stores
from keras_spanbert.checks import check_path, check_positive
from keras_spanbert.keras_private import set_initial_epoch
from keras_spanbert.runs.checkpoint_folder import VERSION, CheckpointFolder

# A true value of `stop_training` that no other callback sets.
_CUT = 2


class TrainingCheckpoint(keras.callbacks.Callback):
    """Writes checkpoints from which a training run resumes exactly, and restores them.

    A checkpoint is a folder `step-...`. It has the variables of the model (among them the seeds of
    dropout), optimizer and metrics, the position in the data and the state of other callbacks, with
    SHA-256 sums (`sha256sum -c SHA256SUMS`). It is written in the background under another name and
    renamed when it is complete. At the end of an epoch it is written after the evaluation. A
    damaged checkpoint is set aside with a warning, and the previous one is used.

    After restoring, `fit` starts in the middle of an epoch if the run was stopped there. It ends
    with the same weights, and the same logs at the end of each epoch, as an uninterrupted run.
    (The `History` that it returns starts anew.)

    The callback also stops a run whose loss is not finite, before it writes weights that are not
    finite. If several processes train together, each needs this callback, and the first one writes
    the whole model. Their number may change when the run is resumed.

    Args:
        folder: string. The folder of the checkpoints. It is locked against other runs while this
            object lives, unless it is in a store (`s3://...`), which has no locks.
        every: int. Number of steps between checkpoints.
        keep: int. Number of newest checkpoints to keep. Defaults to `3`.
        data: `TrainingStream` or `Batches`. The source of the dataset of `fit`. It is set to the
            position of the checkpoint, so make the dataset after this object. Defaults to `None`:
            no position is kept, and the metrics of an epoch start anew.
        parts: dict from names to objects whose state is saved too, with the methods `get_state()`,
            which returns a dict of JSON values, and `set_state(state)`. Callbacks among them must
            come before this one in `callbacks`. Defaults to `None`.
        identity: dict of JSON values that must be equal when the run is resumed, for example a hash
            of the vocabulary. Defaults to `None`.

    Attributes:
        step: int. The number of steps done so far.
        newest: string. Path of the newest complete checkpoint, or `None`.

    Raises:
        ValueError: if another process uses `folder`, all its checkpoints are damaged, or they
            belong to another model or have another `identity`.
        OSError: in `fit`, if a checkpoint cannot be written.
        FloatingPointError: in `fit`, if the loss is not finite.

    Example:
    ```python
    stream = TrainingStream(corpus, preprocessor, batch_size=32, seed=1)
    checkpoint = keras_spanbert.TrainingCheckpoint("run/checkpoints", every=500, data=stream)
    model.fit(stream.dataset(), epochs=10, steps_per_epoch=1000, callbacks=[checkpoint])
    # If it is killed, run the same script again to resume.
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
        self.folder = check_path("folder", folder)
        if data is not None and not hasattr(data, "start_at"):
            raise ValueError(
                "`data` must be a stream, such as `TrainingStream` or `Batches`, and not its "
                f"dataset. Received: {type(data).__name__}"
            )
        self.every = check_positive("every", every)
        self.keep = check_positive("keep", keep)
        self.data = data
        self.parts = parts or {}
        self.identity = identity or {}
        self.step = 0
        self._is_main = distribution.process_index() == 0
        self._checkpoints = CheckpointFolder(self.folder, keep)
        self._lock = contextlib.ExitStack()
        if self._is_main:
            self._lock.callback(self._checkpoints.lock())
            weakref.finalize(self, self._lock.close)
        else:
            distribution.barrier()
        # The arrays and state to restore, until `fit` starts.
        self.newest = self._restored = None
        self._epoch = 0
        self._batches_before = 0  # Batches of this epoch in an earlier process.
        self._batches = 0  # All batches of this epoch.
        self._losses = []  # Steps and their losses that were not checked yet.
        self._writer = self._error = None
        try:
            found = self._checkpoints.read_newest(self._is_main)
            if found is not None:
                self._continue(*found)
        except BaseException:
            self.close()
            raise
        if self._is_main:
            distribution.barrier()  # The others must not see a checkpoint that is set aside here.
        # No process may still be reading when the first checkpoint is written.
        if len(set(distribution.all_gather(self.step))) > 1:
            raise ValueError(
                f"All processes must see the same folder. Received: {self.folder}, where this "
                f"process finds a checkpoint of step {self.step:,} and another one does not"
            )
        self._written = self.step

    def set_model(self, model):
        super().set_model(model)
        # Reading `self.model` would sync JAX's state, which is too slow for each step.
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
            described = _describe(variables[group]), state["variables"][group]
            for mine, theirs in itertools.zip_longest(*described):
                if group == "metrics" and self.data is None:
                    break
                if mine is None or theirs is None or _spec(mine) != _spec(theirs):
                    raise CheckpointError(
                        f"A checkpoint must belong to the same model. Received: {self.newest}, "
                        f"with {theirs} where the {group} has {mine}"
                    )
            if group != "metrics":
                _assign(variables[group], arrays, group)
        if state["steps_per_epoch"] != steps:
            raise CheckpointError(
                "`steps_per_epoch` must not change when a run is resumed. Received: "
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
        # Our models' own method would preprocess the data.
        keras.Model.evaluate(model, dataset, verbose=0)

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        self._batches_before = self._batches = 0
        if self._restored is None:
            return
        arrays, state = self._restored
        set_initial_epoch(self.model, None)
        self._batches_before = self._batches = state["batches"]
        # Continue the epoch's metrics. On PyTorch, the first process has the sums of all.
        if self._batches and self.data is not None:
            if self._is_main or keras.backend.backend() != "torch":
                _assign(self._variables()["metrics"], arrays, "metrics")

    def on_train_batch_begin(self, batch, logs=None):
        if self._restored is not None:
            # Done here because PyTorch draws a seed when an iterator is made.
            arrays, self._restored = self._restored[0], None
            for name, generator in _generators().items():
                if name in arrays:  # Absent if the run started on another backend.
                    generator.set_rng_state(generator.get_rng_state().new_tensor(arrays[name]))

    # === Saving ===
    def on_train_batch_end(self, batch, logs=None):
        # With `steps_per_execution`, one call has several steps.
        batches = self._batches_before + batch + 1
        self.step += batches - self._batches
        self._batches = batches
        self._raise_error()
        ends_epoch = self._batches >= self.params["steps"]
        if logs:
            self._losses.append((self.step, logs["loss"]))
            # A loss on the device is read one step later, so that the host does not wait for it,
            # but before an evaluation, which may save the model.
            is_read = isinstance(logs["loss"], float) or ends_epoch or self._trained.stop_training
            self._check_losses(newest=is_read)
        if ends_epoch and self._batches_before and not self._trained.stop_training:
            self.model.stop_training = _CUT  # Ends only this epoch: see `on_epoch_end`.
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
        """Starts writing a checkpoint of the last step, if there is none.

        Do not call it between an epoch's last step and the end of its evaluation.
        """
        self.wait()
        self._check_losses()
        if self._written == self.step:
            return
        variables = self._variables()
        with distribution.sync_metrics(self._trained.metrics):
            arrays = {}
            for group, members in variables.items():
                for i, variable in enumerate(members):
                    # All processes gather a variable that is split over them.
                    if self._is_main or distribution.is_sharded(variable):
                        value = distribution.to_numpy(variable)
                        if self._is_main:  # NumPy files cannot store bfloat16.
                            dtype = "float32" if value.dtype.kind == "V" else None
                            arrays[f"{group}/{i}"] = np.array(value, dtype)
        self._written = self.step
        if not self._is_main:
            return
        for name, generator in _generators().items():
            arrays[name] = generator.get_rng_state().numpy().copy()
        state = {
            "version": VERSION,
            "step": self.step,
            "epoch": self._epoch,
            "batches": self._batches,
            "steps_per_epoch": self.params["steps"],
            "identity": self.identity,
            "variables": {group: _describe(members) for group, members in variables.items()},
            "data": self.data.state() if self.data else {},
            "parts": {name: part.get_state() for name, part in self.parts.items()},
        }
        # Copy the states of the parts: they may be lists that grow while this is written.
        arguments = (self.step, arrays, json.dumps(state))
        self._writer = threading.Thread(target=self._write, args=arguments)
        self._writer.start()

    def wait(self) -> None:
        """Waits until the checkpoint that is being written is on the disk."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        self._raise_error()

    def close(self) -> None:
        """Releases the lock of the folder."""
        self._lock.close()

    def _variables(self):
        # Reading `self.model` syncs JAX's state.
        model = self.model
        return {
            "model": model.variables,
            "optimizer": model.optimizer.variables,
            "metrics": [v for metric in model.metrics for v in metric.variables],
        }

    def _write(self, step, arrays, state):
        try:
            for array in arrays.values():
                if array.dtype.kind == "f" and not np.isfinite(array).all():
                    raise FloatingPointError(
                        f"Weights must be finite. Received: other values after step {step:,}; "
                        f"{self._checkpoints.last_good()}"
                    )
            self.newest = self._checkpoints.write(step, arrays, state)
        except Exception as error:  # `fit` must stop if no checkpoint can be written.
            self._error = error

    def _raise_error(self):
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _check_losses(self, newest=True):
        """Stops the run if a loss is not finite. Without `newest`, does not wait for the last."""
        while self._losses[0 if newest else 1 :]:
            step, loss = self._losses.pop(0)
            if not math.isfinite(float(loss)):
                self._losses.clear()
                self._stop_at(step, float(loss))

    def _stop_at(self, step, loss):
        text = f"The loss must be finite. Received: {loss} at step {step:,}"
        if self.data is not None:
            path = stores.join(self.folder, f"bad-batch-step-{step}.npz")
            try:
                batch = self.data.batch(step - 1)  # All processes take part in reading it.
                if self._is_main:
                    with files.atomic_write(path, "wb") as file:
                        batch = keras.utils.unpack_x_y_sample_weight(batch)
                        named = dict(zip(["x", "y", "sample_weight"], batch))
                        found = keras.tree.flatten_with_path(named)
                        arrays = {".".join(map(str, names)): array for names, array in found}
                        np.savez(file, **{n: a for n, a in arrays.items() if a is not None})
                text += f"; its batch is in {path}"
            except OSError as error:
                text += f"; its batch cannot be saved: {error}"
        self.wait()
        raise FloatingPointError(f"{text}; {self._checkpoints.last_good()}")

    # === Reading ===
    def _continue(self, path, arrays, state):
        self.newest, self.step, self._restored = path, state["step"], (arrays, state)
        for name, theirs in state["identity"].items():
            mine = json.loads(json.dumps(self.identity.get(name)))
            if mine != theirs:
                raise ValueError(
                    f"A checkpoint must belong to the same run. Received: {self.newest}, where "
                    f"{name} is {theirs!r}, but this run has {mine!r}"
                )
        if self.data is not None:
            self.data.start_at(self.step, state["data"])
        for name, part in self.parts.items():
            part.set_state(state["parts"][name])


class CheckpointError(ValueError):
    """A checkpoint does not belong to the model, or cannot be used by `fit`."""


def _describe(variables):
    return [[v.path, list(v.shape), v.dtype] for v in variables]


def _spec(described):
    """Returns shape and dtype. Integer types are equal: backends use different ones for seeds."""
    _, shape, dtype = described
    return shape, "int" if keras.backend.is_int_dtype(dtype) else dtype


def _assign(variables, arrays, group):
    for i, variable in enumerate(variables):
        distribution.assign(variable, arrays[f"{group}/{i}"])


def _generators():
    """Returns PyTorch's generators by name, which dropout uses on that backend."""
    if keras.backend.backend() != "torch":
        return {}
    import torch

    # The generator of this process's GPU.
    cuda = {"generator/cuda": torch.cuda} if torch.cuda.is_available() else {}
    return {"generator/cpu": torch.random, **cuda}
