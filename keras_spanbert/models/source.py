"""Opens model folders and files of any kind as a `Preset` or a `Checkpoint`.

The `from_source` of each class builds an object from either, with the methods that both have.
"""

import copy
import functools
import glob
import logging
import os
import re
import shutil
import tempfile
import weakref

import keras
import keras_hub
import numpy as np

from keras_spanbert import cache, files, keras_private, stores
from keras_spanbert.checks import expand_home
from keras_spanbert.formats import fairseq, google, huggingface, tensors
from keras_spanbert.formats.vocabulary import find_vocabulary
from keras_spanbert.models.checkpoint_entries import Checkpoint

_LOG = logging.getLogger("keras_spanbert")

_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_TORCH = (".pt", ".pth")
_CONFIGS = {
    keras_hub.models.Backbone: "config.json",
    keras_hub.models.Task: "task.json",
    keras_hub.models.Preprocessor: "preprocessor.json",
    keras_hub.tokenizers.Tokenizer: "tokenizer.json",
}
_SETTINGS = [
    *_CONFIGS.values(),
    "vocab.txt",
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    # Only in keras-hub presets.
    "metadata.json",
    "model.weights.json",
]
# Arguments of `from_preset` for `open_source`, not for the class.
OPTIONS = ("num_heads", "vocabulary")
_HANDLE = re.compile(r"hf://([\w.-]+/[\w.-]+)")


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
                _LOG.warning(
                    "%s has no weights for the head of %s, which starts from random weights",
                    self.name,
                    type(model).__name__,
                )
        if keeps_backbone and not is_own:
            return
        fresh = []
        if backbone.pooler and not self._backbone_config(None)["config"].get("pooled_output"):
            fresh = [backbone.pooler]
            _LOG.warning(
                "%s has no weights for pooler, which starts from random weights", self.name
            )
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
        wanted = (name, *_SETTINGS)
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
    arguments = find_vocabulary(folder, vocabulary, size if type(size) is int else None)
    arguments["notes"] = notes + arguments["notes"]
    return Checkpoint(source, settings, found, **arguments)


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
            return download(*_SETTINGS, "*.weights.h5", "assets/*")
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
