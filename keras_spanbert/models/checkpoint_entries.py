"""Maps the tensors of a BERT checkpoint to the weights of a model.

Tensors have Hugging Face's names without the prefix `bert.`. The parameters of
LayerNorm are `weight` and `bias`. Shapes are PyTorch's: a kernel is `[out, in]`.
Each model class lists its tensors as `TensorGroup`s.
"""

import collections
import itertools
import logging
from collections.abc import Iterator

import keras
import numpy as np

from keras_spanbert.formats import Checkpoint
from keras_spanbert.formats.checkpoint import FRESH, LOADED, TIES, UNUSED, Row
from keras_spanbert.keras_private import lora_variables
from keras_spanbert.models.lora import lora_layers, merged_values

_LOG = logging.getLogger("keras_spanbert")

# `path` is the path of the Keras weight, or a tuple of paths if the tensor contains the rows of
# several weights. `shape` is the shape of the tensor.
Entry = collections.namedtuple("Entry", ["name", "path", "shape"])
# A group of tensors whose names share a prefix. A checkpoint contains all of them or none.
# `entries` is a function of the settings (of `transformers.BertConfig` and of the model) that
# yields the `Entry` of each tensor.
TensorGroup = collections.namedtuple("TensorGroup", ["prefix", "entries"])


def encoder_entries(settings: dict) -> Iterator[Entry]:
    """Yields the encoder's tensors."""
    H, I = settings["hidden_size"], settings["intermediate_size"]  # noqa: E741
    for name, path, rows in [
        ("word", "token_embedding/embeddings", settings["vocab_size"]),
        ("position", "position_embedding/embeddings", settings["max_position_embeddings"]),
        ("token_type", "segment_embedding/embeddings", settings["type_vocab_size"]),
    ]:
        yield Entry(f"embeddings.{name}_embeddings.weight", path, (rows, H))
    yield from layer_norm("embeddings.LayerNorm", "embeddings_layer_norm", H)
    for i in range(settings["num_hidden_layers"]):
        name, path = f"encoder.layer.{i}", f"transformer_layer_{i}"
        for tensors, weights, inputs, outputs in [
            ("attention.self.query", "self_attention_layer/query", H, H),
            ("attention.self.key", "self_attention_layer/key", H, H),
            ("attention.self.value", "self_attention_layer/value", H, H),
            ("attention.output.dense", "self_attention_layer/attention_output", H, H),
            ("intermediate.dense", "feedforward_intermediate_dense", H, I),
            ("output.dense", "feedforward_output_dense", I, H),
        ]:
            yield from dense(f"{name}.{tensors}", f"{path}/{weights}", inputs, outputs)
        norm = "attention.output.LayerNorm"
        yield from layer_norm(f"{name}.{norm}", f"{path}/self_attention_layer_norm", H)
        yield from layer_norm(f"{name}.output.LayerNorm", f"{path}/feedforward_layer_norm", H)


def dense(name: str, path: str, inputs: int, outputs: int) -> Iterator[Entry]:
    """Yields a dense layer's tensors."""
    yield Entry(f"{name}.weight", f"{path}/kernel", (outputs, inputs))
    yield Entry(f"{name}.bias", f"{path}/bias", (outputs,))


def layer_norm(name: str, path: str, size: int) -> Iterator[Entry]:
    """Yields the tensors of a layer normalization."""
    yield Entry(f"{name}.weight", f"{path}/gamma", (size,))
    yield Entry(f"{name}.bias", f"{path}/beta", (size,))


def _paths(entry: Entry) -> tuple[str, ...]:
    return (entry.path,) if isinstance(entry.path, str) else entry.path


def _is_transposed(entry: Entry) -> bool:
    """Returns whether the tensor is a kernel in PyTorch's layout, `[out, in]`."""
    return entry.name.endswith(".weight") and _paths(entry)[0].endswith("/kernel")


def select_entries(checkpoint: Checkpoint, groups: list[TensorGroup]) -> list[Entry]:
    """Returns the entries of the groups that a checkpoint contains. The first group is required.

    Raises:
        ValueError: if a tensor of a group is missing or does not match the
            settings, or the encoder has more layers than the settings say.
    """
    has = [group is groups[0] or checkpoint.has(group.prefix) for group in groups]
    entries = []
    # Iterates lazily, because wrong settings could ask for a huge number of tensors.
    for entry in itertools.chain.from_iterable(
        group.entries(checkpoint.config) for group, is_there in zip(groups, has) if is_there
    ):
        tensor = checkpoint.tensors.get(entry.name)
        if tensor is None:
            _check_prefix(checkpoint, entry.name)
            raise ValueError(f"{checkpoint.source} lacks the tensor {entry.name} {entry.shape}")
        if tensor.shape != entry.shape:
            raise ValueError(
                f"{checkpoint.source}: the tensor {entry.name} must have the shape {entry.shape} "
                f"according to the settings. Received: {tensor.shape}"
            )
        entries.append(entry)
    used = {entry.name for entry in entries}
    left = [n for n in checkpoint.tensors if n.startswith("encoder.layer.") and n not in used]
    if left:
        raise ValueError(
            f"{checkpoint.source}: the encoder must have only BERT's tensors, for "
            f"{checkpoint.config['num_hidden_layers']} layers according to the settings. "
            f"Received an additional tensor: {left[0]}"
        )
    return entries


def _check_prefix(checkpoint, name):
    """Raises `ValueError` if a tensor exists, but under an unknown prefix."""
    found = next((other for other in checkpoint.tensors if other.endswith(f".{name}")), None)
    if found is not None:
        raise ValueError(
            f"{checkpoint.source} must have BERT's tensors under their own names or under `bert.`, "
            "without a prefix that is not known (`module.`, `_orig_mod.` and `model.` are known). "
            f"Received: {found}, where {name} is needed. Rename the tensors"
        )


def load_entries(
    checkpoint: Checkpoint,
    entries: list[Entry],
    model: keras.Model,
    backbone: keras.Model,
    skip_backbone: bool = False,
) -> None:
    """Copies a checkpoint's tensors into a model's weights.

    Records in `checkpoint.rows` which tensors were loaded, which were not used, and
    which weights have no tensor.

    Args:
        checkpoint: `Checkpoint`.
        entries: list from `select_entries`.
        model: the backbone or a task.
        backbone: the model's backbone.
        skip_backbone: bool. Whether to leave the backbone's weights alone.
            Defaults to `False`.

    Raises:
        ValueError: if a tensor does not fit its weight, or there is no tensor for
            a weight of the encoder. The pooler is optional.
    """
    # If the model was built inside another layer, its paths start with that layer's name.
    prefix = backbone.token_embedding.embeddings.path.removesuffix("token_embedding/embeddings")
    weights = {weight.path.removeprefix(prefix): weight for weight in model.weights}
    encoder = {weight.path.removeprefix(prefix) for weight in backbone.weights}
    if skip_backbone:
        weights = {path: w for path, w in weights.items() if path not in encoder}
    used = set()
    for entry in entries:
        if not all(path in weights for path in _paths(entry)):
            continue  # The model has no weights for this tensor.
        found = [weights.pop(path) for path in _paths(entry)]
        array = checkpoint.tensors[entry.name].read()
        if _is_transposed(entry):
            array = array.T
        sizes = [int(np.prod(weight.shape)) for weight in found]
        if array.size != sum(sizes):
            raise ValueError(
                f"{checkpoint.source}: the tensor {entry.name} {entry.shape} does not fit the "
                f"model's {entry.path} {[tuple(weight.shape) for weight in found]}"
            )
        for weight, values in zip(found, np.split(array.reshape(-1), np.cumsum(sizes)[:-1])):
            weight.assign(values.reshape(weight.shape))
        used.add(entry.name)
    missing = sorted(p for p in encoder & weights.keys() if not p.startswith("pooler/"))
    if missing:
        raise ValueError(f"{checkpoint.source} has no tensor for the encoder's {missing[0]}")
    used |= {name for name, tied in TIES.items() if tied in used}
    checkpoint.rows = [
        Row(LOADED if name in used else UNUSED, name, tensor.shape)
        for name, tensor in checkpoint.tensors.items()
    ]
    checkpoint.rows += [Row(FRESH, path, tuple(weight.shape)) for path, weight in weights.items()]
    if weights:
        _LOG.warning(
            "%s has no weights for %s, which start from random weights",
            checkpoint.source,
            " and ".join(checkpoint.fresh_layers()),
        )


def checkpoint_tensors(
    model: keras.Model, settings: dict, groups: list[TensorGroup]
) -> dict[str, np.ndarray]:
    """Returns a model's weights as the tensors of a checkpoint, LoRA weights merged.

    Raises:
        ValueError: if the model has weights that are not in `groups`.
    """
    weights = {weight.path: weight for weight in model.weights}
    for layer in lora_layers(model):
        table, *factors = lora_variables(layer)
        weights[table.path] = merged_values(layer)
        for variable in factors:
            del weights[variable.path]
    entries = [entry for group in groups for entry in group.entries(settings)]
    others = weights.keys() - {path for entry in entries for path in _paths(entry)}
    if others:  # For example quantized layers.
        raise ValueError(
            f"`model` must have only the weights of a BERT model. Received: {min(others)}"
        )
    tensors = {}
    for entry in entries:
        arrays = [keras.ops.convert_to_numpy(weights[path]) for path in _paths(entry)]
        array = np.concatenate([array.reshape(-1) for array in arrays])
        if _is_transposed(entry):
            array = array.reshape(entry.shape[::-1]).T
        tensors[entry.name] = np.ascontiguousarray(array.reshape(entry.shape))
    return tensors
