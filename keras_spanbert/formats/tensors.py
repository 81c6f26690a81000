"""Reads tensors, one at a time, and archives from untrusted files, as data only."""

import argparse
import collections
import lzma
import os
import re
import tarfile
import zipfile
import zlib

import numpy as np

from keras_spanbert.files import read_json
from keras_spanbert.optional import require

# `read()` returns a NumPy array of `shape`.
Tensor = collections.namedtuple("Tensor", ["shape", "read"])

# Weight files of Hugging Face folders, in order of preference.
WEIGHTS = ("model.safetensors", "pytorch_model.bin")

# The pages of a mapped file count as memory until it is closed, so it is reopened after this
# number of bytes.
_REOPEN_BYTES = 1 << 26
_ARCHIVED = re.compile(r".*(\.(json|txt|bin|safetensors|pt|index)|\.ckpt[^/]*\.data-[^/]*)")
_MAX_ARCHIVED_BYTES = 1 << 35
# The attributes in which DataParallel, `torch.compile`, Lightning, Fabric, FSDP and activation
# checkpointing keep the module that they wrap. They occur in no name of BERT.
_WRAPPERS = {
    "module", "_orig_mod", "model", "_forward_module", "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
}  # fmt: skip
# The entries that may hold the tensors of a PyTorch file: of fairseq and others, and of Lightning.
_ENTRIES = ("model", "state_dict")
# Classes in fairseq's checkpoints. They hold plain values once loaded.
_FAIRSEQ_METERS = ["AverageMeter", "TimeMeter", "StopwatchMeter"]


def find_tensor_files(folder: str) -> list[str]:
    """Returns the weight files of a Hugging Face folder with all their shards, or an empty list."""
    for name in WEIGHTS:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return [path]
        index = f"{path}.index.json"
        if os.path.isfile(index):
            names = shard_names(index)
            for shard in names:
                if not os.path.isfile(os.path.join(folder, shard)):
                    raise ValueError(f"{index} names {shard!r}, which does not exist")
            return [os.path.join(folder, shard) for shard in names]
    return []


def shard_names(index) -> list[str]:
    """Returns the file names in an index of shards. All must be next to the index."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{index} must have a `weight_map`. Received: {weight_map!r}")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if os.path.basename(name) != name:
            raise ValueError(f"{index} must name files in its own folder. Received: {name!r}")
    return names


def open_tensors(paths) -> dict[str, Tensor]:
    """Opens safetensors and PyTorch files. Returns a dict of name to `Tensor`."""
    tensors = {}
    for path in paths:
        is_safetensors = path.endswith(".safetensors")
        more = _open_safetensors(path) if is_safetensors else open_torch(path)
        for name in tensors.keys() & more.keys():
            raise ValueError(f"{path} must not repeat a tensor of another shard. Received: {name}")
        tensors.update(more)
    return tensors


def canonical_names(tensors: dict[str, Tensor], source: str) -> dict[str, Tensor]:
    """Removes wrappers and `bert.` from the names of tensors, and renames `gamma` and `beta`.

    A wrapper, such as `module.`, is kept if there is a tensor of the name without it.
    """
    given = {}
    for name in tensors:
        short = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
        short = (name if short in tensors else short).removeprefix("bert.")
        for old, new in [(".gamma", ".weight"), (".beta", ".bias")]:
            if short.endswith(old):
                short = short.removesuffix(old) + new
        other = given.setdefault(short, name)
        if other != name:
            raise ValueError(f"{source} must have each tensor once. Received: {other} and {name}")
    return {short: tensors[name] for short, name in given.items()}


def _open_safetensors(path):
    import ml_dtypes  # noqa: F401, for bfloat16 in NumPy
    from safetensors import SafetensorError, safe_open

    def read(name):
        with safe_open(path, framework="numpy") as file:
            return file.get_tensor(name)

    try:
        with safe_open(path, framework="numpy") as file:
            return {
                name: Tensor(tuple(file.get_slice(name).get_shape()), _reader(path, read, name))
                for name in file.keys()
            }
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a complete safetensors file: {error}") from None


def open_torch(path: str, is_fairseq: bool = False) -> dict[str, Tensor]:
    """Opens a file that `torch.save` wrote. Returns a dict of name to `Tensor`.

    These are the entries under `model` or `state_dict` if one exists. If `is_fairseq`, the file may
    also contain fairseq's settings and meters, which are plain values, not code.
    """
    content, num_bytes = _load_torch(path, is_fairseq), 0
    import torch

    odd = not isinstance(content, dict) or [
        name
        for name, value in content.items()
        if not torch.is_tensor(value) or not isinstance(name, str)
    ]
    if odd:
        what = type(content).__name__ if odd is True else f"no tensor for {odd[0]}"
        raise ValueError(f"{path} must be a dict of tensors. Received: {what}")

    def read(name):
        nonlocal content, num_bytes
        if num_bytes > _REOPEN_BYTES and _is_zip(path):
            content, num_bytes = None, 0  # Closes the file.
            content = _load_torch(path, is_fairseq)
        tensor = content[name].detach()
        num_bytes += tensor.nbytes
        # Copy, because JAX would keep the memory of the mapped file.
        return np.array(tensor.float() if tensor.dtype == torch.bfloat16 else tensor)

    return {
        name: Tensor(tuple(value.shape), _reader(path, read, name))
        for name, value in content.items()
    }


class _Meter:
    """Placeholder for one of fairseq's meters."""


def _load_torch(path, is_fairseq):
    """Returns the content of a file, or of its entry with the tensors."""
    torch = require("torch", f"Reading {path}")
    safe = [argparse.Namespace] if is_fairseq else []
    safe += [(_Meter, f"fairseq.meters.{name}") for name in _FAIRSEQ_METERS if is_fairseq]
    try:
        with torch.serialization.safe_globals(safe):
            # Files that torch.save wrote before 2020 are no zip files and cannot be mapped.
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except Exception as error:  # Many classes are possible, such as struct.error.
        raise ValueError(
            f"{path} must be a complete PyTorch file with only tensors and plain values. "
            f"Received: {_describe_damage(path, error)}"
        ) from None
    entries = [content.get(name) for name in _ENTRIES] if isinstance(content, dict) else []
    return next((entry for entry in entries if isinstance(entry, dict)), content)


def open_tensorflow(prefix) -> dict[str, Tensor]:
    """Opens a TensorFlow checkpoint. Returns a dict of name to `Tensor`."""
    tf = require("tensorflow", "A TensorFlow checkpoint")

    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"{prefix} is not a complete TensorFlow checkpoint: {reason}") from None
    return {
        name: Tensor(tuple(shape), _reader(prefix, reader.get_tensor, name))
        for name, shape in shapes.items()
    }


def extract(path: str, folder: str) -> None:
    """Extracts an archive's model files into a folder."""
    size = 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                parts = member.name.replace("\\", "/").split("/")
                inside = parts[0] != "" and ".." not in parts
                if not inside or not (member.isfile() or member.isdir()):
                    raise ValueError(
                        f"{path} must have only plain files and folders, with relative paths "
                        f"without '..'. Received: {member.name!r}"
                    )
                if member.isfile() and _ARCHIVED.fullmatch(member.name):
                    size += member.size
                    if size > _MAX_ARCHIVED_BYTES:
                        rule = f"must unpack to at most {_MAX_ARCHIVED_BYTES:,} bytes"
                        raise ValueError(f"{path} {rule}. Received: at least {size:,}")
                    archive.extract(member, folder, filter="data")
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a complete tar archive: {error}") from None


def _is_zip(path):
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def _describe_damage(path, error):
    """Returns one line about what is wrong with a file that PyTorch cannot load."""
    with open(path, "rb") as file:
        start = file.read(8)
    if not start:
        return "an empty file"
    kinds = b"PK", b"\x80"  # A zip archive, and a pickle as written before 2020.
    if not start.startswith(kinds):
        return f"another kind of file, which starts with {start!r}"
    lines = str(error).strip().splitlines()
    ends_early = isinstance(error, EOFError) or "unexpected EOF" in str(error)
    if ends_early or start.startswith(b"PK") and not zipfile.is_zipfile(path):
        return f"a file of {os.path.getsize(path):,} bytes whose end is missing"
    # Skip PyTorch's first line, which suggests loading the file anyway.
    refused = [line.strip() for line in lines if "nsupported" in line]
    return f"{type(error).__name__}: {(refused or lines or ['no reason'])[0]}"


def _reader(path, read, name):
    """Returns a function that reads a tensor of floats and reports any error in one line."""

    def read_and_check():
        try:
            array = np.asarray(read(name))
        except Exception as error:  # Each library has errors of its own.
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise ValueError(f"{path}: the tensor {name} cannot be read: {reason[0]}") from None
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            raise ValueError(
                f"{path}: the tensor {name} must be float16, bfloat16, float32 or float64. "
                f"Received: {array.dtype}"
            )
        if not np.isfinite(array).all():
            raise ValueError(
                f"{path}: the tensor {name} must have finite numbers; choose a checkpoint from "
                "before the training failed. Received: NaN or infinity"
            )
        return array

    return read_and_check
