"""A checkpoint of another library: checked, then made into Keras models."""

import collections
import contextlib
import logging

import numpy as np

from keras_spanbert.checkpoints import names
from keras_spanbert.models.backbone import SpanBertBackbone, gelu_tanh, weights_are_coming
from keras_spanbert.models.tokenizer import SpanBertTokenizer

_LOG = logging.getLogger("keras_spanbert")

LOADED, UNUSED, FRESH = "loaded", "left unused", "started fresh"

_SIZES = [
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
]
_RATES = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
}
# Values of `hidden_act` by what they compute.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": gelu_tanh,
    "gelu_fast": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
_HEADS = {
    "cls.predictions.": names.mlm_entries,
    "cls.pair_target_predictions.": names.sbo_entries,
    "qa_outputs.": names.qa_entries,
}

Row = collections.namedtuple("Row", ["status", "name", "shape"])


class Checkpoint:
    """A checkpoint whose tensors all fit its settings; nothing is loaded yet.

    Args:
        source: string. Where it is from, for messages.
        config: dict. The settings of `transformers.BertConfig`.
        tensors: dict of name to `files.Tensor`, with Hugging Face's names,
            with or without the prefix `bert.`, LayerNorm's with `weight` and
            `bias` or `gamma` and `beta`.
        vocabulary: list of strings. Defaults to `None`, not known.
        lowercase: bool. Whether the tokenizer lower-cases. Defaults to `False`.
        notes: list of strings, what was decided and from what. Defaults to
            `()`.

    Attributes:
        rows: list of `Row`, what became of each tensor and of each weight
            without one. Filled as models are made.

    Raises:
        ValueError: where a setting is missing or unknown, a tensor of the
            encoder or of a head is missing or has another shape, or the
            vocabulary has another size.
    """

    def __init__(self, source, config, tensors, vocabulary=None, lowercase=False, notes=()):
        self.source = source
        self.tensors = self._by_canonical_name(tensors)
        self.config = self._checked_config(config)
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.notes = list(notes)
        self.rows = []
        self._entries = list(self._checked(names.encoder_entries, self.config))
        for prefix, entries in _HEADS.items():
            if any(name.startswith(prefix) for name in self.tensors):
                self._entries += self._checked(entries, self.config)
        self._check_layers()
        self._check_ties()
        if vocabulary is not None and len(vocabulary) != self.config["vocab_size"]:
            raise ValueError(
                f"{source}: the vocabulary must have as many tokens as the embeddings, "
                f"{self.config['vocab_size']}. Received: {len(vocabulary)}"
            )

    def _by_canonical_name(self, tensors):
        by_name, names_given = {}, {}
        for name, tensor in tensors.items():
            canonical = _canonical(name)
            if canonical in by_name:
                raise ValueError(
                    f"{self.source} must hold a tensor once. Received: "
                    f"{names_given[canonical]} and {name}"
                )
            by_name[canonical], names_given[canonical] = tensor, name
        return by_name

    def _checked_config(self, config):
        config = {"type_vocab_size": 2, **config}
        for name in _SIZES:
            value = config.get(name)
            if type(value) is not int or value < 1:
                raise ValueError(
                    f"{self.source}: the setting `{name}` must be a positive integer. "
                    f"Received: {value!r}"
                )
        for name, default in _RATES.items():
            value = config.get(name, default)
            if type(value) not in (int, float) or not 0.0 <= value < 1.0:
                raise ValueError(
                    f"{self.source}: the setting `{name}` must be in [0, 1). Received: {value!r}"
                )
        config = {"hidden_act": "gelu", **_RATES, **config}
        for name in ["max_span_tokens", "position_dim"]:  # Read off the tensors alone.
            config.pop(name, None)
        for name, known in [
            ("model_type", [None, "bert"]),
            ("position_embedding_type", [None, "absolute"]),
            ("is_decoder", [None, False]),
            ("hidden_act", list(_ACTIVATIONS)),
        ]:
            if config.get(name) not in known:
                raise ValueError(
                    f"{self.source}: the setting `{name}` must be one of {known}. "
                    f"Received: {config[name]!r}"
                )
        position = self.tensors.get("cls.pair_target_predictions.position_embeddings.weight")
        if position is not None and len(position.shape) == 2:
            config["max_span_tokens"], config["position_dim"] = position.shape
        return config

    def _checked(self, entries, config):
        if entries is names.sbo_entries and "position_dim" not in config:
            raise ValueError(
                f"{self.source} lacks cls.pair_target_predictions.position_embeddings.weight"
            )
        for entry in entries(config):
            tensor = self.tensors.get(entry.name)
            if tensor is None:
                raise ValueError(f"{self.source} lacks the tensor {entry.name} {entry.shape}")
            if tensor.shape != entry.shape:
                raise ValueError(
                    f"{self.source}: the tensor {entry.name} must have the shape {entry.shape} "
                    f"by the settings. Received: {tensor.shape}"
                )
            yield entry

    def _check_layers(self):
        used = {entry.name for entry in self._entries}
        left = [n for n in self.tensors if n.startswith("encoder.layer.") and n not in used]
        if left:
            raise ValueError(
                f"{self.source}: the settings have {self.config['num_hidden_layers']} layers of "
                f"known tensors. Received besides: {left[0]}"
            )

    def _check_ties(self):
        for name, tied in names.TIES.items():
            if name not in self.tensors or tied not in self.tensors:
                continue
            if not np.array_equal(self.tensors[name].read(), self.tensors[tied].read()):
                raise ValueError(
                    f"{self.source}: the tensor {name} must be the same as {tied}, as the head "
                    "is tied to the embedding. Received: other values"
                )

    def backbone(self, load_weights=True, **kwargs):
        """The encoder, as a `SpanBertBackbone`.

        Args:
            load_weights: bool. Defaults to `True`.
            **kwargs: arguments of `SpanBertBackbone` that take the place of the
                checkpoint's.
        """
        if load_weights:
            with weights_are_coming():
                backbone = self._new_backbone(kwargs)
            self.load(backbone)
            return backbone
        return self._new_backbone(kwargs)

    def _new_backbone(self, kwargs):
        config = self.config
        return SpanBertBackbone(
            **{
                "vocabulary_size": config["vocab_size"],
                "num_layers": config["num_hidden_layers"],
                "num_heads": config["num_attention_heads"],
                "hidden_dim": config["hidden_size"],
                "intermediate_dim": config["intermediate_size"],
                "dropout": config["hidden_dropout_prob"],
                "attention_dropout": config["attention_probs_dropout_prob"],
                "max_sequence_length": config["max_position_embeddings"],
                "num_segments": config["type_vocab_size"],
                "activation": _ACTIVATIONS[config["hidden_act"]],
                "layer_norm_epsilon": config["layer_norm_eps"],
                "initializer_range": config.get("initializer_range", 0.02),
                **kwargs,
            }
        )

    def task(self, cls, load_weights=True, dtype=None, **kwargs):
        """The encoder and what the checkpoint has of a task's head.

        Args:
            cls: a task, such as `SpanBertPretrainer`.
            load_weights: bool. Defaults to `True`.
            dtype: string or `keras.DTypePolicy`. Defaults to `None`, Keras's.
            **kwargs: arguments of the task.
        """
        has_backbone = "backbone" in kwargs
        if not has_backbone:
            with weights_are_coming() if load_weights else contextlib.nullcontext():
                kwargs["backbone"] = self._new_backbone({"dtype": dtype})
        kwargs = {**cls.arguments_for(self.config), **kwargs}
        if "preprocessor" not in kwargs:
            if self.vocabulary is None:
                _LOG.warning("%s has no vocabulary: the model has no preprocessor", self.source)
            else:
                # By the task's own arguments where they differ from the checkpoint's.
                arguments = cls.preprocessor_cls.arguments_for({**self.config, **kwargs})
                kwargs["preprocessor"] = self.preprocessor(cls.preprocessor_cls, **arguments)
        task = cls(**kwargs)
        if load_weights:
            self.load(task, without_backbone=has_backbone)
        return task

    def tokenizer(self, **kwargs):
        """The `SpanBertTokenizer`, with `kwargs` in place of what was read."""
        kwargs = {"vocabulary": self.vocabulary, "lowercase": self.lowercase, **kwargs}
        if kwargs["vocabulary"] is None:
            raise ValueError(
                f"{self.source} must hold vocab.txt or tokenizer.json, or `vocabulary` must name "
                "one. Received: neither"
            )
        for note in self.notes:
            if note.startswith("Warning: "):
                _LOG.warning("%s: %s", self.source, note.removeprefix("Warning: "))
        try:
            return SpanBertTokenizer(**kwargs)
        except ValueError as error:
            raise ValueError(f"{self.source}: {error}") from None

    def preprocessor(self, cls, **kwargs):
        """A task's preprocessor, with sequences no longer than the model's."""
        kwargs = {**cls.arguments_for(self.config), **kwargs}
        if "tokenizer" not in kwargs:
            kwargs["tokenizer"] = self.tokenizer()
        return cls(**kwargs)

    def load(self, model, without_backbone=False):
        """Copies tensors into a model's weights, and fills `rows`."""
        backbone = getattr(model, "backbone", model)
        # A model built inside another layer has that one's name before its own.
        first = backbone.token_embedding.embeddings.path
        prefix = first.removesuffix("token_embedding/embeddings")
        weights = {weight.path.removeprefix(prefix): weight for weight in model.weights}
        encoder = {weight.path.removeprefix(prefix) for weight in backbone.weights}
        if without_backbone:
            weights = {path: w for path, w in weights.items() if path not in encoder}
        used = set()
        for entry in self._entries:
            weight = weights.pop(entry.path, None)
            if weight is None:  # Of what this model has not.
                continue
            array = self.tensors[entry.name].read()
            if entry.path.endswith("/kernel"):
                array = array.T
            if array.size != np.prod(weight.shape):
                raise ValueError(
                    f"{self.source}: the tensor {entry.name} {entry.shape} does not fit the "
                    f"model's {entry.path} {tuple(weight.shape)}"
                )
            weight.assign(array.reshape(weight.shape))
            used.add(entry.name)
        missing = sorted(encoder & weights.keys())
        if missing:
            raise ValueError(f"{self.source} has no tensor for the encoder's {missing[0]}")
        used |= {name for name, tied in names.TIES.items() if tied in used}
        self.rows = [
            Row(LOADED if name in used else UNUSED, name, tensor.shape)
            for name, tensor in self.tensors.items()
        ]
        self.rows += [Row(FRESH, path, tuple(weight.shape)) for path, weight in weights.items()]
        if weights:
            _LOG.warning(
                "%s has no weights for %s, which start fresh",
                self.source,
                " and ".join(self._fresh_layers()),
            )

    def _fresh_layers(self):
        return sorted({row.name.split("/")[0] for row in self.rows if row.status == FRESH})

    def summary(self):
        """How many tensors were loaded, left unused, started fresh, and what was decided."""
        counts = collections.Counter(row.status for row in self.rows)
        line = ", ".join(f"{counts[status]} {status}" for status in [LOADED, UNUSED, FRESH])
        if counts[FRESH]:
            line += f" ({', '.join(self._fresh_layers())})"
        return "\n".join([line, *self.notes])

    def report(self):
        """What became of each tensor, as a table, and `summary`."""
        width = max(len(row.name) for row in self.rows)
        lines = [f"{row.status:<15}{row.name:<{width + 2}}{row.shape}" for row in self.rows]
        return "\n".join([*lines, self.summary()])


@contextlib.contextmanager
def without_log():
    """Holds the log back, where a report says the same."""
    level = _LOG.level
    _LOG.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _LOG.setLevel(level)


def _canonical(name):
    name = name.removeprefix("bert.")
    for old, new in [(".gamma", ".weight"), (".beta", ".bias")]:
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name
