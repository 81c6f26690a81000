"""Batches of like length."""

import numpy as np
import pytest

from keras_spanbert.data.length_batches import LengthGroupedStream
from keras_spanbert.models.length_batches import (
    LengthBatches,
    predict_by_length,
    round_up,
    sizes_of,
    trim,
)

LENGTH = 64


@pytest.fixture(scope="module")
def arrays():
    """Rows of their own number, of 3 to 60 tokens, and labels that are the number."""
    sizes = np.random.default_rng(0).integers(3, 61, 83)
    mask = (np.arange(LENGTH) < sizes[:, None]).astype("int32")
    token_ids = mask * np.arange(83, dtype="int32")[:, None]
    inputs = {"token_ids": token_ids, "segment_ids": 0 * mask, "padding_mask": mask}
    return inputs, np.arange(83, dtype="int32")


def test_sizes_are_few():
    assert [round_up(n) for n in (0, 1, 8, 9, 11, 17, 33)] == [1, 1, 8, 10, 12, 20, 40]
    assert [round_up(n, 2) for n in (4, 5, 33, 49, 65, 97)] == [4, 6, 48, 64, 96, 128]


def test_size_is_that_of_the_longest_sequence_of_a_row():
    mask = np.array([[[1, 1, 0, 0], [1, 1, 1, 0]], [[0, 0, 0, 0], [1, 0, 0, 0]]])
    np.testing.assert_array_equal(sizes_of({"padding_mask": mask}), [3, 1])
    # A gap is no end.
    np.testing.assert_array_equal(sizes_of({"padding_mask": np.array([[1, 0, 1, 0]])}), [3])


def test_labels_of_tokens_are_trimmed_with_them():
    inputs = {"token_ids": np.zeros((2, 3, 8)), "choice_mask": np.ones((2, 8))}
    x, y, weight = trim((inputs, np.zeros((2, 8)), np.zeros(2)), 4)
    assert x["token_ids"].shape == (2, 3, 4) and x["choice_mask"].shape == (2, 8)
    assert y.shape == (2, 4) and weight.shape == (2,)


def test_an_epoch_has_every_row_once_in_another_order(arrays):
    batches = LengthBatches((*arrays, None), 8, shuffle=True, seed=1)
    orders = []
    for _ in range(2):
        rows = [batches[i] for i in range(batches.num_batches)]
        orders.append(np.concatenate([y for _, y in rows]).tolist())
        assert sorted(orders[-1]) == list(range(83))
        for x, y in rows:
            np.testing.assert_array_equal(x["token_ids"][:, 0], y)
            assert x["token_ids"].sum(axis=1).tolist() == [
                int(arrays[0]["token_ids"][row].sum()) for row in y
            ]
        batches.on_epoch_end()
    assert orders[0] != orders[1]


def test_the_longest_batch_comes_first(arrays):
    for shuffle in (False, True):
        batches = LengthBatches((*arrays, None), 8, shuffle, seed=1)
        lengths = [batches[i][0]["token_ids"].shape[1] for i in range(batches.num_batches)]
        # Keras on TensorFlow takes the shape of all from the first two.
        assert lengths[0] == max(lengths) and lengths[1] != lengths[0]


def test_stream_goes_on_from_any_step(arrays):
    stream = LengthGroupedStream(arrays, 8, seed=3)
    rows = [y.numpy().tolist() for _, y in stream.dataset().take(25)]
    # 10 batches an epoch; 3 rows are left for the next.
    assert len({row for batch in rows[:10] for row in batch}) == 80
    for step in (1, 10, 17):
        stream.start_at(step)
        assert [y.numpy().tolist() for _, y in stream.dataset().take(5)] == rows[step : step + 5]


def test_little_of_a_batch_is_padding(arrays):
    stream = LengthGroupedStream(arrays, 8, seed=3)
    tokens = [
        (int(x["padding_mask"].numpy().sum()), x["padding_mask"].shape.num_elements())
        for x, _ in stream.dataset().take(10)
    ]
    share = 1.0 - sum(real for real, _ in tokens) / sum(all_of for _, all_of in tokens)
    assert stream.padding() == pytest.approx(share)
    assert share < 0.3 < 1.0 - arrays[0]["padding_mask"].mean()


def test_predictions_are_in_the_rows_order(arrays):
    class Model:
        def predict_on_batch(self, batch):
            assert batch["token_ids"].shape[1] in (
                8,
                10,
                12,
                14,
                16,
                20,
                24,
                28,
                32,
                40,
                48,
                56,
                64,
            )
            return batch["token_ids"][:, 0]

    found = np.full(83, -1)
    for rows, outputs in predict_by_length(Model(), arrays[0], batch_size=8):
        found[rows] = outputs
    np.testing.assert_array_equal(found, np.arange(83))
