"""Pairs for next-sentence prediction compared with their definition."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_spanbert as ks
from keras_spanbert.layers.next_sentence_pairs import NextSentencePairs
from keras_spanbert.layers.token_layer import uniform

PAD, CLS, SEP, END, QUOTE, MORE = 0, 2, 3, 5, 6, 7
V, L, B = 2500, 41, 2003


def make(**kwargs):
    return NextSentencePairs(
        V, SEP, sentence_end_token_ids=[END], closing_token_ids=[QUOTE],
        continuation_token_ids=[MORE], **kwargs,
    )  # fmt: skip


def pack_rows(texts, length):
    rows = np.full((len(texts), length), PAD, np.int32)
    for row, text in zip(rows, texts):
        row[: len(text) + 2] = [CLS, *text, SEP]
    return rows


def sequences(sizes, generator):
    """Returns sentences whose words identify the row: all words of row r are 10 + r."""
    texts = []
    for r, size in enumerate(sizes):
        text = np.full(size, 10 + r)
        text[generator.random(size) < 0.15] = END
        texts.append(text)
    return pack_rows(texts, L)


def numbers(pairs):
    return {name: keras.ops.convert_to_numpy(x) for name, x in pairs.items()}


@pytest.fixture(scope="module")
def full():
    """Returns full sequences and their pairs."""
    token_ids = sequences([L - 2] * B, np.random.default_rng(0))
    return token_ids, numbers(make()(token_ids, seed=1))


def segments(row):
    """Returns the tokens of A and B in a pair."""
    first, second = np.flatnonzero(row == SEP)
    assert row[0] == CLS and not row[second + 1 :].any()
    return row[1:first], row[first + 1 : second]


def test_half_are_random_and_10_percent_are_short(full):
    _, pairs = full
    assert pairs["pair_weights"].all() and pairs["pair_weights"].dtype == np.float32
    # Four standard deviations for 2,003 rows.
    assert pairs["is_random"].mean() == pytest.approx(0.5, abs=4 * 0.5 / B**0.5)
    sizes = (pairs["token_ids"] != PAD).sum(axis=1) - 3
    assert sizes.max() == L - 3 and sizes.min() >= 2
    # One in L - 4 of the short pairs has full length.
    share = 0.1 * (1 - 1 / (L - 4))
    assert (sizes < L - 3).mean() == pytest.approx(share, abs=4 * (share / B) ** 0.5)


def test_short_lengths_are_uniform_and_independent_of_labels():
    token_ids = sequences([L - 2] * B, np.random.default_rng(0))
    pairs = numbers(make(short_rate=1.0)(token_ids, seed=2))
    sizes = (pairs["token_ids"] != PAD).sum(axis=1) - 3
    paired = pairs["pair_weights"] > 0
    counts = np.bincount(sizes[paired], minlength=L - 2)[2:]
    expected = paired.sum() / (L - 4)
    # Chi squared with 36 degrees of freedom is above 80 with probability 1 in 30,000.
    assert len(counts) == L - 4 and ((counts - expected) ** 2 / expected).sum() < 80
    is_random = pairs["is_random"] == 1
    difference = sizes[is_random].mean() - sizes[~is_random].mean()
    assert abs(difference) < 4 * sizes.std() * (4 / B) ** 0.5


def test_true_pairs_continue_and_random_pairs_use_another_row(full):
    token_ids, pairs = full
    shifts = set()
    columns = pairs["token_ids"], pairs["segment_ids"], pairs["is_random"]
    for i, (before, row, segment_ids, is_random) in enumerate(zip(token_ids, *columns)):
        a, b = segments(row)
        assert len(a) and len(b)
        expected = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        np.testing.assert_array_equal(segment_ids, expected + [0] * (L - len(expected)))
        text = before[1 : L - 1]
        np.testing.assert_array_equal(a, text[: len(a)])
        if not is_random:
            np.testing.assert_array_equal(b, text[len(a) : len(a) + len(b)])
            continue
        # Part of that row, from a sentence start at or before the position of the cut.
        other = next((w - 10 for w in b if w != END), None)
        if other is None:
            continue
        assert other != i
        text = token_ids[other, 1 : L - 1]
        starts = [0, *(1 + np.flatnonzero((text[:-1] == END) & (text[1:] != END)))]
        # Without sentence ends, each word can start a segment.
        starts = starts if len(starts) > 1 else range(L - 2)
        last = max(s for s in starts if s <= len(a))
        np.testing.assert_array_equal(text[last : last + len(b)], b)
        shifts.add((other - i) % B)
    assert len(shifts) > 500  # From all rows, not only the next one.


def test_ragged_lengths_and_ends_are_independent_of_labels():
    generator = np.random.default_rng(2)
    sizes = generator.integers(4, L - 1, B)
    token_ids = sequences(sizes, generator)
    token_ids[np.arange(B), sizes] = END  # Like documents.
    pairs = numbers(make()(token_ids, seed=3))
    is_random = pairs["is_random"] == 1
    assert pairs["pair_weights"].mean() > 0.99
    totals = (pairs["token_ids"] != PAD).sum(axis=1)
    own, other = totals[~is_random], totals[is_random]
    # A random pair is longer with probability 0.5 (standard deviation 0.013).
    wins = (other[:, None] > own).mean() + 0.5 * (other[:, None] == own).mean()
    assert wins == pytest.approx(0.5, abs=0.05)
    ends = pairs["token_ids"][np.arange(B), totals - 2] == END
    # Short pairs end anywhere.
    assert ends[~is_random].mean() > 0.85
    assert ends[is_random].mean() == pytest.approx(ends[~is_random].mean(), abs=0.05)


@pytest.mark.parametrize(
    "text, expected",
    [
        # The quote belongs to the second sentence and both marks to the third.
        ([11, 12, END, 13, END, QUOTE, 14, 15, END, END, 16, 17], [3, 6, 10]),
        # Without sentence ends, each word can start a segment.
        ([11, MORE, 12, 13, MORE, MORE, 14, END], [2, 3, 6, 7]),
    ],
)
def test_cuts_are_uniform_over_sentence_ends_or_words(text, expected):
    pairs = numbers(make(short_rate=0.0)(pack_rows([text] * B, 23), seed=3))
    cuts = np.array([len(segments(row)[0]) for row in pairs["token_ids"]])
    values, counts = np.unique(cuts, return_counts=True)
    assert values.tolist() == expected
    share = 1 / len(expected)
    assert np.abs(counts / B - share).max() < 4 * (share * (1 - share) / B) ** 0.5
    # Rows shorter than the target length end with their text.
    assert {len(a) + len(b) for a, b in map(segments, pairs["token_ids"])} == {len(text)}


def test_rows_without_a_pair_are_unchanged_with_weight_0():
    texts = [[11, 12, 13], [14, MORE, MORE], [], [15], [16, 17, 18]]
    token_ids = np.concatenate([pack_rows(texts, 11), np.zeros((3, 11), np.int32)])
    for seed in range(20):
        pairs = numbers(make()(token_ids, seed=seed))
        weights = pairs["pair_weights"]
        np.testing.assert_array_equal(weights[1:4], 0)
        np.testing.assert_array_equal(weights[5:], 0)
        same = weights == 0
        np.testing.assert_array_equal(pairs["token_ids"][same], token_ids[same])
        assert not pairs["segment_ids"][same].any() and not pairs["is_random"][same].any()
        for row, is_random in zip(pairs["token_ids"][~same], pairs["is_random"][~same]):
            assert set(segments(row)[1]) and (is_random or len(set(row)) > 3)
    alone = np.concatenate([pack_rows(texts[:1], 11), np.zeros((3, 11), np.int32)])
    assert not numbers(make()(alone, seed=1))["pair_weights"].any()


def test_text_ends_at_the_first_separator():
    text = [11, 12, END, 13, SEP, 14, 15]
    pairs = numbers(make()(pack_rows([text] * 200, 17), seed=1))
    assert not np.isin(pairs["token_ids"], [14, 15]).any()
    assert pairs["pair_weights"].all()


def test_tf_data_gives_the_same_pairs():
    token_ids = sequences([L - 2, L - 9, 1, 30, 2] * 20, np.random.default_rng(1))
    marks = np.where(token_ids > 3, token_ids % 7, 0)
    layer = make()
    # With two ints as seed, like in streams, and an unknown number of rows.
    dataset = tf.data.Dataset.from_tensor_slices((token_ids, marks)).batch(50).enumerate()
    dataset = dataset.map(
        lambda i, batch: layer(batch[0], seed=tf.stack([tf.constant(9, tf.int64), i]),
                               span_marks=batch[1])
    )  # fmt: skip
    for i, theirs in enumerate(dataset):
        rows = slice(50 * i, 50 * i + 50)
        ours = numbers(layer(token_ids[rows], seed=(9, i), span_marks=marks[rows]))
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            np.testing.assert_array_equal(value, theirs[name].numpy(), err_msg=name)
            assert value.dtype == theirs[name].numpy().dtype
        # Marks move with their tokens.
        ids = ours["token_ids"]
        np.testing.assert_array_equal(ours["span_marks"], np.where(ids > 3, ids % 7, 0))


def test_pairs_and_masks_draw_other_numbers():
    one, other = uniform(3, 500, 2), uniform(3, 500, 2, stream=8)
    assert abs(np.corrcoef(one[:, 0], other[:, 0])[0, 1]) < 0.2
    np.testing.assert_array_equal(one, uniform((3, 0), 500, 2))


def test_sentence_ends_come_from_the_vocabulary():
    words = ["the", "##s", ".", "?", "。", '"', "”", ",", "...", "。」"]
    tokenizer = ks.SpanBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    layer = NextSentencePairs.from_tokenizer(tokenizer)
    found = [layer.sentence_end_token_ids, layer.closing_token_ids, layer.continuation_token_ids]
    tokens = [[tokenizer.id_to_token(i) for i in ids] for ids in found]
    assert tokens == [[".", "?", "。", "..."], ['"', "”"], ["##s"]]


def test_single_and_short_rows_are_refused():
    layer = make()
    with pytest.raises(ValueError, match=r"B of at least 2.*shape=\(1, 11\)"):
        layer(pack_rows([[11, 12]], 11))
    with pytest.raises(ValueError, match=r"L of at least 5.*shape=\(2, 4\)"):
        layer(pack_rows([[11, 12]] * 2, 4))
    dataset = tf.data.Dataset.from_tensor_slices(pack_rows([[11, 12]] * 3, 11)).batch(2).map(layer)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have at least 2 rows"):
        list(dataset)
