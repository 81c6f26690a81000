"""AdamW and its linear schedule."""

import keras
import numpy as np
import pytest

import keras_spanbert as ks


def rates(schedule, steps):
    return [float(schedule(step)) for step in steps]


def round_trip(value):
    return keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(value))


def test_clipping_of_another_kind_replaces_the_default():
    for given in [{"clipnorm": 1.0}, {"clipvalue": 0.5}]:
        for optimizer in [ks.AdamW(1e-3, **given), round_trip(ks.AdamW(1e-3, **given))]:
            clipping = {n: getattr(optimizer, n) for n in ["clipnorm", "clipvalue"]}
            assert clipping == {"clipnorm": None, "clipvalue": None, **given}
            assert optimizer.global_clipnorm is None
    assert ks.AdamW(1e-3).global_clipnorm == ks.AdamW(clipnorm=None).global_clipnorm == 1.0
    with pytest.raises(ValueError, match="Only one of"):
        ks.AdamW(clipnorm=1.0, global_clipnorm=1.0)


# === Schedule ===


def test_rate_rises_to_its_peak_then_falls_to_almost_0():
    schedule = ks.LinearWarmupDecay(0.6, warmup_steps=3, total_steps=8)
    # Rises by 1/3 of the peak a step from step 0 on, then falls by 1/6.
    expected = [0.2, 0.4, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    np.testing.assert_allclose(rates(schedule, range(8)), expected, rtol=1e-5)


def test_rate_is_0_beyond_the_last_step():
    schedule = ks.LinearWarmupDecay(0.6, warmup_steps=3, total_steps=8)
    assert rates(schedule, [8, 9, 1000]) == [0.0, 0.0, 0.0]


def test_rate_without_warmup_falls_from_the_first_step_on():
    schedule = ks.LinearWarmupDecay(5.0, warmup_steps=0, total_steps=4)
    np.testing.assert_allclose(rates(schedule, range(4)), [4.0, 3.0, 2.0, 1.0], rtol=1e-5)


def test_rate_with_warmup_throughout_ends_at_its_peak():
    schedule = ks.LinearWarmupDecay(1.0, warmup_steps=4, total_steps=4)
    np.testing.assert_allclose(rates(schedule, range(4)), [0.25, 0.5, 0.75, 1.0], rtol=1e-5)


def test_rate_is_exact_in_the_papers_run():
    schedule = ks.LinearWarmupDecay(1e-4, warmup_steps=10_000, total_steps=2_400_000)
    steps = [0, 4_999, 9_999, 1_204_999, 2_399_999]
    expected = [1e-8, 5e-5, 1e-4, 1e-4 * 1_195_001 / 2_390_001, 1e-4 / 2_390_001]
    np.testing.assert_allclose(rates(schedule, steps), expected, rtol=1e-5)


@pytest.mark.parametrize(("warmup_steps", "total_steps"), [(-1, 10), (11, 10)])
def test_error_for_warmup_outside_of_the_run_echoes_both(warmup_steps, total_steps):
    with pytest.raises(ValueError, match=f"warmup_steps={warmup_steps}, total_steps={total_steps}"):
        ks.LinearWarmupDecay(1e-4, warmup_steps, total_steps)


def test_schedule_from_its_config_gives_the_same_rates():
    schedule = ks.LinearWarmupDecay(0.3, warmup_steps=2, total_steps=7)
    for copy in [ks.LinearWarmupDecay.from_config(schedule.get_config()), round_trip(schedule)]:
        assert type(copy) is ks.LinearWarmupDecay
        assert copy.get_config() == schedule.get_config()
        assert rates(copy, range(9)) == rates(schedule, range(9))


def test_optimizer_follows_the_schedule():
    optimizer = ks.AdamW(ks.LinearWarmupDecay(0.6, 3, 8), weight_decay=0.0, epsilon=1e-12)
    variable = keras.Variable(np.zeros(1, "float32"), name="kernel")
    values = [0.0]
    for _ in range(5):
        optimizer.apply([keras.ops.full((1,), 0.5)], [variable])
        values.append(-float(variable.numpy()[0]))
    # With one gradient throughout, Adam moves by the learning rate.
    np.testing.assert_allclose(np.diff(values), [0.2, 0.4, 0.6, 0.5, 0.4], rtol=1e-3)


# === Weight decay ===

NAMES = ["kernel", "embeddings", "bias", "output_bias", "gamma", "beta"]


def after_decay(optimizer):
    """Values, once 1, after a step with gradients of 0: only decay moves them."""
    variables = [keras.Variable(np.ones(2, "float32"), name=name) for name in NAMES]
    optimizer.apply([keras.ops.zeros((2,)) for _ in variables], variables)
    return {name: float(v.numpy()[0]) for name, v in zip(NAMES, variables)}


@pytest.mark.parametrize("through", ["constructor", "from_config", "serialization"])
def test_decay_spares_biases_and_norms(through):
    optimizer = ks.AdamW(learning_rate=0.5, weight_decay=0.2)
    if through == "from_config":
        optimizer = ks.AdamW.from_config(optimizer.get_config())
    elif through == "serialization":
        optimizer = round_trip(optimizer)
    assert type(optimizer) is ks.AdamW
    expected = {
        "kernel": 0.9,
        "embeddings": 0.9,
        "bias": 1,
        "output_bias": 1,
        "gamma": 1,
        "beta": 1,
    }
    assert after_decay(optimizer) == pytest.approx(expected)


def test_decay_spares_biases_and_norms_of_the_model():
    backbone = ks.SpanBertBackbone(23, num_layers=1, num_heads=2, hidden_dim=6, intermediate_dim=10)
    pretrainer = ks.SpanBertPretrainer(backbone, position_dim=5)
    optimizer = ks.AdamW(learning_rate=0.5, weight_decay=0.2)
    variables = pretrainer.trainable_variables
    for variable in variables:
        variable.assign(keras.ops.ones(variable.shape))
    optimizer.apply([keras.ops.zeros(v.shape) for v in variables], variables)
    for variable in variables:
        # Matrices and tables shrink; vectors are biases, gammas and betas. The
        # attention's biases are matrices, one row a head.
        is_bias = len(variable.shape) == 1 or variable.name == "bias"
        value = variable.numpy().ravel()
        np.testing.assert_allclose(value, 1.0 if is_bias else 0.9, rtol=1e-6, err_msg=variable.path)


def test_settings_survive_serialization():
    optimizer = ks.AdamW(
        ks.LinearWarmupDecay(0.3, 2, 7), weight_decay=0.02, beta_2=0.98, global_clipnorm=0.5
    )
    copy = round_trip(optimizer)
    assert copy.get_config() == optimizer.get_config()
    assert (copy.weight_decay, copy.beta_2, copy.global_clipnorm) == (0.02, 0.98, 0.5)


def test_gradients_are_clipped_to_a_norm_of_1_together():
    optimizer = ks.AdamW()
    variables = [keras.Variable(np.zeros(1, "float32"), name=name) for name in ["a", "b"]]
    optimizer.apply([keras.ops.full((1,), 3.0), keras.ops.full((1,), 4.0)], variables)
    # A tenth of the clipped gradients is the first moments.
    momentums = [v for v in optimizer.variables if "momentum" in v.path]
    values = [float(keras.ops.convert_to_numpy(momentum)[0]) for momentum in momentums]
    assert values == pytest.approx([0.06, 0.08])


def test_rows_gathered_twice_are_clipped_by_the_norm_of_their_sum():
    table = keras.layers.Embedding(2, 1, embeddings_initializer="zeros")
    model = keras.Sequential([keras.Input((2,)), table, keras.layers.Flatten()])
    model.add(keras.layers.Dense(1, kernel_initializer="ones", trainable=False))
    optimizer = ks.AdamW(0.1, weight_decay=0.0)
    model.compile(optimizer, loss=lambda y, y_pred: keras.ops.sum(y_pred, axis=-1))
    # Two rows of gradient 1 are one of 2, clipped to 1: the norm of both apart is the root of 2.
    model.train_on_batch(np.zeros((1, 2), "int32"), np.zeros((1, 1), "float32"))
    # A tenth of the clipped gradient is the first moment.
    (momentum,) = [v for v in optimizer.variables if "embeddings_momentum" in v.path]
    assert keras.ops.convert_to_numpy(momentum)[0, 0] == pytest.approx(0.1, rel=1e-5)
