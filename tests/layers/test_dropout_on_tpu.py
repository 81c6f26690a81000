"""What a TPU's compiler makes of dropout: it needs libtpu (`pip install libtpu`), and no TPU."""

import importlib.util
import re

import keras
import numpy as np
import pytest

from keras_spanbert.layers.dropout import Dropout

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


@pytest.mark.parametrize(
    ("shape", "part"), [((16, 256, 512), [2, 256, 512]), ((16, 3, 128, 256), [2, 3, 256, 128])]
)
def test_a_chip_draws_16_bits_for_its_own_rows_and_keeps_one(shape, part, devices):
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
    # No threefry, on any number of numbers, and no bits kept beside the masks.
    shapes = [dims.split(",") for dims in re.findall(r"u32\[([\d,]+)\]", text)]
    assert max(np.prod([int(size) for size in dims]) for dims in shapes) < 100
    entry = text[text.index("ENTRY") :]
    kept = re.findall(r"^\s*%\S+ = (u16|pred)\[[\d,]+\]\S* ([\w-]+)\(", entry, re.MULTILINE)
    masks = [kind for kind, operation in kept if operation == "fusion"]
    assert masks == ["pred", "pred"]
    assert not re.search("all-(gather|reduce|to-all)", text)
