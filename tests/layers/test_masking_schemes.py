"""Each masking scheme compared with its definition, and static masks."""

import numpy as np
import pytest

from keras_spanbert import SpanMasking
from keras_spanbert.layers.span_masking import SCHEMES, length_probabilities

CLS, SEP, MASK, PAD = 2, 3, 4, 0
SPECIAL = (PAD, CLS, SEP, MASK)
LINGUISTIC = ["entity", "noun_phrase"]


def layer(**kwargs):
    return SpanMasking(97, MASK, range(70, 97), SPECIAL, **kwargs)


def rows(number, length=67):
    ids = np.random.default_rng(0).integers(5, 97, (number, length)).astype("int32")
    ids[:, 0], ids[:, -1] = CLS, SEP
    ids[1, 40:] = PAD
    ids[1, 39] = SEP
    return ids


def make_marks(ids):
    """Returns marks for spans of words. Some start within a word."""
    generator = np.random.default_rng(1)
    marks = np.zeros_like(ids)
    for row in range(len(ids)):
        for start in range(1 + int(generator.integers(7)), ids.shape[1] - 4, 7):
            marks[row, start] = 1
            marks[row, start + 1 : start + int(generator.integers(1, 5))] = 2
    return marks


def draw_masks(masking, ids, seed, **kwargs):
    """Returns the layer's output and whether each token is masked."""
    if masking.scheme in LINGUISTIC and not kwargs:
        kwargs = {"span_marks": make_marks(ids)}
    masks = {name: np.asarray(x) for name, x in masking(ids, seed=seed, **kwargs).items()}
    flags = np.zeros(ids.shape, bool)
    for row, (positions, weights) in enumerate(zip(masks["mask_positions"], masks["mask_weights"])):
        flags[row, positions[weights > 0]] = True
    return masks, flags


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mask_rate", [0.15, 1.0])
def test_share_of_masked_tokens_is_exact(scheme, mask_rate):
    ids = rows(41)
    _, flags = draw_masks(layer(scheme=scheme, mask_rate=mask_rate), ids, 3)
    maskable = ~np.isin(ids, SPECIAL)
    assert not (flags & ~maskable).any()
    np.testing.assert_array_equal(flags.sum(axis=1), np.ceil(mask_rate * maskable.sum(axis=1)))


@pytest.mark.parametrize("scheme", set(SCHEMES) - {"subword"})
def test_words_are_masked_whole_within_the_budget(scheme):
    ids = rows(199)
    _, flags = draw_masks(layer(scheme=scheme), ids, 3)
    continues = np.isin(ids, range(70, 97))
    # The first token of a block may continue a word of the previous block.
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


def test_marks_end_at_special_tokens():
    ids = np.full((1001, 17), 9, np.int32)
    ids[:, 8] = SEP
    marks = np.zeros_like(ids)
    marks[:, 5], marks[:, 6:11] = 1, 2
    _, flags = draw_masks(layer(scheme="entity", mask_rate=3 / 16), ids, 2, span_marks=marks)
    assert not flags[:, 8].any()
    for part in [slice(5, 8), slice(9, 11)]:  # Each is a separate span.
        assert flags[:, part].all(axis=1).mean() > 0.2


@pytest.mark.parametrize(
    "scheme, num_mask_copies", [("entity", 3), ("noun_phrase", None), ("random_span", None)]
)
def test_eager_masks_equal_tf_data(scheme, num_mask_copies):
    import tensorflow as tf

    ids = rows(11)
    masking = layer(scheme=scheme, num_mask_copies=num_mask_copies, seed=5)
    marks = {"span_marks": make_marks(ids)} if scheme in LINGUISTIC else {}
    eager, _ = draw_masks(masking, ids, (3, 4))
    dataset = tf.data.Dataset.from_tensors((ids, marks)).map(
        lambda ids, marks: masking(ids, seed=(3, 4), **marks)
    )
    for name, value in next(iter(dataset)).items():
        np.testing.assert_array_equal(value.numpy(), eager[name], err_msg=name)


def test_number_of_static_masks_does_not_depend_on_the_batch():
    ids = rows(5, 83)
    masking = layer(num_mask_copies=4, seed=1, mask_token_rate=1.0, random_token_rate=0.0)
    found = [set() for _ in ids]
    generator = np.random.default_rng(0)
    for seed in range(60):
        order = generator.permutation(5)[: 2 + seed % 4]
        _, flags = draw_masks(masking, ids[order], seed)
        for row, masked in zip(order, flags):
            found[row].add(masked.tobytes())
    assert [len(masks) for masks in found] == [4] * 5
    _, flags = draw_masks(layer(num_mask_copies=4, seed=2), ids, 0)
    assert all(masked.tobytes() not in masks for masked, masks in zip(flags, found))


def test_single_sequence_equals_batch_of_one():
    ids = rows(3)
    masking = layer(scheme="entity", num_mask_copies=2, seed=1)
    marks = make_marks(ids)
    one = masking(ids[0], seed=4, span_marks=marks[0])
    many = masking(ids[:1], seed=4, span_marks=marks[:1])
    for name in one:
        np.testing.assert_array_equal(np.asarray(one[name]), np.asarray(many[name])[0])


def test_invalid_marks_are_named():
    ids = rows(2)
    with pytest.raises(ValueError, match="linguistic_spans.write.*Received: span_marks=None"):
        layer(scheme="entity")(ids)
    with pytest.raises(ValueError, match="'entity' or 'noun_phrase'.*scheme='span'"):
        layer()(ids, span_marks=make_marks(ids))
    for wrong in [make_marks(ids) + 1, make_marks(ids)[:1], make_marks(ids) / 2]:
        with pytest.raises(ValueError, match="must be integers 0, 1 or 2 with the shape"):
            layer(scheme="entity")(ids, span_marks=wrong)
