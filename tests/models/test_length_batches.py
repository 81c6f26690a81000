"""Batches that are cut to the length of their rows."""

import itertools
import sys

import keras
import numpy as np
import pytest
import tiny_classifier

from keras_spanbert.data.batches import Batches, round_up, row_lengths, trim

LENGTH = 64
CUTS = [8, 12, 16, 24, 32, 48, 64]


@pytest.fixture(scope="module")
def arrays():
    """Returns rows of 3 to 60 tokens that repeat the row number, which is also the label."""
    sizes = np.random.default_rng(0).integers(3, 61, 83)
    mask = (np.arange(LENGTH) < sizes[:, None]).astype("int32")
    token_ids = mask * np.arange(83, dtype="int32")[:, None]
    inputs = {"token_ids": token_ids, "segment_ids": 0 * mask, "padding_mask": mask}
    return inputs, np.arange(83, dtype="int32")


def test_sizes_are_few_and_those_of_the_longest_sequence():
    assert [round_up(n) for n in (0, 1, 8, 9, 11, 17, 33)] == [1, 1, 8, 10, 12, 20, 40]
    assert [round_up(n, 2) for n in (4, 5, 33, 49, 65, 97)] == [4, 6, 48, 64, 96, 128]
    mask = np.array([[[1, 1, 0, 0], [1, 1, 1, 0]], [[0, 0, 0, 0], [1, 0, 0, 0]]])
    np.testing.assert_array_equal(row_lengths({"padding_mask": mask}), [3, 1])
    # A gap does not end the sequence.
    np.testing.assert_array_equal(row_lengths({"padding_mask": np.array([[1, 0, 1, 0]])}), [3])


def test_batches_of_similar_length_have_little_padding(arrays):
    stream = Batches(arrays, 8, seed=3, by_length=True)
    batches = stream.dataset().take(11).as_numpy_iterator()
    masks = [x["padding_mask"][weight > 0.0] for x, _, weight in batches]
    padding = 1.0 - sum(m.sum() for m in masks) / sum(m.size for m in masks)
    assert padding < 0.3 < 1.0 - arrays[0]["padding_mask"].mean()


def test_only_labels_of_tokens_are_trimmed():
    inputs = {"token_ids": np.zeros((2, 3, 8)), "choice_mask": np.ones((2, 8))}
    for weights in [(np.zeros(2),), (None,), ()]:
        x, y, *_ = trim((inputs, np.zeros((2, 8)), *weights), 4)
        assert x["token_ids"].shape == (2, 3, 4) and x["choice_mask"].shape == (2, 8)
        assert y.shape == (2, 8)
    _, y, weights = trim((inputs, np.zeros((2, 8)), np.zeros((2, 8))), 4)
    assert y.shape == weights.shape == (2, 4)


def test_random_batches_are_cut_to_their_longest_row(arrays):
    spreads = []
    for kind in ["cut", "by_length"]:
        batches, means = Batches(arrays, 8, seed=3, **{kind: True}), []
        for step in range(11):
            x, _, weights = batches.batch(step)
            sizes = x["padding_mask"].sum(1)
            # XLA compiles a program for each length, so lengths are few.
            assert x["token_ids"].shape[1] == next(n for n in CUTS if n >= sizes.max())
            means.append(sizes[weights > 0].mean())
        spreads.append(np.std(means))
        signature = batches.dataset().element_spec[0]["token_ids"]
        assert signature.shape.as_list() == [8, None]
    assert spreads[0] < spreads[1] / 2


def test_batches_of_fit_are_random():
    model = tiny_classifier.build()
    texts, labels = tiny_classifier.rows(80)
    widths = {}
    for mode in ["fit", "evaluate"]:
        batches, *_ = model.preprocess_rows(texts, labels, None, 4, True, mode)
        widths[mode] = np.mean([x["token_ids"].shape[1] for x, _ in batches])
    assert widths["evaluate"] < 0.8 * widths["fit"] < 0.9 * 24


@pytest.mark.parametrize("by_length", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_epochs_of_fit(arrays, shuffle, by_length):
    batches = Batches(
        (*arrays, None), 8, 1, shuffle=shuffle, cut=True, by_length=by_length, pad=False
    )
    orders = []
    batches.on_epoch_end()  # `fit` calls it once before the first epoch.
    for epoch in range(2):
        assert batches.first_step == 11 * epoch
        batches.on_epoch_begin()
        rows = [batches[i] for i in range(len(batches))]
        orders.append(np.concatenate([y for _, y in rows]).tolist())
        assert sorted(orders[-1]) == list(range(83))
        for x, y in rows:
            np.testing.assert_array_equal(x["token_ids"][:, 0], y)
            np.testing.assert_array_equal(x["token_ids"].sum(1), arrays[0]["token_ids"][y].sum(1))
        # Keras on TensorFlow infers shapes from the first two batches.
        lengths = [x["token_ids"].shape[1] for x, _ in rows]
        assert lengths[0] == max(lengths) and lengths[1] != lengths[0]
        batches.on_epoch_end()
    assert (orders[0] != orders[1]) == shuffle


def test_first_two_batches_differ_in_length():
    """Most batches have the same length, the longest."""
    mask = (np.arange(LENGTH) < np.repeat([5, 60], [8, 48])[:, None]).astype("int32")
    inputs = {name: mask for name in ["token_ids", "segment_ids", "padding_mask"]}
    for seed in range(5):
        batches = Batches((inputs, np.arange(56), None), 8, seed, by_length=True)
        lengths = [x["token_ids"].shape[1] for x, _ in batches]
        assert lengths[0] == max(lengths) and lengths[1] == min(lengths)


@pytest.mark.traced
@pytest.mark.every_backend
@pytest.mark.parametrize("first_step", [0, 3, 4])
def test_lengths_that_first_occur_later(first_step):
    """All batches of the first epoch, or those from `first_step`, have the same length."""
    sizes = np.array([24] * 4 + [3] * 4)
    mask = (np.arange(24) < sizes[:, None]).astype("int32")
    arrays = {"token_ids": mask, "segment_ids": 0 * mask, "padding_mask": mask}, np.ones(8, "int32")

    def lengths_of(batches):
        return [batches.batch(step)[0]["token_ids"].shape[1] for step in range(12)]

    for seed in itertools.count():
        batches = Batches(arrays, 2, seed, cut=True, pad=False)
        lengths = lengths_of(batches)
        if len({*lengths[first_step : first_step + 2]}) == 1 < len({*lengths[first_step:]}):
            break
    rows = [batches.rows(step)[0].tolist() for step in range(12)]
    model = tiny_classifier.build()
    model.compile(keras.optimizers.SGD(0.0))
    stop = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: setattr(model, "stop_training", True)
    )
    model.fit(batches, verbose=0, callbacks=[stop])
    batches.start_at(first_step)
    model.fit(batches, epochs=2, verbose=0)
    assert [batches.rows(step)[0].tolist() for step in range(12)] == rows
    if keras.config.backend() == "tensorflow":
        assert set(lengths_of(batches)) == {24}
        batches.start_at(0)  # `fit` infers shapes again.
    assert lengths_of(batches) == lengths


def test_each_epoch_of_a_stream_has_every_row_once(arrays):
    stream = Batches(arrays, 8, seed=3, by_length=True)
    assert stream.num_batches == 11
    dataset = stream.dataset().take(22).as_numpy_iterator()
    batches = [(y.tolist(), w.tolist()) for _, y, w in dataset]
    epochs = [
        [row for rows, weights in part for row, weight in zip(rows, weights) if weight == 1.0]
        for part in (batches[:11], batches[11:])
    ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(83)) and epochs[0] != epochs[1]
    # One batch of each epoch has the 3 remaining rows, padded with copies of weight 0.
    assert [sum(w) for _, w in batches].count(3.0) == 2
    assert {w for _, weights in batches for w in weights} == {0.0, 1.0}
    assert all(len(rows) == 8 for rows, _ in batches)
    # Batches that are all full have no weights.
    assert len(next(iter(Batches(arrays, 83, seed=3, by_length=True).dataset()))) == 2


def rows_of(batches):
    return [row for x in batches for row in x["row"].ravel().tolist()]


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.every_backend
def test_fit_sees_every_row_of_an_epoch_once(pad):
    """Keras calls `on_epoch_end` once more than there are epochs."""
    seen = []

    class Seen(Batches):
        def batch(self, step, *args):
            found = super().batch(step, *args)
            seen.append((step, found[0]))
            return found

    keras.utils.set_random_seed(1)
    inputs = {"row": np.arange(7.0, dtype="float32")[:, None]}
    batches = Seen((inputs, np.ones((7, 1), "float32")), 3, 5, whole_epochs=True, pad=pad)
    x = keras.Input((1,), name="row")
    model = keras.Model({"row": x}, keras.layers.Dense(1)(x))
    model.compile("sgd", "mse", weighted_metrics=[])
    model.fit(batches, epochs=2, shuffle=False, verbose=0)
    last = dict(seen)
    assert sorted(step for step in last if step < 6) == list(range(6))
    for first in (0, 3):
        rows = rows_of(last[step] for step in range(first, first + 3))[:7]
        assert sorted(rows) == list(range(7))
    assert batches.first_step == 6
    # A later call continues, and so does another process.
    again = Batches((inputs, np.ones((7, 1), "float32")), 3, 5, whole_epochs=True, pad=pad)
    again.start_at(6, batches.state())
    np.testing.assert_array_equal(again[1][0]["row"], batches[1][0]["row"])
    assert rows_of([again[0][0]]) != rows_of([last[0]])


@pytest.mark.parametrize("kind", [{}, {"cut": True}, {"by_length": True}])
def test_processes_share_a_batch_and_arrays_equal_tensors(arrays, kind):
    batches = Batches(arrays, 8, 3, whole_epochs=True, **kind)
    whole = list(batches.dataset().take(12).as_numpy_iterator())
    parts = [list(batches.dataset(part, 4).take(12).as_numpy_iterator()) for part in range(4)]
    for step, (batch, *shares) in enumerate(zip(whole, *parts)):
        keras.tree.map_structure(np.testing.assert_array_equal, batches.batch(step), batch)
        joined = keras.tree.map_structure(lambda *rows: np.concatenate(rows), *shares)
        keras.tree.map_structure(np.testing.assert_array_equal, joined, batch)
    for step in (1, 11):
        batches.start_at(step, batches.state())
        (batch,) = batches.dataset().take(1).as_numpy_iterator()
        keras.tree.map_structure(np.testing.assert_array_equal, batch, whole[step])


def test_batches_need_no_tensorflow(arrays, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    x, _, weights = Batches(arrays, 8, 3, whole_epochs=True)[10]
    assert x["token_ids"].shape == (8, 64) and weights.sum() == 3.0
