"""Texts and pairs of texts to the rows of a model, as graph code."""

from keras_spanbert.models.pairs import Texts, pair_rows
from keras_spanbert.serving.row_batches import cut_to_longest
from keras_spanbert.serving.tokenization import GraphTokenizer


class GraphPairs:
    """Rows of pairs of texts, as `keras_spanbert.models.pairs.encode_pairs` makes them.

    They are as long as the longest of them.

    Args:
        preprocessor: one with `tokenizer` and `sequence_length`.
    """

    def __init__(self, preprocessor):
        self.tokenizer = preprocessor.tokenizer
        self.length = preprocessor.sequence_length
        self._tokenize = GraphTokenizer(self.tokenizer)

    def __call__(self, first, second):
        """The model's inputs for strings `[B]`, `""` for no second text."""
        import tensorflow as tf
        import tensorflow.experimental.numpy as tnp

        def texts(strings):
            strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8")
            tokens = self._tokenize(strings)
            starts = tf.cumsum(tokens.sizes, exclusive=True)
            return Texts(tf.concat([tokens.ids, [0]], axis=0), starts, tokens.sizes)

        has_second = tf.strings.length(second) > 0
        inputs = pair_rows(
            tnp, texts(first), texts(second), has_second, self.length, self.tokenizer
        )
        return cut_to_longest(inputs)
