"""Trains WordPiece vocabularies on counts of words."""

import collections
import itertools
from collections.abc import Iterator

import tokenizers

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# Number of characters that are passed to the trainer at once.
_TRAIN_CHARACTERS = 1 << 16


def train_vocabulary(words: "WordCounts", vocabulary_size: int, lowercase: bool) -> list[str]:
    """See `Corpus.train_vocabulary`."""
    if vocabulary_size < 100:
        raise ValueError(
            "`vocabulary_size` must be at least 100, for the special tokens and the letters. "
            f"Received: vocabulary_size={vocabulary_size}"
        )
    # Each letter needs two tokens, such as `a` and `##a`. A third of the vocabulary is left for
    # longer tokens.
    most_letters = (vocabulary_size - len(SPECIAL_TOKENS)) // 3

    def train(size, first_tokens):
        trainer = tokenizers.BertWordPieceTokenizer(lowercase=lowercase, strip_accents=lowercase)
        trainer.train_from_iterator(
            words.texts(),
            vocab_size=size,
            limit_alphabet=min(1000, most_letters),
            special_tokens=first_tokens,
            show_progress=False,
        )
        vocabulary = trainer.get_vocab()
        return sorted(vocabulary, key=vocabulary.get)

    # The trainer numbers letters in no fixed order and breaks ties between pairs by
    # these numbers. A first run finds the letters, and a second one gets them in
    # order, so that the same text gives the same vocabulary.
    special = list(SPECIAL_TOKENS)
    letters = sorted(set(train(0, special)) - set(special))
    return train(vocabulary_size, special + letters)


class WordCounts:
    """Counts words, separated by white space, to train a vocabulary on.

    Args:
        held_out_every: int. Every n-th document is left out. Defaults to `None`:
            no document is left out.
    """

    def __init__(self, held_out_every=None):
        self._every = held_out_every
        self._counts = collections.Counter()
        # The latest of the first n documents is counted separately: if the corpus has fewer than
        # n documents, its last one is held out.
        self._last = collections.Counter()
        self._last_document = 0

    def add(self, text: str, document: int = 0) -> None:
        """Counts the words of a piece of the document with this number."""
        # Blanks as defined by the tokenizer. It treats some of Python's blanks as letters.
        words = text.replace("\n", " ").replace("\t", " ").split(" ")
        if self._every is None:
            self._counts.update(words)
        elif document < self._every:
            if document != self._last_document:
                self._counts.update(self._last)
                self._last, self._last_document = collections.Counter(), document
            self._last.update(words)
        elif document % self._every != self._every - 1:
            self._counts.update(words)

    def hold_out_last(self) -> None:
        """Leaves out the last document if there are fewer than n."""
        self._last.clear()

    def texts(self) -> Iterator[str]:
        """Yields texts that contain each word as often as it was counted."""
        held = self._last if self._every and self._last_document < self._every - 1 else {}
        chunk, size = [], 0
        for word, count in itertools.chain(self._counts.items(), held.items()):
            at_once = max(1, _TRAIN_CHARACTERS // (len(word) + 1))
            while count > 0:
                chunk += [word] * min(count, at_once)
                size += (len(word) + 1) * min(count, at_once)
                count -= at_once
                if size >= _TRAIN_CHARACTERS:
                    yield " ".join(chunk)
                    chunk, size = [], 0
        yield " ".join(chunk)
