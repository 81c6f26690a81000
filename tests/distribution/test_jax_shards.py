"""What JAX's devices share they compute in parts: none draws or moves the whole."""

import functools
import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

if __name__ != "__main__" and keras.backend.backend() != "jax":
    pytest.skip("JAX alone shares out a step so", allow_module_level=True)

from keras_spanbert.layers.dropout import Dropout

# Batch, length, masked positions, vocabulary: no multiple of the devices.
B, L, M, V = 8, 12, 7, 97
HIDDEN = 8
NUM_DEVICES = 4


def test_devices_compute_their_own_parts(tmp_path):
    flags = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={tmp_path} --xla_dump_hlo_as_text "
        "--xla_dump_hlo_module_re=.*train_step.* "
        f"--xla_force_host_platform_device_count={NUM_DEVICES}"
    )
    # What is read of the cache is not compiled, and not dumped.
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    subprocess.run([sys.executable, __file__], env=environment, check=True)
    (path,) = tmp_path.glob("*jit_train_step*after_optimizations.txt")
    exchanges = re.findall(r"= (.*) all-(?:reduce|gather|to-all)(?:-start)?\(", path.read_text())
    shapes = [shape for line in exchanges for shape in re.findall(r"\[([\d,]+)\]", line)]
    sizes = [np.prod([int(size) for size in shape.split(",")]) for shape in shapes]
    # Hidden vectors are exchanged, and no logits, not even a device's.
    assert B * L * HIDDEN <= max(sizes) < B * M * V // NUM_DEVICES


def each_device_draws_its_own_dropout():
    import jax

    # What JAX would compile for a TPU.
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


def each_device_has_logits_of_a_part_of_the_vocabulary():
    import keras_spanbert as ks

    ks.distribute("model")
    backbone = ks.SpanBertBackbone(
        V, 1, NUM_DEVICES, HIDDEN, 16, dropout=0.0, max_sequence_length=L
    )
    model = ks.SpanBertPretrainer(backbone, position_dim=6)
    generator = np.random.default_rng(0)
    x = {name: generator.integers(0, V, (B, L)) for name in ["token_ids"]}
    x |= {"segment_ids": np.zeros((B, L)), "padding_mask": np.ones((B, L))}
    for name in ["mask_positions", "span_left", "span_right", "span_offsets"]:
        x[name] = generator.integers(0, L, (B, M))
    x = {name: value.astype("int32") for name, value in x.items()}
    y = dict.fromkeys(["mlm", "sbo"], generator.integers(0, V, (B, M)).astype("int32"))
    weights = dict.fromkeys(y, np.ones((B, M), "float32"))
    model.fit(x, y, B, sample_weight=weights, verbose=0)
    assert model.predict(x, B, verbose=0)["mlm"].shape == (B, M, V)


if __name__ == "__main__":
    each_device_has_logits_of_a_part_of_the_vocabulary()
    each_device_draws_its_own_dropout()
