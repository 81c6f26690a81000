"""Texts with spans to relations, as graph code.

Legend: B = texts, C = characters of all texts, W = words of all texts.
"""

import numpy as np

from keras_spanbert.serving.row_batches import cut_to_longest
from keras_spanbert.serving.signature import strings
from keras_spanbert.tasks.relation_extraction.rows import Words, relation_rows
from keras_spanbert.tasks.relation_extraction.sentences import BRACKETS

_SPANS = ("subject_start", "subject_end", "object_start", "object_end")
_TYPES = {"subject_type": "SUBJ", "object_type": "OBJ"}
_LAST_BLANK = 0x3000


def signature(preprocessor) -> list:
    """The arguments of what `relations_of_texts` gives."""
    import tensorflow as tf

    spans = [tf.TensorSpec([None], tf.int32, name=name) for name in _SPANS]
    return [*strings("text"), *spans, *strings(*(_TYPES if preprocessor.uses_types else ()))]


def relations_of_texts(model):
    """The function of `text`, spans and, where the mode takes them, types, `[B]` each, to serve.

    Args:
        model: `SpanBertRelationExtractor` with preprocessor.
    """
    import tensorflow as tf
    import tensorflow.experimental.numpy as tnp

    preprocessor = model.preprocessor
    markers = preprocessor.markers()
    keeps_spans = preprocessor.truncation == "window"
    names = tf.constant(model.relations)

    def relations(text, spans, types):
        words = _words(preprocessor.tokenizer, text, spans, types)
        inputs = relation_rows(
            tnp,
            words,
            preprocessor.mode,
            markers,
            preprocessor.tokenizer,
            preprocessor.sequence_length,
            keeps_spans,
        )
        logits = model(cut_to_longest(inputs), training=False)
        scores = tf.nn.softmax(tf.cast(logits, tf.float32))
        return {
            "relation": tf.gather(names, tf.argmax(scores, axis=1)),
            "score": tf.reduce_max(scores, axis=1),
            "scores": scores,
        }

    def serve(text, subject_start, subject_end, object_start, object_end):
        spans = tf.stack([subject_start, subject_end, object_start, object_end], axis=1)
        return relations(text, spans, tf.zeros([tf.size(text), 2], tf.int64))

    def serve_with_types(
        text, subject_start, subject_end, object_start, object_end, subject_type, object_type
    ):
        spans = tf.stack([subject_start, subject_end, object_start, object_end], axis=1)
        given = {"subject_type": subject_type, "object_type": object_type}
        types = [_type_ids(preprocessor, name, values) for name, values in given.items()]
        return relations(text, spans, tf.stack(types, axis=1))

    return serve_with_types if preprocessor.uses_types else serve


def _type_ids(preprocessor, name, values):
    """Ids int64 `[B]` of the symbols for types, which must be known."""
    import tensorflow as tf

    known = preprocessor.types(_TYPES[name])
    if not known:
        raise ValueError(
            "The preprocessor must know types to serve: `adapt` gives them symbols. Received: none"
        )
    is_type = tf.equal(values[:, None], tf.constant(list(known))[None, :])
    check = tf.debugging.Assert(
        tf.reduce_all(tf.reduce_any(is_type, axis=1)),
        [f"`{name}` must be one of {', '.join(known)}. Received:", values],
    )
    with tf.control_dependencies([check]):
        number = tf.argmax(tf.cast(is_type, tf.int32), axis=1)
    return tf.gather(tf.constant(list(known.values()), tf.int64), number)


def _words(tokenizer, text, spans, types):
    """`Words` of texts `[B]` with spans `[B, 4]` in characters, as `example_of_text` cuts them."""
    import tensorflow as tf

    # === Characters, and whether a word begins there ===
    texts = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")  # Mends what is invalid.
    characters = tf.strings.unicode_decode(texts, "UTF-8")
    row_starts = tf.cast(characters.row_starts(), tf.int64)
    sizes = tf.cast(characters.row_lengths(), tf.int64)
    values, num_characters = characters.values, tf.size(characters.values, tf.int64)
    spans = tf.cast(spans, tf.int64)
    start, end = spans[:, 0::2], spans[:, 1::2]
    is_inside = (start >= 0) & (start < end) & (end <= sizes[:, None])
    check = _check(is_inside, spans)
    with tf.control_dependencies([check]):
        edges = spans + row_starts[:, None]  # [B, 4], among the characters of all texts.
    is_blank = _is_blank(values)
    cuts = tf.concat([tf.reshape(edges, [-1]), row_starts], axis=0)[:, None]
    is_cut = tf.scatter_nd(cuts, tf.ones_like(cuts[:, 0]), [num_characters + 1])[:-1] > 0
    after_blank = tf.concat([tf.ones_like(is_blank[:1]), is_blank[:-1]], axis=0)
    begins = ~is_blank & (after_blank | is_cut)

    # === Words, and those of the spans ===
    before = tf.cumsum(tf.cast(tf.concat([[False], begins], axis=0), tf.int64))  # [C + 1]
    word_of = tf.boolean_mask(before[1:] - 1, ~is_blank)
    words = tf.strings.unicode_encode(
        tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(values, ~is_blank), word_of, before[-1], validate=False
        ),
        "UTF-8",
    )
    first_words = tf.gather(before, row_starts)
    word_spans = tf.gather(before, edges) - first_words[:, None] - np.array([0, 1, 0, 1])
    check = _check(word_spans[:, 0::2] <= word_spans[:, 1::2], spans)
    with tf.control_dependencies([check]):
        row = tf.boolean_mask(tf.cast(characters.value_rowids(), tf.int64), begins)

    # === Their pieces ===
    lower = tf.strings.lower(words)
    for written, bracket in BRACKETS.items():
        words = tf.where(lower == written, bracket, words)
    pieces = tokenizer.traced(words)
    word = tf.cast(pieces.value_rowids(), tf.int64)
    piece_row = tf.gather(row, word)
    return Words(
        tf.cast(pieces.values, tf.int64),
        word - tf.gather(first_words, piece_row),
        piece_row,
        word_spans,
        types,
    )


def _check(is_right, spans):
    import tensorflow as tf

    return tf.debugging.Assert(
        tf.reduce_all(is_right),
        [
            "Subject and object must be characters of the text, not all blank: the first and the "
            "one after the last. Received, of subject and object in each text:",
            spans,
        ],
    )


def _is_blank(characters):
    """Whether characters are what Python's regular expressions know as blanks."""
    import tensorflow as tf

    is_blank = tf.zeros_like(characters, tf.bool)
    for code in range(_LAST_BLANK + 1):
        if chr(code).isspace():
            is_blank |= characters == code
    return is_blank
