"""The cost of a step."""

import mmap
import pathlib
import time

import keras
import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.runs import cost


def test_flops_counted_by_hand():
    backbone = ks.SpanBertBackbone(11, 2, num_heads=1, hidden_dim=3, intermediate_dim=5)
    # Per token and layer: queries, keys, values, output 4 x 2 x 3 x 3, network 2 x 2 x 3 x 5,
    # attention scores and weighted sum 2 x 2 x 7 x 3.
    layers = 2 * 7 * 2 * (72 + 60 + 84)
    assert cost.step_flops(backbone, 2, 7) == 3 * layers
    # Per masked token: MLM 2 x 3 x 3, SBO 2 x 10 x 3 + 2 x 3 x 3, two products with V 2 x 3 x 11.
    heads = 2 * 4 * (18 + 60 + 18 + 2 * 66)
    pretrainer = ks.SpanBertPretrainer(backbone, position_dim=4)
    assert cost.step_flops(pretrainer, 2, 7, 4) == 3 * (layers + heads)


def resident_memory():
    statistics = pathlib.Path("/proc/self/statm")
    return int(statistics.read_text().split()[1]) * mmap.PAGESIZE if statistics.exists() else 0


@pytest.mark.long  # After many tests, it may need much memory.
def test_peak_memory_grows_with_allocations():
    before = cost.peak_memory()
    if cost.has_accelerator():
        x = keras.ops.ones((64, 1 << 20))
    else:
        # More than was freed since the peak, in new pages, as NumPy may reuse freed ones.
        x = mmap.mmap(-1, max(before - resident_memory(), 0) + (64 << 20))
        np.frombuffer(x, "uint8")[:: mmap.PAGESIZE] = 1
    assert cost.peak_memory() >= before + (32 << 20)
    del x


@pytest.mark.long  # It measures time.
@pytest.mark.once
@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_waiting_measures_slow_data(seconds):
    import tensorflow as tf

    def slowly():
        for i in range(8):
            time.sleep(seconds)
            yield i

    wait = cost.InputWait()
    spec = tf.TensorSpec([], tf.int64)
    dataset = wait.timed(tf.data.Dataset.from_generator(slowly, output_signature=spec))
    assert [int(i) for i in dataset] == list(range(8))
    assert 8 * seconds <= wait.seconds() < 8 * seconds + 0.5


def test_step_figures():
    class Moment(cost.StepCost):
        def now(self):
            return 2.0, 0.5

    figures = Moment(flops=123456.0, wait=True).figures((0.0, 0.0), steps=2)
    assert figures.pop("peak_gb") > 0.01
    # They have four digits for any size.
    assert figures == {"step_ms": 1000.0, "waiting_ms": 250.0, "tflops_per_second": 1.235e-7}
    step_cost, before = cost.StepCost(flops=5e9), time.perf_counter()
    seconds, waited = step_cost.now()
    assert before <= seconds <= time.perf_counter() and waited == 0.0
    assert "waiting_ms" not in step_cost.figures((0.0, 0.0), steps=2)
