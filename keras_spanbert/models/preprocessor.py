"""Base classes of the preprocessors."""

from collections.abc import Callable

import keras
import keras_hub
import numpy as np

from keras_spanbert.checks import accepts_datasets, check_in
from keras_spanbert.data.batches import SEQUENCES
from keras_spanbert.layers.array_functions import is_symbolic
from keras_spanbert.layers.sublayers import config_of
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.fit_strings import unpack
from keras_spanbert.models.source import FromPreset
from keras_spanbert.models.tokenizer import SpanBertTokenizer
from keras_spanbert.optional import tf
from keras_spanbert.text.labels import as_labels, check_names
from keras_spanbert.text.strings import is_examples
from keras_spanbert.wording import LOG, format_count


class SpanBertPreprocessor(FromPreset, keras_hub.models.Preprocessor):
    """A preprocessor that loads from presets and from other libraries' checkpoints.

    `config_names` are the arguments that `get_config` saves from attributes of the same name.
    """

    config_names: tuple[str, ...] = ()
    label_names: list[str] | None = None
    backbone_cls = SpanBertBackbone
    tokenizer_cls = SpanBertTokenizer

    @keras_hub.models.Preprocessor.tokenizer.setter
    def tokenizer(self, value):
        is_tokenizer = isinstance(value, keras_hub.tokenizers.Tokenizer)
        self._tokenizer = check_in("tokenizer", value, is_tokenizer, "a `SpanBertTokenizer`")

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._logged_sizes = set()  # Numbers of rows for which `log_cut` has logged a call.

    __call__ = accepts_datasets(keras_hub.models.Preprocessor.__call__)

    @classmethod
    def from_source(cls, source, of_task: dict | None = None, **kwargs):
        """Builds the preprocessor of a `Preset` or `Checkpoint`: see `from_preset`.

        A source without a preprocessor gives arguments that fit its encoder and the arguments
        `of_task` of the task.
        """
        saved = source.saved(cls)
        arguments = saved or cls.arguments_for({**source.settings, **(of_task or {})})
        arguments = {**arguments, **kwargs}
        if "tokenizer" not in kwargs:
            arguments["tokenizer"] = cls.tokenizer_cls.from_source(source)
        return source.build(cls, arguments)

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        """Returns arguments that fit the settings of a `transformers.BertConfig`."""
        return {"sequence_length": min(512, settings["max_position_embeddings"])}

    @classmethod
    def arguments_for_length(cls, sequence_length: int) -> dict:
        """Returns arguments that fit this length: the released ones, reduced for short inputs."""
        return {}

    def log_cut(self, is_cut) -> None:
        """Logs how many rows of a call are cut, from bool `[N]`, once for each number of rows."""
        if is_symbolic(is_cut):
            return
        num_rows, num_cut = len(is_cut), int(np.sum(is_cut))
        if num_cut and num_rows not in self._logged_sizes:
            self._logged_sizes.add(num_rows)
            LOG.warning(
                "Rows longer than %d tokens were cut: %s of %s. `sequence_length` "
                "(--sequence_length) changes this",
                *(self.sequence_length, f"{num_cut:,}", f"{num_rows:,}"),
            )

    def call(self, x, y=None, sample_weight=None):
        given, names = (x, y, sample_weight), self.label_names
        if not is_symbolic(x):
            return self.convert(*given)

        def convert(*given):
            if names is not None and self.label_names != names:
                raise ValueError(
                    "Labels must stay as they were when the dataset was mapped. Map it again. "
                    f"Received: {self.label_names}, which were {names}"
                )
            return self.convert(*given)

        return call_from_graph(convert, given, self.signature(*given))

    def convert(self, x, y, sample_weight):
        """Returns the result of a call. Graphs too call it with eager tensors."""
        raise NotImplementedError

    def signature(self, x, y, sample_weight) -> tuple:
        """Returns the `tf.TensorSpec`s of the result of `convert` for tensors of a graph."""
        num_rows = tf.nest.flatten(x)[0].shape[0]
        inputs = self.row_specs(x, num_rows)
        weights = None if sample_weight is None else tf.TensorSpec([num_rows], "float32")
        if y is not None:
            y = self.label_spec(y, num_rows)
        return keras.utils.pack_x_y_sample_weight(inputs, y, weights)

    def row_specs(self, x, num_rows: int | None) -> dict:
        """Returns the `tf.TensorSpec`s of the model's inputs."""
        return self.sequence_specs(num_rows)

    def label_spec(self, y, num_rows: int | None):
        """Returns the `tf.TensorSpec` of the numbers of labels."""
        shape = [num_rows, *(size for size in y.shape[1:] if size != 1)]
        return tf.TensorSpec(shape, label_dtype(y))

    def sequence_specs(self, *shape: int | None) -> dict:
        """Returns the `tf.TensorSpec`s of arrays `[*shape, L]` for the encoder."""
        spec = tf.TensorSpec([*shape, self.sequence_length], "int32")
        return dict.fromkeys(SEQUENCES, spec)

    def get_config(self):
        return {**super().get_config(), **config_of(self, self.config_names)}


def call_from_graph(function: Callable, arguments, signature):
    """Returns tensors for `function(*arguments)`. The function runs, eagerly, when the graph does.

    `arguments` are nested tensors, ragged tensors or `None`. `signature` has the structure of the
    result, with a `tf.TensorSpec` for each array. A `ValueError` of the function becomes a
    `tf.errors.InvalidArgumentError`.
    """
    leaves, specs = tf.nest.flatten(arguments), tf.nest.flatten(signature)

    def call(*tensors):
        tensors = iter(tensors)
        values = [None if leaf is None else next(tensors) for leaf in leaves]
        result = function(*tf.nest.pack_sequence_as(arguments, values))
        arrays = list(map(np.asarray, tf.nest.flatten(result)))
        for array, spec in zip(arrays, specs, strict=True):
            # `as_labels` returns large integers as floats, which would wrap around here.
            if array.dtype.kind == "f" and spec.dtype.is_integer and array.size:
                raise ValueError(
                    "Integers must fit in 32 bits in a graph. Use floats for others. Received: "
                    f"{array!r:.80}"
                )
        return arrays

    given = [leaf for leaf in leaves if leaf is not None]
    arrays = tf.py_function(call, given, [spec.dtype for spec in specs])
    arrays = [tf.ensure_shape(array, spec.shape) for array, spec in zip(arrays, specs)]
    return tf.nest.pack_sequence_as(signature, arrays)


class LabelledPreprocessor(SpanBertPreprocessor):
    """Base class of the preprocessors whose rows have labels.

    A class defines `rows`, and `label_key`, the key of the label in a reader's examples. A model
    sets `label_names`, the names of the labels' numbers, to its own.
    """

    label_key = "label"

    def __init__(self, label_names: list[str] | None = None, **kwargs):
        super().__init__(**kwargs)
        self.label_names = label_names and check_names("label_names", label_names)
        self.built = True

    def rows(self, x) -> dict:
        """Returns the model's inputs for an `x` of the call, without labels."""
        raise NotImplementedError

    def labels(self, y, inputs: dict | None = None):
        """Converts labels of rows to numbers: see `as_labels`. `inputs` is the result of `rows`."""
        return as_labels(y, self.label_names)

    def __call__(self, x, y=None, sample_weight=None, **kwargs):
        if type(x) is tuple and len(x) in (2, 3) and y is None and sample_weight is None:
            x, y, sample_weight = unpack(x)
        # A single row, as in an unbatched dataset, becomes a batch of one.
        columns = x.values() if isinstance(x, dict) else [x]
        is_row = any(
            isinstance(c, (str, bytes, int)) or getattr(c, "shape", None) == () for c in columns
        )
        given = [_as_batch(part) if is_row else part for part in (x, y, sample_weight)]
        outputs = super().__call__(*given, **kwargs)
        return keras.tree.map_structure(lambda x: x[0], outputs) if is_row else outputs

    def convert(self, x, y, sample_weight):
        if y is None and is_examples(x):
            labels = [example.get(self.label_key) for example in x]
            y = None if all(label is None for label in labels) else labels
        inputs = self.rows(x)
        y = None if y is None else self.labels(y, inputs)
        num_rows = len(inputs["token_ids"])
        if y is not None and len(y) != num_rows:
            raise ValueError(
                f"`y` must have a value for each row. Received: {len(y)} for {num_rows} rows"
            )
        if sample_weight is not None:
            sample_weight = as_weights(sample_weight, inputs["token_ids"])
        return keras.utils.pack_x_y_sample_weight(inputs, y, sample_weight)

    def get_config(self):
        names = self.label_names
        return {**super().get_config(), "label_names": names and list(names)}


def label_dtype(y) -> str:
    """Returns the dtype of the numbers of labels, a tensor of a graph."""
    if isinstance(y, dict):
        raise ValueError(f"`y` must be a tensor of labels in a graph. Received: {y!r:.80}")
    return "float32" if y.dtype.is_floating else "int32"


def _as_batch(x):
    if isinstance(x, dict):
        return {name: _as_batch(column) for name, column in x.items()}
    return x if x is None else x[None] if hasattr(x, "shape") else [x]


def as_weights(sample_weight, rows, noun: str = "row"):
    """Returns weights as float32 `[N]`. Raises `ValueError` if they are not a number per row."""
    weights = np.asarray(sample_weight, "float32")
    if weights.shape != (len(rows),):
        raise ValueError(
            f"`sample_weight` must have a number for each {noun}. Received: shape "
            f"{weights.shape} for {format_count(len(rows), noun)}"
        )
    are_right = np.isfinite(weights) & (weights >= 0)
    if not are_right.all():
        i = int(np.argmin(are_right))
        raise ValueError(
            f"`sample_weight` must be finite and at least 0. Received: {weights[i]} for {noun} {i}"
        )
    return weights
