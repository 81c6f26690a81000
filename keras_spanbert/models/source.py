"""Opens model folders and files of any kind as a `Preset` or a `Checkpoint`, and saves presets.

Both have the methods that the `from_source` of each class uses.
"""

import contextvars
import copy
import functools
import glob
import math
import os
import re
import shutil
import tempfile
import weakref

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_spanbert import cache, files, keras_private, stores
from keras_spanbert.checks import check_path, expand_home
from keras_spanbert.formats import fairseq, google, huggingface, tensors
from keras_spanbert.formats.vocabulary import VOCABULARY_FILES, find_vocabulary
from keras_spanbert.layers.sublayers import flatten_sublayers
from keras_spanbert.models.checkpoint_entries import Checkpoint
from keras_spanbert.wording import LOG

_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_TORCH = (".pt", ".pth")
_CONFIGS = {
    keras_hub.models.Backbone: "config.json",
    keras_hub.models.Task: "task.json",
    keras_hub.models.Preprocessor: "preprocessor.json",
    keras_hub.tokenizers.Tokenizer: "tokenizer.json",
}
# Arguments of `from_preset` for `open_source`, not for the class.
OPTIONS = ("num_heads", "vocabulary")
_HANDLE = re.compile(r"hf://([\w.-]+/[\w.-]+)")
# keras-hub saves the weights of a backbone as one file or as shards, and reads the file first.
_OF_BACKBONE = ("model.weights.h5", "model.weights.json", "model_*.weights.h5")
# A head belongs to its backbone: an old one must not remain next to a new backbone.
_WEIGHTS = (*_OF_BACKBONE, "task.json", "task.weights.h5")
# The files that a handle downloads first. Repositories have other JSON files, some of them large.
_SETTINGS = (
    *_CONFIGS.values(), "metadata.json", huggingface.OLD_CONFIG, *VOCABULARY_FILES,
    *(f"{weights}.index.json" for weights in tensors.WEIGHTS),
)  # fmt: skip
# Whether this thread is saving an object that may save its parts in the same way.
_IS_SAVING = contextvars.ContextVar("is_saving", default=False)


# === Presets ===
class Preset:
    """A keras-hub preset: a folder, or a handle that keras-hub downloads."""

    def __init__(self, name: str):
        self.name = name

    def _file(self, name):
        """Returns the local path of a file, or `None` if the preset lacks it."""
        if not os.path.exists(self.name):
            return keras_private.preset_file(self.name, name)
        path = os.path.join(self.name, name)
        return path if os.path.isfile(path) else None

    @functools.cached_property
    def _configs(self):
        found = {kind: self._file(name) for kind, name in _CONFIGS.items()}
        return {kind: files.read_json(path) if path else {} for kind, path in found.items()}

    def config(self, cls: type) -> dict:
        """Returns what Keras has saved of the backbone, task, preprocessor or tokenizer."""
        kind = next(kind for kind in _CONFIGS if issubclass(cls, kind))
        return copy.deepcopy(self._configs[kind])

    def class_of(self, kind: type) -> type | None:
        """Returns the class of the saved object of a kind, or `None` if Keras finds none."""
        name = self.config(kind).get("registered_name")
        return None if name is None else keras.saving.get_registered_object(name)

    @property
    def task(self) -> type | None:
        return self.class_of(keras_hub.models.Task)

    @property
    def settings(self) -> dict:
        """The maximum sequence length, named as in `transformers.BertConfig`."""
        arguments = self.config(keras_hub.models.Backbone).get("config", {})
        return {"max_position_embeddings": arguments.get("max_sequence_length", 512)}

    @property
    def has_vocabulary(self) -> bool:
        return bool(self.config(keras_hub.tokenizers.Tokenizer))

    @property
    def is_quantized(self) -> bool:
        return _is_map(self._backbone_config(self.task)["config"].get("dtype"))

    def fits(self, cls: type) -> bool:
        """Returns whether the backbone is one of `cls`. keras-hub then has no advice of its own."""
        backbone = self.class_of(keras_hub.models.Backbone)
        return issubclass(backbone or object, getattr(cls, "backbone_cls", cls))

    def saved(self, cls: type) -> dict | None:
        """Returns the arguments of the saved object of this class, or `None` if there is none."""
        return self.config(cls)["config"] if issubclass(self.class_of(cls) or object, cls) else None

    def arguments_of(self, cls: type, **changes) -> dict:
        return {**(self.saved(cls) or {}), **changes}

    def build(self, cls: type, arguments: dict):
        """Builds an object of a class, or of the subclass of it that was saved, without weights."""
        if self.saved(cls) is None:
            return cls.from_config(arguments)
        return keras.saving.deserialize_keras_object({**self.config(cls), "config": arguments})

    def backbone(self, cls: type, dtype=None, **changes):
        """Builds the backbone of a task, or a backbone, without weights."""
        config = self._backbone_config(cls)
        arguments = {**config["config"], **changes}
        saved = arguments.get("dtype")
        # keras-hub's default fails on models that were saved with a mixed policy, and does not
        # support quantized layers in heads.
        arguments["dtype"] = dtype or (
            saved if _is_map(saved) else keras.config.dtype_policy().name
        )
        if issubclass(cls, keras_hub.models.Task):  # They have poolers of their own.
            arguments.pop("pooled_output", None)
        return keras.saving.deserialize_keras_object({**config, "config": arguments})

    def tokenizer(self, cls: type, **changes):
        config = self.config(cls)
        if not config:
            raise ValueError(
                f"{self.name} must have a tokenizer. Received: a preset without tokenizer.json"
            )
        config = {**config, "config": {**config["config"], **changes}}
        tokenizer = keras.saving.deserialize_keras_object(config)
        tokenizer.load_preset_assets(self.name)
        return tokenizer

    def load_weights(self, model: keras.Model, keeps_backbone: bool = False) -> None:
        """Loads the weights of a model's backbone and, if they were saved, of its head."""
        backbone, is_own = getattr(model, "backbone", model), self.saved(type(model)) is not None
        if backbone is not model:
            path = self._file("task.weights.h5") if is_own else None
            if path:
                model.load_task_weights(path)
            if not is_own:
                LOG.warning(
                    "%s has no weights for the head of %s, which starts from random weights",
                    self.name,
                    type(model).__name__,
                )
        if keeps_backbone and not is_own:
            return
        fresh = []
        if backbone.pooler and not self._backbone_config(None)["config"].get("pooled_output"):
            fresh = [backbone.pooler]
            LOG.warning("%s has no weights for pooler, which starts from random weights", self.name)
        path = self._file("model.weights.h5") or self._file("model.weights.json")
        if path is None:
            raise ValueError(f"{self.name} must contain model.weights.h5. Received: no such file")
        backbone.load_weights(path, objects_to_skip=fresh)
        for weight in model.weights:
            # JAX cannot read an array with parts on other hosts.
            is_here = getattr(weight.value, "is_fully_addressable", True)
            if is_here and not np.isfinite(keras.ops.convert_to_numpy(weight)).all():
                raise ValueError(
                    f"{self.name}: weights must be finite; choose a preset from before the "
                    f"training failed. Received: NaN or infinity in {weight.path}"
                )

    def _backbone_config(self, cls):
        """Returns the config of a backbone, with the policies of quantized heads of its task."""
        config = self.config(keras_hub.models.Backbone)
        task = (cls and self.saved(cls)) or {}
        return task.get("backbone") or config


def _is_map(policy):
    return isinstance(policy, dict) and policy.get("class_name") == "DTypePolicyMap"


# === Opening ===
def open_source(
    source: str,
    num_heads: int | None = None,
    vocabulary: str | None = None,
    is_fairseq: bool = False,
) -> Checkpoint | Preset:
    """Opens a folder of Hugging Face or Google's BERT, or a folder with a fairseq checkpoint.

    Or a fairseq `.pt` file, a tar archive of one of these, an `hf://owner/name` handle, or a
    keras-hub preset. `vocabulary` replaces the checkpoint's own. With `is_fairseq` the source must
    be a fairseq file, of any name. Raises `ValueError` if it is none of these or is inconsistent.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise ValueError(
            f"A preset or checkpoint must be a path or a handle. Received: {source!r:.80}"
        )
    given = expand_home(source)
    if given.startswith("hf://"):
        path = _download(given)
    elif stores.kind(given) == "file":  # Its vocabulary may be next to it.
        folder, name = os.path.split(given)
        wanted = (name, *VOCABULARY_FILES)
        path = os.path.join(cache.local_copy(folder, lambda found: found in wanted), name)
    else:
        # Skips the other folders of a run, such as `checkpoints/`.
        path = cache.local_copy(given, lambda name: "/" not in name or name.startswith("assets/"))
    if not os.path.exists(path):
        return Preset(path)  # keras-hub raises an error if it does not know the name.
    is_folder = os.path.isdir(path)
    paths = [os.path.join(path, name) for name in os.listdir(path)] if is_folder else [path]
    for file in filter(os.path.isfile, paths):
        cache.local_copy(file)  # Refuses pointers of Git LFS.
    if not is_folder if is_fairseq else is_folder or path.endswith(_TORCH):
        return _open(path, given, num_heads, vocabulary)
    if path.endswith(_ARCHIVES):
        return _open_archive(path, num_heads, vocabulary)
    raise ValueError(
        "A checkpoint file must be a fairseq .pt file or a tar archive. Received: "
        f"{path}; for Hugging Face and Google checkpoints, give the folder"
    )


def open_checkpoint(source: str, **kwargs) -> Checkpoint:
    """Like `open_source`, but refuses keras-hub presets."""
    checkpoint = open_source(source, **kwargs)
    if isinstance(checkpoint, Checkpoint):
        return checkpoint
    what = "a keras-hub preset" if os.path.exists(checkpoint.name) else "which does not exist"
    raise ValueError(f"`path` must be a checkpoint. Received: {source}, {what}")


def _open(path, source, num_heads, vocabulary):
    """Opens a folder or a fairseq file. Messages call it `source`."""

    def has(name):
        return os.path.isfile(os.path.join(path, name))

    if _is_preset(path):
        if num_heads is not None or vocabulary is not None:
            raise ValueError(
                "`num_heads` and `vocabulary` apply only to checkpoints of other libraries. "
                f"Received: {num_heads}, {vocabulary} with the keras-hub preset {source}"
            )
        return Preset(path)
    folder, notes, torch_files = path, [], [path]
    if os.path.isdir(path):
        torch_files = [p for end in _TORCH for p in glob.glob(f"{glob.escape(path)}/*{end}")]
    else:
        folder = os.path.dirname(path) or "."
    if (has("config.json") or has(huggingface.OLD_CONFIG)) and tensors.find_tensor_files(path):
        settings, found = huggingface.read_huggingface(path)
    elif has("bert_config.json") and google.find_prefixes(path):
        settings, found = google.read_google(path, source)
    elif len(torch_files) == 1:
        settings, found, notes = fairseq.read_fairseq(torch_files[0], source, num_heads)
        num_heads = None
    else:
        raise ValueError(
            f"{source} must be a keras-hub preset (config.json with a class name), a Hugging Face "
            "folder (config.json and model.safetensors or pytorch_model.bin, or their shards), a "
            "Google BERT folder (bert_config.json and bert_model.ckpt.*), or hold one fairseq "
            f"checkpoint (*.pt). Received: {', '.join(sorted(os.listdir(path))[:20]) or 'nothing'}"
        )
    if num_heads is not None:
        raise ValueError(
            "`num_heads` applies only to fairseq checkpoints, which do not record it. "
            f"Received: num_heads={num_heads} with {source}"
        )
    size = settings.get("vocab_size")
    tokenizer, more = find_vocabulary(folder, vocabulary, size if type(size) is int else None)
    return Checkpoint(source, settings, found, notes + more, tokenizer)


def _is_preset(folder):
    config = os.path.join(folder, "config.json")
    return os.path.isfile(config) and "class_name" in files.read_json(config)


def _open_archive(source, num_heads, vocabulary):
    folder = tempfile.mkdtemp(prefix="keras_spanbert-")
    try:
        tensors.extract(source, folder)
        inside = os.listdir(folder)
        only = os.path.join(folder, inside[0]) if len(inside) == 1 else folder
        model = only if os.path.isdir(only) else folder
        checkpoint = _open(model, source, num_heads, vocabulary)
        if isinstance(checkpoint, Preset):
            raise ValueError(f"A keras-hub preset must be unpacked first. Received: {source}")
    except BaseException:
        shutil.rmtree(folder)
        raise
    # Keep the folder: tensors are read from it as long as the checkpoint lives.
    weakref.finalize(checkpoint, shutil.rmtree, folder)
    return checkpoint


def _download(handle):
    import huggingface_hub

    match = _HANDLE.fullmatch(handle)
    if not match:
        raise ValueError(f"A Hugging Face handle must be hf://owner/name. Received: {handle}")

    def download(*names):
        return huggingface_hub.snapshot_download(match[1], allow_patterns=list(names))

    def is_there(name):
        return os.path.isfile(os.path.join(folder, name))

    try:
        folder = download(*_SETTINGS)
        if _is_preset(folder):
            return download(*_SETTINGS, *_WEIGHTS, "assets/*")
        # Download a single set of weights: the repository may have gigabytes of others.
        for weights in tensors.WEIGHTS:
            index = f"{weights}.index.json"
            shards = tensors.shard_names(os.path.join(folder, index)) if is_there(index) else []
            folder = download(weights, *shards)
            if is_there(weights) or shards:
                break
        download(huggingface.SBO_FILE)
    except Exception as error:  # Errors of the hub, the network and the file system.
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{handle} could not be downloaded: {reason[0]}") from None
    return folder


# === Classes that load and save presets ===
class FromPreset:
    """Adds `from_preset` for presets and checkpoints, and `save_to_preset` to stores.

    A class defines `from_source(source, **kwargs)`, which builds an object from a `Preset` or
    `Checkpoint`. Backbones and tasks also take `load_weights` and `dtype`.
    """

    @classmethod
    def from_preset(cls, preset: str, load_weights: bool | None = None, **kwargs):
        """Loads a preset or another library's checkpoint.

        A head without weights in the checkpoint starts from random weights, and a
        warning is logged.

        Args:
            preset: string. A keras-hub preset, a checkpoint of Hugging Face, fairseq or Google's
                BERT, an archive of one, in a folder or a store (`s3://...`), or `hf://owner/name`.
                See `keras_spanbert.checkpoints`.
            load_weights: bool. For backbones and tasks only, where it defaults to `True`.
            **kwargs: arguments of the class that replace the preset's. Tasks also take `dropout`
                and `attention_dropout` of `SpanBertBackbone`; a head with a `dropout` gets the same
                rate. Backbones and tasks also take `dtype`, which defaults to Keras's dtype policy.
                A quantized preset keeps its quantized layers by default. With `dtype="float32"` it
                becomes a float model, which can be trained and is faster on CPUs with TensorFlow
                and PyTorch. Checkpoints also take `vocabulary`, a file. Checkpoints of fairseq also
                take `num_heads`.

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
