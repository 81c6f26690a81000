"""A checkpoint of another library, and how its tensors map to the weights of a model.

Tensors have Hugging Face's names without the prefix `bert.`, with `weight` and `bias` for
LayerNorm, and PyTorch's shapes: a kernel is `[out, in]`. Each model class lists its tensors as
`TensorGroup`s.
"""

import collections
from collections.abc import Iterator

import keras
import numpy as np

from keras_spanbert.formats.huggingface import ACTIVATIONS
from keras_spanbert.formats.tensors import canonical_names
from keras_spanbert.keras_private import lora_variables
from keras_spanbert.models.lora import lora_layers, merged_values
from keras_spanbert.wording import LOG

LOADED, UNUSED, FRESH = "loaded", "left unused", "initialized"
# Duplicate names of tensors that the model has once.
_TIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "cls.pair_target_predictions.decoder.weight": "embeddings.word_embeddings.weight",
}
_SIZES = [
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size",
]  # fmt: skip
_RATES = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "layer_norm_eps": 1e-12}
# For each head, the prefix of its tensors, the tensor that gives its sizes, and their settings.
_HEAD_SIZES = [
    ("classifier.", "bias", ["num_labels"]),
    (
        "cls.pair_target_predictions.",
        "position_embeddings.weight",
        ["max_span_tokens", "position_dim"],
    ),
]

Row = collections.namedtuple("Row", ["status", "name", "shape"])
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


def tensor_groups(cls: type, arguments: dict) -> list[TensorGroup]:
    """Returns the tensors of a backbone or task with these arguments, the encoder's first."""
    return [getattr(cls, "backbone_cls", cls).tensor_group, *cls.tensor_groups_for(arguments)]


class Checkpoint:
    """A checkpoint of another library with valid settings, whose tensors are not loaded yet.

    `name` is its origin, for messages. `settings` are those of `transformers.BertConfig`; the
    attribute also has defaults, and the sizes of an SBO head and a classifier. `tensors` are
    `tensors.Tensor`s by Hugging Face's names, with or without `bert.`. `notes` are for the user,
    and `tokenizer` has the arguments of the tokenizer, if there is one. Raises `ValueError` if a
    part is missing, is not supported, or does not fit another one.
    """

    is_quantized = False
    task = None

    def __init__(self, name: str, settings: dict, tensors: dict, notes: list[str], tokenizer: dict):
        self.name = name
        self.tensors = canonical_names(tensors, name)
        self.settings = self._check_settings(settings)
        self.tokenizer_arguments = tokenizer
        self.notes = notes
        self.rows = []  # The outcome for each tensor, and for each weight without one.
        self._check_ties()
        num_tokens = len(tokenizer.get("vocabulary", ()))
        if tokenizer and num_tokens != self.settings["vocab_size"]:
            raise ValueError(
                f"{name}: the vocabulary must have as many tokens as the embeddings, "
                f"{self.settings['vocab_size']}. Received: {num_tokens}. The tokens that were "
                "added to a vocabulary are in the tokenizer's added_tokens.json or tokenizer.json; "
                "`vocabulary` names a file with all tokens"
            )

    def has(self, prefix: str) -> bool:
        """Returns whether the checkpoint has a tensor whose name starts with `prefix`."""
        return any(name.startswith(prefix) for name in self.tensors)

    @property
    def has_vocabulary(self) -> bool:
        return bool(self.tokenizer_arguments)

    def saved(self, cls: type) -> None:
        """Returns `None`: only presets have saved objects."""

    def fits(self, cls: type) -> bool:
        return True

    def arguments_of(self, cls: type, **changes) -> dict:
        """Returns arguments of a backbone or task. Checks that the checkpoint has its tensors."""
        arguments = {**cls.arguments_in(self), **changes}
        self._entries(cls, arguments)
        return arguments

    def build(self, cls: type, arguments: dict):
        return cls.from_config(arguments)

    def backbone(self, cls: type, **changes):
        """Builds the backbone of a task, or a backbone, without weights."""
        cls = getattr(cls, "backbone_cls", cls)
        return cls(**{**cls.arguments_in(self), **changes})

    def tokenizer(self, cls: type, **changes):
        arguments = {**self.tokenizer_arguments, **changes}
        if not self.has_vocabulary:
            raise ValueError(
                f"{self.name} must contain vocab.txt or tokenizer.json, or `vocabulary` "
                "must name one of them. Received: neither"
            )
        for note in self.notes:
            if note.startswith("Warning: "):
                LOG.warning("%s: %s", self.name, note.removeprefix("Warning: "))
        try:
            return cls(**arguments)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    def load_weights(self, model: keras.Model, keeps_backbone: bool = False) -> None:
        """Copies the tensors into a model's weights, and records in `rows` what became of each.

        `keeps_backbone` leaves the weights of the model's backbone alone. Raises `ValueError` if a
        tensor does not fit its weight, or the encoder has a weight without a tensor. The pooler is
        optional.
        """
        backbone = getattr(model, "backbone", model)
        # If the model was built inside another layer, its paths start with that layer's name.
        prefix = backbone.token_embedding.embeddings.path.removesuffix("token_embedding/embeddings")
        weights = {weight.path.removeprefix(prefix): weight for weight in model.weights}
        encoder = {weight.path.removeprefix(prefix) for weight in backbone.weights}
        if keeps_backbone:
            weights = {path: w for path, w in weights.items() if path not in encoder}
        used = set()
        for entry in self._entries(type(model), model.get_config()):
            if not all(path in weights for path in _paths(entry)):
                continue  # The model has no weights for this tensor.
            found = [weights.pop(path) for path in _paths(entry)]
            array = self.tensors[entry.name].read()
            if _is_transposed(entry):
                array = array.T
            sizes = [int(np.prod(weight.shape)) for weight in found]
            if array.size != sum(sizes):
                raise ValueError(
                    f"{self.name}: the tensor {entry.name} {entry.shape} does not fit the "
                    f"model's {entry.path} {[tuple(weight.shape) for weight in found]}"
                )
            for weight, values in zip(found, np.split(array.reshape(-1), np.cumsum(sizes)[:-1])):
                weight.assign(values.reshape(weight.shape))
            used.add(entry.name)
        missing = sorted(p for p in encoder & weights.keys() if not p.startswith("pooler/"))
        if missing:
            raise ValueError(f"{self.name} has no tensor for the encoder's {missing[0]}")
        used |= {name for name, tied in _TIES.items() if tied in used}
        self.rows = [
            Row(LOADED if name in used else UNUSED, name, tensor.shape)
            for name, tensor in self.tensors.items()
        ]
        self.rows += [Row(FRESH, path, tuple(weight.shape)) for path, weight in weights.items()]
        if weights:
            LOG.warning(
                "%s has no weights for %s, which start from random weights",
                self.name,
                " and ".join(self.fresh_layers()),
            )

    def _entries(self, cls, arguments) -> list[Entry]:
        """Returns the entries of the groups that the checkpoint has. The first one is required."""
        groups, settings = tensor_groups(cls, arguments), {**arguments, **self.settings}
        entries = []
        for group in groups:
            # Iterates lazily, because wrong settings could ask for a huge number of tensors.
            is_there = group is groups[0] or self.has(group.prefix)
            for entry in group.entries(settings) if is_there else ():
                self._check_tensor(entry)
                entries.append(entry)
        used = {entry.name for entry in entries}
        left = [n for n in self.tensors if n.startswith("encoder.layer.") and n not in used]
        if left:
            raise ValueError(
                f"{self.name}: the encoder must have only BERT's tensors, for "
                f"{self.settings['num_hidden_layers']} layers according to the settings. "
                f"Received an additional tensor: {left[0]}"
            )
        return entries

    def _check_tensor(self, entry):
        tensor = self.tensors.get(entry.name)
        if tensor is None:
            found = next((name for name in self.tensors if name.endswith(f".{entry.name}")), None)
            if found is None:
                raise ValueError(f"{self.name} lacks the tensor {entry.name} {entry.shape}")
            raise ValueError(
                f"{self.name} must have BERT's tensors under their own names or under `bert.`, "
                "without a prefix that is not known (`module.`, `_orig_mod.` and `model.` are "
                f"known). Received: {found}, where {entry.name} is needed. Rename the tensors"
            )
        if tensor.shape != entry.shape:
            raise ValueError(
                f"{self.name}: the tensor {entry.name} must have the shape {entry.shape} "
                f"according to the settings. Received: {tensor.shape}"
            )

    # === Checks ===
    def _check_settings(self, settings):
        settings = {"type_vocab_size": 2, "hidden_act": "gelu", **_RATES, **settings}
        known = {
            "model_type": [None, "bert"],
            "position_embedding_type": [None, "absolute"],
            "is_decoder": [None, False],
            "hidden_act": list(ACTIVATIONS),
        }
        for name in [*_SIZES, *_RATES, *known]:
            value = settings.get(name)
            if name in _SIZES:
                is_right, rule = type(value) is int and value >= 1, "a positive integer"
            elif name in _RATES:
                is_right, rule = type(value) in (int, float) and 0.0 <= value < 1.0, "in [0, 1)"
            else:
                is_right, rule = value in known[name], f"one of {known[name]}"
            if not is_right:
                raise ValueError(
                    f"{self.name}: the setting `{name}` must be {rule}. Received: {value!r}"
                )
        for prefix, name, sizes in _HEAD_SIZES:
            shape = getattr(self.tensors.get(prefix + name), "shape", ())
            if self.has(prefix) and len(shape) != len(sizes):
                raise ValueError(
                    f"{self.name}: the tensor {prefix}{name} must have {len(sizes)} axes, for "
                    f"{' and '.join(sizes)}. Received: {shape or 'no such tensor'}"
                )
            settings = {n: value for n, value in settings.items() if n not in sizes}
            settings.update(zip(sizes, shape))
        settings.pop("model_type", None)  # Task classes may have an argument of this name.
        return settings

    def _check_ties(self):
        for name, tied in _TIES.items():
            tensor = self.tensors.get(name)
            if tensor is None:
                continue
            if name.endswith(".bias"):  # Some checkpoints have only this one.
                self.tensors.setdefault(tied, tensor)
            if not np.array_equal(tensor.read(), self.tensors.get(tied, tensor).read()):
                raise ValueError(
                    f"{self.name}: the tensor {name} must be the same as {tied}, because the "
                    "model has only one weight for both. Received: other values"
                )

    # === Report ===
    def fresh_layers(self) -> list[str]:
        """Returns the names of the layers whose weights the checkpoint lacks."""
        return sorted({row.name.split("/")[0] for row in self.rows if row.status == FRESH})

    def summary(self) -> str:
        """Returns the numbers of loaded and unused tensors and new weights, with the notes."""
        counts = collections.Counter(row.status for row in self.rows)
        line = ", ".join(f"{counts[status]} {status}" for status in [LOADED, UNUSED, FRESH])
        if counts[FRESH]:
            line += f" ({', '.join(self.fresh_layers())})"
        return "\n".join([line, *self.notes])

    def report(self) -> str:
        """Returns a table of the outcome for each tensor, followed by `summary`."""
        width = max(len(row.name) for row in self.rows)
        lines = [f"{row.status:<15}{row.name:<{width + 2}}{row.shape}" for row in self.rows]
        return "\n".join([*lines, self.summary()])


def checkpoint_tensors(
    model: keras.Model, settings: dict, groups: list[TensorGroup]
) -> dict[str, np.ndarray]:
    """Returns a model's weights as the tensors of a checkpoint, LoRA weights merged."""
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
