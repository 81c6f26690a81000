import sys

import keras
import numpy as np
import pytest

from keras_spanbert import SpanMasking

CLS, SEP, MASK, PAD = 2, 3, 4, 0
SPECIAL = (PAD, CLS, SEP, MASK)


def to_numpy(masks):
    return {name: np.asarray(value) for name, value in masks.items()}


def batch(rows=7, length=53, seed=0):
    ids = np.random.default_rng(seed).integers(5, 97, (rows, length)).astype("int32")
    ids[:, 0], ids[:, -1] = CLS, SEP
    ids[1, 30:] = PAD
    ids[1, 29] = SEP
    return ids


def layer(**kwargs):
    return SpanMasking(97, MASK, range(70, 97), SPECIAL, **kwargs)


def leave_out_tensorflow(monkeypatch):
    if keras.backend.backend() == "tensorflow":
        pytest.skip("The backend itself")
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # Its import fails.


def test_shapes_and_dtypes():
    masks = to_numpy(layer()(batch(), seed=1))
    M = 8  # ceil(0.15 * 53)
    assert masks["token_ids"].shape == (7, 53)
    for name in ["mask_positions", "mask_ids", "span_left", "span_right", "span_offsets"]:
        assert masks[name].shape == (7, M) and masks[name].dtype == np.int32, name
    for name in ["mask_weights", "span_weights"]:
        assert masks[name].shape == (7, M) and masks[name].dtype == np.float32, name


@pytest.mark.parametrize("scheme", ["span", "whole_word", "subword"])
@pytest.mark.parametrize("mask_rate", [0.05, 0.15, 0.6, 1.0])
def test_masks_exactly_the_budget_and_no_special_token(mask_rate, scheme):
    ids = batch()
    masks = to_numpy(layer(mask_rate=mask_rate, scheme=scheme)(ids, seed=3))
    maskable = ~np.isin(ids, SPECIAL)
    np.testing.assert_array_equal(
        masks["mask_weights"].sum(axis=1), np.ceil(mask_rate * maskable.sum(axis=1))
    )
    for row in range(len(ids)):
        real = masks["mask_weights"][row] > 0
        positions = masks["mask_positions"][row][real]
        assert maskable[row][positions].all()
        assert (np.diff(positions) > 0).all()
        np.testing.assert_array_equal(masks["mask_ids"][row][real], ids[row][positions])
        untouched = np.setdiff1d(np.arange(ids.shape[1]), positions)
        np.testing.assert_array_equal(masks["token_ids"][row][untouched], ids[row][untouched])
        assert not masks["mask_positions"][row][~real].any()
        assert not masks["mask_ids"][row][~real].any()


def test_span_ends_offsets_and_targets():
    ids = batch()
    masks = to_numpy(layer(mask_rate=0.4, max_span_tokens=3)(ids, seed=5))
    with_target = 0
    for row in range(len(ids)):
        positions = masks["mask_positions"][row][masks["mask_weights"][row] > 0]
        maskable = np.flatnonzero(~np.isin(ids[row], SPECIAL))
        for slot, position in enumerate(positions):
            left = position
            while left in positions:
                left -= 1
            right = position
            while right in positions:
                right += 1
            assert masks["span_left"][row, slot] == left
            assert masks["span_right"][row, slot] == right
            assert masks["span_offsets"][row, slot] == position - left - 1
            target = left >= maskable[0] and right <= maskable[-1] and position - left - 1 < 3
            assert masks["span_weights"][row, slot] == target
            with_target += target
    assert 0 < with_target < masks["mask_weights"].sum()


def test_no_span_crosses_a_special_token():
    ids = np.full((64, 40), 50, "int32")
    ids[:, 20] = SEP
    masks = to_numpy(layer(mask_rate=0.3)(ids, seed=1))
    real = masks["mask_weights"] > 0
    inside = (masks["span_left"] < 20) & (masks["span_right"] > 20)
    assert not (inside & real).any()
    # Spans reach the [SEP] from both sides.
    assert (masks["span_right"][real] == 20).any() and (masks["span_left"][real] == 20).any()


def test_words_are_masked_whole_but_for_the_budgets_end():
    ids = batch(rows=50)
    masks = to_numpy(layer(scheme="whole_word")(ids, seed=2))
    cut_rows = 0
    for row in range(len(ids)):
        positions = set(masks["mask_positions"][row][masks["mask_weights"][row] > 0].tolist())
        cut = [p for p in positions if p + 1 not in positions and 70 <= ids[row, p + 1] < 97]
        cut_rows += bool(cut)
        assert len(cut) <= 1
        starts_inside = [p for p in positions if ids[row, p] >= 70 and p - 1 not in positions]
        assert all(p == 1 for p in starts_inside)  # A block may start within a word.
    assert cut_rows < 25


def test_replacement_is_chosen_once_a_span_or_once_a_token():
    ids = np.random.default_rng(1).integers(5, 70, (400, 101)).astype("int32")

    def mixed_spans(replacement):
        masks = to_numpy(layer(replacement=replacement)(ids, seed=9))
        real = masks["mask_weights"] > 0
        now = np.take_along_axis(masks["token_ids"], masks["mask_positions"], 1)
        is_mask = (now == MASK) & real
        same_span = (masks["span_offsets"][:, 1:] > 0) & real[:, 1:]
        return (
            (same_span & (is_mask[:, 1:] != is_mask[:, :-1])).sum(),
            is_mask[real].mean(),
            ((now == masks["mask_ids"])[real].mean()),
        )

    mixed, masked, kept = mixed_spans("span")
    assert mixed == 0
    assert masked == pytest.approx(0.8, abs=0.04) and kept == pytest.approx(0.1, abs=0.04)
    mixed, masked, kept = mixed_spans("token")
    assert mixed > 100
    assert masked == pytest.approx(0.8, abs=0.02) and kept == pytest.approx(0.1, abs=0.02)


def test_random_tokens_follow_the_batch_not_the_vocabulary():
    ids = np.random.default_rng(1).choice([10, 11], (300, 60), p=[0.9, 0.1]).astype("int32")
    masks = to_numpy(layer(mask_token_rate=0.0, random_token_rate=1.0)(ids, seed=1))
    now = np.take_along_axis(masks["token_ids"], masks["mask_positions"], 1)
    assert set(np.unique(now)) == {10, 11}
    assert (now == 10).mean() == pytest.approx(0.9, abs=0.03)


def test_random_tokens_follow_the_counts_that_are_given():
    counts = np.zeros(97)
    counts[[10, 80]] = 1, 3
    counts[SEP] = 1000  # Never drawn.
    masking = layer(mask_token_rate=0.0, random_token_rate=1.0, mask_rate=1.0)
    ids = np.concatenate([batch(400, seed=1), np.full((1, 53), PAD)])
    masks = to_numpy(masking(ids, seed=1, unigram_counts=counts))
    drawn = np.take_along_axis(masks["token_ids"], masks["mask_positions"], axis=1)
    drawn = drawn[masks["mask_weights"] > 0]
    assert set(drawn) == {10, 80}
    # 20,000 draws: 5 deviations.
    assert np.mean(drawn == 80) == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / len(drawn)) ** 0.5)


@pytest.mark.parametrize("has_tensorflow", [True, False])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"scheme": "whole_word", "replacement": "token"},
        {"scheme": "subword", "max_predictions": 5},
        {"scheme": "entity", "max_predictions": 3},
        {"static_copies": 3, "seed": 2},
    ],
)
def test_masks_of_a_row_are_fixed_by_its_number_whatever_the_batch(
    arguments, has_tensorflow, monkeypatch
):
    if not has_tensorflow:
        leave_out_tensorflow(monkeypatch)
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
        part = mask(rows)
        for name, value in whole.items():
            np.testing.assert_array_equal(part[name], value[rows], err_msg=name)


def test_numbered_rows_are_the_same_in_tf_data():
    tf = pytest.importorskip("tensorflow")
    masking, ids, counts = layer(), batch(8), np.arange(97)
    dataset = tf.data.Dataset.from_tensor_slices(ids).batch(2).enumerate()
    dataset = dataset.map(
        lambda i, rows: masking(rows, seed=5, first_row=2 * i, unigram_counts=counts)
    )
    whole = to_numpy(masking(ids, seed=5, unigram_counts=counts))
    for number, part in enumerate(dataset.as_numpy_iterator()):
        for name, value in part.items():
            np.testing.assert_array_equal(value, whole[name][2 * number : 2 * number + 2])
    assert number == 3


@pytest.mark.parametrize(
    "counts", [np.ones(96), -np.ones(97), np.eye(97)[SEP], np.full(97, np.nan)]
)
def test_counts_that_are_no_distribution_are_named(counts):
    with pytest.raises(ValueError, match="`unigram_counts` must be 97 counts, none of them nega"):
        layer()(batch(), unigram_counts=counts)


@pytest.mark.parametrize("seed", [11, (11, 12)])
def test_same_seed_same_masks_eagerly_and_in_tf_data(seed):
    import tensorflow as tf

    ids = batch()
    masking = layer()
    eager = to_numpy(masking(ids, seed=seed))
    dataset = tf.data.Dataset.from_tensors(ids).repeat(3)
    dataset = dataset.map(lambda x: masking(x, seed=seed), num_parallel_calls=3)
    for masks in dataset:
        for name, value in masks.items():
            np.testing.assert_array_equal(value.numpy(), eager[name], err_msg=name)
    other = to_numpy(masking(ids, seed=12))
    assert (other["mask_positions"] != eager["mask_positions"]).any()


def test_masks_are_the_same_on_every_backend():
    # Fixed by value: a backend, or a release, with other draws would show.
    masks = to_numpy(SpanMasking(50, 4)(np.arange(1, 21)[None], seed=(3, 1)))
    assert masks["mask_positions"].tolist() == EXPECTED_POSITIONS
    assert masks["token_ids"].tolist() == EXPECTED_TOKEN_IDS


EXPECTED_POSITIONS = [[0, 1, 10]]
EXPECTED_TOKEN_IDS = [[4, 4, 3, 4, 5, 6, 7, 8, 9, 10, 4, 12, 13, 14, 15, 16, 17, 18, 19, 20]]


def test_one_sequence_is_a_batch_of_one():
    ids = batch()[0]
    one, many = to_numpy(layer()(ids, seed=4)), to_numpy(layer()(ids[None], seed=4))
    for name in one:
        np.testing.assert_array_equal(one[name], many[name][0])


def test_calls_without_seed_are_fresh_and_fixed_by_the_layers_seed():
    import tensorflow as tf

    ids = batch()
    first, again = layer(seed=1), layer(seed=1)
    a = [to_numpy(first(ids))["mask_positions"] for _ in range(2)]
    b = [to_numpy(again(ids))["mask_positions"] for _ in range(2)]
    np.testing.assert_array_equal(a, b)
    assert (a[0] != a[1]).any()
    epochs = []
    dataset = tf.data.Dataset.from_tensors(ids).map(layer(seed=1))
    for _ in range(2):
        epochs += [m["mask_positions"].numpy() for m in dataset]
    assert (epochs[0] != epochs[1]).any()
    np.testing.assert_array_equal(epochs, a)


@pytest.mark.parametrize("has_tensorflow", [True, False])
def test_keras_seed_fixes_the_masks_of_a_layer_without_one(has_tensorflow, monkeypatch):
    if not has_tensorflow:
        leave_out_tensorflow(monkeypatch)

    def masked(seed):
        keras.utils.set_random_seed(seed)
        return np.asarray(layer()(batch())["token_ids"])

    np.testing.assert_array_equal(masked(1), masked(1))
    assert (masked(1) != masked(2)).any()


def test_only_specials_give_no_masks():
    ids = np.array([[CLS, SEP, PAD, PAD, PAD], [CLS, 9, 8, 7, SEP]])
    for x in (ids, ids[:1]):
        masks = to_numpy(layer()(x, seed=1))
        assert masks["mask_weights"][0].sum() == masks["span_weights"][0].sum() == 0
        np.testing.assert_array_equal(masks["token_ids"][0], x[0])


def test_max_predictions_ends_the_budget():
    masks = to_numpy(layer(max_predictions=3)(batch(), seed=1))
    np.testing.assert_array_equal(masks["mask_weights"], np.ones((7, 3)))


@pytest.mark.parametrize("arguments", [{"mask_rate": 0.2}, {"max_predictions": 3}])
def test_empty_slots_up_to_a_multiple_change_no_mask(arguments):
    expected = to_numpy(layer(**arguments)(batch(), seed=1))
    padded = layer(**arguments, predictions_multiple=8)
    masks = to_numpy(padded(batch(), seed=1))
    num_drawn = expected["mask_ids"].shape[1]
    num_slots = masks["mask_ids"].shape[1]
    assert (num_drawn, num_slots) in [(11, 16), (3, 8)]
    assert padded.num_predictions(53) == num_slots
    np.testing.assert_array_equal(masks.pop("token_ids"), expected.pop("token_ids"))
    for name, slots in masks.items():
        assert slots.dtype == expected[name].dtype
        np.testing.assert_array_equal(slots[:, :num_drawn], expected[name])
        assert not slots[:, num_drawn:].any()
    # As in `tf.data`, and from a config.
    import tensorflow as tf

    again = SpanMasking.from_config(padded.get_config())
    dataset = tf.data.Dataset.from_tensors(batch()).map(lambda ids: again(ids, seed=1))
    np.testing.assert_array_equal(next(iter(dataset))["mask_ids"], masks["mask_ids"])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"mask_rate": 0.0}, "mask_rate=0.0"),
        ({"mask_rate": 1.5}, "mask_rate=1.5"),
        ({"mask_rate": float("nan")}, "mask_rate=nan"),
        ({"geometric_p": 0}, "geometric_p=0"),
        ({"mask_token_rate": 0.8, "random_token_rate": 0.3}, "random_token_rate=0.3"),
        ({"scheme": "words"}, "scheme='words'"),
        ({"replacement": "word"}, "replacement='word'"),
        ({"max_predictions": 0}, "max_predictions=0"),
        ({"predictions_multiple": 0}, "predictions_multiple=0"),
        ({"max_span_words": 0}, "max_span_words=0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        layer(**arguments)


def test_bad_inputs_are_named():
    with pytest.raises(ValueError, match="ids from 5 to 97"):
        layer()(np.array([[5, 97]]))
    with pytest.raises(ValueError, match="float"):
        layer()(np.array([[5.0, 7.0]]))
    with pytest.raises(ValueError, match=r"mask_token_id=97"):
        SpanMasking(97, 97)


def test_config_round_trip():
    masking = layer(mask_rate=0.3, scheme="whole_word", replacement="token", seed=5)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(masking))
    assert copy.get_config() == masking.get_config()
    a, b = to_numpy(masking(batch(), seed=1)), to_numpy(copy(batch(), seed=1))
    np.testing.assert_array_equal(a["token_ids"], b["token_ids"])


class Tokenizer:
    """A vocabulary as keras-hub's tokenizers show it."""

    mask_token_id = 1
    special_token_ids = [0, 1]

    def __init__(self, tokens, suffix_indicator=None):
        self.tokens = ["<pad>", "<mask>", *tokens]
        if suffix_indicator:
            self.suffix_indicator = suffix_indicator

    def vocabulary_size(self):
        return len(self.tokens)

    def id_to_token(self, i):
        return self.tokens[i]


@pytest.mark.parametrize(
    "tokenizer",
    [
        Tokenizer(["the", "##ing", "run", "##s"], "##"),
        Tokenizer(["▁the", "ing", "▁run", "s"]),
        Tokenizer(["Ġthe", "ing", "Ġrun", "s"]),
    ],
)
def test_from_tokenizer_knows_word_starts(tokenizer):
    masking = SpanMasking.from_tokenizer(tokenizer, mask_rate=0.2)
    assert masking.continuation_token_ids == (3, 5)
    assert masking.special_token_ids == (0, 1)
    assert (masking.vocabulary_size, masking.mask_token_id, masking.mask_rate) == (6, 1, 0.2)


@pytest.mark.parametrize("seed", [1.5, True, float("nan"), "7", b"x", [], [1], [1, 2, 3], 2**70])
def test_seed_of_a_call_that_is_neither_an_int_nor_two_is_named(seed):
    masking = SpanMasking(vocabulary_size=20, mask_token_id=4)
    with pytest.raises(ValueError, match="`seed` must be an int or two ints"):
        masking([[6, 7, 8, 9]], seed=seed)
