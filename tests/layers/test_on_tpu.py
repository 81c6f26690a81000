"""Attention compiled for TPUs. Needs libtpu (`pip install libtpu`) but no TPU."""

import importlib.util
import re

import keras
import pytest
from jax_programs import shared_by
from keras import ops

from keras_spanbert.layers.attention import attend

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


@pytest.mark.parametrize("mode", ["data", "model"])
def test_kernel_with_padding_without_dropout(mode, devices):
    import jax

    gradient = jax.jit(jax.grad(lambda *arguments: ops.sum(attend(*arguments)), (0, 1, 2)))
    with shared_by(devices, mode, shape=(4, 2)) as mesh:
        spec = jax.sharding.PartitionSpec("batch", None, "model" if mode == "model" else None)
        heads = jax.sharding.NamedSharding(mesh, spec)
        rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
        x = jax.ShapeDtypeStruct((B, L, N, D), "bfloat16", sharding=heads)
        mask = jax.ShapeDtypeStruct((B, L), "int32", sharding=rows)
        text = gradient.lower(x, x, x, mask).compile().as_text()
    calls = [line for line in text.splitlines() if 'custom_call_target="tpu_custom_call"' in line]
    assert len(calls) == 2 and all("splash_mha" in call and "segmented" in call for call in calls)
    weights = heads.shard_shape((B, L, N, L))
    assert f"[{weights[0]},{weights[2]},{L},{L}]" not in text
    assert not re.search("all-(gather|reduce|to-all)", text)
