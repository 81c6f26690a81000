import copy

import keras
import numpy as np
import pytest
from keras import ops

import keras_spanbert as ks


def weight(name, value):
    layer, name = name.split("/")
    with keras.name_scope(layer):
        return keras.Variable(np.array(value, "float32"), name=name)


def step(optimizer, weights, grads):
    before = [ops.convert_to_numpy(x).copy() for x in weights]
    optimizer.apply([ops.convert_to_tensor(np.array(g, "float32")) for g in grads], weights)
    return [a - ops.convert_to_numpy(b) for a, b in zip(before, weights)]


def test_each_group_has_its_rate_and_adam_variant():
    weights = [weight("encoder/kernel", [2.0]), weight("head/kernel", [2.0])]
    optimizer = ks.TwoRateAdam(1e-2, 1e-1, heads=["head"], encoder_weight_decay=0.5, clip_norm=None)
    moved = step(optimizer, weights, [[3.0], [3.0]])
    # Encoder: 0.1 g / sqrt(0.001 g^2) and decay. Head: the sign of g, with bias correction.
    assert moved[0][0] == pytest.approx(1e-2 * (0.1 / np.sqrt(0.001) + 0.5 * 2.0), rel=1e-4)
    assert moved[1][0] == pytest.approx(1e-1, rel=1e-4)


def test_biases_and_norms_do_not_decay():
    names = ["encoder/bias", "encoder/gamma", "encoder/beta", "head/kernel"]
    weights = [weight(name, [2.0]) for name in names]
    moved = step(ks.TwoRateAdam(1e-2, 1e-2, heads=["head"]), weights, [[0.0]] * 4)
    assert not np.any(moved)


def test_each_group_has_its_epsilon_and_is_clipped_by_its_own_norm():
    weights = [weight(f"{layer}/kernel", [0.0]) for layer in ["encoder", "encoder2", "head"]]
    optimizer = ks.TwoRateAdam(heads=["head"], epsilon=1.0, head_epsilon=0.5, clip_norm=1.0)
    moved = step(optimizer, weights, [[3.0], [4.0], [0.5]])
    for rate, gradient, found in zip([2e-5, 2e-5], [0.6, 0.8], moved):
        expected = rate * 0.1 * gradient / (np.sqrt(0.001) * gradient + 1.0)
        assert found[0] == pytest.approx(expected, rel=1e-4)
    # The norm of the head is below 1, so it is not clipped.
    correction = np.sqrt(0.001) / 0.1
    expected = 1e-4 * correction * 0.05 / (np.sqrt(0.001) * 0.5 + 0.5)
    assert moved[2][0] == pytest.approx(expected, rel=1e-4)


def test_schedules_count_batches_with_accumulated_gradients():
    schedule = ks.LinearWarmupDecay(0.9, 0, 8)
    optimizer = ks.TwoRateAdam(
        *(schedule, schedule),
        heads=["head"],
        encoder_weight_decay=0.0,
        gradient_accumulation_steps=4,
    )
    inputs = keras.Input((1,))
    layers = [keras.layers.Dense(1, use_bias=False, name=name) for name in ["encoder", "head"]]
    model = keras.Model(inputs, [layer(inputs) for layer in layers])
    model.compile(optimizer, [lambda y_true, y_pred: ops.mean(y_pred)] * 2)
    x = np.ones((4, 1), "float32")
    # Batches 3 and 7 update the weights. With gradients of 1, Adam moves the head by the rate, and
    # the encoder, without bias correction, by the rate times the quotient of its moments.
    quotients = 0.1 / np.sqrt(0.001), 0.19 / np.sqrt(0.001999)
    for rate, quotient in zip([0.5, 0.1], quotients):
        before = [weights.item() for weights in model.get_weights()]
        model.fit(x, [x, x], batch_size=1, verbose=0)
        moved = [a - b.item() for a, b in zip(before, model.get_weights())]
        assert moved == pytest.approx([rate * quotient, rate], rel=1e-3)


def test_config_round_trip():
    rates = ks.LinearWarmupDecay(1e-5, 2, 20), ks.LinearWarmupDecay(1e-4, 0, 20)
    given = {"clip_norm": 3.0, "beta_2": 0.9, "head_epsilon": 1e-3, "encoder_weight_decay": 0.2}
    first = ks.TwoRateAdam(*rates, heads=["head"], **given)
    config = keras.optimizers.serialize(first)
    second = keras.optimizers.deserialize(copy.deepcopy(config))
    assert keras.optimizers.serialize(second) == config
    assert second.head_learning_rate.peak == 1e-4
    assert second.heads == {"head"}
    assert {name: getattr(second, name) for name in given} == given


def test_variables_are_those_of_a_single_optimizer():
    """Checkpoints hold them in this order."""
    weights = [weight("head/kernel", [2.0]), weight("encoder/kernel", [2.0])]
    optimizer = ks.TwoRateAdam(1e-2, heads=["head"], use_ema=True, gradient_accumulation_steps=2)
    optimizer.build(weights)
    kinds = [["average"], ["gradient_accumulator"], ["momentum", "velocity"]]
    layers = ["head", "encoder"]
    slots = [f"{of}_kernel_{name}" for kind in kinds for of in layers for name in kind]
    names = ["iteration", "learning_rate", *slots]
    assert [v.path for v in optimizer.variables] == [f"two_rate_adam/{name}" for name in names]


def test_assigned_learning_rate_scales_both_rates():
    given = {"heads": ["head"], "encoder_weight_decay": 0.0}
    weights = [weight("encoder/kernel", [2.0]), weight("head/kernel", [2.0])]
    optimizer = ks.TwoRateAdam(1e-2, 1e-1, **given)
    optimizer.learning_rate = 5e-3
    loaded = ks.TwoRateAdam.from_config(optimizer.get_config())
    for each in [optimizer, loaded]:
        moved = step(each, weights, [[3.0], [3.0]])
        assert moved[0][0] == pytest.approx(5e-3 * 0.1 / np.sqrt(0.001), rel=1e-4)
        assert moved[1][0] == pytest.approx(5e-2, rel=1e-4)
    optimizer = ks.TwoRateAdam(1e-2, ks.LinearWarmupDecay(0.3, 3, 8), **given)
    optimizer.learning_rate = 5e-3
    moved = step(optimizer, weights, [[3.0], [3.0]])  # The schedule is independent.
    assert moved[1][0] == pytest.approx(1e-1, rel=1e-4)


def test_each_batch_is_clipped_before_it_is_accumulated():
    weights = [weight("head/kernel", [2.0])]
    optimizer = ks.TwoRateAdam(heads=["head"], gradient_accumulation_steps=2)
    moved = [step(optimizer, weights, [[gradient]])[0][0] for gradient in [3.0, -2.0]]
    assert moved == [0.0, 0.0]  # Clipped to 1 and -1.
    assert int(optimizer.iterations) == 1


def test_some_variables_can_be_updated():
    weights = [weight("encoder/kernel", [2.0]), weight("head/kernel", [2.0])]
    optimizer = ks.TwoRateAdam(heads=["head"])
    optimizer.build(weights)
    assert step(optimizer, weights[1:], [[3.0]])[0][0] > 0.0
    with pytest.raises(ValueError, match="Unknown variable"):
        step(optimizer, [weight("other/kernel", [2.0])], [[3.0]])


def test_unknown_arguments_are_errors():
    with pytest.raises(ValueError, match="Received: global_clipnorm"):
        ks.TwoRateAdam(global_clipnorm=1.0)
