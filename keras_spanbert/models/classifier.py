"""What the tasks share whose head is a classifier."""

import logging
import numbers
import random
from collections.abc import Iterator, Sequence

import keras
import numpy as np

from keras_spanbert.formats import keras_hub as presets
from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.initializers import kernel_initializer
from keras_spanbert.models import batches
from keras_spanbert.models.arguments import check_counts
from keras_spanbert.models.checkpoint_entries import Entry, Part, dense
from keras_spanbert.models.length_batches import LengthBatches, predict_by_length
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.training.losses import WeightedMeanCrossentropy
from keras_spanbert.training.optimizer import AdamW

_LOG = logging.getLogger("keras_spanbert")


def _pooler_entries(settings: dict) -> Iterator[Entry]:
    yield from dense("pooler.dense", "pooler", settings["hidden_size"], settings["hidden_size"])


def _classifier_entries(settings: dict) -> Iterator[Entry]:
    yield from dense("classifier", "classifier", settings["hidden_size"], settings["num_labels"])


POOLER = Part("pooler.", _pooler_entries)
CLASSIFIER = Part("classifier.", _classifier_entries)


def pooler(backbone) -> keras.layers.Layer:
    """BERT's layer over `[CLS]`: dense, tanh."""
    return keras.layers.Dense(
        backbone.hidden_dim,
        activation="tanh",
        kernel_initializer=kernel_initializer(backbone.initializer_range),
        dtype=backbone.dtype_policy,
        name="pooler",
    )


def classifier(backbone, num_labels: int) -> keras.layers.Layer:
    """BERT's last layer: a logit for each label."""
    return keras.layers.Dense(
        num_labels,
        kernel_initializer=kernel_initializer(backbone.initializer_range),
        dtype=backbone.dtype_policy,
        name="classifier",
    )


def checked_dropout(backbone, dropout: float) -> keras.layers.Layer:
    """The dropout before the classifier, whose rate must be one."""
    is_number = isinstance(dropout, numbers.Real) and not isinstance(dropout, bool)
    if not is_number or not 0.0 <= dropout < 1.0:
        raise ValueError(f"`dropout` must be in [0, 1). Received: dropout={dropout!r}")
    return Dropout(dropout, dtype=backbone.dtype_policy, name="output_dropout")


def checked_names(**argument) -> list[str]:
    """The list of an argument's names of labels, of which each is a string and there once."""
    ((name, values),) = argument.items()
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    if not is_list or not values or not all(isinstance(v, str) and v for v in values):
        raise ValueError(f"`{name}` must be a list of strings. Received: {name}={values!r:.80}")
    twice = next((v for i, v in enumerate(values) if v in values[:i]), None)
    if twice is not None:
        raise ValueError(f"`{name}` must hold a name once. Received: {twice!r} twice")
    return list(values)


def names_in(settings: dict) -> list[str] | None:
    """The labels' names of a checkpoint's settings, `None` where they are not there."""
    names = settings.get("id2label")
    if not isinstance(names, dict):
        return None
    keys = [str(i) for i in range(settings["num_labels"])]
    if {str(key) for key in names} != set(keys):  # `transformers` leaves out its default of two.
        return None
    names = {str(key): value for key, value in names.items()}
    return checked_names(id2label=[names[key] for key in keys])


class NoLabelsError(ValueError):
    """A model's labels are neither given nor in what it is loaded from."""


class ClassifierTask(SpanBertTask):
    """A backbone with a classifier of rows, or of each of a row's tokens.

    A class sets, besides what a `SpanBertTask` says:

    - `names_argument`: its argument that names the labels, an attribute too; of
      no labels by name `None`.
    - `label_key`: where a reader's example has its label.
    """

    checkpoint_parts = (POOLER, CLASSIFIER)
    names_argument: str | None = None
    label_key = "label"

    # === Loading ===
    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        rate = settings.get("classifier_dropout")
        arguments = {"dropout": settings["hidden_dropout_prob"] if rate is None else rate}
        if cls.names_argument is None or "num_labels" not in settings:
            return arguments
        names = names_in(settings) or [str(i) for i in range(settings["num_labels"])]
        return {**arguments, cls.names_argument: names}

    @classmethod
    def is_in(cls, checkpoint) -> bool:
        return checkpoint.has(CLASSIFIER.prefix)  # A pooler is in checkpoints of all kinds.

    @classmethod
    def labels_of(cls, arguments: dict) -> list[str] | None:
        """The names of labels that arguments of the class say, `None` where they say none."""
        names = arguments.get(cls.names_argument)
        return None if names is None else list(names)

    @classmethod
    def from_checkpoint(cls, checkpoint, load_weights: bool = True, **kwargs):
        own = cls.arguments_for(checkpoint.config)
        return cls._with_labels(
            checkpoint.source,
            own,
            kwargs,
            lambda **rest: super(ClassifierTask, cls).from_checkpoint(
                checkpoint, load_weights=load_weights, **rest
            ),
        )

    @classmethod
    def from_keras_hub(cls, preset: str, load_weights: bool = True, **kwargs):
        is_own = issubclass(presets.registered_task(preset) or object, cls)
        own = presets.task_arguments(preset) if is_own else {}
        return cls._with_labels(
            preset,
            own,
            kwargs,
            lambda **rest: super(ClassifierTask, cls).from_keras_hub(
                preset, load_weights=load_weights, **rest
            ),
        )

    @classmethod
    def _with_labels(cls, source, own, given, load):
        """A model that `load` loads, with a fresh classifier where other labels are given."""
        if cls.names_argument is None:
            return load(**given)
        known, wanted = cls.labels_of(own), cls.labels_of(given)
        if known is None and wanted is None:
            raise NoLabelsError(
                f"`{cls.labels_arguments()[0]}` must be given: {source} has no head of a "
                f"{cls.__name__}. "
                "Received: none"
            )
        if known is None:
            return load(**given)
        # Names may be given to what has none, and a count means any names.
        is_unnamed = _are_numbers(known) or _are_numbers(wanted or [])
        if wanted is None or known == wanted or (is_unnamed and len(known) == len(wanted)):
            given.pop("num_classes", None)  # With it keras-hub would load no head.
            return load(**given)
        labels = {name: given.pop(name) for name in cls.labels_arguments() if name in given}
        task = load(**given)
        config = {**task.get_config(), **dict.fromkeys(cls.labels_arguments()), **labels}
        config.update(backbone=task.backbone, preprocessor=task.preprocessor)
        other = cls(**config)
        if hasattr(task, "pooler"):
            other.pooler.set_weights(task.pooler.get_weights())
        _LOG.warning(
            "%s has a classifier of other labels, %s: that of this %s starts fresh",
            source,
            ", ".join(map(str, known[:5])) + (", ..." if len(known) > 5 else ""),
            cls.__name__,
        )
        return other

    @classmethod
    def labels_arguments(cls) -> tuple[str, ...]:
        """The arguments that say which labels there are."""
        return (cls.names_argument,)

    def label_names(self) -> list[str] | None:
        """The names of the labels, in the order of their logits."""
        return getattr(self, self.names_argument) if self.names_argument else None

    def checkpoint_settings(self) -> dict:
        num_labels = int(self.classifier.units)
        names = self.label_names() or [f"LABEL_{i}" for i in range(num_labels)]
        return {
            **super().checkpoint_settings(),
            "classifier_dropout": self.dropout,
            "num_labels": num_labels,
            "id2label": {str(i): name for i, name in enumerate(names)},
            "label2id": {name: i for i, name in enumerate(names)},
        }

    # === Training ===
    def compile(
        self, optimizer="auto", loss="auto", *, metrics=None, weighted_metrics="auto", **kwargs
    ):
        """Configures training.

        Args:
            optimizer: `"auto"`, a Keras optimizer or its name. Defaults to
                `"auto"`, AdamW with learning rate 2e-5, weight decay 0.01 and
                gradients clipped to norm 1.
            loss: `"auto"` or a loss. Defaults to `"auto"`, the mean
                cross-entropy (nats), of one label the mean squared error.
            metrics: list. Defaults to `None`.
            weighted_metrics: `"auto"` or a list. Defaults to `"auto"`, the
                accuracy; of one label none.
            **kwargs: see `keras.Model.compile`.
        """
        if optimizer == "auto":
            optimizer = AdamW(2e-5)
        if loss == "auto":
            loss = self.default_loss()
        if weighted_metrics == "auto":
            weighted_metrics = self.default_metrics()
        super().compile(
            optimizer=optimizer,
            loss=loss,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            **kwargs,
        )

    def default_loss(self):
        """The loss that `compile` takes by default."""
        return WeightedMeanCrossentropy(from_logits=True)

    def default_metrics(self) -> list:
        """The metrics that `compile` takes by default."""
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    # === Strings ===
    def preprocess(self, x, y=None, sample_weight=None) -> tuple:
        """Rows of strings as the model's arrays.

        Args:
            x: what `fit` takes, as the class names it.
            y: list or array of labels, names or numbers. Defaults to `None`:
                those that the examples of `x` have, or none.
            sample_weight: list or array of weights. Defaults to `None`.

        Returns:
            `(x, y, sample_weight)`.
        """
        self.check_preprocessor()
        if y is None and is_examples(x):
            labels = [example.get(self.label_key) for example in x]
            y = None if all(label is None for label in labels) else labels
        inputs = self.preprocessor.call(x)
        num_rows = len(inputs["token_ids"])
        labels = None if y is None else self.label_ids(y)
        for name, values in [("y", labels), ("sample_weight", sample_weight)]:
            if values is not None and len(values) != num_rows:
                raise ValueError(
                    f"`{name}` must have a value for each row. Received: {len(values)} for "
                    f"{num_rows} rows"
                )
        weights = None if sample_weight is None else np.asarray(sample_weight, "float32")
        return inputs, labels, weights

    def preprocess_rows(
        self, x, y, sample_weight, batch_size, shuffle, is_training, needs_labels=True
    ) -> tuple:
        if not needs_labels:  # To predict, in the rows' order, whatever the examples' labels.
            self.check_preprocessor()
            return self.preprocessor.call(x), None, None
        arrays = self.preprocess(x, y, sample_weight)
        if arrays[1] is None:
            return arrays
        is_shuffled = is_training and shuffle is not False
        seed = random.randint(1, 10**9)
        return LengthBatches(arrays, batch_size or 32, is_shuffled, seed), None, None

    def logits_of_rows(self, inputs: dict, batch_size: int) -> np.ndarray:
        """Logits float32 `[N, C]` of arrays of N rows, in their order."""
        check_counts(batch_size=batch_size)
        self.warn_if_untrained()
        logits = np.empty((len(inputs["token_ids"]), int(self.classifier.units)), "float32")
        for rows, outputs in predict_by_length(self, inputs, batch_size):
            logits[rows] = outputs
        return logits

    def label_ids(self, labels) -> np.ndarray:
        """The numbers of labels, int32 `[N]`.

        Args:
            labels: list or array of names or numbers.

        Raises:
            ValueError: where one is not among the model's labels.
        """
        labels = np.asarray(labels) if hasattr(labels, "__array__") else labels
        names = self.label_names() or []
        numbers_of = {name: i for i, name in enumerate(names)}
        return np.array(
            [label_id(v, numbers_of, int(self.classifier.units), i) for i, v in enumerate(labels)],
            np.int32,
        )


def label_id(value, numbers_of: dict[str, int], count: int, place) -> int:
    """The number of a label, of which there are `count`.

    Args:
        value: its name, or its number.
        numbers_of: dict of name to number.
        count: int.
        place: where it stands among the labels, for the message.
    """
    value = as_scalar(value)
    value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if isinstance(value, str) and value in numbers_of:
        return numbers_of[value]
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if is_integer and 0 <= value < count:
        return int(value)
    known = ", ".join(list(numbers_of)[:20]) + (", ..." if len(numbers_of) > 20 else "")
    raise ValueError(
        f"A label must be one of the model's {count}"
        + (f": {known}, or its number" if known else f", a number from 0 to {count - 1}")
        + f". Received: {value!r:.80} at {place}"
    )


def as_scalar(value):
    """The Python value of an array or tensor of one; anything else as it is."""
    if not hasattr(value, "__array__") or np.prod(np.shape(value)) != 1:
        return value
    # A tensor on a device is no array.
    return value.item() if hasattr(value, "item") else np.asarray(value).item()


def _are_numbers(names):
    return any(names == [f"{start}{i}" for i in range(len(names))] for start in ("", "LABEL_"))


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The softmax of logits over their last axis, in float64."""
    from scipy import special  # Takes a moment to import.

    return special.softmax(np.asarray(logits, "float64"), axis=-1)


def is_examples(x) -> bool:
    """Whether `x` is a list of examples, as readers give them."""
    return isinstance(x, (list, tuple)) and bool(x) and all(map(batches.is_example, x))
