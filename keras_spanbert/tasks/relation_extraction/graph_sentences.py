"""Converts inputs of `SpanBertRelationExtractorPreprocessor` to sentences in a graph.

Legend: N = rows, C = characters of all texts, with a blank after each text.
"""

import numpy as np

from keras_spanbert.models.strings import as_strings, check_in_graph, code_points
from keras_spanbert.tasks.relation_extraction.sentences import (
    BRACKETS,
    EXAMPLE_SPANS,
    EXAMPLE_TYPES,
    SPANS,
    TYPES,
    Columns,
)

_LAST_BLANK = 0x3000


def columns_in_graph(preprocessor, x: dict) -> Columns:
    """Returns the sentences of a dict of tensors, whose keys `check_columns` has checked."""
    import tensorflow as tf

    are_examples = "token" in x
    if are_examples:
        texts, type_names = x["token"], EXAMPLE_TYPES
        spans = tf.stack([x[name] for name in EXAMPLE_SPANS], axis=1)
    else:
        texts, type_names = x["text"], TYPES
        spans = tf.concat([x[name] for name in SPANS], axis=1)
    spans = tf.cast(spans, tf.int64)  # [N, 4]
    if texts.shape.rank == 1:
        words, spans = _split_texts(as_strings("texts", texts), spans)
    else:
        words = texts if isinstance(texts, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(texts)
        words = tf.strings.unicode_transcode(words, "UTF-8", "UTF-8")
        spans -= 0 if are_examples else np.array([0, 1, 0, 1])  # To the last words.
        is_inside = (spans >= 0) & (spans < tf.cast(words.row_lengths(), tf.int64)[:, None])
        spans = _check_spans(spans, tf.reduce_all(is_inside), "words")
    types = tf.zeros([tf.shape(spans)[0], 2], tf.int64)
    if preprocessor.uses_types:
        roles = zip(["SUBJ", "OBJ"], type_names)
        types = tf.stack([_type_ids(preprocessor, role, x, name) for role, name in roles], axis=1)
    return Columns(words.values, tf.cast(words.row_lengths(), tf.int64), spans, types, are_examples)


def _split_texts(texts, spans):
    """Returns the words of texts `[N]`, ragged, and the spans in words: see `example_of_text`."""
    import tensorflow as tf

    # === Characters, and whether a word begins there ===
    characters = code_points(texts)
    sizes = tf.cast(tf.strings.length(texts, "UTF8_CHAR"), tf.int64)
    is_inside = tf.reduce_all((spans >= 0) & (spans <= sizes[:, None]))
    edges = _check_spans(spans, is_inside, "characters") + characters.starts[:, None]
    is_blank = _is_blank(characters.values)
    cuts = tf.reshape(edges, [-1, 1])
    is_cut = tf.scatter_nd(cuts, tf.ones_like(cuts[:, 0]), tf.shape(is_blank, tf.int64)) > 0
    after_blank = tf.concat([tf.ones_like(is_blank[:1]), is_blank[:-1]], axis=0)
    begins = ~is_blank & (after_blank | is_cut)

    # === Words and spans in words ===
    before = tf.cumsum(tf.cast(tf.concat([[False], begins], axis=0), tf.int64))  # [C + 1]
    words = tf.strings.unicode_encode(
        tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(characters.values, ~is_blank),
            tf.boolean_mask(before[1:] - 1, ~is_blank),
            before[-1],
            validate=False,
        ),
        "UTF-8",
    )
    first_words = tf.gather(before, characters.starts)
    spans_in_words = tf.gather(before, edges) - first_words[:, None] - np.array([0, 1, 0, 1])
    words = tf.RaggedTensor.from_row_starts(words, first_words, validate=False)
    return words, _check_spans(spans_in_words, True, "characters")


def _check_spans(spans, is_inside, what):
    """Checks that spans, first and last of subject and object, are in their texts, not empty."""
    import tensorflow as tf

    is_right = is_inside & tf.reduce_all(spans[:, 0::2] <= spans[:, 1::2])
    message = f"Subject and object must be {what} of the text, not all blank. Received:"
    return check_in_graph(spans, is_right, message, spans)


def _is_blank(characters):
    """Returns whether characters are blanks in Python's regular expressions."""
    import tensorflow as tf

    is_blank = tf.zeros_like(characters, tf.bool)
    for code in range(_LAST_BLANK + 1):
        if chr(code).isspace():
            is_blank |= characters == code
    return is_blank


def _type_ids(preprocessor, role, x, name):
    """Returns ids int64 `[N]` of the symbols for types. Checks that they are known."""
    import tensorflow as tf

    known = preprocessor.types(role)
    if name not in x or not known:
        raise ValueError(
            f"mode={preprocessor.mode!r} needs `{name}` with types that `adapt` has seen. "
            f"Received: {', '.join(x)}; known types: {', '.join(known) or 'none'}"
        )
    values = as_strings(name, x[name])
    is_type = values[:, None] == tf.constant(list(known))
    message = f"`{name}` must be one of {', '.join(known)}. Received:"
    ids = tf.gather(tf.constant(list(known.values()), tf.int64), tf.argmax(is_type, axis=1))
    return check_in_graph(ids, tf.reduce_any(is_type, axis=1), message, values)


def replace_words(words, special_tokens: dict[str, int]):
    """Replaces written brackets. Also returns the words' ids as special tokens, -1 for others."""
    import tensorflow as tf

    lower = tf.strings.lower(words)
    for written, bracket in BRACKETS.items():
        words = tf.where(lower == written, bracket, words)
    if not special_tokens:
        return words, tf.fill(tf.shape(words), -1)
    is_special = words[:, None] == tf.constant(list(special_tokens))
    ids = tf.gather(list(special_tokens.values()), tf.argmax(is_special, axis=1))
    return words, tf.where(tf.reduce_any(is_special, axis=1), ids, -1)
