"""On JAX, each device draws different dropout for its own part of a tensor."""

import functools
import os
import re
import sys

import keras
import numpy as np
import pytest
from forked import Forked

if __name__ != "__main__" and keras.backend.backend() != "jax":
    pytest.skip("specific to JAX", allow_module_level=True)

from keras_spanbert.layers.dropout import Dropout


def test_devices_draw_only_their_parts():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    with Forked([sys.executable, __file__], env={**os.environ, "XLA_FLAGS": flags}) as process:
        assert process.wait() == 0


def each_device_draws_its_own_dropout():
    import jax

    # The code that JAX compiles for a TPU.
    jax.lax.platform_dependent = lambda *args, tpu, default: tpu(*args)
    devices = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"), devices)
    layout = keras.distribution.LayoutMap(mesh)
    for engine, axis, shape, shard in [
        (keras.distribution.DataParallel(devices=devices), None, (8, 6, 11), (2, 6, 11)),
        (keras.distribution.DataParallel(devices=devices), None, (7, 6, 11), (7, 6, 11)),
        (keras.distribution.ModelParallel(layout_map=layout), None, (8, 6, 11), (4, 6, 11)),
        (keras.distribution.ModelParallel(layout_map=layout), 1, (8, 6, 11), (4, 3, 11)),
        (keras.distribution.ModelParallel(layout_map=layout), 1, (8, 5, 11), (4, 5, 11)),
    ]:
        with engine.scope():
            layer = Dropout(0.5, seed=1, model_axis=axis)
            arguments = [], [layer.variables[0].value], np.ones(shape, "float32")
            drop = jax.jit(functools.partial(layer.stateless_call, training=True))
            masks = np.asarray(drop(*arguments)[0]) > 0.0
        parts = [
            masks[i : i + shard[0], j : j + shard[1]].tobytes()
            for i in range(0, shape[0], shard[0])
            for j in range(0, shape[1], shard[1])
        ]
        assert len(set(parts)) == len(parts) and 0.4 < masks.mean() < 0.6, shape
        drawn = re.findall(
            r"rng_bit_generator.*tensor<(\S+)xui16>", drop.lower(*arguments).as_text()
        )
        assert drawn == ["x".join(map(str, shard))], (shape, drawn)


if __name__ == "__main__":
    each_device_draws_its_own_dropout()
