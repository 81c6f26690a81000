"""From texts, or pairs of them, to rows for `SpanBertTextClassifier`."""

import keras

from keras_spanbert.models.batches import is_example
from keras_spanbert.models.pairs import encode_pairs
from keras_spanbert.models.preprocessor import SpanBertPreprocessor
from keras_spanbert.models.strings import as_strings


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertTextClassifierPreprocessor(SpanBertPreprocessor):
    """Makes a row of a text or of a pair: `[CLS] text [SEP] second text [SEP]`.

    The segment is 0 up to the first `[SEP]`, then 1. What is too long loses tokens
    at the end, one at a time, from the longer text, from the second one where
    they are equally long.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of a row, at least 3. Defaults to `512`.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: where `sequence_length` is too small or no integer.

    Example:
    ```python
    preprocessor = keras_spanbert.SpanBertTextClassifierPreprocessor(
        tokenizer, sequence_length=128
    )
    inputs = preprocessor.inputs(["It rains."], ["It is wet."])
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.1 and
        appendix B; rows are those of the released script for GLUE.
    """

    def __init__(self, tokenizer, sequence_length: int = 512, **kwargs):
        super().__init__(**kwargs)
        if int(sequence_length) != sequence_length or sequence_length < 3:
            raise ValueError(
                "`sequence_length` must be an integer of at least 3: [CLS], a token, [SEP]. "
                f"Received: sequence_length={sequence_length}"
            )
        self.tokenizer = tokenizer
        self.sequence_length = int(sequence_length)
        self.built = True

    def call(self, x):
        """The rows of whatever `fit` takes: see `SpanBertTextClassifier`."""
        if isinstance(x, dict) and not is_example(x):
            if "text" not in x or x.keys() - {"text", "text_pair"}:
                raise ValueError(
                    '`x` must be a dict of "text" and, for pairs, "text_pair", lists of strings. '
                    f"Received: {', '.join(map(str, x))}"
                )
            return self.inputs(x["text"], x.get("text_pair"))
        return self.inputs(x)

    def inputs(self, texts, text_pairs=None) -> dict:
        """Rows of texts.

        Args:
            texts: list, tuple, array or tensor of N strings; or a list of
                examples, as `keras_spanbert.data.glue.read` gives them.
            text_pairs: likewise as many strings, `""` for none. Defaults to
                `None`: single texts.

        Returns:
            Dict of `token_ids`, `segment_ids` and `padding_mask`, int32 `[N, L]`.

        Raises:
            ValueError: where the lists differ in length or hold something else.
        """
        if isinstance(texts, (list, tuple)) and texts and all(map(is_example, texts)):
            if text_pairs is not None:
                raise ValueError("Examples hold their pairs: `text_pairs` must be None")
            pairs = [example.get("text_pair") or "" for example in texts]
            texts = [example["text"] for example in texts]
            text_pairs = pairs if any(pairs) else None
        texts = as_strings(texts=texts)
        text_pairs = None if text_pairs is None else as_strings(text_pairs=text_pairs)
        if text_pairs is not None and len(text_pairs) != len(texts):
            raise ValueError(
                f"`texts` and `text_pairs` must be as many. Received: {len(texts)}, "
                f"{len(text_pairs)}"
            )
        return encode_pairs(self.tokenizer, texts, text_pairs, self.sequence_length)

    def get_config(self):
        return {**super().get_config(), "sequence_length": self.sequence_length}
