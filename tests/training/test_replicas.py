"""The loss of several replicas is the mean over all their rows."""

import subprocess
import sys

import pytest
from forked import Forked

pytestmark = pytest.mark.once("tensorflow")
SCRIPT = """
import numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from keras_spanbert.training.losses import WeightedMeanCrossentropy
strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
loss = WeightedMeanCrossentropy(from_logits=True)
labels = np.zeros((8, 1), "int32")
logits = np.random.default_rng(0).normal(size=(8, 1, 3)).astype("float32")
# The first replica has one row with weight, the second has three.
weights = np.array([1, 0, 0, 0, 0, 1, 1, 1], "float32")[:, None]
arrays = labels, logits, weights

@tf.function
def step(values):
    return loss(*values)

part = lambda context: tuple(a[4 * context.replica_id_in_sync_group :][:4] for a in arrays)
batch = strategy.experimental_distribute_values_from_function(part)
with strategy.scope():
    losses = strategy.experimental_local_results(strategy.run(step, (batch,)))
assert len(losses) == 2
# Keras divides the loss of a replica by their number, and sums the gradients.
print(np.sum(losses), float(loss(*arrays)))
"""


def test_rows_of_all_replicas_have_equal_weight():
    with Forked([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE) as process:
        printed = process.stdout.read()
        assert process.wait() == 0
    of_replicas, of_all = map(float, printed.split())
    assert of_replicas == pytest.approx(of_all, rel=1e-5)
