"""Converts inputs of `SpanBertRelationExtractorPreprocessor` to pieces of words in a graph.

Legend: N = rows, C = characters of all texts, with a blank after each text.
"""

import numpy as np

from keras_spanbert.models.strings import as_strings, code_points
from keras_spanbert.tasks.relation_extraction.rows import Words
from keras_spanbert.tasks.relation_extraction.sentences import (
    BRACKETS,
    EXAMPLE_SPANS,
    EXAMPLE_TYPES,
    SPANS,
    TYPES,
)

_LAST_BLANK = 0x3000


def words_in_graph(preprocessor, x: dict) -> Words:
    """Returns the pieces of words of columns: see `SpanBertRelationExtractorPreprocessor`.

    Args:
        preprocessor: `SpanBertRelationExtractorPreprocessor`.
        x: dict of tensors. Its keys have been checked by `check_columns`.
    """
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
        words, spans = _split_texts(as_strings(texts=texts), spans)
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
    pieces = _pieces(preprocessor, words.values, are_examples)
    word = tf.cast(pieces.value_rowids(), tf.int64)
    row = tf.cast(tf.gather(words.value_rowids(), word), tf.int64)
    word -= tf.cast(tf.gather(words.row_starts(), row), tf.int64)
    return Words(tf.cast(pieces.values, tf.int64), word, row, spans, types)


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
    with tf.control_dependencies([tf.debugging.Assert(is_right, [message, spans])]):
        return tf.identity(spans)


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
    values = as_strings(**{name: x[name]})
    is_type = values[:, None] == tf.constant(list(known))
    message = f"`{name}` must be one of {', '.join(known)}. Received:"
    check = tf.debugging.Assert(tf.reduce_all(tf.reduce_any(is_type, axis=1)), [message, values])
    with tf.control_dependencies([check]):
        number = tf.argmax(is_type, axis=1)
    return tf.gather(tf.constant(list(known.values()), tf.int64), number)


def _pieces(preprocessor, words, are_examples):
    """Returns the pieces of words `[W]`, ragged."""
    import tensorflow as tf

    lower = tf.strings.lower(words)
    for written, bracket in BRACKETS.items():
        words = tf.where(lower == written, bracket, words)
    if not are_examples:
        return preprocessor.tokenizer.traced(words)
    special = preprocessor.special_tokens()
    is_special = words[:, None] == tf.constant(list(special))
    is_any = tf.reduce_any(is_special, axis=1)
    numbers = tf.argmax(tf.boolean_mask(is_special, is_any), axis=1)
    ids = tf.gather(tf.constant(list(special.values()), tf.int32), numbers)
    special = tf.RaggedTensor.from_row_lengths(ids, tf.cast(is_any, tf.int64), validate=False)
    others = preprocessor.tokenizer.traced(tf.where(is_any, "", words))
    return tf.concat([special, tf.cast(others, tf.int32)], axis=1)
