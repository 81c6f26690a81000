"""Each masking scheme against its definition, and masks that are static."""

import keras
import numpy as np
import pytest

from keras_spanbert import SpanMasking
from keras_spanbert.layers import span_masks
from keras_spanbert.layers.masking_schemes import SCHEMES, length_probabilities

CLS, SEP, MASK, PAD = 2, 3, 4, 0
SPECIAL = (PAD, CLS, SEP, MASK)
LINGUISTIC = ["entity", "noun_phrase"]


def layer(**kwargs):
    return SpanMasking(97, MASK, range(70, 97), SPECIAL, **kwargs)


def rows(number=41, length=67, seed=0):
    ids = np.random.default_rng(seed).integers(5, 97, (number, length)).astype("int32")
    ids[:, 0], ids[:, -1] = CLS, SEP
    ids[1, 40:] = PAD
    ids[1, 39] = SEP
    return ids


def marks_of(ids, every=7, longest=4, seed=1):
    """Spans of words, some of which begin within a word."""
    generator = np.random.default_rng(seed)
    marks = np.zeros_like(ids)
    for row in range(len(ids)):
        for start in range(1 + int(generator.integers(every)), ids.shape[1] - longest, every):
            marks[row, start] = 1
            marks[row, start + 1 : start + int(generator.integers(1, longest + 1))] = 2
    return marks


def masks_of(masking, ids, seed, **kwargs):
    masks = {name: np.asarray(x) for name, x in masking(ids, seed=seed, **kwargs).items()}
    flags = np.zeros(ids.shape, bool)
    for row, (positions, weights) in enumerate(zip(masks["mask_positions"], masks["mask_weights"])):
        flags[row, positions[weights > 0]] = True
    return masks, flags


def given(scheme, ids):
    return {"span_marks": marks_of(ids)} if scheme in LINGUISTIC else {}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mask_rate", [0.05, 0.15, 0.6, 1.0])
def test_share_of_masked_tokens_is_exact(scheme, mask_rate):
    ids = rows()
    masks, flags = masks_of(layer(scheme=scheme, mask_rate=mask_rate), ids, 3, **given(scheme, ids))
    maskable = ~np.isin(ids, SPECIAL)
    assert not (flags & ~maskable).any()
    np.testing.assert_array_equal(
        flags.sum(axis=1), np.ceil(mask_rate * maskable.sum(axis=1)).astype(int)
    )


@pytest.mark.parametrize("scheme", set(SCHEMES) - {"subword"})
def test_words_are_whole_but_for_the_budgets_end(scheme):
    ids = rows(199)
    _, flags = masks_of(layer(scheme=scheme), ids, 3, **given(scheme, ids))
    continues = np.isin(ids, range(70, 97))
    # The first token of a block may continue a word that is not there.
    cut = flags[:, 1:-1] != flags[:, 2:]
    cut &= continues[:, 2:]
    assert (cut.sum(axis=1) <= 1).all()
    assert cut.any(axis=1).mean() < 0.5


def test_lengths_of_random_spans_are_uniform():
    masking = layer(scheme="random_span", max_span_words=7)
    lengths = masking.drawn_span_lengths(700, 67, seed=1)
    shares = np.bincount(lengths.ravel(), minlength=8)[1:] / lengths.size
    assert lengths.size > 5000
    np.testing.assert_allclose(shares, 1 / 7, atol=0.02)
    np.testing.assert_allclose(length_probabilities("random_span", 0.2, 7), [1 / 7] * 7)


@pytest.mark.parametrize("scheme", LINGUISTIC)
def test_half_of_the_candidates_are_linguistic(scheme):
    """Where next to nothing is masked, the first candidate is all there is: its kind shows."""
    ids = np.full((4001, 41), 9, np.int32)
    marks = np.zeros_like(ids)
    for start in (3, 11, 30):
        marks[:, start], marks[:, start + 1 : start + 5] = 1, 2
    masking = layer(scheme=scheme, mask_rate=5 / 41)
    _, flags = masks_of(masking, ids, 1, span_marks=marks)
    whole = np.stack([flags[:, s : s + 5].all(axis=1) for s in (3, 11, 30)], axis=1)
    # 5 tokens are the budget. All of them one span: at least the first candidate was it, or
    # words within it alone, of which there are next to none.
    share = whole.any(axis=1).mean()
    assert abs(share - 0.5) < 0.03  # 4 standard deviations.
    np.testing.assert_allclose(whole.mean(axis=0), share / 3, atol=0.025)


@pytest.mark.parametrize("mask_rate", [0.15, 0.5, 0.9])
def test_linguistic_masks_equal_drawing_one_candidate_after_another(mask_rate):
    generator = np.random.default_rng(7)
    B, L, M, K = 37, 59, 59, 900
    ids = np.tile(np.arange(1, L + 1, dtype=np.int32), (B, 1))
    continuation = generator.random((B, L)) < 0.3
    marks = marks_of(ids)
    marks[0] = 0  # A row without linguistic spans.
    marks[1, :2] = 2  # One that was cut.
    draws = generator.random((B, span_masks.draws_per_sequence(K, M, True)))
    masks = span_masks.span_masks(
        np,
        ids,
        np.ones((B, L), bool),
        continuation,
        draws,
        mask_rate=mask_rate,
        max_predictions=M,
        length_probabilities=np.ones(1),
        max_span_tokens=15,
        mask_token_id=0,
        mask_token_rate=0.8,
        random_token_rate=0.1,
        replacement="span",
        span_marks=marks,
    )
    for b in range(B):
        before = [0, *marks[b, :-1]]
        starts = [i for i in range(L) if marks[b, i] == 1 or marks[b, i] > before[i] == 0]
        stops = []
        for start in starts:
            stop = start + 1
            while stop < L and marks[b, stop] == 2:
                stop += 1
            stops.append(stop)
        masked, budget = [], int(np.ceil(mask_rate * L))
        words, seen = iter(draws[b, :K]), set()
        for choice in draws[b, 2 * K + 1 + 2 * M :]:
            if len(masked) == budget:
                break
            if choice < 0.5 and starts:
                i = int(2 * choice * len(starts))
                anchor, stop = starts[i], stops[i]
                if i not in seen:
                    next(words, 0)  # Its draw stands in the place of a word's.
                seen.add(i)
            else:
                anchor = int(next(words) * L)
                stop = anchor + 1
            if anchor in masked:
                continue
            while anchor > 0 and continuation[b, anchor]:
                anchor -= 1
            while stop < L and continuation[b, stop]:
                stop += 1
            masked += [i for i in range(anchor, stop) if i not in masked][: budget - len(masked)]
        found = masks.mask_positions[b][masks.mask_weights[b] > 0]
        assert found.tolist() == sorted(masked)


def test_rows_without_linguistic_spans_take_words():
    ids = np.random.default_rng(1).integers(5, 70, (23, 67)).astype("int32")
    masking = layer(scheme="entity", mask_rate=0.05)
    _, flags = masks_of(masking, ids, 5, span_marks=np.zeros_like(ids))
    runs = (flags & ~np.roll(flags, 1, axis=1)).sum(axis=1)
    assert (flags.sum(axis=1) == 4).all() and runs.mean() > 3  # Single words, seldom neighbours.


def test_marks_end_at_special_tokens():
    ids = np.full((1001, 17), 9, np.int32)
    ids[:, 8] = SEP
    marks = np.zeros_like(ids)
    marks[:, 5], marks[:, 6:11] = 1, 2
    masks, flags = masks_of(layer(scheme="entity", mask_rate=3 / 16), ids, 2, span_marks=marks)
    assert not flags[:, 8].any()
    for start in (5, 9):  # Each part is a span of its own.
        length = {5: 3, 9: 2}[start]
        assert flags[:, start : start + length].all(axis=1).mean() > 0.2


@pytest.mark.parametrize("scheme", [*LINGUISTIC, "random_span", "span"])
@pytest.mark.parametrize("static_copies", [None, 3])
def test_eager_masks_are_those_of_tf_data(scheme, static_copies):
    import tensorflow as tf

    ids = rows(11)
    masking = layer(scheme=scheme, static_copies=static_copies, seed=5)
    marks = given(scheme, ids)
    eager, _ = masks_of(masking, ids, (3, 4), **marks)
    dataset = tf.data.Dataset.from_tensors((ids, marks)).map(
        lambda ids, marks: masking(ids, seed=(3, 4), **marks)
    )
    for name, value in next(iter(dataset)).items():
        np.testing.assert_array_equal(value.numpy(), eager[name], err_msg=name)


def test_static_masks_are_so_many_whatever_the_batch():
    ids = rows(5, 83)
    masking = layer(static_copies=4, seed=1, mask_token_rate=1.0, random_token_rate=0.0)
    found = [set() for _ in ids]
    generator = np.random.default_rng(0)
    for seed in range(60):
        order = generator.permutation(5)[: 2 + seed % 4]
        _, flags = masks_of(masking, ids[order], seed)
        for row, masked in zip(order, flags):
            found[row].add(masked.tobytes())
    assert [len(masks) for masks in found] == [4] * 5
    other = layer(static_copies=4, seed=2)
    _, flags = masks_of(other, ids, 0)
    assert all(masked.tobytes() not in masks for masked, masks in zip(flags, found))


def test_static_copies_are_drawn_alike_and_masks_keep_their_statistics():
    ids = np.random.default_rng(1).integers(5, 70, (4000, 29)).astype("int32")
    masking = layer(static_copies=2, seed=1)
    _, one = masks_of(masking, ids, 1)
    _, other = masks_of(masking, ids, 2)
    same = (one == other).all(axis=1).mean()
    assert abs(same - 0.5) < 0.04
    # No position is masked more often than the dynamic masks have it.
    _, dynamic = masks_of(layer(), ids, 1)
    np.testing.assert_allclose(one.mean(axis=0), dynamic.mean(axis=0), atol=0.04)


def test_one_sequence_is_a_batch_of_one():
    ids = rows(3)
    masking = layer(scheme="entity", static_copies=2, seed=1)
    marks = marks_of(ids)
    one = masking(ids[0], seed=4, span_marks=marks[0])
    many = masking(ids[:1], seed=4, span_marks=marks[:1])
    for name in one:
        np.testing.assert_array_equal(np.asarray(one[name]), np.asarray(many[name])[0])


def test_static_masks_are_the_same_on_every_backend():
    masking = SpanMasking(50, 4, seed=9, static_copies=1)
    masks = masking(np.arange(1, 21)[None], seed=1)
    assert np.asarray(masks["mask_positions"]).tolist() == EXPECTED_POSITIONS


EXPECTED_POSITIONS = [[9, 10, 11]]


def test_mistakes_say_the_rule():
    ids = rows(2)
    with pytest.raises(ValueError, match="linguistic_spans.write.*Received: span_marks=None"):
        layer(scheme="entity")(ids)
    with pytest.raises(ValueError, match="'entity' or 'noun_phrase'.*scheme='span'"):
        layer()(ids, span_marks=marks_of(ids))
    for wrong in [marks_of(ids) + 1, marks_of(ids)[:1], marks_of(ids) / 2]:
        with pytest.raises(ValueError, match="must be 0, 1 or 2, integers of the shape"):
            layer(scheme="entity")(ids, span_marks=wrong)
    with pytest.raises(ValueError, match="static_copies=0"):
        layer(static_copies=0)


def test_config_round_trip():
    masking = layer(scheme="noun_phrase", static_copies=3, seed=5)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(masking))
    assert copy.get_config() == masking.get_config()
    assert (copy.scheme, copy.static_copies) == ("noun_phrase", 3)
