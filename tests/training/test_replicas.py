"""The loss of several replicas is the mean over all their targets."""

import subprocess
import sys

import pytest
from forked import Forked

pytestmark = pytest.mark.once("tensorflow")
SCRIPT = """
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


def test_targets_of_all_replicas_have_equal_weight():
    with Forked([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE) as process:
        printed = process.stdout.read()
        assert process.wait() == 0
    of_replicas, of_all = ([*map(float, line.split())] for line in printed.splitlines())
    assert of_replicas == pytest.approx(of_all, rel=1e-5) and of_all[2] < of_all[0] - 0.1
