"""AdamW and its linear schedule."""

import keras
import numpy as np
import pytest

import keras_spanbert as ks


def round_trip(value):
    return keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(value))


def test_other_clipping_replaces_the_default():
    for given in [{"clipnorm": 1.0}, {"clipvalue": 0.5}]:
        for optimizer in [ks.AdamW(1e-3, **given), round_trip(ks.AdamW(1e-3, **given))]:
            clipping = {n: getattr(optimizer, n) for n in ["clipnorm", "clipvalue"]}
            assert clipping == {"clipnorm": None, "clipvalue": None, **given}
            assert optimizer.global_clipnorm is None
    assert ks.AdamW(1e-3).global_clipnorm == ks.AdamW(clipnorm=None).global_clipnorm == 1.0
    with pytest.raises(ValueError, match="Only one of"):
        ks.AdamW(clipnorm=1.0, global_clipnorm=1.0)


@pytest.mark.parametrize(
    "arguments, expected",
    [
        # Rises by 1/3 of the peak per step, then falls by 1/6 per step, and stays at 0.
        ((0.6, 3, 8), {0: 0.2, 1: 0.4, 2: 0.6, 3: 0.5, 6: 0.2, 7: 0.1, 8: 0.0, 9: 0.0, 999: 0.0}),
        ((5.0, 0, 4), {0: 4.0, 1: 3.0, 2: 2.0, 3: 1.0}),
        ((1.0, 4, 4), {0: 0.25, 1: 0.5, 2: 0.75, 3: 1.0}),
        # The published run.
        (
            (1e-4, 10_000, 2_400_000),
            {0: 1e-8, 4_999: 5e-5, 9_999: 1e-4, 1_204_999: 5e-5, 2_399_999: 1e-4 / 2_390_001},
        ),
    ],
)
def test_rate_rises_to_its_peak_and_decays(arguments, expected):
    schedule = ks.LinearWarmupDecay(*arguments)
    for each in [schedule, round_trip(schedule)]:
        rates = [float(each(step)) for step in expected]
        np.testing.assert_allclose(rates, [*expected.values()], rtol=1e-5)


def test_decay_skips_biases_and_norms():
    schedule = ks.LinearWarmupDecay(0.5, 1, 7)
    optimizer = ks.AdamW(schedule, weight_decay=0.2, beta_2=0.98, global_clipnorm=0.5)
    loaded = round_trip(optimizer)
    assert type(loaded) is ks.AdamW and loaded.get_config() == optimizer.get_config()
    names = ["kernel", "embeddings", "bias", "output_bias", "gamma", "beta"]
    for each in [optimizer, loaded]:
        variables = [keras.Variable(np.ones(2, "float32"), name=name) for name in names]
        # With zero gradients, only decay changes the weights.
        each.apply([keras.ops.zeros((2,)) for _ in variables], variables)
        values = [float(v.numpy()[0]) for v in variables]
        assert values == pytest.approx([0.9, 0.9, 1.0, 1.0, 1.0, 1.0])


def test_gradients_are_clipped_to_a_global_norm_of_1():
    optimizer = ks.AdamW()
    variables = [keras.Variable(np.zeros(1, "float32"), name=name) for name in ["a", "b"]]
    optimizer.apply([keras.ops.full((1,), 3.0), keras.ops.full((1,), 4.0)], variables)
    # The first moments are a tenth of the clipped gradients.
    momentums = [v for v in optimizer.variables if "momentum" in v.path]
    values = [float(keras.ops.convert_to_numpy(momentum)[0]) for momentum in momentums]
    assert values == pytest.approx([0.06, 0.08])


def test_repeated_rows_are_clipped_by_the_norm_of_their_sum():
    table = keras.layers.Embedding(2, 1, embeddings_initializer="zeros")
    model = keras.Sequential([keras.Input((2,)), table, keras.layers.Flatten()])
    model.add(keras.layers.Dense(1, kernel_initializer="ones", trainable=False))
    optimizer = ks.AdamW(0.1, weight_decay=0.0)
    model.compile(optimizer, loss=lambda y, y_pred: keras.ops.sum(y_pred, axis=-1))
    # Two gradients of 1 sum to 2, which is clipped to 1. Separately, their norm is sqrt(2).
    model.train_on_batch(np.zeros((1, 2), "int32"), np.zeros((1, 1), "float32"))
    # The first moment is a tenth of the clipped gradient.
    (momentum,) = [v for v in optimizer.variables if "embeddings_momentum" in v.path]
    assert keras.ops.convert_to_numpy(momentum)[0, 0] == pytest.approx(0.1, rel=1e-5)
