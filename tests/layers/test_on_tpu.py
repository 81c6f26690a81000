"""Attention and dropout compiled for TPUs. Needs libtpu (`pip install libtpu`) but no TPU."""

import importlib.util
import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_spanbert.layers.attention import attend
from keras_spanbert.layers.dropout import Dropout

B, L, N, D = 16, 256, 2, 64

if keras.backend.backend() != "jax":
    pytest.skip("specific to JAX", allow_module_level=True)
if importlib.util.find_spec("libtpu") is None:
    pytest.skip("libtpu is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def devices():
    from jax.experimental import topologies

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPU_SKIP_MDS_QUERY", "1")
        patch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
        patch.setenv("XLA_FLAGS", "")  # libtpu exits if it does not know a flag.
        yield topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4").devices


def compile_step(devices, mode, **kwargs):
    """Returns the compiled forward and backward pass, and the shape of weights per device."""
    import jax

    shape, names = ((8,), ("batch",)) if mode == "data" else ((4, 2), ("batch", "model"))
    mesh = keras.distribution.DeviceMesh(shape, names, devices)
    if mode == "data":
        engine = keras.distribution.DataParallel(device_mesh=mesh)
    else:
        layout = keras.distribution.LayoutMap(mesh)
        engine = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")

    def total(query, key, value, mask):
        with keras.StatelessScope():  # For the seed of dropout.
            return ops.sum(attend(query, key, value, mask, **kwargs))

    spec = jax.sharding.PartitionSpec("batch", None, names[1] if mode == "model" else None)
    heads = jax.sharding.NamedSharding(mesh.backend_mesh, spec)
    rows = jax.sharding.NamedSharding(mesh.backend_mesh, jax.sharding.PartitionSpec("batch"))
    x = jax.ShapeDtypeStruct((B, L, N, D), "bfloat16", sharding=heads)
    mask = jax.ShapeDtypeStruct((B, L), "int32", sharding=rows)
    keras.distribution.set_distribution(engine)
    try:
        lowered = jax.jit(jax.grad(total, (0, 1, 2))).lower(x, x, x, mask)
    finally:
        keras.distribution.set_distribution(None)
    weights = heads.shard_shape((B, L, N, L))
    return lowered.compile().as_text(), f"[{weights[0]},{weights[2]},{L},{L}]"


def instruction_results(text):
    """Returns the results of instructions in a compiled program, without those in fusions."""
    entry = text[text.index("ENTRY") :]
    return re.findall(r"^\s*(?:ROOT )?%\S+ = \(?(\w+\[[\d,]*\])", entry, re.MULTILINE)


@pytest.mark.parametrize("mode", ["data", "model"])
def test_kernel_with_padding_without_dropout(mode, devices):
    text, weights = compile_step(devices, mode)
    calls = [line for line in text.splitlines() if 'custom_call_target="tpu_custom_call"' in line]
    assert len(calls) == 2 and all("splash_mha" in call and "segmented" in call for call in calls)
    assert weights not in text
    assert not re.search("all-(gather|reduce|to-all)", text)


def test_dropout_keeps_no_float32_weights(devices):
    dropout = keras.layers.Dropout(0.1, dtype="bfloat16")
    text, weights = compile_step(devices, "data", dropout=dropout, training=True)
    assert "splash" not in text
    assert f"bf16{weights}" in instruction_results(text)
    assert f"f32{weights}" not in instruction_results(text)


@pytest.mark.parametrize(
    ("shape", "part"), [((16, 256, 512), [2, 256, 512]), ((16, 3, 128, 256), [2, 3, 256, 128])]
)
def test_chip_draws_16_bits_for_its_rows_and_keeps_one(shape, part, devices):
    import jax

    layers = [Dropout(0.1, seed=seed, dtype="bfloat16") for seed in (1, 2)]
    seeds = [layer.seed_generator.state for layer in layers]
    engine = keras.distribution.DataParallel(
        device_mesh=keras.distribution.DeviceMesh((8,), ("batch",), devices)
    )

    def total(x, *values):
        with keras.StatelessScope(state_mapping=list(zip(seeds, values))):
            for layer in layers:
                x = jax.numpy.sin(layer(x, training=True))
        return x.astype("float32").sum()

    mesh, spec = engine.device_mesh.backend_mesh, jax.sharding.PartitionSpec
    rows, whole = (jax.sharding.NamedSharding(mesh, axes) for axes in [spec("batch"), spec()])
    x = jax.ShapeDtypeStruct(shape, "bfloat16", sharding=rows)
    values = [jax.ShapeDtypeStruct((2,), "uint32", sharding=whole) for _ in layers]
    with engine.scope():
        text = jax.jit(jax.grad(total)).lower(x, *values).compile().as_text()
    drawn = re.findall(r"= (\w+)\[([\d,]+)\]\S* rng-bit-generator\(", text)
    assert drawn == [("u16", ",".join(map(str, part)))] * 2
    # Threefry is not used, and only the masks are kept.
    shapes = [dims.split(",") for dims in re.findall(r"u32\[([\d,]+)\]", text)]
    assert max(np.prod([int(size) for size in dims]) for dims in shapes) < 100
    entry = text[text.index("ENTRY") :]
    kept = re.findall(r"^\s*%\S+ = (u16|pred)\[[\d,]+\]\S* ([\w-]+)\(", entry, re.MULTILINE)
    masks = [kind for kind, operation in kept if operation == "fusion"]
    assert masks == ["pred", "pred"]
    assert not re.search("all-(gather|reduce|to-all)", text)
