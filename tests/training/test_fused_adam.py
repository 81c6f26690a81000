"""On PyTorch, AdamW clips and updates all variables at once with the results of Keras."""

import keras
import numpy as np
import pytest
from comparisons import assert_close

import keras_spanbert as ks

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="specific to PyTorch")
NAMES = ["kernel", "embeddings", "bias", "gamma"]
SHAPES = [(3, 5), (7, 2), (5,), (2,)]


def keras_adamw(**kwargs):
    optimizer = keras.optimizers.AdamW(weight_decay=0.01, epsilon=1e-8, **kwargs)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return optimizer


def ones(count, size=1):
    return [keras.Variable(np.ones(size, "float32"), name="kernel") for _ in range(count)]


def train(optimizer, is_transposed=False):
    """Returns the variables of a model and an optimizer after some steps."""
    import torch

    generator = np.random.default_rng(0)
    variables = []
    for name, shape in zip(NAMES, SHAPES):
        value = generator.normal(size=shape[::-1]).astype("float32").T
        value = torch.from_numpy(value if is_transposed else value.copy())
        variables.append(keras.Variable(value, name=name))
    assert variables[0].value.is_contiguous() is not is_transposed
    for scale in [3.0, 0.01, 1.0, 2.0]:  # With and without clipping.
        grads = [generator.normal(scale=scale, size=shape).astype("float32") for shape in SHAPES]
        optimizer.apply([keras.ops.convert_to_tensor(grad) for grad in grads], variables)
    return [keras.ops.convert_to_numpy(v) for v in [*variables, *optimizer.variables]]


@pytest.mark.parametrize(
    "options",
    [
        {}, {"beta_1": 0.0, "beta_2": 0.98}, {"amsgrad": True}, {"gradient_accumulation_steps": 2},
        {"loss_scale_factor": 8.0}, {"use_ema": True, "ema_overwrite_frequency": 2},
        {"global_clipnorm": None}, {"global_clipnorm": None, "clipnorm": 0.5},
        {"global_clipnorm": None, "clipvalue": 0.1},
    ],
    ids=str,
)  # fmt: skip
def test_steps_equal_keras(options):
    options = {"global_clipnorm": 1.0, **options}
    rate = ks.LinearWarmupDecay(1e-2, 2, 5)
    expected = train(keras_adamw(learning_rate=rate, **options))
    for is_transposed in [False, True]:
        found = train(ks.AdamW(rate, **options), is_transposed)
        assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_all_variables_are_clipped_and_updated_in_one_call():
    import torch

    optimizer, variables = ks.AdamW(0.1), ones(30, 2)
    optimizer.build(variables)
    grads = [keras.ops.ones(2) for _ in variables]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimizer.apply(grads, variables)
    calls = {event.key: event.count for event in profile.key_averages()}
    assert calls["aten::_fused_adamw_"] == calls["aten::_foreach_norm"] == 1
    # There are no separate norms or scalings for each variable.
    assert all(calls.get(f"aten::{name}", 0) < 30 for name in ["square", "pow", "div"])


@pytest.mark.parametrize("value", [float("nan"), 3e38])
@pytest.mark.parametrize("make", [ks.AdamW, ks.TwoRateAdam])
def test_gradients_with_nan_norm_reach_the_weights(make, value):
    variables = ones(3)
    # The norm of two maximal numbers is infinite.
    make(0.1).apply([keras.ops.full((1,), x) for x in [value, value, 1.0]], variables)
    # Like with the clipping of Keras, so that errors are visible.
    assert all(np.isnan(keras.ops.convert_to_numpy(v)).all() for v in variables)


def test_subclass_can_override_the_step():
    class Descent(ks.AdamW):
        def update_step(self, gradient, variable, learning_rate):
            self.assign_sub(variable, learning_rate * gradient)

    variables = ones(2)
    Descent(0.5, weight_decay=0.0).apply([keras.ops.full((1,), x) for x in [6.0, 8.0]], variables)
    # Clipped to a global norm of 1.
    found = [keras.ops.convert_to_numpy(v)[0] for v in variables]
    np.testing.assert_allclose(found, [0.7, 0.6], rtol=1e-6)


@pytest.mark.parametrize("name, weight_decay", [("kernel", 0.0), ("bias", 0.01)])
def test_variables_of_several_dtypes_and_without_decay_are_updated(name, weight_decay):
    dtypes = ["float32", "float64"]
    variables = [keras.Variable(np.ones(2), dtype=dtype, name=name) for dtype in dtypes]
    grads = [keras.ops.full((2,), x, dtype=v.dtype) for x, v in zip([3.0, -4.0], variables)]
    ks.AdamW(0.1, weight_decay=weight_decay).apply(grads, variables)
    for variable, expected in zip(variables, [0.9, 1.1]):  # Adam's first step is the rate.
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), expected, rtol=1e-5)
