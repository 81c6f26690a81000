import keras
import numpy as np
import pytest

from keras_spanbert.layers.initializers import kernel_initializer, skip_initialization


def draw(shape):
    return keras.ops.convert_to_numpy(kernel_initializer()(shape))


def test_values_are_within_two_deviations():
    # A fixed seed: on PyTorch, Keras draws each value four times and takes one of
    # the four that is within, so that about 4 in a million are not.
    keras.utils.set_random_seed(1)
    values = draw((101, 103))
    # A normal distribution cut off at two deviations has 0.88 of its deviation.
    assert 0.016 < values.std() < 0.019
    assert 0.03 < np.abs(values).max() <= 0.04 + 1e-6


def test_two_initializers_draw_other_values():
    assert np.abs(draw((7, 11)) - draw((7, 11))).max() > 1e-3


def test_nothing_is_drawn_where_weights_are_loaded_next():
    with skip_initialization():
        np.testing.assert_array_equal(draw((3, 5)), 0.0)
    assert np.abs(draw((3, 5))).max() > 0.0


def test_an_error_ends_skipping_too():
    with pytest.raises(KeyError), skip_initialization():
        raise KeyError
    assert np.abs(draw((3, 5))).max() > 0.0
