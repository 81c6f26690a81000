"""The tokens of many texts, one after another, and work on them in threads."""

import concurrent.futures
from collections.abc import Callable, Iterable

import numpy as np

# Texts tokenised at once, a bound on memory.
_TOKENIZE_BATCH = 1024
# NumPy and the tokenizer let one another run.
_THREADS = 2


def in_threads(function: Callable, items: Iterable) -> list:
    """What a function returns for each item, in order."""
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, items))


class TokenLists:
    """The tokens of many texts, one after another.

    Args:
        tokenizer: `SpanBertTokenizer`.
        texts: list of strings.
        with_offsets: bool. Whether to keep each token's place in its text.
            Defaults to `False`.

    Attributes:
        ids: int32 `[tokens + 1]`, the last one for an index that leads nowhere.
        starts, sizes: int32 `[texts]`, each text's first token and how many.
        offsets: int32 `[tokens + 1, 2]`, with `with_offsets`, in characters.
    """

    def __init__(self, tokenizer, texts: list[str], with_offsets: bool = False):
        ids, offsets = [], []

        def tokenize(begin):
            return tokenizer.tokenize_batch(texts[begin : begin + _TOKENIZE_BATCH], with_offsets)

        for batch in in_threads(tokenize, range(0, len(texts), _TOKENIZE_BATCH)):
            ids += batch[0] if with_offsets else batch
            offsets += batch[1] if with_offsets else []
        self.sizes = np.array([len(x) for x in ids], np.int32)
        self.starts = np.cumsum(self.sizes, dtype=np.int32) - self.sizes
        self.ids = np.concatenate([*ids, np.zeros(1, np.int32)])
        self.offsets = np.concatenate([*offsets, np.zeros((1, 2), np.int32)])

    def of(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The ids and offsets of one text."""
        part = slice(self.starts[number], self.starts[number] + self.sizes[number])
        return self.ids[part], self.offsets[part]
