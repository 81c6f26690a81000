"""The blocks of a corpus that a model is evaluated on, collected as text is read."""

import numpy as np

from keras_spanbert.data.masked_batches import EVALUATION_SEED
from keras_spanbert.data.shuffle_buffer import ShuffleBuffer

_EVALUATION_BUFFER = 10_000
# Of the text that is evaluated on, so much is kept to show examples of.
_EVALUATION_CHARACTERS = 4_000_000


class EvaluationBlocks:
    """The first blocks of a shuffle of all that are added, always the same."""

    def __init__(self, most):
        self._most = float("inf") if most is None else most
        generator = np.random.default_rng(EVALUATION_SEED)
        self._shuffle = ShuffleBuffer(_EVALUATION_BUFFER, generator)
        self._blocks = []
        self._size = 0
        self.texts = []
        self._num_characters = 0

    @property
    def is_full(self):
        return self._size >= self._most

    def add(self, blocks, texts):
        if self._num_characters < _EVALUATION_CHARACTERS:
            self.texts += texts
            self._num_characters += sum(map(len, texts))
        if not self.is_full and len(blocks):
            self._take(self._shuffle.push(blocks))

    def batches(self):
        if not self.is_full:
            self._take(self._shuffle.flush())
        return iter(self._blocks)

    def _take(self, arrays):
        for blocks in arrays:
            self._blocks.append(blocks)
            self._size += len(blocks)
