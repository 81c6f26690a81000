"""Converts the inputs of `SpanBertRelationExtractor`, examples or columns, to sentences and rows.

The parts of a row are called items: pieces of words, symbols around or instead of the spans, and
special tokens. Long rows keep the items that are nearest to a span. Code in `xp` makes the same
rows in preprocessors and a SavedModel. Legend: N = rows, P = pieces of all words, I = items of all
rows, L = tokens per row. Integers are int64 until the end.
"""

import collections

import numpy as np

from keras_spanbert.checks import check_in, check_kind, check_same_length, is_integer, to_python
from keras_spanbert.data.tacred import example_of_text, relation_example
from keras_spanbert.layers.array_functions import is_symbolic, range_like, take, true_indices
from keras_spanbert.optional import tf
from keras_spanbert.text.strings import as_strings, check_in_graph, columns_of, is_examples

# Brackets in the Penn Treebank.
BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}
# Columns of texts, and columns of examples from readers.
SPANS = ("subject", "object")
TYPES = ("subject_type", "object_type")
EXAMPLE_SPANS = ("subj_start", "subj_end", "obj_start", "obj_end")
EXAMPLE_TYPES = ("subj_type", "obj_type")
ROLES = ("SUBJ", "OBJ")  # In the names of symbols.
# `spans`: first and last word of the subject, then of the object. `types`: strings or `None`.
# `is_text`: whether the user passed a text, whose words are never special tokens. `place`: for
# messages.
Sentence = collections.namedtuple("Sentence", ["words", "spans", "types", "is_text", "place"])
# N sentences, in a SavedModel tensors: `words` `[S]`, `num_words` `[N]`, `spans` `[N, 4]`, and
# `types` `[N, 2]`, the ids of the types' symbols, int64. `are_examples`: not `is_text`.
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
            return _sentences_of_texts(x)
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
    rule = "a dict from `keras_spanbert.data.tacred.read`"
    check_kind(f"examples[{number}]", example, isinstance(example, dict), rule)
    example = {"id": str(number), **example}
    place = f"example {number} (id {example['id']!r})"
    example = relation_example(example, place, needs_labels=False)
    spans = [example[name] for name in EXAMPLE_SPANS]
    types = [example[name] for name in EXAMPLE_TYPES]
    return Sentence(example["token"], spans, types, False, place)


def _sentences_of_texts(x):
    """Returns the sentences of columns: see `SpanBertRelationExtractor.extract`."""
    texts = x["text"]
    if len(getattr(texts, "shape", ())) == 2:
        texts = to_python(texts)  # Words, ragged or padded.
    is_list = isinstance(texts, (list, tuple))
    if is_list and any(isinstance(text, (list, tuple)) for text in texts):
        texts = [text if isinstance(text, str) else as_strings("text", text) for text in texts]
    else:
        texts = as_strings("texts", texts)
    columns = {
        **{f"{name}s": _as_spans(f"{name}s", x.get(name)) for name in SPANS},
        **{f"{name}s": _as_types(f"{name}s", x.get(name), len(texts)) for name in TYPES},
    }
    for name, column in columns.items():
        check_same_length(texts=texts, **{name: column})
    return [
        _sentence_from_text(f"text {i}", *values)
        for i, values in enumerate(zip(texts, *columns.values()))
    ]


def _sentence_from_text(place, text, subject, object, *types):
    if isinstance(text, str):
        example = example_of_text("", text, subject, object, place)
        words, spans = example["token"], [example[name] for name in EXAMPLE_SPANS]
        return Sentence(words, spans, types, True, place)
    for (start, end), kind in zip([subject, object], SPANS):
        if not 0 <= start < end <= len(text):
            raise ValueError(
                f"{place}: the {kind} must be words of the text: its first and the one after its "
                f"last, from 0 to {len(text)}. Received: {start}, {end}"
            )
    spans = [subject[0], subject[1] - 1, object[0], object[1] - 1]
    return Sentence(text, spans, types, True, place)


def _as_spans(name, spans):
    spans = to_python(spans)
    check_kind(name, spans, isinstance(spans, list), "a list of (start, end)")
    for i, span in enumerate(spans):
        is_pair = isinstance(span, (list, tuple)) and len(span) == 2
        is_span = is_pair and all(map(is_integer, span))
        check_in(f"{name}[{i}]", span, is_span, "(start, end), two integers each")
    return [(int(start), int(end)) for start, end in spans]


def _as_types(name, types, count):
    """Returns a type or `None` for each text. An empty type becomes `None`."""
    if types is None:
        return [None] * count
    if isinstance(types, (list, tuple)):
        types = ["" if kind is None else kind for kind in types]
    return [kind or None for kind in as_strings(name, types)]


# The characters that separate words, as in Python's regular expressions.
_BLANK = f"[{''.join(filter(str.isspace, map(chr, range(0x3001))))}]"


def columns_in_graph(preprocessor, x: dict) -> Columns:
    """Returns the sentences of the texts that a SavedModel takes, a dict of tensors."""
    spans = tf.cast(tf.concat([x[name] for name in SPANS], axis=1), tf.int64)  # [N, 4]
    words, num_words, spans = _split_texts(as_strings("texts", x["text"]), spans)
    types = tf.zeros([tf.shape(spans)[0], 2], tf.int64)
    if preprocessor.uses_types:
        ids = [_type_ids(preprocessor, role, x, name) for role, name in zip(ROLES, TYPES)]
        types = tf.stack(ids, axis=1)
    return Columns(words, num_words, spans, types, False)


def _split_texts(texts, spans):
    """Returns the words of texts `[N]`, their numbers, and the spans in words.

    Does the same as `example_of_text`.
    """
    sizes = tf.cast(tf.strings.length(texts, "UTF8_CHAR"), tf.int64)[:, None]
    spans = _check_spans(spans, tf.reduce_all((spans >= 0) & (spans <= sizes)))
    edges = tf.sort(spans, axis=1)
    bounds = tf.concat([tf.zeros_like(sizes), edges, sizes], axis=1)
    starts, lengths = bounds[:, :-1], bounds[:, 1:] - bounds[:, :-1]
    texts = tf.strings.regex_replace(texts + " ", _BLANK, " ")
    parts = tf.strings.substr(texts[:, None], starts, lengths, "UTF8_CHAR")  # [N, 5]
    words = tf.strings.split(tf.reshape(parts, [-1]))
    num_words = tf.cumsum(tf.reshape(words.row_lengths(), [-1, 5]), axis=1)  # Up to each bound.
    before = tf.gather(num_words, tf.searchsorted(edges, spans), batch_dims=1)
    spans = _check_spans(before - np.array([0, 1, 0, 1]), True)
    return words.values, num_words[:, -1], spans


def _check_spans(spans, is_inside):
    """Checks that spans, first and last of subject and object, are in their texts, not empty."""
    is_right = is_inside & tf.reduce_all(spans[:, 0::2] <= spans[:, 1::2])
    message = "Subject and object must be characters of the text, not all blank. Received:"
    return check_in_graph(spans, is_right, message, spans)


def _type_ids(preprocessor, role, x, name):
    """Returns the ids `[N]` of the symbols for types. Checks that they are known."""
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
    lower = tf.strings.lower(words)
    for written, bracket in BRACKETS.items():
        words = tf.where(lower == written, bracket, words)
    return words


# === Rows ===
MODES = ("ner", "text", "text_ner", "ner_text")  # After a `_`, what follows the text.
# Pieces of words, one after another: `ids`, `word`, counted from 0 in its row, and `row`, `[P]`.
# For each row `spans` `[N, 4]`, first and last word of the subject, then of the object, and `types`
# `[N, 2]`, the ids of the symbols for their types.
Words = collections.namedtuple("Words", ["ids", "word", "row", "spans", "types"])

# Kinds of items.
_PIECE, _CLS, _SUBJECT, _OBJECT, _SUBJECT_END, _OBJECT_END = range(6)
_SEP, _ABOUT_SUBJECT, _SEP_2, _ABOUT_OBJECT, _SEP_3 = range(6, 11)
_FIXED = (_CLS, _SUBJECT, _OBJECT, _SUBJECT_END, _OBJECT_END, _SEP, _SEP_2, _SEP_3)
# Position of an item among those of its word: opening symbols, pieces, closing symbols. Items after
# the text have the same word, `_FAR`.
_SLOTS = {
    _CLS: 0, _SUBJECT: 0, _OBJECT: 1, _PIECE: 2, _SUBJECT_END: 3, _OBJECT_END: 4,
    _SEP: 0, _ABOUT_SUBJECT: 1, _SEP_2: 2, _ABOUT_OBJECT: 3, _SEP_3: 4,
}  # fmt: skip
_NUM_SLOTS = 5
_FAR = 1 << 40  # Larger than any number of words or items.

# Items in the order of the rows: `kind`, `ids`, `row`, `place` in the row, each [I], and `starts`
# and `sizes` `[N]` of the rows.
_Items = collections.namedtuple("_Items", ["kind", "ids", "row", "place", "starts", "sizes"])


def relation_rows(xp, words: Words, preprocessor, keeps_spans: bool) -> dict:
    """Returns the inputs, int32 `[N, L]`, and the `size` `[N]` of each row before it is cut.

    With `keeps_spans`, a row that would lose a part of a span, or of what follows the text, leaves
    out other tokens. Otherwise rows are those of the released `run_tacred.py`.
    """
    mode, length = preprocessor.mode, preprocessor.sequence_length
    tokenizer = preprocessor.tokenizer
    items = _all_items(xp, words, mode, preprocessor.symbol_ids(), tokenizer)
    rank = _rank_items(xp, items, mode, length) if keeps_spans else items.place
    # Keeps the `length` items of each row with the lowest ranks. Ties are kept in order.
    order = xp.argsort(items.row * (2 * _FAR) + rank, kind="stable")
    is_kept = xp.argsort(order, kind="stable") - take(xp, items.starts, items.row) < length
    kept = take(xp, items.ids, true_indices(xp, is_kept))
    counts = xp.minimum(items.sizes, np.int64(length))
    place = xp.arange(length, dtype=np.int64)[None, :]
    is_token = place < counts[:, None]
    index = xp.where(is_token, (xp.cumsum(counts) - counts)[:, None] + place, np.int64(0))
    ids = xp.where(is_token, take(xp, kept, index), np.int64(tokenizer.pad_token_id))
    ids, mask = (xp.asarray(x, dtype=np.int32) for x in (ids, is_token))
    return {
        "token_ids": ids,
        "segment_ids": xp.zeros_like(ids),
        "padding_mask": mask,
        "size": items.sizes,
    }


def _all_items(xp, words, mode, symbols, tokenizer):
    """Returns the `_Items` of the rows, sorted."""
    first, last = words.spans[:, 0::2], words.spans[:, 1::2]  # [N, 2]
    row = range_like(xp, first[:, 0], np.int64)
    word, text_end = words.word[:, None], np.int64(_FAR)
    inside = (word >= take(xp, first, words.row)) & (word <= take(xp, last, words.row))  # [P, 2]
    in_subject, in_object = inside[:, 0], inside[:, 1]
    items = []

    def add(kind, word, ids, row=row):
        zeros = xp.zeros_like(row)
        items.append((row, zeros + word, zeros + ids, zeros + kind, zeros + _SLOTS[kind]))

    def add_pieces(kind, mask, word=None):
        pieces = true_indices(xp, mask)
        place, ids, row = (take(xp, x, pieces) for x in (words.word, words.ids, words.row))
        add(kind, place if word is None else word, ids, row)

    add(_CLS, np.int64(-1), np.int64(tokenizer.cls_token_id))
    if mode.startswith("ner"):
        add(_SUBJECT, first[:, 0], words.types[:, 0])
        add(_OBJECT, first[:, 1], words.types[:, 1])
        add_pieces(_PIECE, ~(in_subject | in_object))
    else:
        for kind, word, name in [
            (_SUBJECT, first[:, 0], "SUBJ_START"),
            (_OBJECT, first[:, 1], "OBJ_START"),
            (_SUBJECT_END, last[:, 0], "SUBJ_END"),
            (_OBJECT_END, last[:, 1], "OBJ_END"),
        ]:
            add(kind, word, np.int64(symbols[name]))
        add(_PIECE, words.word, words.ids, words.row)
    separator = np.int64(tokenizer.sep_token_id)
    add(_SEP, text_end, separator)
    if mode == "text_ner":
        add(_ABOUT_SUBJECT, text_end, words.types[:, 0])
        add(_ABOUT_OBJECT, text_end, words.types[:, 1])
    elif mode == "ner_text":
        add_pieces(_ABOUT_SUBJECT, in_subject, text_end)
        add_pieces(_ABOUT_OBJECT, in_object & ~in_subject, text_end)
    if "_" in mode:
        add(_SEP_2, text_end, separator)
        add(_SEP_3, text_end, separator)
    row, word, ids, kind, slot = (xp.concatenate(x, axis=0) for x in zip(*items))
    order = xp.argsort((row * (2 * _FAR) + word) * _NUM_SLOTS + slot, kind="stable")
    kind, ids, row = (take(xp, x, order) for x in (kind, ids, row))
    starts = xp.nonzero(kind == _CLS)[0]
    number = range_like(xp, kind, np.int64)
    sizes = xp.concatenate([starts[1:], xp.sum(xp.ones_like(number))[None]], axis=0) - starts
    return _Items(kind, ids, row, number - take(xp, starts, row), starts, sizes)


def _rank_items(xp, items, mode, length):
    """Returns the rank of each item, `[I]`. Long rows keep the lowest ranks."""
    place = items.place

    def item_position(kind):  # Each row has one item of this kind: [N].
        return xp.nonzero(items.kind == kind)[0] - items.starts

    def from_row(x):
        return take(xp, x, items.row)

    def depth(first, last):
        """Returns the distance from the nearer end of a part of the row, negative outside."""
        return xp.minimum(place - from_row(first), from_row(last) - place)

    is_ner = mode.startswith("ner")
    first = [item_position(kind) for kind in (_SUBJECT, _OBJECT)]
    last = first if is_ner else [item_position(kind) for kind in (_SUBJECT_END, _OBJECT_END)]
    in_subject, in_object = (depth(*ends) for ends in zip(first, last))
    low, high = xp.minimum(*first), xp.maximum(*last)
    text_end = item_position(_SEP)

    # === The text: first the spans, then what is between them if it fits, then what is near ===
    has_room = (high - low + 1) + (items.sizes - text_end + 1) <= length
    is_between = from_row(has_room) & (depth(low, high) >= 0)
    distance = xp.where(is_between, np.int64(0), -xp.maximum(in_subject, in_object))
    rank = _FAR // 2 + distance
    in_span = xp.where(in_subject < 0, in_object, in_subject)
    in_both = xp.where(in_object < 0, in_span, xp.minimum(in_span, in_object))
    rank = xp.where(xp.maximum(in_subject, in_object) >= 0, in_both, rank)

    # === What follows the text ===
    is_cut = high >= length
    if "_" in mode:
        ends = [text_end, item_position(_SEP_2), item_position(_SEP_3)]
        for kind, *between in [(_ABOUT_SUBJECT, *ends[:2]), (_ABOUT_OBJECT, *ends[1:])]:
            rank = xp.where(items.kind == kind, depth(*between), rank)
        is_cut = items.sizes > length
    for kind in _FIXED:
        rank = xp.where(items.kind == kind, np.int64(-1), rank)
    return xp.where(from_row(is_cut), rank, place)
