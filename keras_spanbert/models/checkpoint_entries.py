"""The tensors of a BERT checkpoint, and the weights they become.

Tensors bear Hugging Face's names without the prefix `bert.`, LayerNorm's with
`weight` and `bias`. Their shapes are PyTorch's, a kernel `[out, in]`. Each model
class says which it has, as a list of `Part`s.
"""

import collections
import itertools
import logging
from collections.abc import Iterator

import keras
import numpy as np

from keras_spanbert.formats import Checkpoint
from keras_spanbert.formats.checkpoint import FRESH, LOADED, TIES, UNUSED, Row

_LOG = logging.getLogger("keras_spanbert")

# `path` is the Keras weight's, `shape` the tensor's.
Entry = collections.namedtuple("Entry", ["name", "path", "shape"])
# Tensors that a checkpoint has all of or none, known by their names' prefix; `entries` yields
# them for settings, those of `transformers.BertConfig` and the model's own.
Part = collections.namedtuple("Part", ["prefix", "entries"])


def encoder_entries(settings: dict) -> Iterator[Entry]:
    """The encoder's tensors, one by one."""
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
        for part in ["query", "key", "value"]:
            yield from dense(
                f"{name}.attention.self.{part}", f"{path}/self_attention_layer/{part}", H, H
            )
        for tensors, weights, inputs, outputs in [
            ("attention.output.dense", "self_attention_layer/attention_output", H, H),
            ("intermediate.dense", "feedforward_intermediate_dense", H, I),
            ("output.dense", "feedforward_output_dense", I, H),
        ]:
            yield from dense(f"{name}.{tensors}", f"{path}/{weights}", inputs, outputs)
        for tensors, weights in [
            ("attention.output.LayerNorm", "self_attention_layer_norm"),
            ("output.LayerNorm", "feedforward_layer_norm"),
        ]:
            yield from layer_norm(f"{name}.{tensors}", f"{path}/{weights}", H)


def dense(name: str, path: str, inputs: int, outputs: int) -> Iterator[Entry]:
    """A dense layer's tensors."""
    yield Entry(f"{name}.weight", f"{path}/kernel", (outputs, inputs))
    yield Entry(f"{name}.bias", f"{path}/bias", (outputs,))


def layer_norm(name: str, path: str, size: int) -> Iterator[Entry]:
    """A layer normalisation's tensors."""
    yield Entry(f"{name}.weight", f"{path}/gamma", (size,))
    yield Entry(f"{name}.bias", f"{path}/beta", (size,))


def checked_entries(checkpoint: Checkpoint, parts: list[Part]) -> list[Entry]:
    """The entries of those parts that a checkpoint has, the first part in any case.

    Raises:
        ValueError: where a tensor of a part is missing or does not fit the
            settings, or the encoder has more layers than they say.
    """
    has = [part is parts[0] or checkpoint.has(part.prefix) for part in parts]
    entries = []
    # One by one: settings that lie may ask for any number of them.
    for entry in itertools.chain.from_iterable(
        part.entries(checkpoint.config) for part, is_there in zip(parts, has) if is_there
    ):
        tensor = checkpoint.tensors.get(entry.name)
        if tensor is None:
            raise ValueError(f"{checkpoint.source} lacks the tensor {entry.name} {entry.shape}")
        if tensor.shape != entry.shape:
            raise ValueError(
                f"{checkpoint.source}: the tensor {entry.name} must have the shape {entry.shape} "
                f"by the settings. Received: {tensor.shape}"
            )
        entries.append(entry)
    used = {entry.name for entry in entries}
    left = [n for n in checkpoint.tensors if n.startswith("encoder.layer.") and n not in used]
    if left:
        raise ValueError(
            f"{checkpoint.source}: the settings have {checkpoint.config['num_hidden_layers']} "
            f"layers of known tensors. Received besides: {left[0]}"
        )
    return entries


def load_entries(
    checkpoint: Checkpoint,
    entries: list[Entry],
    model: keras.Model,
    backbone: keras.Model,
    skip_backbone: bool = False,
) -> None:
    """Copies a checkpoint's tensors into a model's weights, and fills its `rows`.

    Args:
        checkpoint: `Checkpoint`.
        entries: list from `checked_entries`.
        model: the backbone or a task.
        backbone: the model's backbone.
        skip_backbone: bool. Whether to leave the backbone's weights alone.
            Defaults to `False`.

    Raises:
        ValueError: where a tensor does not fit its weight, or the encoder has a
            weight without a tensor.
    """
    # A model built inside another layer has that one's name before its own.
    prefix = backbone.token_embedding.embeddings.path.removesuffix("token_embedding/embeddings")
    weights = {weight.path.removeprefix(prefix): weight for weight in model.weights}
    encoder = {weight.path.removeprefix(prefix) for weight in backbone.weights}
    if skip_backbone:
        weights = {path: w for path, w in weights.items() if path not in encoder}
    used = set()
    for entry in entries:
        weight = weights.pop(entry.path, None)
        if weight is None:  # Of what this model has not.
            continue
        array = checkpoint.tensors[entry.name].read()
        if entry.path.endswith("/kernel"):
            array = array.T
        if array.size != np.prod(weight.shape):
            raise ValueError(
                f"{checkpoint.source}: the tensor {entry.name} {entry.shape} does not fit the "
                f"model's {entry.path} {tuple(weight.shape)}"
            )
        weight.assign(array.reshape(weight.shape))
        used.add(entry.name)
    missing = sorted(encoder & weights.keys())
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
            "%s has no weights for %s, which start fresh",
            checkpoint.source,
            " and ".join(checkpoint.fresh_layers()),
        )


def tensors_of(model: keras.Model, settings: dict, parts: list[Part]) -> dict[str, np.ndarray]:
    """A model's weights as the tensors of a checkpoint.

    Raises:
        ValueError: where the model has other weights too.
    """
    weights = {weight.path: weight for weight in model.weights}
    entries = [entry for part in parts for entry in part.entries(settings)]
    others = weights.keys() - {entry.path for entry in entries}
    if others:  # Of LoRA or quantized layers, for example.
        raise ValueError(
            f"`model` must have the weights of a BERT alone. Received besides: {min(others)}"
        )
    tensors = {}
    for entry in entries:
        array = keras.ops.convert_to_numpy(weights[entry.path])
        if entry.path.endswith("/kernel"):
            array = array.reshape(entry.shape[::-1]).T
        tensors[entry.name] = np.ascontiguousarray(array.reshape(entry.shape))
    return tensors
