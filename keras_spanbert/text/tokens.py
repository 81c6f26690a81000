"""Tokenizes many texts and lays out rows of tokens, eagerly and in graph code, with `xp`.

A long text is shown in windows, rows of some tokens (`[CLS]`, a question), a span of the text, and
`[SEP]`. Legend: N = texts or rows, T = tokens of all texts, W = windows, L = tokens per row.
"""

import collections
import concurrent.futures
from collections.abc import Callable, Iterable

import numpy as np

from keras_spanbert.layers.array_functions import is_symbolic, namespace, range_like, repeat, take
from keras_spanbert.optional import tf
from keras_spanbert.text.normalization import MAX_WORD_CHARACTERS, UNKNOWN_CHARACTER

# The tokens of all texts, one text after another. All arrays are int32.
Tokens = collections.namedtuple(
    "Tokens",
    [
        "ids",  # [T + 1], with one more element for an index that is not used
        "starts",  # [N], index of each text's first token
        "sizes",  # [N], number of tokens of each text
        "offsets",  # [T + 1, 2], in characters of the text, or `None` if they are not needed
    ],
)

# A part of each row, for example a text: the `ids` `[T]`, and for each row the index of its first
# token and the number of its tokens, `[N]`. A row with a count of -1 has neither the part nor its
# `[SEP]`.
Part = collections.namedtuple("Part", ["ids", "starts", "counts"])

# Numbers of texts to tokenize and of rows to lay out at once. They limit the memory.
_TOKENIZE_BATCH = 1024
_ROWS_AT_ONCE = 256
# NumPy and the tokenizer release the interpreter lock, so threads help.
_THREADS = 2


def unique_texts(texts) -> tuple:
    """Returns the unique texts in order of first use, and the index of each text among them."""
    if is_symbolic(texts):
        return tf.unique(texts)
    unique = {}
    index = [unique.setdefault(text, len(unique)) for text in texts]
    return list(unique), np.array(index, np.int32)


def tokenize_texts(tokenizer, texts, with_offsets: bool = False) -> Tokens:
    """Tokenizes a list of strings, or a graph's string tensor `[N]` of valid UTF-8."""
    if is_symbolic(texts):
        return _tokenize_in_graph(tokenizer, texts, with_offsets)
    ids, offsets = [], []

    def tokenize(begin):
        return tokenizer.tokenize_batch(texts[begin : begin + _TOKENIZE_BATCH], with_offsets)

    for batch in _in_threads(tokenize, range(0, len(texts), _TOKENIZE_BATCH)):
        ids += batch[0] if with_offsets else batch
        offsets += batch[1] if with_offsets else []
    sizes = np.array([len(x) for x in ids], np.int32)
    return Tokens(
        np.concatenate([*ids, np.zeros(1, np.int32)]),
        np.cumsum(sizes, dtype=np.int32) - sizes,
        sizes,
        np.concatenate([*offsets, np.zeros((1, 2), np.int32)]) if with_offsets else None,
    )


def tokenize_repeated(tokenizer, texts) -> Tokens:
    """Tokenizes texts of which many are equal. Equal texts share their tokens."""
    xp = namespace(texts)
    unique, number = unique_texts(texts)
    tokens = tokenize_texts(tokenizer, unique)
    starts, sizes = (take(xp, x, number) for x in (tokens.starts, tokens.sizes))
    return tokens._replace(starts=starts, sizes=sizes)


def expand(xp, starts, counts, dtype=np.int32) -> tuple:
    """Returns for each value of ranges, one after another, the number of its range and the value.

    The ranges have first values `starts` and numbers of values `counts`, `[N]` each.
    """
    number = repeat(xp, range_like(xp, counts, dtype), counts)
    shift = starts - (xp.cumsum(counts, dtype=dtype) - counts)
    return number, take(xp, shift, number) + range_like(xp, number, dtype)


def _tokenize_in_graph(tokenizer, texts, with_offsets):
    if not with_offsets:
        rows = tokenizer.traced(texts)
        ids, sizes = tf.cast(rows.values, tf.int32), tf.cast(rows.row_lengths(), tf.int32)
    else:
        ids, sizes, offsets = tokenize_with_offsets(tokenizer, texts)
        offsets = tf.pad(tf.cast(offsets, tf.int32), [[0, 1], [0, 0]])
    starts = tf.cumsum(sizes, exclusive=True)
    return Tokens(tf.pad(ids, [[0, 1]]), starts, sizes, offsets if with_offsets else None)


def token_rows(xp, parts: list[Part], length: int, tokenizer) -> tuple:
    """Lays out rows: `[CLS] part [SEP]`, or `[CLS] part [SEP] part [SEP]`, padded.

    Returns a dict of `token_ids`, `segment_ids` and `padding_mask`, int32 `[N, L]`, and for each
    part whether a place in the row shows a token of it, bool `[N, L]`, and the token's index, int32
    `[N, L]`, 0 for others.
    """
    position = xp.arange(length, dtype=np.int32)[None, :]
    ids = xp.where(
        position == 0, np.int32(tokenizer.cls_token_id), np.int32(tokenizer.pad_token_id)
    )
    begins, places = [np.int32(1)], []
    for part in parts:
        begin, count = begins[-1], part.counts[:, None]
        is_inside = (position >= begin) & (position < begin + count)
        token = xp.where(is_inside, part.starts[:, None] + position - begin, np.int32(0))
        ids = xp.where(is_inside, take(xp, part.ids, token), ids)
        ids = xp.where(position == begin + count, np.int32(tokenizer.sep_token_id), ids)
        places.append((is_inside, token))
        begins.append(begin + count + 1)
    is_token = position < begins[-1]
    rows = {
        "token_ids": ids,
        "segment_ids": is_token & (position >= begins[1]),
        "padding_mask": is_token,
    }
    return {name: xp.asarray(x, dtype=np.int32) for name, x in rows.items()}, places


def in_chunks(xp, like, lay_out: Callable) -> dict:
    """Lays out rows of arrays. NumPy does so in chunks, to limit memory, and in threads.

    `lay_out` takes a slice of the rows, of which `like` has one value each, and returns a dict.
    """
    if xp is not np:
        return lay_out(slice(None))
    first = lay_out(slice(0, _ROWS_AT_ONCE))
    rows = {name: np.empty((len(like), *x.shape[1:]), x.dtype) for name, x in first.items()}

    def fill(begin):
        chunk = slice(begin, begin + _ROWS_AT_ONCE)
        for name, array in (lay_out(chunk) if begin else first).items():
            rows[name][chunk] = array

    _in_threads(fill, range(0, len(like), _ROWS_AT_ONCE))
    return rows


def _in_threads(function: Callable, items: Iterable) -> list:
    """Returns the results of a function for items, in order. Runs it in threads."""
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, items))


def encode_pairs(preprocessor, first, second) -> dict:
    """Returns the inputs of rows of one or two texts, int32 `[N, L]`, like `run_glue.py`.

    `first` and `second` are N strings, `""` or `None` for no second text, which then has no
    `[SEP]`. If a pair is too long, tokens are dropped from the end of the longer text, one at a
    time, and from the second text if both have the same length. Equal texts are tokenized once.
    """
    tokenizer, length = preprocessor.tokenizer, preprocessor.sequence_length
    xp = namespace(first)
    if second is None and xp is np:
        second = [""] * len(first)
    elif second is None:
        second = tf.zeros_like(first)
    both = [tokenize_repeated(tokenizer, texts) for texts in (first, second)]
    sizes = [tokens.sizes for tokens in both]
    has_second = (np.array(second, object) if xp is np else second) != ""
    room = xp.where(has_second, np.int32(length - 3), np.int32(length - 2))
    preprocessor.log_cut(sizes[0] + sizes[1] > room)
    kept = xp.minimum(sizes[0], xp.maximum(room - sizes[1], -(-room // 2)))
    kept_second = xp.minimum(sizes[1], room - kept)
    counts = [kept, xp.where(kept_second > 0, kept_second, np.int32(-1))]

    def lay_out(rows):
        some = [Part(x.ids, x.starts[rows], n[rows]) for x, n in zip(both, counts)]
        return token_rows(xp, some, length, tokenizer)[0]

    return in_chunks(xp, has_second, lay_out)


# === Windows of long texts ===
# The spans of texts that windows show, int32 `[W]`: the index of the text, the number of tokens
# before the span and of the text, the index of the span's first token, and its number of tokens.
DocSpans = collections.namedtuple("DocSpans", ["example", "before", "size", "first", "count"])


def doc_spans(xp, before, sizes, length, stride):
    """Splits texts into the spans that windows show, in the order of the texts: `DocSpans`.

    `before` and `sizes`, `[N]`, are the numbers of tokens before the span in each text's windows
    and of the text. Spans start `stride` tokens apart.
    """
    room = length - 1 - before
    num_spans = 1 + xp.maximum(-(-(sizes - room) // stride), 0)
    ends = xp.cumsum(num_spans, dtype=np.int32)
    example = repeat(xp, range_like(xp, sizes), num_spans)
    span = range_like(xp, example) - take(xp, ends - num_spans, example)
    first = span * stride
    size, before = take(xp, sizes, example), take(xp, before, example)
    count = xp.minimum(length - 1 - before, size - first)
    return DocSpans(example, before, size, first, count)


def is_max_context(xp, spans, length, stride):
    """Returns whether each token has its largest context in this window: bool `[W, L]`."""
    # Number of windows before and after that can contain the same token.
    reach = (length - 3) // stride
    if xp is np:  # Most texts have one window.
        beyond = np.max(spans.size + spans.before + 1 - length, initial=0)
        reach = min(reach, -(-int(beyond) // stride))
    first, size = spans.first[:, None], spans.size[:, None]
    room = length - 1 - spans.before[:, None]
    token = xp.arange(length, dtype=np.int32)[None, :] - spans.before[:, None]

    # A token's score in a span is its smaller context, left or right, plus a
    # hundredth of the span's size. The first span with the best score is chosen.
    def score(token, count):
        context = xp.asarray(xp.minimum(token, count - 1 - token), dtype=np.float64)
        return context + 0.01 * xp.asarray(count, dtype=np.float64)

    mine = score(token, spans.count[:, None])
    is_best = (token >= 0) & (token < spans.count[:, None])
    for offset in range(-reach, reach + 1):
        shift = offset * stride
        exists = (first + shift >= 0) & (first + shift - stride + room < size)
        count = xp.minimum(room, size - first - shift)
        other = token - shift
        is_in = exists & (other >= 0) & (other < count)
        theirs = score(other, count)
        is_best &= ~(is_in & (theirs >= mine if offset < 0 else theirs > mine))
    return is_best


# === In graph code ===
# B = texts, C = characters of all texts, K = characters of all normalized texts.


def tokenize_with_offsets(tokenizer, texts):
    """Tokenizes a string tensor `[B]`, valid UTF-8.

    Returns ids int32 `[T]`, the number of tokens of each text int32 `[B]`, and the offsets of the
    tokens in characters of their text, int64 `[T, 2]`.
    """
    # === Characters, normalized ===
    normalizer = tokenizer.normalizer
    characters = tf.strings.unicode_decode(normalizer.mark_found_tokens(texts), "UTF-8")
    forms = tf.gather(normalizer.forms, characters.values)
    source = tf.cast(forms.value_rowids(), tf.int64)  # [K], of C
    text_of = tf.gather(characters.value_rowids(), source)
    kept, source, last_source, text_of = _without_long_words(forms.values, source, text_of)

    # === Tokens, in bytes of the normalized texts ===
    num_texts = tf.shape(texts, tf.int64)[0]
    kept_rows = tf.RaggedTensor.from_value_rowids(kept, text_of, num_texts, validate=False)
    normalized = tf.strings.unicode_encode(kept_rows, "UTF-8")
    ids, begins, ends = tokenizer.fast_wordpiece.tokenize_with_offsets(normalized)

    # === Back to characters: of the normalized texts, then of the original ones ===
    more_bytes = sum(tf.cast(kept >= low, tf.int64) for low in (0x80, 0x800, 0x10000))
    starts = tf.cumsum(1 + more_bytes, exclusive=True)  # Counted over all texts.
    num_bytes = tf.cast(tf.strings.length(normalized), tf.int64)
    before_text = tf.cumsum(num_bytes, exclusive=True)
    token_text = tf.cast(ids.value_rowids(), tf.int64)
    shift = tf.gather(before_text, token_text)
    first = tf.searchsorted(starts, begins.values + shift, "right", tf.int64) - 1
    last = tf.searchsorted(starts, ends.values + shift, "left", tf.int64) - 1
    first, last = tf.gather(source, first), tf.gather(last_source, last)
    text_start = tf.gather(characters.row_starts(), token_text)
    return (
        tf.cast(ids.values, tf.int32),
        tf.cast(ids.row_lengths(), tf.int32),
        tf.stack([first - text_start, last + 1 - text_start], axis=1),
    )


def _without_long_words(characters, source, text_of):
    """Replaces each word that is too long with one unknown character, in all four arrays."""
    is_word = characters != ord(" ")
    begins = tf.concat(
        [tf.ones_like(is_word[:1]), (is_word[1:] != is_word[:-1]) | (text_of[1:] != text_of[:-1])],
        axis=0,
    )
    run = tf.cumsum(tf.cast(begins, tf.int64)) - 1
    num_runs = tf.reduce_sum(tf.cast(begins, tf.int64))
    size = tf.math.unsorted_segment_sum(tf.ones_like(run), run, num_runs)
    is_long = is_word & (tf.gather(size, run) > MAX_WORD_CHARACTERS)
    run_end = tf.gather(tf.math.unsorted_segment_max(source, run, num_runs), run)
    characters = tf.where(is_long, ord(UNKNOWN_CHARACTER), characters)
    last_source = tf.where(is_long, run_end, source)
    keep = begins | ~is_long
    return [tf.boolean_mask(x, keep) for x in (characters, source, last_source, text_of)]
