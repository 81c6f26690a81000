"""From words or texts to windows for `SpanBertTokenClassifier`."""

import keras
import numpy as np

from keras_spanbert.models import windows as text_windows
from keras_spanbert.models.arguments import check_counts
from keras_spanbert.models.preprocessor import SpanBertPreprocessor
from keras_spanbert.models.strings import decode
from keras_spanbert.tasks.token_classification.words import (
    Words,
    continuations,
    window_rows,
    words_of_lists,
    words_of_strings,
)

_ROWS_AT_ONCE = 1024  # A bound on memory.
_NAMES = ("token_ids", "segment_ids", "padding_mask")


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertTokenClassifierPreprocessor(SpanBertPreprocessor):
    """Lays out words or texts as windows, and says where their labels stand.

    A window is `[CLS] part of the text [SEP]`, of segment 0. A text that is too
    long for one has several, whose parts start `doc_stride` tokens apart: each
    word's label stands on its first token in the one window that shows that token
    with the most context, so that no word is lost and none counts twice.

    A text is a list of words, each tokenised by itself; or a string, whose words
    are what the tokenizer splits at blanks and around each punctuation character.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of a window, 3 or more. Defaults to `512`.
        doc_stride: int. Tokens from a part's start to the next one's. Defaults to
            `None`: 128, at most half of what a window holds.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: where a window may not hold as many tokens as the stride: some
            would be in no window.

    Example:
    ```python
    preprocessor = keras_spanbert.SpanBertTokenClassifierPreprocessor(tokenizer, 128)
    preprocessor.inputs([["Bob", "lives", "in", "Oslo"]])["word_index"][0, :6]  # -1, 0, 1, 2, 3, -1
    ```
    """

    def __init__(
        self, tokenizer, sequence_length: int = 512, doc_stride: int | None = None, **kwargs
    ):
        super().__init__(**kwargs)
        check_counts(sequence_length=sequence_length)
        if sequence_length < 3:
            raise ValueError(
                "`sequence_length` must hold 2 special tokens and a token of the text. Received: "
                f"sequence_length={sequence_length}"
            )
        if doc_stride is None:
            doc_stride = self.arguments_for_length(sequence_length)["doc_stride"]
        check_counts(doc_stride=doc_stride)
        if doc_stride > sequence_length - 2:
            raise ValueError(
                "`doc_stride` must be at most `sequence_length` less 2 special tokens. Received: "
                f"doc_stride={doc_stride}, sequence_length={sequence_length}"
            )
        self.tokenizer = tokenizer
        self.sequence_length = int(sequence_length)
        self.doc_stride = int(doc_stride)
        self._is_continuation = None
        self.built = True

    @classmethod
    def arguments_for_length(cls, sequence_length: int) -> dict:
        """The stride of question answering, less in short windows."""
        return {"doc_stride": min(128, max(1, (sequence_length - 2) // 2))}

    def call(self, x):
        """The model's inputs of windows of `x`: see `windows`."""
        windows = self.windows(x)
        return {name: windows[name] for name in _NAMES}

    def inputs(self, words) -> dict:
        """One row for each list of words, cut where it is too long.

        Args:
            words: list of N lists of strings.

        Returns:
            Dict of int32 arrays `[N, L]`: `token_ids`, `segment_ids` (all 0),
            `padding_mask`, and `word_index`, the number of each token's word, -1
            for special tokens and padding.

        Raises:
            ValueError: where `words` are something else.
        """
        texts = as_texts(words)
        if any(isinstance(text, str) for text in texts):
            raise ValueError(f"`words` must be a list of lists of strings. Received: {words!r:.80}")
        all_words = self.words(texts)
        room = self.sequence_length - 2
        windows = self.windows_of(all_words._replace(sizes=np.minimum(all_words.sizes, room)))
        return {name: windows[name] for name in [*_NAMES, "word_index"]}

    def windows(self, texts) -> dict:
        """Cuts texts into windows.

        Args:
            texts: list of lists of words, or of strings.

        Returns:
            Dict of int32 arrays: `token_ids`, `segment_ids`, `padding_mask`,
            `word_index` `[W, L]`, see `inputs`; `example_index` `[W]`, the
            window's text; and bool `is_label` `[W, L]`, the tokens that words'
            labels stand on. A word without tokens, as a zero-width space, has
            none.

        Raises:
            ValueError: where `texts` are something else.
        """
        return self.windows_of(self.words(as_texts(texts)))

    def words(self, texts: list) -> Words:
        """The words of texts with their tokens; all texts are of one kind."""
        if texts and isinstance(texts[0], str):
            return words_of_strings(self.tokenizer, texts, self.is_continuation)
        return words_of_lists(self.tokenizer, texts)

    @property
    def is_continuation(self) -> np.ndarray:
        """Whether each token of the vocabulary continues a word: bool `[V]`."""
        if self._is_continuation is None:
            self._is_continuation = continuations(self.tokenizer)
        return self._is_continuation

    def windows_of(self, words: Words) -> dict:
        """The windows of words: see `windows`."""
        length, stride = self.sequence_length, self.doc_stride
        ones = np.ones(len(words.sizes), np.int32)
        parts = text_windows.parts(np, ones, words.sizes, length, stride)
        num_windows = len(parts.example)
        windows = {
            name: np.empty((num_windows, length), np.int32) for name in [*_NAMES, "word_index"]
        }
        windows["example_index"] = parts.example.astype(np.int32)
        windows["is_label"] = np.empty((num_windows, length), bool)
        first_word = np.cumsum(words.num_words) - words.num_words
        for begin in range(0, num_windows, _ROWS_AT_ONCE):
            part = text_windows.Parts(*(x[begin : begin + _ROWS_AT_ONCE] for x in parts))
            beyond = max(0, int(np.max(part.size)) + 2 - length)
            reach = min(text_windows.most_reach(length - 2, stride), -(-beyond // stride))
            rows = window_rows(np, words, part, length, stride, reach, self.tokenizer)
            word = rows.pop("word")
            rows["word_index"] = np.where(
                word >= 0, word - first_word[part.example][:, None], np.int32(-1)
            )
            for name, array in rows.items():
                windows[name][begin : begin + _ROWS_AT_ONCE] = array
        return windows

    def get_config(self):
        config = super().get_config()
        config.update({"sequence_length": self.sequence_length, "doc_stride": self.doc_stride})
        return config


def as_texts(texts) -> list:
    """A list of strings, or of lists of words, of what holds such.

    Args:
        texts: list, tuple, array or tensor of strings; list of examples, dicts of
            `words` or `text`, or a dict of a column of words; or list or ragged
            tensor of lists of strings.

    Raises:
        ValueError: where it is something else.
    """
    if isinstance(texts, dict) and "words" in texts:
        texts = texts["words"]
    given = texts
    texts = texts.to_list() if hasattr(texts, "to_list") else texts
    if hasattr(texts, "__array__"):
        texts = np.asarray(texts).tolist()
    if isinstance(texts, (list, tuple)):
        texts = [x.get("words", x.get("text")) if isinstance(x, dict) else x for x in texts]
        texts = [_as_text(text) for text in texts]
        kinds = {isinstance(text, str) for text in texts}
        if None not in texts and len(kinds) < 2:
            return texts
    shown = " ".join(repr(given).split())
    raise ValueError(
        "Texts must be a list of strings, or of lists of words. Received: "
        f"{shown:.80}, of type {type(given).__name__}"
    )


def _as_text(text):
    """A string or a list of strings, `None` of anything else."""
    if isinstance(text, (str, bytes)):
        return decode(text) if isinstance(text, bytes) else text
    text = np.asarray(text).tolist() if hasattr(text, "__array__") else text
    if not isinstance(text, (list, tuple)):
        return None
    words = [decode(word) if isinstance(word, bytes) else word for word in text]
    return words if all(isinstance(word, str) for word in words) else None
