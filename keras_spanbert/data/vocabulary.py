"""Trains WordPiece vocabularies on counts of words."""

import collections

import tokenizers

from keras_spanbert.checks import check_flags, check_in, is_integer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# Number of characters that are passed to the trainer at once.
_TRAIN_CHARACTERS = 1 << 16


def train_vocabulary(
    counts: collections.Counter, vocabulary_size: int, lowercase: bool
) -> list[str]:
    """See `Corpus.train_vocabulary`."""
    rule = "at least 100, for the special tokens and the letters"
    is_right = is_integer(vocabulary_size) and vocabulary_size >= 100
    check_in("vocabulary_size", vocabulary_size, is_right, rule)
    check_flags(lowercase=lowercase)
    # Each letter needs two tokens, such as `a` and `##a`. A third of the vocabulary is left for
    # longer tokens.
    most_letters = (vocabulary_size - len(SPECIAL_TOKENS)) // 3

    def train(size, first_tokens):
        trainer = tokenizers.BertWordPieceTokenizer(lowercase=lowercase, strip_accents=lowercase)
        trainer.train_from_iterator(
            _texts(counts),
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


def add_words(counts: collections.Counter, text: str) -> None:
    """Adds the words of a text, separated by white space, to the counts."""
    # Blanks as defined by the tokenizer. It treats some of Python's blanks as letters.
    counts.update(text.replace("\n", " ").replace("\t", " ").split(" "))


def _texts(counts):
    """Yields texts that contain each word as often as it was counted."""
    chunk, size = [], 0
    for word, count in counts.items():
        at_once = max(1, _TRAIN_CHARACTERS // (len(word) + 1))
        while count > 0:
            chunk += [word] * min(count, at_once)
            size += (len(word) + 1) * min(count, at_once)
            count -= at_once
            if size >= _TRAIN_CHARACTERS:
                yield " ".join(chunk)
                chunk, size = [], 0
    yield " ".join(chunk)
