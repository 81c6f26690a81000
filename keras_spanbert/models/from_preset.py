"""Loads presets and other libraries' checkpoints."""

import contextvars
import math
import os

import keras
from keras import ops

from keras_spanbert import files, stores
from keras_spanbert.checks import check_path
from keras_spanbert.layers.sublayers import flatten_sublayers
from keras_spanbert.models.source import OPTIONS, open_source

# keras-hub saves the weights of a backbone as one file or as shards, and reads the file first.
_OF_BACKBONE = ("model.weights.h5", "model.weights.json", "model_*.weights.h5")
# A head belongs to its backbone: an old one must not remain next to a new backbone.
_WEIGHTS = (*_OF_BACKBONE, "task.json", "task.weights.h5")
# Whether this thread is saving an object that may save its parts in the same way.
_IS_SAVING = contextvars.ContextVar("is_saving", default=False)


class FromPreset:
    """Adds `from_preset` for presets and checkpoints, and `save_to_preset` to stores.

    A class defines `from_source(source, **kwargs)`, which builds an object from a `Preset` or
    `Checkpoint` of `models.source`. Backbones and tasks also take `load_weights` and `dtype`.
    """

    @classmethod
    def from_preset(cls, preset: str, load_weights: bool | None = None, **kwargs):
        """Loads a preset or another library's checkpoint.

        A head without weights in the checkpoint starts from random weights, and a
        warning is logged.

        Args:
            preset: string. A keras-hub preset, a checkpoint of Hugging Face,
                fairseq or Google's BERT, an archive of one, in a folder or a
                store (`s3://...`), or `hf://owner/name`. See
                `keras_spanbert.checkpoints`.
            load_weights: bool. Used for backbones and tasks only. Defaults to
                `True`.
            **kwargs: arguments of the class that replace the preset's. Tasks also
                take `dropout` and `attention_dropout` of `SpanBertBackbone`; a
                head with a `dropout` gets the same rate. Backbones
                and tasks also take `dtype`, which defaults to Keras's dtype policy.
                A quantized preset keeps its quantized layers by default. With
                `dtype="float32"` it becomes a float model, which can be trained and
                is faster on CPUs with TensorFlow and PyTorch.
                Checkpoints also take `vocabulary`, a file. Checkpoints of fairseq
                also take `num_heads`.

        Returns:
            An object of the class.

        Raises:
            ValueError: if `preset` is something else or damaged, or has no
                vocabulary for a tokenizer or preprocessor.

        Example:
        ```python
        backbone = keras_spanbert.SpanBertBackbone.from_preset("spanbert_hf_base.tar.gz")
        pretrainer = keras_spanbert.SpanBertPretrainer.from_preset("saved_models/pretrain")
        ```
        """
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        if kwargs.get("dtype") is None:  # The default.
            kwargs.pop("dtype", None)
        if load_weights is not None:
            kwargs["load_weights"] = load_weights
        source = open_source(preset, **options)
        if not source.fits(cls):
            return super().from_preset(source.name, **kwargs)  # Explains what does not fit.
        has_weights = issubclass(cls, keras.Model) and load_weights is not False
        dtype = kwargs.pop("dtype", None) if has_weights and source.is_quantized else None
        found = cls.from_source(source, **kwargs)
        return found if dtype is None else dequantize(found, dtype)

    def save_to_preset(self, preset_dir: str, *args, **kwargs) -> None:
        """Saves a preset to a folder on disk or in a store.

        The folder may exist, and the object may come from it. After an error, the folder is
        unchanged. Files that the preset does not have, such as a `README.md`, are kept. A preset in
        a store is either complete or absent.

        Raises:
            ValueError: if a class to save is not registered with Keras.
            OSError: if the folder cannot be written.
        """
        if advice := registration_hint(self):
            raise ValueError(advice)
        preset_dir = check_path("preset_dir", preset_dir)
        # A task saves its backbone next to its own new files.
        replaced = _OF_BACKBONE if _IS_SAVING.get() else _WEIGHTS
        token = _IS_SAVING.set(True)
        try:
            with stores.local_output(preset_dir) as local:
                is_new = not os.path.isdir(local)
                if is_new:
                    files.check_new(local)
                make = files.new_folder(local) if is_new else files.add_to_folder(local, replaced)
                with make as folder:
                    super().save_to_preset(folder, *args, **kwargs)
        finally:
            _IS_SAVING.reset(token)


def registration_hint(saved) -> str | None:
    """Explains how to register a class of an object or its parts. `None` if all are registered.

    Parts of a task are its backbone, its preprocessor and the tokenizer.
    """
    preprocessor = getattr(saved, "preprocessor", None)
    parts = [saved, getattr(saved, "backbone", None), preprocessor]
    parts.append(getattr(preprocessor or saved, "tokenizer", None))
    for cls in [type(part) for part in parts if part is not None]:
        name = keras.saving.get_registered_name(cls)
        if keras.saving.get_registered_object(name) is None:
            return (
                "A class must be registered with Keras so that saved objects of it can be loaded. "
                'Add the line `@keras.saving.register_keras_serializable(package="my_package")` '
                f"above `class {cls.__name__}`. Received: {cls.__module__}.{cls.__name__}, which "
                "is not registered"
            )
    return None


def dequantize(model: keras.Model, dtype: str | keras.DTypePolicy) -> keras.Model:
    """Returns a copy of a quantized backbone or task with float weights and a dtype policy."""
    config, backbone = model.get_config(), getattr(model, "backbone", model)
    copy = type(backbone).from_config({**backbone.get_config(), "dtype": dtype})
    if backbone is not model:
        parts = {"backbone": copy, "preprocessor": model.preprocessor}
        copy = type(model).from_config({**config, **parts})
    values = {variable.path: variable for variable in model.weights}
    quantized = {
        layer.path: layer for layer in flatten_sublayers([model]) if layer.quantization_mode
    }
    for variable in copy.weights:
        layer, _, name = variable.path.rpartition("/")
        if layer in quantized and name in ["kernel", "embeddings"]:
            variable.assign(_float_weights(quantized[layer], variable.shape))
        else:
            variable.assign(values[variable.path])
    return copy


def _float_weights(layer, shape):
    """Computes a quantized layer's weights from its outputs for an identity matrix."""
    # This does not depend on how Keras packs and scales quantized weights.
    if isinstance(layer, keras.layers.Embedding):
        return ops.convert_to_numpy(layer(ops.arange(shape[0])))
    num_axes = 1  # The axes of the kernel that are contracted with the inputs.
    if isinstance(layer, keras.layers.EinsumDense):
        inputs, kernel = layer.equation.partition("->")[0].split(",")
        num_axes = len(set(inputs) & set(kernel))
    layer.activation = keras.activations.linear
    size = math.prod(shape[:num_axes])
    identity = ops.reshape(ops.eye(size), (1, size, *shape[:num_axes]))
    outputs = layer(identity) - layer(ops.zeros_like(identity))  # Subtracts the bias.
    return ops.convert_to_numpy(ops.reshape(outputs, shape))
