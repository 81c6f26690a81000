"""Recognizes the kind of checkpoint at a path or handle."""

import glob
import os
import re
import shutil
import tempfile
import weakref

from keras_spanbert import cache, files
from keras_spanbert.formats import fairseq, google, huggingface, keras_hub, tensors
from keras_spanbert.formats.checkpoint import Checkpoint
from keras_spanbert.formats.vocabulary import find_vocabulary

_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_TORCH = (".pt", ".pth")
_SETTINGS = [
    "config.json",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    # Only in keras-hub presets.
    "metadata.json",
    "task.json",
    "preprocessor.json",
]
# Arguments of `from_preset` for `open_source`, not for the class.
OPTIONS = ("num_heads", "vocabulary")
_HANDLE = re.compile(r"hf://([\w.-]+/[\w.-]+)")


def open_source(
    source: str,
    num_heads: int | None = None,
    vocabulary: str | None = None,
    is_fairseq: bool = False,
) -> Checkpoint | str:
    """Opens a checkpoint of any supported kind.

    Args:
        source: string. A Hugging Face folder, a Google BERT folder, or a folder
            with a fairseq checkpoint; a fairseq `.pt` file; a tar archive of one
            of these; an `hf://owner/name` handle; or a keras-hub preset.
        num_heads: int. See `fairseq.read_fairseq`. Defaults to `None`.
        vocabulary: string. A `vocab.txt` or `tokenizer.json`. Defaults to
            `None`: the one next to the checkpoint.
        is_fairseq: bool. Whether the source must be a fairseq file, of any name.
            Defaults to `False`.

    Returns:
        A `Checkpoint`, or for a keras-hub preset the string to load it with.

    Raises:
        ValueError: if the source is none of these or is inconsistent.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise ValueError(
            f"A preset or checkpoint must be a path or a handle. Received: {source!r:.80}"
        )
    given = os.fspath(source)
    path = _download(given) if given.startswith("hf://") else _local_source(given)
    if not os.path.exists(path):
        return path  # A name or handle for keras-hub, which raises an error if it is unknown.
    is_folder = os.path.isdir(path)
    if not is_folder if is_fairseq else is_folder or path.endswith(_TORCH):
        return _open(path, given, num_heads, vocabulary)
    if path.endswith(_ARCHIVES):
        return _open_archive(path, num_heads, vocabulary)
    raise ValueError(
        "A checkpoint file must be a fairseq .pt file or a tar archive. Received: "
        f"{path}; for Hugging Face and Google checkpoints, give the folder"
    )


def _local_source(source):
    """Returns a local path of a checkpoint: itself, or a cached copy if it is in a store."""
    if files.is_file(source):  # Its vocabulary may be next to it.
        folder, name = os.path.split(source)
        wanted = (name, *_SETTINGS)
        return os.path.join(cache.local_copy(folder, lambda found: found in wanted), name)
    # Skip the other folders of a run, such as `checkpoints/`.
    return cache.local_copy(source, lambda name: "/" not in name or name.startswith("assets/"))


def open_checkpoint(source: str, **kwargs) -> Checkpoint:
    """Like `open_source`, but refuses keras-hub presets."""
    checkpoint = open_source(source, **kwargs)
    if isinstance(checkpoint, Checkpoint):
        return checkpoint
    what = "a keras-hub preset" if os.path.exists(checkpoint) else "which does not exist"
    raise ValueError(f"`path` must be a checkpoint. Received: {source}, {what}")


def _open(path, source, num_heads, vocabulary):
    """Opens a folder or a fairseq file. Messages call it `source`."""

    def has(name):
        return os.path.isfile(os.path.join(path, name))

    if keras_hub.is_preset(path):
        if num_heads is not None or vocabulary is not None:
            raise ValueError(
                "`num_heads` and `vocabulary` apply only to checkpoints of other libraries. "
                f"Received: {num_heads}, {vocabulary} with the keras-hub preset {source}"
            )
        return path
    folder, notes, torch_files = path, [], [path]
    if os.path.isdir(path):
        torch_files = [p for end in _TORCH for p in glob.glob(f"{glob.escape(path)}/*{end}")]
    else:
        folder = os.path.dirname(path) or "."
    if (has("config.json") or has(huggingface.OLD_CONFIG)) and tensors.find_tensor_files(path):
        config, found = huggingface.read_huggingface(path)
    elif has("bert_config.json") and google.find_prefixes(path):
        config, found = google.read_google(path, source)
    elif len(torch_files) == 1:
        config, found, notes = fairseq.read_fairseq(torch_files[0], source, num_heads)
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
    size = config.get("vocab_size")
    arguments = find_vocabulary(folder, vocabulary, size if type(size) is int else None)
    arguments["notes"] = notes + arguments["notes"]
    return Checkpoint(source, config, found, **arguments)


def _open_archive(source, num_heads, vocabulary):
    folder = tempfile.mkdtemp(prefix="keras_spanbert-")
    try:
        tensors.extract(source, folder)
        inside = os.listdir(folder)
        only = os.path.join(folder, inside[0]) if len(inside) == 1 else folder
        model = only if os.path.isdir(only) else folder
        checkpoint = _open(model, source, num_heads, vocabulary)
        if isinstance(checkpoint, str):
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
        if keras_hub.is_preset(folder):
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
