"""Batches whose rows several devices share evenly."""

import keras
import numpy as np
import pytest

from keras_spanbert import distribution

pytestmark = pytest.mark.once("torch")


@pytest.fixture(autouse=True)
def four_devices(monkeypatch):
    monkeypatch.setattr(distribution, "num_batch_shards", lambda: 4)


@pytest.mark.parametrize("num_rows, batch_size", [(8, 4), (8, None), (36, 12), (64, None)])
def test_batches_that_devices_can_share(num_rows, batch_size):
    distribution.check_even_rows(num_rows, batch_size)


@pytest.mark.parametrize(
    "num_rows, batch_size, batches", [(6, 4, 4), (8, 6, 6), (14, None, 14), (34, None, 32)]
)
def test_batches_that_devices_cannot_share(num_rows, batch_size, batches):
    message = f"a multiple of the 4 devices. Received: {num_rows} rows in batches of {batches}"
    with pytest.raises(ValueError, match=message):
        distribution.check_even_rows(num_rows, batch_size)


def test_copies_of_the_last_row_fill_the_last_batch():
    x = {"a": keras.ops.arange(5), "b": None}
    padded = distribution.pad_to_batch_shards(x, 5)
    assert padded["a"].tolist() == [0, 1, 2, 3, 4, 4, 4, 4] and padded["b"] is None
    x = {"a": np.arange(8)}
    assert distribution.pad_to_batch_shards(x, 8) is x
