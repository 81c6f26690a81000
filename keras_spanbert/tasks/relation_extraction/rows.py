"""Lays out sentences with a subject and an object as rows, in the released feature modes.

The parts of a row are called items: pieces of words, symbols around or instead of the spans, and
special tokens. Long rows keep the items that are nearest to a span. Code in `xp` makes the same
rows in preprocessors and a SavedModel. Legend: N = rows, P = pieces of all words, I = items of all
rows, L = tokens per row. Integers are int64 until the end.
"""

import collections

import numpy as np

from keras_spanbert.layers.array_functions import range_like, take, true_indices

MODES = ("ner", "text", "text_ner", "ner_text")
# The pieces of words, one after another, by row and word.
Words = collections.namedtuple(
    "Words",
    [
        "ids",  # [P]
        "word",  # [P], the piece's word, counted from 0 in its row
        "row",  # [P], ascending
        "spans",  # [N, 4], first and last word of the subject, then of the object
        "types",  # [N, 2], ids of the symbols for the types of subject and object
    ],
)
# The ids of the symbols around spans.
Markers = collections.namedtuple(
    "Markers", ["subject_start", "subject_end", "object_start", "object_end"]
)

# Kinds of items.
_PIECE, _CLS, _SUBJECT, _OBJECT, _SUBJECT_END, _OBJECT_END = range(6)
_SEP, _ABOUT_SUBJECT, _SEP_2, _ABOUT_OBJECT, _SEP_3 = range(6, 11)
_FIXED = (_CLS, _SUBJECT, _OBJECT, _SUBJECT_END, _OBJECT_END, _SEP, _SEP_2, _SEP_3)
# Position of an item among those of its word: opening symbols, pieces, closing symbols. Items after
# the text have the position of a word after the last one.
_SLOTS = {
    _CLS: 0, _SUBJECT: 0, _OBJECT: 1, _PIECE: 2, _SUBJECT_END: 3, _OBJECT_END: 4,
    _SEP: 0, _ABOUT_SUBJECT: 1, _SEP_2: 2, _ABOUT_OBJECT: 3, _SEP_3: 4,
}  # fmt: skip
_NUM_SLOTS = 5
_FAR = 1 << 40  # Larger than any number of items.

# Items in the order of the rows: `kind`, `ids`, `row`, `place` in the row, each [I], and `starts`
# and `sizes` `[N]` of the rows.
_Items = collections.namedtuple("_Items", ["kind", "ids", "row", "place", "starts", "sizes"])


def relation_rows(
    xp, words: Words, mode: str, markers: Markers, tokenizer, length: int, keeps_spans: bool
) -> dict:
    """Returns `token_ids`, `segment_ids` and `padding_mask`, int32 `[N, L]`, and `size` `[N]`.

    The latter is the number of tokens of each row before it is cut. With `keeps_spans`, a row that
    would lose a part of a span, or of what follows the text, leaves out other tokens. Otherwise
    rows are those of the released `run_tacred.py`.
    """
    items = _all_items(xp, words, mode, markers, tokenizer)
    rank = _rank_items(xp, items, mode, length) if keeps_spans else items.place
    # Keeps the `length` items of each row with the lowest ranks. Ties are kept in order.
    order = xp.argsort(items.row * (2 * _FAR) + rank, kind="stable")
    is_kept = xp.argsort(order, kind="stable") - take(xp, items.starts, items.row) < length
    count = xp.cumsum(xp.asarray(is_kept, dtype=np.int64))
    starts = take(xp, count, items.starts) - 1  # `[CLS]` is always kept.
    ends = xp.concatenate([starts[1:], count[-1:]], axis=0)

    place = xp.arange(length, dtype=np.int64)[None, :]
    is_token = place < (ends - starts)[:, None]
    kept = take(xp, items.ids, true_indices(xp, is_kept))
    index = xp.where(is_token, starts[:, None] + place, np.int64(0))
    ids = xp.where(is_token, take(xp, kept, index), np.int64(tokenizer.pad_token_id))
    ids, mask = (xp.asarray(x, dtype=np.int32) for x in (ids, is_token))
    return {
        "token_ids": ids,
        "segment_ids": xp.zeros_like(ids),
        "padding_mask": mask,
        "size": items.sizes,
    }


def _all_items(xp, words, mode, markers, tokenizer):
    """Returns the `_Items` of the rows, sorted."""
    first, last = words.spans[:, 0::2], words.spans[:, 1::2]  # [N, 2]
    row = range_like(xp, first[:, 0], np.int64)
    inside = [
        (words.word >= take(xp, first[:, i], words.row))
        & (words.word <= take(xp, last[:, i], words.row))
        for i in range(2)
    ]
    # The maximum is also defined without rows.
    nowhere = np.zeros(1, np.int64)
    end = xp.max(xp.concatenate([nowhere, words.word, xp.reshape(last, [-1])], axis=0)) + 1
    items = []

    def add(kind, word, ids):
        items.append((row, xp.zeros_like(row) + word, kind, xp.zeros_like(row) + ids))

    def add_pieces(kind, mask, word=None):
        pieces = true_indices(xp, mask)
        place, ids, of = (take(xp, x, pieces) for x in (words.word, words.ids, words.row))
        items.append((of, place if word is None else xp.zeros_like(place) + word, kind, ids))

    add(_CLS, np.int64(-1), np.int64(tokenizer.cls_token_id))
    if mode.startswith("ner"):
        add(_SUBJECT, first[:, 0], words.types[:, 0])
        add(_OBJECT, first[:, 1], words.types[:, 1])
        add_pieces(_PIECE, ~(inside[0] | inside[1]))
    else:
        for kind, word, marker in [
            (_SUBJECT, first[:, 0], markers.subject_start),
            (_OBJECT, first[:, 1], markers.object_start),
            (_SUBJECT_END, last[:, 0], markers.subject_end),
            (_OBJECT_END, last[:, 1], markers.object_end),
        ]:
            add(kind, word, np.int64(marker))
        items.append((words.row, words.word, _PIECE, words.ids))
    separator = np.int64(tokenizer.sep_token_id)
    add(_SEP, end, separator)
    if mode == "text_ner":
        add(_ABOUT_SUBJECT, end, words.types[:, 0])
        add(_ABOUT_OBJECT, end, words.types[:, 1])
    elif mode == "ner_text":
        add_pieces(_ABOUT_SUBJECT, inside[0], end)
        add_pieces(_ABOUT_OBJECT, inside[1] & ~inside[0], end)
    if _has_more(mode):
        add(_SEP_2, end, separator)
        add(_SEP_3, end, separator)
    key = [
        (of * (end + 2) + word + 1) * _NUM_SLOTS + np.int64(_SLOTS[kind])
        for of, word, kind, _ in items
    ]
    kinds = [xp.full_like(of, kind) for of, _, kind, _ in items]
    rows, ids = [item[0] for item in items], [item[3] for item in items]
    order = xp.argsort(xp.concatenate(key, axis=0), kind="stable")
    kind, ids, row = (take(xp, xp.concatenate(x, axis=0), order) for x in (kinds, ids, rows))
    starts = _item_indices(xp, kind, _CLS)
    number = range_like(xp, kind, np.int64)
    sizes = xp.concatenate([starts[1:], xp.sum(xp.ones_like(number))[None]], axis=0) - starts
    return _Items(kind, ids, row, number - take(xp, starts, row), starts, sizes)


def _rank_items(xp, items, mode, length):
    """Returns the rank of each item, `[I]`. Long rows keep the lowest ranks."""
    place = items.place

    def item_position(kind):
        """Returns the place `[N]` of the item of a kind that each row has once."""
        return _item_indices(xp, items.kind, kind) - items.starts

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
    if _has_more(mode):
        ends = [text_end, item_position(_SEP_2), item_position(_SEP_3)]
        for kind, *between in [(_ABOUT_SUBJECT, *ends[:2]), (_ABOUT_OBJECT, *ends[1:])]:
            rank = xp.where(items.kind == kind, depth(*between), rank)
        is_cut = items.sizes > length
    for kind in _FIXED:
        rank = xp.where(items.kind == kind, np.int64(-1), rank)
    return xp.where(from_row(is_cut), rank, place)


def _has_more(mode):
    """Returns whether something follows the text."""
    return "_" in mode


def _item_indices(xp, kind, wanted):
    """Returns the indices of the items of a kind, `[N]`."""
    return xp.asarray(xp.nonzero(kind == wanted)[0], dtype=np.int64)
