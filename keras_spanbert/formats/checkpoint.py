"""A checkpoint of another library: its settings, tensors and vocabulary, validated."""

import collections
from collections.abc import Iterable

import numpy as np

LOADED, UNUSED, FRESH = "loaded", "left unused", "initialized"

# Maps values of `hidden_act` to Keras activations.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
# Duplicate names of tensors that the model has once.
TIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "cls.pair_target_predictions.decoder.weight": "embeddings.word_embeddings.weight",
}

_SIZES = [
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
]
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


class Checkpoint:
    """A checkpoint with valid settings, whose tensors are not loaded yet.

    Args:
        source: string. The origin of the checkpoint, for messages.
        config: dict. The settings of `transformers.BertConfig`.
        tensors: dict of name to `tensors.Tensor`. The names are Hugging Face's,
            with or without the prefix `bert.`. LayerNorm may have `weight` and
            `bias` or `gamma` and `beta`.
        vocabulary: list of strings. Defaults to `None`: unknown.
        lowercase: bool. Whether the tokenizer converts text to lower case. Defaults to `False`.
        added_tokens: dict. See `SpanBertTokenizer`. Defaults to `None`: none.
        notes: list of strings. Decisions about the checkpoint and their reasons.
            Defaults to `()`.

    Attributes:
        config: dict. The settings with all defaults filled in. It also has
            `max_span_tokens` and `position_dim` if the checkpoint has an SBO head,
            and `num_labels` if it has a classifier.
        rows: list of `Row`. The outcome for each tensor, and for each weight
            without one. Set each time a model is loaded from the checkpoint.

    Raises:
        ValueError: if a setting is missing or has a value that is not supported, a
            tensor is repeated, a classifier or SBO head lacks the tensor that gives its
            sizes, tied tensors differ, or the vocabulary has another size than the
            embeddings.
    """

    def __init__(
        self,
        source: str,
        config: dict,
        tensors: dict,
        vocabulary: list[str] | None = None,
        lowercase: bool = False,
        notes: Iterable[str] = (),
        added_tokens: dict[str, bool] | None = None,
    ):
        self.source = source
        self.tensors = self._canonicalize_names(tensors)
        self.config = self._check_config(config)
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.added_tokens = added_tokens or {}
        self.notes = list(notes)
        self.rows = []
        self._check_ties()
        if vocabulary is not None and len(vocabulary) != self.config["vocab_size"]:
            raise ValueError(
                f"{source}: the vocabulary must have as many tokens as the embeddings, "
                f"{self.config['vocab_size']}. Received: {len(vocabulary)}. The tokens that were "
                "added to a vocabulary are in the tokenizer's added_tokens.json or tokenizer.json; "
                "`vocabulary` names a file with all tokens"
            )

    def has(self, prefix: str) -> bool:
        """Returns whether the checkpoint has a tensor whose name starts with `prefix`."""
        return any(name.startswith(prefix) for name in self.tensors)

    def _canonicalize_names(self, tensors):
        given = {}
        for name in tensors:
            other = given.setdefault(_canonical(name), name)
            if other != name:
                raise ValueError(
                    f"{self.source} must have each tensor once. Received: {other} and {name}"
                )
        return {canonical: tensors[name] for canonical, name in given.items()}

    def _check_config(self, config):
        config = {"type_vocab_size": 2, "hidden_act": "gelu", **_RATES, **config}
        for name in _SIZES:
            value = config.get(name)
            if type(value) is not int or value < 1:
                raise ValueError(
                    f"{self.source}: the setting `{name}` must be a positive integer. "
                    f"Received: {value!r}"
                )
        for name in _RATES:
            value = config[name]
            if type(value) not in (int, float) or not 0.0 <= value < 1.0:
                raise ValueError(
                    f"{self.source}: the setting `{name}` must be in [0, 1). Received: {value!r}"
                )
        for name, known in [
            ("model_type", [None, "bert"]),
            ("position_embedding_type", [None, "absolute"]),
            ("is_decoder", [None, False]),
            ("hidden_act", list(ACTIVATIONS)),
        ]:
            if config.get(name) not in known:
                raise ValueError(
                    f"{self.source}: the setting `{name}` must be one of {known}. "
                    f"Received: {config[name]!r}"
                )
        for prefix, name, settings in _HEAD_SIZES:
            shape = getattr(self.tensors.get(prefix + name), "shape", ())
            if self.has(prefix) and len(shape) != len(settings):
                raise ValueError(
                    f"{self.source}: the tensor {prefix}{name} must have {len(settings)} axes, for "
                    f"{' and '.join(settings)}. Received: {shape or 'no such tensor'}"
                )
            config = {n: value for n, value in config.items() if n not in settings}
            config.update(zip(settings, shape))
        return config

    def _check_ties(self):
        for name, tied in TIES.items():
            if name not in self.tensors or tied not in self.tensors:
                continue
            if not np.array_equal(self.tensors[name].read(), self.tensors[tied].read()):
                raise ValueError(
                    f"{self.source}: the tensor {name} must be the same as {tied}, because the "
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


def _canonical(name):
    name = name.removeprefix("bert.")
    for old, new in [(".gamma", ".weight"), (".beta", ".bias")]:
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name
