"""Converts the inputs of `SpanBertRelationExtractor`, examples or columns, to sentences.

Legend: N = rows, C = characters of all texts, with a blank after each text.
"""

import collections

import numpy as np

from keras_spanbert.checks import check_in, check_kind, check_same_length, is_integer, to_python
from keras_spanbert.data.tacred import example_of_text, relation_example
from keras_spanbert.layers.array_functions import is_symbolic
from keras_spanbert.text.strings import as_strings, check_in_graph, columns_of, is_examples

# Brackets in the Penn Treebank.
BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}
# Columns of texts, and columns of examples from readers.
SPANS = ("subject", "object")
TYPES = ("subject_type", "object_type")
EXAMPLE_SPANS = ("subj_start", "subj_end", "obj_start", "obj_end")
EXAMPLE_TYPES = ("subj_type", "obj_type")
# A sentence: `words`, strings; `spans`, first and last word of the subject, then of the object;
# `types`, strings or `None`; `is_text`, whether the user passed a text, whose words are never
# special tokens; `place`, for messages.
Sentence = collections.namedtuple("Sentence", ["words", "spans", "types", "is_text", "place"])
# The same for N sentences: `words`, strings `[S]`; `num_words` `[N]`; `spans` `[N, 4]`; `types`
# `[N, 2]`, the ids of the types' symbols, all int64; `are_examples`, whether words can be special
# tokens. In a SavedModel these are tensors.
Columns = collections.namedtuple(
    "Columns", ["words", "num_words", "spans", "types", "are_examples"]
)


def sentences(x) -> list[Sentence]:
    """Returns the sentences of examples from readers, or of a dict of columns."""
    if is_examples(x) and "text" in x[0]:
        x = columns_of(x, ["text", *SPANS], TYPES)
    if isinstance(x, dict):
        names = set(x)
        of_texts = {"text", *SPANS} <= names <= {"text", *SPANS, *TYPES}
        if not of_texts and not {"token", *EXAMPLE_SPANS} <= names:
            raise ValueError(
                f"`x` must be a dict of text, {', '.join(SPANS)} and, where they are known, "
                f"{', '.join(TYPES)}; or of token, {', '.join(EXAMPLE_SPANS)} and, where they are "
                f"known, {', '.join(EXAMPLE_TYPES)}; or a list of examples. Received: keys "
                f"{', '.join(map(str, x))}"
            )
        if "text" in x:
            return sentences_from_texts(*(x.get(name) for name in ["text", *SPANS, *TYPES]))
        columns = {name: to_python(x[name]) for name in x if x[name] is not None}
        sizes = {n: len(c) if isinstance(c, list) else None for n, c in columns.items()}
        if None in sizes.values() or len(set(sizes.values())) > 1:
            found = (f"{n}: {'one value' if size is None else size}" for n, size in sizes.items())
            raise ValueError(
                "The columns of `x` must be lists or arrays with as many values as there are "
                f"examples. Give a single example as a list, [x]. Received: {', '.join(found)}"
            )
        x = [dict(zip(columns, values)) for values in zip(*columns.values(), strict=True)]
    rule = "a list of dicts from `keras_spanbert.data.tacred.read`"
    check_kind("examples", x, isinstance(x, (list, tuple)), rule)
    return [_sentence_from_example(example, i) for i, example in enumerate(x)]


def _sentence_from_example(example, number):
    if not isinstance(example, dict):
        raise ValueError(
            "Examples must be dicts from `keras_spanbert.data.tacred.read`. Received: "
            f"{example!r:.80} at {number}"
        )
    example = {"id": str(number), **example}
    place = f"example {number} (id {example['id']!r})"
    example = relation_example(example, place, needs_labels=False)
    spans = [example[name] for name in EXAMPLE_SPANS]
    types = [example[name] for name in EXAMPLE_TYPES]
    return Sentence(example["token"], spans, types, False, place)


def sentences_from_texts(
    texts, subjects, objects, subject_types=None, object_types=None
) -> list[Sentence]:
    """Returns the sentences of texts with spans: see `SpanBertRelationExtractor.extract`."""
    if len(getattr(texts, "shape", ())) == 2:
        texts = to_python(texts)  # Words, ragged or padded.
    is_list = isinstance(texts, (list, tuple))
    if is_list and any(isinstance(text, (list, tuple)) for text in texts):
        texts = [text if isinstance(text, str) else as_strings("text", text) for text in texts]
    else:
        texts = as_strings("texts", texts)
    columns = {
        "subjects": _as_spans("subjects", subjects),
        "objects": _as_spans("objects", objects),
        "subject_types": _as_types(subject_types, "subject_types", len(texts)),
        "object_types": _as_types(object_types, "object_types", len(texts)),
    }
    for name, column in columns.items():
        check_same_length(texts=texts, **{name: column})
    return [
        _sentence_from_text(i, *values) for i, values in enumerate(zip(texts, *columns.values()))
    ]


def _sentence_from_text(number, text, subject, object, *types):
    place = f"text {number}"
    if isinstance(text, str):
        example = example_of_text(str(number), text, subject, object, place)
        spans = [example[name] for name in EXAMPLE_SPANS]
        return Sentence(example["token"], spans, types, True, place)
    for (start, end), kind in [(subject, "subject"), (object, "object")]:
        if not 0 <= start < end <= len(text):
            raise ValueError(
                f"{place}: the {kind} must be words of the text: its first and the one after its "
                f"last, from 0 to {len(text)}. Received: {start}, {end}"
            )
    return Sentence(
        text, [subject[0], subject[1] - 1, object[0], object[1] - 1], types, True, place
    )


def _as_spans(name, spans):
    spans = to_python(spans)
    check_kind(name, spans, isinstance(spans, list), "a list of (start, end)")
    for i, span in enumerate(spans):
        is_pair = isinstance(span, (list, tuple)) and len(span) == 2
        is_span = is_pair and all(map(is_integer, span))
        check_in(f"{name}[{i}]", span, is_span, "(start, end), two integers each")
    return [(int(start), int(end)) for start, end in spans]


def _as_types(types, name, count):
    """Returns a type or `None` for each text. An empty type becomes `None`."""
    if types is None:
        return [None] * count
    if isinstance(types, (list, tuple)):
        types = ["" if kind is None else kind for kind in types]
    return [kind or None for kind in as_strings(name, types)]


_LAST_BLANK = 0x3000


def columns_in_graph(preprocessor, x: dict) -> Columns:
    """Returns the sentences of the texts that a SavedModel takes, a dict of tensors."""
    import tensorflow as tf

    spans = tf.cast(tf.concat([x[name] for name in SPANS], axis=1), tf.int64)  # [N, 4]
    words, spans = _split_texts(as_strings("texts", x["text"]), spans)
    types = tf.zeros([tf.shape(spans)[0], 2], tf.int64)
    if preprocessor.uses_types:
        roles = zip(["SUBJ", "OBJ"], TYPES)
        types = tf.stack([_type_ids(preprocessor, role, x, name) for role, name in roles], axis=1)
    return Columns(words.values, tf.cast(words.row_lengths(), tf.int64), spans, types, False)


def _split_texts(texts, spans):
    """Returns the words of texts `[N]`, ragged, and the spans in words: see `example_of_text`."""
    import tensorflow as tf

    # === Characters, and whether a word begins there ===
    characters = tf.strings.unicode_decode(texts + " ", "UTF-8")
    text_starts = characters.row_starts()
    sizes = tf.cast(tf.strings.length(texts, "UTF8_CHAR"), tf.int64)
    is_inside = tf.reduce_all((spans >= 0) & (spans <= sizes[:, None]))
    edges = _check_spans(spans, is_inside) + text_starts[:, None]
    # Blanks in Python's regular expressions.
    is_blank = tf.zeros_like(characters.values, tf.bool)
    for code in filter(lambda code: chr(code).isspace(), range(_LAST_BLANK + 1)):
        is_blank |= characters.values == code
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
    first_words = tf.gather(before, text_starts)
    spans_in_words = tf.gather(before, edges) - first_words[:, None] - np.array([0, 1, 0, 1])
    words = tf.RaggedTensor.from_row_starts(words, first_words, validate=False)
    return words, _check_spans(spans_in_words, True)


def _check_spans(spans, is_inside):
    """Checks that spans, first and last of subject and object, are in their texts, not empty."""
    import tensorflow as tf

    is_right = is_inside & tf.reduce_all(spans[:, 0::2] <= spans[:, 1::2])
    message = "Subject and object must be characters of the text, not all blank. Received:"
    return check_in_graph(spans, is_right, message, spans)


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


def replace_brackets(words):
    """Replaces written brackets, in a list of strings or a graph's tensor."""
    if not is_symbolic(words):
        return [BRACKETS.get(word.lower(), word) for word in words]
    import tensorflow as tf

    lower = tf.strings.lower(words)
    for written, bracket in BRACKETS.items():
        words = tf.where(lower == written, bracket, words)
    return words
