import subprocess
import sys

import keras
import numpy as np
import pytest
from forked import Forked
from keras import ops

from keras_spanbert.training.losses import (
    WeightedMeanBinaryCrossentropy,
    WeightedMeanCrossentropy,
    sparse_crossentropy,
)


@pytest.mark.parametrize("shape", [(5,), (4, 3), (4, 1), (2, 3, 4)])
def test_cross_entropy_of_each_label(shape):
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(*shape, 7)).astype("float32")
    labels = generator.integers(0, 7, shape).astype("int32")
    weights = generator.integers(0, 2, shape).astype("float32")
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_probabilities, labels[..., None], -1)[..., 0]
    found = ops.convert_to_numpy(sparse_crossentropy(labels, logits, from_logits=True))
    np.testing.assert_allclose(found, expected, atol=1e-5)

    loss = WeightedMeanCrossentropy(from_logits=True)
    loss = keras.losses.deserialize(keras.losses.serialize(loss))
    mean = (expected * weights).mean()
    found = float(ops.convert_to_numpy(loss(labels, logits, sample_weight=weights)))
    np.testing.assert_allclose(found, mean, atol=1e-5)


def test_binary_cross_entropy_is_the_mean_over_classes_and_weights():
    logits = np.array([[0.0, 40.0, -2.0], [1.0, 0.0, 0.0]], "float32")
    labels = np.array([[1, 0, 0], [1, 1, 0]], "int32")
    loss = WeightedMeanBinaryCrossentropy(from_logits=True)
    loss = keras.losses.deserialize(keras.losses.serialize(loss))
    rows = [np.log(2) + 40.0 + np.log1p(np.exp(-2)), np.log1p(np.exp(-1)) + 2 * np.log(2)]
    for weights in [None, np.array([1.0, 3.0], "float32")]:
        expected = np.mean(rows if weights is None else rows * weights) / 3
        found = float(ops.convert_to_numpy(loss(labels, logits, sample_weight=weights)))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_ignore_class_equals_keras():
    logits = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    labels = np.array([[0, 1, 4], [2, 1, 0]], "int32")
    arguments = {"from_logits": True, "ignore_class": 1}
    # The reduction that earlier versions saved is replaced.
    loss = WeightedMeanCrossentropy(**arguments, reduction="mean_with_sample_weight")
    weights = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 5.0]])
    found, expected = (
        ops.convert_to_numpy(each(labels, logits, weights))
        for each in [loss, keras.losses.SparseCategoricalCrossentropy(**arguments)]
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_labels_of_another_shape_are_refused():
    logits = np.zeros((2, 3, 5), "float32")
    for shape in [(3, 2), (6,)]:
        with pytest.raises(ValueError, match="shape"):
            WeightedMeanCrossentropy(from_logits=True)(np.zeros(shape, "int32"), logits)


def test_logits_of_16_bits_give_float32():
    logits = np.random.default_rng(0).normal(size=(4, 7), scale=5).astype("float32")
    half = ops.cast(logits, "bfloat16")
    labels = np.array([0, 1, 2, 3], "int32")
    found, expected = (
        ops.convert_to_numpy(sparse_crossentropy(labels, x, from_logits=True))
        for x in [half, ops.cast(half, "float32")]
    )
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)


REPLICAS = """
import contextlib, keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from keras_spanbert.keras_losses import TargetLossModel
from keras_spanbert.training.losses import WeightedMeanCrossentropy

class Model(TargetLossModel, keras.Model):
    weights_mark_targets = divides_by_rows = True

labels = np.zeros((8, 1), "int32")
logits = np.random.default_rng(0).normal(size=(8, 1, 3)).astype("float32")
# The first replica has one label, the second has three.
weights = np.array([1, 0, 0, 0, 0, 1, 5, 1], "float32")[:, None]
data = tf.data.Dataset.from_tensor_slices(({"token_ids": logits}, labels, weights)).batch(8)
for strategy in [tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]), None]:
    with strategy.scope() if strategy else contextlib.nullcontext():
        keras.utils.set_random_seed(1)
        x = {"token_ids": keras.Input((1, 3), name="token_ids")}
        model = Model(x, keras.layers.Dense(3)(x["token_ids"]))
        model.compile(keras.optimizers.SGD(1.0), WeightedMeanCrossentropy(from_logits=True))
    before = model.evaluate(data, verbose=0)
    print(before, model.fit(data, verbose=0).history["loss"][0], model.evaluate(data, verbose=0))
"""


@pytest.mark.once("tensorflow")
def test_targets_of_all_replicas_have_equal_weight():
    with Forked([sys.executable, "-c", REPLICAS], stdout=subprocess.PIPE) as process:
        printed = process.stdout.read()
        assert process.wait() == 0
    of_replicas, of_all = ([*map(float, line.split())] for line in printed.splitlines())
    assert of_replicas == pytest.approx(of_all, rel=1e-5) and of_all[2] < of_all[0] - 0.1
