"""Adds unused tokens to a vocabulary that has none, for the symbols of subject and object."""

import logging

from keras_spanbert.distribution import to_numpy

# The number of unused tokens in BERT's cased vocabulary.
_COUNT = 101


def unused_tokens(tokenizer) -> dict[str, int]:
    """Returns `[unused1]`, `[unused2]`, ... of a vocabulary, and their ids."""
    ids = {token: i for i, token in enumerate(tokenizer.get_vocabulary())}
    found = {}
    while (token := f"[unused{len(found) + 1}]") in ids:
        found[token] = ids[token]
    return found


def with_unused_tokens(task):
    """Returns a task with unused tokens at the end of its vocabulary, with new embeddings.

    The task's preprocessor gets the new tokenizer.
    """
    preprocessor, backbone = task.preprocessor, task.backbone
    tokenizer = preprocessor.tokenizer
    vocabulary = [*tokenizer.get_vocabulary(), *(f"[unused{i + 1}]" for i in range(_COUNT))]
    preprocessor.tokenizer = type(tokenizer).from_config(
        {**tokenizer.get_config(), "vocabulary": vocabulary}
    )
    size = max(len(vocabulary), backbone.vocabulary_size)
    other = type(backbone).from_config({**backbone.get_config(), "vocabulary_size": size})
    for new, old in zip(other.weights, backbone.weights, strict=True):
        value = to_numpy(new).copy()
        value[: old.shape[0]] = to_numpy(old)
        new.assign(value)
    logging.getLogger("keras_spanbert").warning(
        "The vocabulary has no [unused1], [unused2], ... for the symbols of subject and object: %d "
        "such tokens were added, with new embeddings",
        _COUNT,
    )
    untrained = task.untrained_heads()
    trained = [name for name in task.head_layers() if name not in untrained]
    return task.rebuilt(layers=trained, backbone=other)
