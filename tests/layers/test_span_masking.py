import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_close

from keras_spanbert import SpanMasking
from keras_spanbert.layers.span_masking import SCHEMES

CLS, SEP, MASK, PAD = 2, 3, 4, 0
SPECIAL = (PAD, CLS, SEP, MASK)
LINGUISTIC = ["entity", "noun_phrase"]


def to_numpy(masks):
    return {name: np.asarray(value) for name, value in masks.items()}


def batch(rows=7, length=53):
    ids = np.random.default_rng(0).integers(5, 97, (rows, length)).astype("int32")
    ids[:, 0], ids[:, -1] = CLS, SEP
    end = 4 * length // 7
    ids[1, end - 1], ids[1, end:] = SEP, PAD
    return ids


def layer(**kwargs):
    return SpanMasking(97, MASK, range(70, 97), SPECIAL, **kwargs)


@pytest.mark.parametrize("arguments, num_slots", [({}, 8), ({"max_predictions": 3}, 3)])
def test_slots_hold_the_masked_tokens_in_order(arguments, num_slots):
    ids = batch()
    masks = to_numpy(layer(**arguments)(ids, seed=1))
    assert masks["token_ids"].shape == (7, 53)
    for name, value in masks.items():
        assert value.dtype == ("float32" if name.endswith("_weights") else "int32")
        assert name == "token_ids" or value.shape == (7, num_slots)
    for row in range(7):
        real = masks["mask_weights"][row] > 0
        positions = masks["mask_positions"][row][real]
        assert (np.diff(positions) > 0).all()
        np.testing.assert_array_equal(masks["mask_ids"][row][real], ids[row][positions])
        untouched = np.setdiff1d(np.arange(53), positions)
        np.testing.assert_array_equal(masks["token_ids"][row][untouched], ids[row][untouched])
        for name in set(masks) - {"token_ids"}:
            assert not masks[name][row][~real].any()


def test_span_ends_offsets_and_targets():
    ids = batch()
    masks = to_numpy(layer(mask_rate=0.4, max_span_tokens=3)(ids, seed=5))
    with_target = 0
    for row in range(len(ids)):
        positions = masks["mask_positions"][row][masks["mask_weights"][row] > 0]
        maskable = np.flatnonzero(~np.isin(ids[row], SPECIAL))
        for slot, position in enumerate(positions):
            left = right = position
            while left in positions:
                left -= 1
            while right in positions:
                right += 1
            offset = position - left - 1
            assert masks["span_left"][row, slot] == left
            assert masks["span_right"][row, slot] == right
            assert masks["span_offsets"][row, slot] == offset
            target = left >= maskable[0] and right <= maskable[-1] and offset < 3
            assert masks["span_weights"][row, slot] == target
            with_target += target
    assert 0 < with_target < masks["mask_weights"].sum()


def test_special_tokens_are_not_masked_or_crossed():
    ids = np.full((64, 40), 50, "int32")
    ids[:, 20] = SEP
    masks = to_numpy(layer(mask_rate=0.3)(ids, seed=1))
    real = masks["mask_weights"] > 0
    inside = (masks["span_left"] < 20) & (masks["span_right"] > 20)
    assert not (inside & real).any()
    # Spans end at the [SEP] on both sides.
    assert (masks["span_right"][real] == 20).any() and (masks["span_left"][real] == 20).any()
    ids = np.array([[CLS, SEP, PAD, PAD, PAD], [CLS, 9, 8, 7, SEP]])
    for x in (ids, ids[:1]):
        masks = to_numpy(layer()(x, seed=1))
        assert masks["mask_weights"][0].sum() == masks["span_weights"][0].sum() == 0
        np.testing.assert_array_equal(masks["token_ids"][0], x[0])


@pytest.mark.parametrize("arguments", [{"mask_rate": 0.2}, {"max_predictions": 3}])
def test_padding_predictions_does_not_change_masks(arguments):
    expected = to_numpy(layer(**arguments)(batch(), seed=1))
    padded = layer(**arguments, pad_predictions_to=8)
    masks = to_numpy(padded(batch(), seed=1))
    num_drawn, num_slots = (x["mask_ids"].shape[1] for x in (expected, masks))
    assert (num_drawn, num_slots) in [(11, 16), (3, 8)]
    assert padded.num_predictions(53) == num_slots
    dataset = tf.data.Dataset.from_tensors(batch()).map(lambda ids: padded(ids, seed=1))
    np.testing.assert_array_equal(next(iter(dataset))["mask_ids"], masks["mask_ids"])
    np.testing.assert_array_equal(masks.pop("token_ids"), expected.pop("token_ids"))
    for name, slots in masks.items():
        assert slots.dtype == expected[name].dtype
        np.testing.assert_array_equal(slots[:, :num_drawn], expected[name])
        assert not slots[:, num_drawn:].any()


@pytest.mark.parametrize("replacement", ["span", "token"])
def test_replacement_is_chosen_per_span_or_token(replacement):
    ids = np.random.default_rng(1).integers(5, 70, (400, 101)).astype("int32")
    masks = to_numpy(layer(replacement=replacement)(ids, seed=9))
    real = masks["mask_weights"] > 0
    now = np.take_along_axis(masks["token_ids"], masks["mask_positions"], 1)
    is_mask, is_kept = now == MASK, now == masks["mask_ids"]
    tolerance = 0.04 if replacement == "span" else 0.02
    assert is_mask[real].mean() == pytest.approx(0.8, abs=tolerance)
    assert is_kept[real].mean() == pytest.approx(0.1, abs=tolerance)
    same_span = (masks["span_offsets"][:, 1:] > 0) & real[:, 1:]
    num_mixed = (same_span & (is_mask[:, 1:] != is_mask[:, :-1])).sum()
    assert num_mixed == 0 if replacement == "span" else num_mixed > 100


def test_random_tokens_come_from_the_batch_or_unigram_counts():
    ids = np.random.default_rng(1).choice([10, 11], (300, 60), p=[0.9, 0.1]).astype("int32")
    masks = to_numpy(layer(mask_token_rate=0.0, random_token_rate=1.0)(ids, seed=1))
    now = np.take_along_axis(masks["token_ids"], masks["mask_positions"], 1)
    assert set(np.unique(now)) == {10, 11}
    assert (now == 10).mean() == pytest.approx(0.9, abs=0.03)
    counts = np.zeros(97)
    counts[[10, 80]] = 1, 3
    counts[SEP] = 1000  # Never drawn.
    masking = layer(mask_token_rate=0.0, random_token_rate=1.0, mask_rate=1.0)
    ids = np.concatenate([batch(400), np.full((1, 53), PAD)])
    masks = to_numpy(masking(ids, seed=1, unigram_counts=counts))
    drawn = np.take_along_axis(masks["token_ids"], masks["mask_positions"], axis=1)
    drawn = drawn[masks["mask_weights"] > 0]
    assert set(drawn) == {10, 80}
    # 5 standard deviations for 20,000 draws.
    assert np.mean(drawn == 80) == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / len(drawn)) ** 0.5)


@pytest.mark.once("torch")
@pytest.mark.parametrize("has_tensorflow", [True, False])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"scheme": "subword", "replacement": "token"},
        {"scheme": "entity", "max_predictions": 3},
        {"num_mask_copies": 3, "seed": 2},
    ],
)
def test_masks_depend_on_row_numbers_not_batches(arguments, has_tensorflow, monkeypatch):
    if not has_tensorflow:
        monkeypatch.setitem(sys.modules, "tensorflow", None)  # Makes its import fail.
    masking = layer(mask_rate=0.3, random_token_rate=0.2, **arguments)
    ids = batch(9)
    marks = np.tile([0, 0, 1, 2, 2, 0, 1, 2], 7)[:53] + 0 * ids
    given = {"unigram_counts": np.arange(97), "seed": (3, 4)}

    def mask(rows):
        some = {"span_marks": marks[rows]} if arguments.get("scheme") == "entity" else {}
        return to_numpy(masking(ids[rows], first_row=rows.start, **given, **some))

    whole = mask(slice(0, 9))
    assert not (whole["mask_positions"][3] == whole["mask_positions"][4]).all()
    for rows in [slice(0, 1), slice(1, 4), slice(4, 9)]:
        assert_close(mask(rows), {name: value[rows] for name, value in whole.items()})


@pytest.mark.every_backend
def test_masks_are_the_same_on_every_backend():
    # Fixed values detect backends or releases with different draws.
    ids = np.arange(1, 21)
    masks = to_numpy(SpanMasking(50, 4)(ids, seed=(3, 1)))
    assert masks["mask_positions"].tolist() == [0, 1, 10]
    expected = [4, 4, 3, 4, 5, 6, 7, 8, 9, 10, 4, 12, 13, 14, 15, 16, 17, 18, 19, 20]
    assert masks["token_ids"].tolist() == expected
    masks = to_numpy(SpanMasking(50, 4, seed=9, num_mask_copies=1)(ids, seed=1))
    assert masks["mask_positions"].tolist() == [9, 10, 11]


def test_calls_without_seed_use_the_seed_of_the_layer():
    ids = batch()
    first, again = layer(seed=1), layer(seed=1.0)
    a = [to_numpy(first(ids))["mask_positions"] for _ in range(2)]
    b = [to_numpy(again(ids))["mask_positions"] for _ in range(2)]
    np.testing.assert_array_equal(a, b)
    assert (a[0] != a[1]).any()
    dataset = tf.data.Dataset.from_tensors(ids).map(layer(seed=1))
    epochs = [masks["mask_positions"] for _ in range(2) for masks in dataset.as_numpy_iterator()]
    np.testing.assert_array_equal(epochs, a)


@pytest.mark.once("torch")
@pytest.mark.parametrize("has_tensorflow", [True, False])
def test_keras_seed_determines_masks_of_unseeded_layer(has_tensorflow, monkeypatch):
    if not has_tensorflow:
        monkeypatch.setitem(sys.modules, "tensorflow", None)  # Makes its import fail.

    def masked(seed):
        keras.utils.set_random_seed(seed)
        return np.asarray(layer()(batch())["token_ids"])

    np.testing.assert_array_equal(masked(1), masked(1))
    assert (masked(1) != masked(2)).any()


def tokenizer(*tokens, **attributes):
    """Returns a tokenizer with the vocabulary methods of keras-hub."""
    tokens = ["<pad>", "<mask>", *tokens]
    return types.SimpleNamespace(
        mask_token_id=1, special_token_ids=[0, 1], vocabulary_size=lambda: len(tokens),
        id_to_token=tokens.__getitem__, **attributes,
    )  # fmt: skip


@pytest.mark.parametrize(
    "tokenizer",
    [
        tokenizer("the", "##ing", "run", "##s", suffix_indicator="##"),
        tokenizer("▁the", "ing", "▁run", "s"),
        tokenizer("Ġthe", "ing", "Ġrun", "s"),
    ],
)
def test_from_tokenizer_finds_word_starts(tokenizer):
    masking = SpanMasking.from_tokenizer(tokenizer, mask_rate=0.2)
    assert masking.continuation_token_ids == (3, 5)
    assert masking.special_token_ids == (0, 1)
    assert (masking.vocabulary_size, masking.mask_token_id, masking.mask_rate) == (6, 1, 0.2)


def test_ragged_batches_are_refused():
    rows = tf.data.Dataset.from_tensors(tf.ragged.constant([[5, 6, 7], [5, 6]]))
    for call in [rows.map, lambda call: call(next(iter(rows)))]:
        with pytest.raises(ValueError, match="rows of `token_ids` must have the same length: pad"):
            call(layer())


# === Schemes ===
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
def test_share_of_masked_tokens_is_exact_and_words_are_whole(scheme, mask_rate):
    ids = batch(199)
    _, flags = draw_masks(layer(scheme=scheme, mask_rate=mask_rate), ids, 3)
    maskable = ~np.isin(ids, SPECIAL)
    assert not (flags & ~maskable).any()
    np.testing.assert_array_equal(flags.sum(axis=1), np.ceil(mask_rate * maskable.sum(axis=1)))
    if scheme != "subword":
        # The budget cuts one word. The first token of a block may continue that of another block.
        cut = (flags[:, 1:-1] != flags[:, 2:]) & np.isin(ids[:, 2:], range(70, 97))
        assert (cut.sum(axis=1) <= 1).all() and cut.any(axis=1).mean() < 0.5


def test_lengths_of_random_spans_are_uniform():
    masking = layer(scheme="random_span", max_span_words=7)
    lengths = masking.drawn_span_lengths(700, 67, seed=1)
    shares = np.bincount(lengths.ravel(), minlength=8)[1:] / lengths.size
    assert lengths.size > 5000
    np.testing.assert_allclose(shares, 1 / 7, atol=0.02)
    np.testing.assert_allclose(masking.length_probabilities, [1 / 7] * 7)


def test_marks_end_at_special_tokens():
    ids = np.full((1001, 17), 9, np.int32)
    ids[:, 8] = SEP
    marks = np.zeros_like(ids)
    marks[:, 5], marks[:, 6:11] = 1, 2
    _, flags = draw_masks(layer(scheme="entity", mask_rate=3 / 16), ids, 2, span_marks=marks)
    assert not flags[:, 8].any()
    for part in [slice(5, 8), slice(9, 11)]:  # Each is a separate span.
        assert flags[:, part].all(axis=1).mean() > 0.2


@pytest.mark.parametrize("batch_size, counts", [(11, None), (2, np.arange(97))])
@pytest.mark.parametrize(
    "scheme, num_mask_copies",
    [("span", None), ("entity", 3), ("noun_phrase", None), ("random_span", None)],
)
def test_eager_masks_equal_tf_data(scheme, num_mask_copies, batch_size, counts):
    ids, given = batch(11), {"seed": (3, 4), "unigram_counts": counts}
    masking = layer(scheme=scheme, num_mask_copies=num_mask_copies, seed=5)
    marks = {"span_marks": make_marks(ids)} if scheme in LINGUISTIC else {}
    dataset = tf.data.Dataset.from_tensor_slices((ids, marks)).batch(batch_size).enumerate()
    dataset = dataset.map(
        lambda i, rows: masking(rows[0], first_row=batch_size * i, **rows[1], **given),
        num_parallel_calls=3,
    )
    parts = list(dataset.as_numpy_iterator())
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    assert_close(found, to_numpy(masking(ids, **marks, **given)))


def test_number_of_static_masks_does_not_depend_on_the_batch():
    ids = batch(5, 83)
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
    ids = batch(3)
    masking = layer(scheme="entity", num_mask_copies=2, seed=1)
    marks = make_marks(ids)
    one = masking(ids[0], seed=4, span_marks=marks[0])
    many = masking(ids[:1], seed=4, span_marks=marks[:1])
    assert_close(one, {name: np.asarray(value)[0] for name, value in many.items()})


def test_invalid_marks_are_named():
    ids = batch(2)
    with pytest.raises(ValueError, match="linguistic_spans.write.*Received: span_marks=None"):
        layer(scheme="entity")(ids)
    with pytest.raises(ValueError, match="'entity' or 'noun_phrase'.*scheme='span'"):
        layer()(ids, span_marks=make_marks(ids))
    for wrong in [make_marks(ids) + 1, make_marks(ids)[:1], make_marks(ids) / 2]:
        with pytest.raises(ValueError, match="must be integers 0, 1 or 2 with the shape"):
            layer(scheme="entity")(ids, span_marks=wrong)
