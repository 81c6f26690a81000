"""What a TPU's compiler makes of attention: it needs libtpu (`pip install libtpu`), and no TPU."""

import importlib.util
import re

import keras
import pytest
from keras import ops

from keras_spanbert.layers.attention import attend

B, L, N, D = 16, 256, 2, 64

if keras.backend.backend() != "jax":
    pytest.skip("the compiler is JAX's", allow_module_level=True)
if importlib.util.find_spec("libtpu") is None:
    pytest.skip("libtpu is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def devices():
    from jax.experimental import topologies

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPU_SKIP_MDS_QUERY", "1")
        patch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
        yield topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4").devices


def compile_step(devices, mode, **kwargs):
    """The compiled forward and backward pass, and what a device has of the weights' shape."""
    import jax

    shape, names = ((8,), ("batch",)) if mode == "data" else ((4, 2), ("batch", "model"))
    mesh = keras.distribution.DeviceMesh(shape, names, devices)
    if mode == "data":
        engine = keras.distribution.DataParallel(device_mesh=mesh)
    else:
        layout = keras.distribution.LayoutMap(mesh)
        engine = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")

    def total(query, key, value, mask):
        with keras.StatelessScope():  # Of dropout's seed.
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


def kept(text):
    """The results of a compiled program's own instructions: what is inside of fusions is not."""
    entry = text[text.index("ENTRY") :]
    return re.findall(r"^\s*(?:ROOT )?%\S+ = \(?(\w+\[[\d,]*\])", entry, re.MULTILINE)


@pytest.mark.parametrize("mode", ["data", "model"])
def test_without_dropout_it_is_the_kernel_for_rows_that_know_padding(mode, devices):
    text, weights = compile_step(devices, mode)
    calls = [line for line in text.splitlines() if 'custom_call_target="tpu_custom_call"' in line]
    assert len(calls) == 2 and all("splash_mha" in call and "segmented" in call for call in calls)
    assert weights not in text
    assert not re.search("all-(gather|reduce|to-all)", text)


def test_with_dropout_no_weights_are_kept_in_float32(devices):
    dropout = keras.layers.Dropout(0.1, dtype="bfloat16")
    text, weights = compile_step(devices, "data", dropout=dropout, training=True)
    assert "splash" not in text
    assert f"bf16{weights}" in kept(text)
    assert f"f32{weights}" not in kept(text)
