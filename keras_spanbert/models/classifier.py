"""Base class of the tasks with a classifier head."""

import functools
import random

import keras
import numpy as np

from keras_spanbert.checks import (
    accepts_datasets,
    check_counts,
    check_in,
    check_range,
    is_integer,
    is_number,
    to_python,
)
from keras_spanbert.data.batches import Batches, predict_by_length
from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.models.backbone import POOLER
from keras_spanbert.models.checkpoint_entries import Checkpoint, TensorGroup, dense
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.text.labels import check_names, label_id, label_numbers
from keras_spanbert.training.losses import WeightedMeanCrossentropy
from keras_spanbert.wording import LOG

# The beginning of the names that `transformers` gives to labels.
UNNAMED = "LABEL_"

CLASSIFIER = TensorGroup(
    "classifier.", lambda x: dense("classifier", "classifier", x["hidden_size"], x["num_labels"])
)


def dropout_layer(backbone, dropout: float) -> keras.layers.Layer:
    """Returns the dropout layer before the classifier. Checks its rate."""
    check_range("[0, 1)", dropout=dropout)
    return Dropout(dropout, dtype=backbone.dtype_policy, name="output_dropout")


def names_in(settings: dict) -> list[str] | None:
    """Returns the label names in a checkpoint's settings, or `None` if there are none."""
    names = settings.get("id2label")
    if not isinstance(names, dict):  # `transformers` omits its default names of two labels.
        return None
    names = {str(key): value for key, value in names.items()}
    keys = [str(i) for i in range(settings["num_labels"])]
    if set(names) != set(keys):  # Names of another number of labels.
        return None
    return check_names("id2label", [names[key] for key in keys])


class NoLabelsError(ValueError):
    """Raised if the labels are neither given nor part of the preset or checkpoint."""


class ClassifierTask(SpanBertTask):
    """A backbone with a classifier of rows or of tokens.

    A class sets `names_argument`, the argument and attribute with the label names, or `None` if
    labels have no names. The constructor sets it before the preprocessor.
    """

    tensor_groups = (POOLER, CLASSIFIER)
    names_argument: str | None = None
    # The arguments that define the labels, if there are others than `names_argument`.
    labels_arguments: tuple[str, ...] = ()
    # Whether each row has one class, which may have a weight in `fit`.
    has_class_weights = True

    # === Loading ===
    @classmethod
    def arguments_in(cls, checkpoint: Checkpoint) -> dict:
        settings = checkpoint.settings
        rate = settings.get("classifier_dropout")
        arguments = {"dropout": settings["hidden_dropout_prob"] if rate is None else rate}
        if cls.names_argument is None or "num_labels" not in settings:
            return arguments
        names = names_in(settings) or [str(i) for i in range(settings["num_labels"])]
        return {**arguments, cls.names_argument: names}

    @classmethod
    def is_in(cls, checkpoint) -> bool:
        return checkpoint.has(CLASSIFIER.prefix)  # A pooler is in other checkpoints too.

    @classmethod
    def labels_of(cls, arguments: dict) -> list[str] | None:
        """Returns the label names that arguments of the class give, or `None`."""
        names = arguments.get(cls.names_argument)
        return None if names is None else list(names)

    @classmethod
    def from_source(cls, source, load_weights: bool = True, **given):
        """Builds the task. If other labels are given, its classifier is a new one."""
        load = functools.partial(super().from_source, source, load_weights)
        if cls.names_argument is None:
            return load(**given)
        of_labels, own = cls.labels_arguments or (cls.names_argument,), source.arguments_of(cls)
        given = {n: v for n, v in given.items() if v is not None or n not in of_labels}
        known, wanted = cls.labels_of(own), cls.labels_of(given)
        if known is None and wanted is None:
            raise NoLabelsError(
                f"{' or '.join(f'`{name}`' for name in of_labels)} must be given: {source.name} "
                f"has no head for a {cls.__name__} (in checkpoints: {CLASSIFIER.prefix}weight), "
                "which would give the number of labels. Received: none"
            )
        if known is None:
            return load(**given)
        # If one of the two has no names for its labels, only the number of labels must match. The
        # same numbers in another order are other labels.
        is_unnamed = _are_numbers(known) or _are_numbers(wanted or [])
        plain, new = ([n.removeprefix(UNNAMED) for n in x or []] for x in (known, wanted))
        is_renamed = is_unnamed and len(plain) == len(new) and (plain == new or {*plain} != {*new})
        is_same = wanted is None or known == wanted or is_renamed
        kept = {n: v for n, v in own.items() if not wanted or n not in of_labels}
        if is_same and cls.head_kind({**kept, **given}) == cls.head_kind(own):
            return load(**given)
        labels = {name: given.pop(name) for name in of_labels if name in given}
        task = load(**given)
        changes = {**dict.fromkeys(of_labels), **labels} if labels else {}
        other = task.rebuilt(layers=["pooler"], **changes)
        LOG.warning(
            "%s has a classifier with other labels or of another kind (labels: %s). The classifier "
            "of the new %s starts from random weights",
            source.name,
            ", ".join(map(str, known[:5])) + (", ..." if len(known) > 5 else ""),
            cls.__name__,
        )
        return other

    @classmethod
    def head_kind(cls, arguments: dict) -> str:
        """Returns the kind of classifier that arguments of the class define.

        A classifier of another kind starts from random weights.
        """
        return "single label"

    def label_names(self) -> list[str] | None:
        """Returns the names of the labels, in the order of their logits."""
        return getattr(self, self.names_argument) if self.names_argument else None

    def checkpoint_settings(self) -> dict:
        num_labels = int(self.classifier.units)
        names = self.label_names() or [f"{UNNAMED}{i}" for i in range(num_labels)]
        return {
            **super().checkpoint_settings(),
            "classifier_dropout": self.dropout,
            "num_labels": num_labels,
            "id2label": {str(i): name for i, name in enumerate(names)},
            "label2id": {name: i for i, name in enumerate(names)},
        }

    # === Training ===
    def default_loss(self):
        return WeightedMeanCrossentropy(from_logits=True)

    def default_metrics(self) -> list:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def label_limits(self, x) -> dict:
        names = self.label_names()
        known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        rule = f"A label in arrays must be the number of one of the model's {len(names)}: {known}"
        return {"": (len(names), rule)}

    def number_class_weight(self, class_weight: dict) -> dict:
        if not self.has_class_weights:
            return super().number_class_weight(class_weight)
        check_in("class_weight", class_weight, isinstance(class_weight, dict), "a dict")
        names = self.label_names() or []
        numbers_of, found = label_numbers(names), {}
        rule = "a dict from different classes, names or numbers from 0, to weights"
        for key, weight in class_weight.items():
            number = label_id(key, numbers_of, "`class_weight`") if names else key
            is_right = is_integer(number) and number >= 0 and number not in found
            check_in("class_weight", class_weight, is_right, rule)
            value = to_python(weight)
            is_right = is_number(value) and 0 <= value < 2**128  # As float32, 2**128 is infinite.
            check_in(f"class_weight[{key!r}]", weight, is_right, "a finite number of at least 0")
            found[int(number)] = value
        return found

    # === Strings ===
    def preprocess_rows(self, x, y, sample_weight, batch_size, shuffle, mode: str) -> tuple:
        if mode == "predict":  # It keeps the order of the rows and ignores labels.
            self.check_preprocessor()
            return self.preprocessor.rows(x), None, None
        arrays = self.preprocess(x, y, sample_weight)
        if arrays[1] is None:
            return arrays
        found = Batches(
            arrays,
            batch_size or 32,
            seed=random.randint(1, 10**9),
            shuffle=mode == "fit" and shuffle,
            cut=True,
            by_length=mode == "evaluate",
            pad=False,
        )
        return found, None, None

    @accepts_datasets
    def logits_of(self, x, batch_size: int = 32) -> np.ndarray:
        """Returns logits float32 `[N, C]` of rows of strings, in the format of `fit`.

        In multiple choice, C is the largest number of choices, and missing ones have -1e9.
        """
        self.check_preprocessor()
        return self.logits_of_rows(self.preprocessor.rows(x), batch_size)

    def logits_of_rows(self, inputs: dict, batch_size: int) -> np.ndarray:
        """Returns logits float32 `[N, C]` of N rows of arrays, in their order."""
        check_counts(batch_size=batch_size)
        self.warn_if_untrained()
        logits = np.empty((len(inputs["token_ids"]), int(self.classifier.units)), "float32")
        for rows, outputs in predict_by_length(self, inputs, batch_size):
            logits[rows] = outputs
        return logits

    def set_up_preprocessor(self) -> None:
        if self.preprocessor is not None:
            self.preprocessor.label_names = self.label_names()

    @accepts_datasets
    def label_ids(self, labels) -> np.ndarray:
        """Converts labels to the numbers to train on: see the preprocessor's `labels`."""
        self.check_preprocessor()
        return self.preprocessor.labels(labels)


def _are_numbers(names):
    return any(names == [f"{start}{i}" for i in range(len(names))] for start in ("", UNNAMED))


def probabilities(logits: np.ndarray, multi_label: bool = False) -> np.ndarray:
    """Returns the softmax of logits over their last axis, or the sigmoid of each, in float64."""
    from scipy import special  # Imported here because it is slow.

    logits = np.asarray(logits, "float64")
    return special.expit(logits) if multi_label else special.softmax(logits, axis=-1)
