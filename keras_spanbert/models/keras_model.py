"""The base class of backbones and tasks: inputs by name, files, and threads."""

import functools
import os
import threading
from collections.abc import Callable

import keras

from keras_spanbert import files
from keras_spanbert.checks import expand_home
from keras_spanbert.keras_private import ask_to_overwrite, call_layers, order_layers
from keras_spanbert.layers.sublayers import resolve_policies
from keras_spanbert.models import lora
from keras_spanbert.models.source import FromPreset, registration_hint
from keras_spanbert.wording import LOG

_logged_advice = set()


def one_thread(method: Callable) -> Callable:
    """Decorator of a model's method: on JAX, only one thread at a time runs it for a backbone."""
    # Keras on JAX donates the buffers of the weights to each step, so all other threads that use
    # these weights fail.
    if keras.backend.backend() != "jax":
        return method

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        # Models that share a backbone share its lock.
        owner = getattr(self, "backbone", None) or self
        with vars(owner).setdefault("thread_lock", threading.RLock()):
            return method(self, *args, **kwargs)

    return call


def with_one_thread(cls: type) -> type:
    """Decorator of a model's class: `one_thread` for all methods that use the weights."""
    if keras.backend.backend() == "jax":
        names = ["__call__", "fit", "train_on_batch", "evaluate", "test_on_batch", "predict"]
        names += ["predict_on_batch", "save", "save_weights", "save_to_preset", "export"]
        for name in names:
            setattr(cls, name, one_thread(getattr(cls, name)))
    return cls


def _write(write, filepath, overwrite=True, is_folder=False):
    """Calls `write` with a temporary path, which replaces `filepath` once it is complete.

    Keras itself writes to remote paths and open files, and creates the parents of a folder.
    """
    if not isinstance(filepath, (str, os.PathLike)) or "://" in os.fspath(filepath):
        write(filepath)
        return
    filepath = expand_home(filepath)
    if overwrite or not os.path.exists(filepath) or ask_to_overwrite(filepath):
        folder, name = os.path.split(filepath.rstrip(os.sep))
        folder = folder or os.curdir
        if is_folder:
            os.makedirs(folder, exist_ok=True)
        # Other files that are written next to it, such as shards of weights, are moved too.
        with files.add_to_folder(folder) as new:
            write(os.path.join(new, name))


class KerasModel(FromPreset):
    """Base class of backbones and tasks. It ignores unknown keys in a dict of inputs."""

    # The process that created the first model. A process that was forked after that would wait
    # forever for the threads of the backend.
    first_process: int | None = None

    def __init__(self, *args, **kwargs):
        own = {"inputs", "outputs", "name", "trainable", "dtype", "compile"}
        unknown = ", ".join(f"{n}={kwargs[n]!r:.80}" for n in sorted(kwargs.keys() - own))
        if unknown:  # Keras's functional models would ignore them.
            raise ValueError(f"`{type(self).__name__}` has no such argument. Received: {unknown}")
        KerasModel.first_process = KerasModel.first_process or os.getpid()
        super().__init__(*args, **kwargs)
        order_layers(self)
        resolve_policies(self)
        self.input_spec = None  # `call` takes the inputs by name. Optional ones can be missing.
        if keras.backend.backend() == "torch":
            import torch

            # While they are constructed, keras-hub's models set attributes without
            # `torch.nn.Module`, including Keras's own table of parameters. Without the following,
            # the module would silently have no parameters to train or load.
            for name, value in list(vars(self).items()):
                if isinstance(value, torch.nn.ParameterDict):
                    torch.nn.Module.__setattr__(self, name, value)

    def call(self, inputs, training=None, mask=None, **kwargs):
        # Keras reads a dict in the order of its keys, so an extra key would shift the inputs.
        if isinstance(inputs, dict) and isinstance(self.input, dict):
            inputs = {name: inputs.get(name) for name in self.input}
        has_masks = mask is not None and any(m is not None for m in keras.tree.flatten(mask))
        if keras.backend.backend() == "torch" and not has_masks and not kwargs:
            return call_layers(self, inputs, training)
        return super().call(inputs, training=training, mask=mask, **kwargs)

    def save_weights(self, filepath, overwrite: bool = True, max_shard_size=None) -> None:
        """Saves the weights: see `keras.Model.save_weights`. After an error, old files remain."""
        write = functools.partial(super().save_weights, max_shard_size=max_shard_size)
        _write(write, filepath, overwrite)

    def merge_lora(self):
        """Adds the LoRA weights to the kernels and removes them, in place.

        The model computes the same as before and has its usual weights, all of them
        trainable, as if it had been trained without LoRA. `compile` it before it is trained
        further. `quantize` and `save_lora_weights` differ for merged models; all other methods
        that save or export a model write the same for both. Without LoRA weights, does nothing.

        Returns:
            The model.

        Example:
        ```python
        backbone.enable_lora(rank=4)
        backbone.merge_lora().quantize("int8")
        ```
        """
        lora.merge(self)
        return self

    def quantize(self, *args, **kwargs) -> None:
        """Quantizes the weights: see `keras.Model.quantize`.

        Raises:
            ValueError: if the model has LoRA weights, which `merge_lora` adds to the kernels.
        """
        if lora.lora_layers(self):
            raise ValueError(
                "Quantization needs a model without LoRA weights: call `merge_lora()` first. "
                f"Received: {self.name}, with LoRA weights"
            )
        super().quantize(*args, **kwargs)

    def save(self, filepath, overwrite: bool = True, zipped=None, **kwargs) -> None:
        """Saves the model to a `.keras` file: see `keras.Model.save`.

        After an error, an old file remains. Warns once if a class is not registered with
        Keras. The file then loads only with the `custom_objects` of `keras.saving.load_model`.
        """
        advice = registration_hint(self)
        if advice and advice not in _logged_advice:
            _logged_advice.add(advice)
            LOG.warning("%s", advice)
        write = functools.partial(super().save, zipped=zipped, **kwargs)
        _write(write, filepath, overwrite, is_folder=zipped is False)

    def export(self, filepath, format: str = "tf_saved_model", **kwargs) -> None:
        """Exports the model from arrays to logits: see `keras.Model.export`.

        `keras_spanbert.serving.export_saved_model` exports it from strings to
        answers, on every backend.

        Args:
            filepath: string. Path to write to.
            format: string. See `keras.Model.export`. Defaults to `"tf_saved_model"`, which takes
                arrays of any length on TensorFlow, needs an `input_signature` with a fixed length
                on JAX, and does not work on PyTorch.
            **kwargs: see `keras.Model.export`.

        Raises:
            ValueError: if the model cannot be exported in this format.

        Example:
        ```python
        names = ["token_ids", "segment_ids", "padding_mask"]
        spec = {n: keras.InputSpec(shape=(None, 12), dtype="int32", name=n) for n in names}
        backbone.export("exported", input_signature=[spec])
        ```
        """
        verbose = kwargs.pop("verbose", None)
        try:
            # Keras's message would name the temporary path.
            write = functools.partial(super().export, format=format, verbose=False, **kwargs)
            _write(write, filepath, is_folder=True)
        except OSError:  # For example a full disk.
            raise
        except Exception as error:
            backend = keras.backend.backend()
            advice = ""
            if backend == "jax" and kwargs.get("input_signature") is None:
                advice = (
                    "On JAX, `input_signature` must fix the length of the arrays, as in "
                    "`help(model.export)`. "
                )
            raise ValueError(
                f"Keras cannot export a {type(self).__name__} in this format. {advice}"
                "`keras_spanbert.serving.export_saved_model(model, path)` exports it from strings "
                f"on every backend. Received: format={format!r} on {backend}. Keras's error: "
                f"{type(error).__name__}: {error}"
            ) from error
        if verbose is not False:
            print(f"Saved artifact at '{filepath}'.")
