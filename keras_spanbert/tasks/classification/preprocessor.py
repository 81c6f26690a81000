"""Converts texts or pairs of texts to rows for `SpanBertTextClassifier`."""

import keras
import numpy as np

from keras_spanbert.checks import (
    accepts_datasets,
    check_flags,
    check_in,
    check_length,
    check_none,
    check_same_length,
    to_python,
)
from keras_spanbert.models.preprocessor import LabelledPreprocessor
from keras_spanbert.optional import tf
from keras_spanbert.text.labels import label_id, label_numbers
from keras_spanbert.text.strings import as_strings, column, is_examples
from keras_spanbert.text.tokens import encode_pairs


def label_rows(labels, names: list[str]):
    """Returns the labels of N texts, any number each, as int32 `[N, C]` of 0 and 1.

    A row of `labels` is a list or set of names, in which `""` is padding, or C values of 0 and 1.
    Raises `ValueError` if it is something else, or a name is unknown.
    """
    numbers_of = label_numbers(names)
    rows = to_python(labels)
    kinds = (list, set, frozenset)
    are_rows = isinstance(rows, list) and all(isinstance(row, kinds) for row in rows)
    rule = "a list of rows, each a list of names or of 0 and 1: a text can have several labels"
    check_in("labels", rows, are_rows, rule)
    found = np.zeros((len(rows), len(names)), np.int32)
    for i, row in enumerate(rows):
        if all(isinstance(value, (str, bytes)) for value in row):
            chosen = [label_id(v, numbers_of, f"row {i}") for v in row if v]
            found[i, chosen] = 1
        elif len(row) == len(names) and all(value in (0, 1) for value in row):
            found[i] = list(row)
        else:
            raise ValueError(
                "The labels of a row must be a list of names, or a 0 or 1 for each of the model's "
                f"{len(names)} classes. Received: {row!r:.80} in row {i}"
            )
    return found


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertTextClassifierPreprocessor(LabelledPreprocessor):
    """Makes a row from a text or a pair: `[CLS] text [SEP] second text [SEP]`.

    The segment is 0 up to the first `[SEP]`, then 1. If a row is too long, tokens
    are dropped from the end of the longer text, one at a time, and from the second
    text if both have the same length.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of a row, at least 3. Defaults to `512`.
        label_names: list of C strings, the classes, for labels by name. Defaults to `None`: labels
            are numbers. A `SpanBertTextClassifier` sets it and `multi_label`.
        multi_label: bool. Whether `y` can have several of the `label_names` for each
            row. Defaults to `False`.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: if `sequence_length` is too small or not an integer.

    Call arguments:
        x: strings `[N]`, or a dict of `"text"` and `"text_pair"`, strings `[N]` each, `""` for no
            second text, or a list of labelled examples from `keras_spanbert.data.glue.read`.
        y: labels `[N]`, names or numbers, or numbers `[N, C]`. With `multi_label`, also N lists of
            names, which are ragged or padded with `""` in `tf.data`. Defaults to `None`, no labels.
        sample_weight: numbers `[N]`. Defaults to `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)`. `x` is a dict of `token_ids`,
        `segment_ids` and `padding_mask`, int32 `[N, L]`. `y` is int32 for integers
        and names, otherwise float32. `sample_weight` is float32.

    Examples:
    ```python
    preprocessor = keras_spanbert.SpanBertTextClassifierPreprocessor(
        tokenizer, sequence_length=128, label_names=["dull", "good"]
    )
    x, y = preprocessor(["A fine film.", "Two long hours."], ["good", "dull"])

    # Pairs of texts.
    x = preprocessor({"text": ["It rains."], "text_pair": ["It is wet."]})

    # Batches of a `tf.data.Dataset`, on every backend.
    dataset = tf.data.Dataset.from_tensor_slices((["A fine film.", "Two long hours."], [1, 0]))
    dataset = dataset.batch(2).map(preprocessor, num_parallel_calls=tf.data.AUTOTUNE)
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.1 and
        appendix B. Rows are the same as in the released script for GLUE.
    """

    config_names = ("sequence_length", "multi_label")

    def __init__(
        self,
        tokenizer,
        sequence_length: int = 512,
        label_names: list[str] | None = None,
        multi_label: bool = False,
        **kwargs,
    ):
        super().__init__(label_names, **kwargs)
        self.tokenizer = tokenizer
        self.sequence_length = check_length(sequence_length)
        check_flags(multi_label=multi_label)
        self.multi_label = bool(multi_label)

    def labels(self, y, inputs=None):
        if self.multi_label and self.label_names is not None:
            return label_rows(y, self.label_names)
        return super().labels(y, inputs)

    def label_spec(self, y, num_rows):
        if self.multi_label and self.label_names is not None:
            return tf.TensorSpec([num_rows, len(self.label_names)], "int32")
        return super().label_spec(y, num_rows)

    def rows(self, x) -> dict:
        if isinstance(x, dict):
            if "text" not in x or x.keys() - {"text", "text_pair"}:
                raise ValueError(
                    '`x` must be a dict of "text" and, for pairs, "text_pair", lists of strings. '
                    f"Received: {', '.join(map(str, x))}"
                )
            return self.inputs(x["text"], x.get("text_pair"))
        return self.inputs(x)

    @accepts_datasets
    def inputs(self, texts, text_pairs=None) -> dict:
        """Makes rows from texts.

        Args:
            texts: list, tuple, array or tensor of N strings, or a list of
                examples from `keras_spanbert.data.glue.read`.
            text_pairs: N strings in the same form, `""` for no second text.
                Defaults to `None`: single texts.

        Returns:
            Dict of `token_ids`, `segment_ids` and `padding_mask`, int32 `[N, L]`.

        Raises:
            ValueError: if the lists differ in length or contain other values.
        """
        if is_examples(texts):
            check_none("examples include their pairs", text_pairs=text_pairs)
            pairs = [example.get("text_pair") or "" for example in texts]
            texts = column(texts, "text")
            text_pairs = pairs if any(pairs) else None
        texts = as_strings("texts", texts)
        text_pairs = None if text_pairs is None else as_strings("text_pairs", text_pairs)
        if isinstance(text_pairs, list):
            check_same_length(texts=texts, text_pairs=text_pairs)
        return encode_pairs(self, texts, text_pairs)
