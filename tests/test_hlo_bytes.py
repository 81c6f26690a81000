"""What `benchmarks/hlo_bytes.py` reads: in a text by hand, and in one of the compiler's."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parent.parent / "benchmarks"

# Sides are primes where the format lets them be: 7 rows of 11, a table of 101 rows.
PROGRAM = """\
HloModule step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%fused_gather (table.1: f32[101,11], ids.1: s32[7]) -> bf16[7,11] {
  %table.1 = f32[101,11]{1,0:T(8,128)} parameter(0)
  %ids.1 = s32[7]{0:T(128)S(1)} parameter(1)
  %table.2 = bf16[101,11]{1,0:T(8,128)(2,1)} convert(%table.1)
  ROOT %rows = bf16[7,11]{1,0:T(8,128)(2,1)} gather(%table.2, %ids.1), slice_sizes={1,11}
}

%fused_product (x.1: bf16[7,11], w.1: bf16[11,13], key.1: u32[]) -> (bf16[7,13], u32[7,13]) {
  %x.1 = bf16[7,11]{1,0:T(8,128)(2,1)} parameter(0)
  %w.1 = bf16[11,13]{1,0:T(8,128)(2,1)S(1)} parameter(1)
  %key.1 = u32[]{:T(128)S(6)} parameter(2)
  %product = bf16[7,13]{1,0:T(8,128)(2,1)} convolution(%x.1, %w.1), dim_labels=bf_io->bf
  %keys = u32[7,13]{1,0:T(8,128)} broadcast(%key.1), dimensions={}
  %turned = u32[7,13]{1,0:T(8,128)} shift-left(%keys, %keys)
  %mixed = u32[7,13]{1,0:T(8,128)} xor(%turned, %keys)
  ROOT %both = (bf16[7,13]{1,0:T(8,128)(2,1)}, u32[7,13]{1,0:T(8,128)}) tuple(%product, %mixed)
}

%fused_update (buffer.1: f32[5,3,13], row.1: f32[1,3,13], i.1: s32[]) -> f32[5,3,13] {
  %buffer.1 = f32[5,3,13]{2,1,0:T(8,128)} parameter(0)
  %row.1 = f32[1,3,13]{2,1,0:T(8,128)} parameter(1)
  %i.1 = s32[]{:T(128)} parameter(2)
  %zero = s32[]{:T(128)} constant(0)
  ROOT %new = f32[5,3,13]{2,1,0:T(8,128)} dynamic-update-slice(%buffer.1, %row.1, %i.1, \
%zero, %zero)
}

%body (state: (s32[], f32[5,3,13], f32[1,3,13])) -> (s32[], f32[5,3,13], f32[1,3,13]) {
  %state = (s32[]{:T(128)}, f32[5,3,13]{2,1,0:T(8,128)}, f32[1,3,13]{2,1,0}) parameter(0)
  %i = s32[]{:T(128)S(6)} get-tuple-element(%state), index=0
  %buffer = f32[5,3,13]{2,1,0:T(8,128)} get-tuple-element(%state), index=1
  %row = f32[1,3,13]{2,1,0:T(8,128)} get-tuple-element(%state), index=2
  %written = f32[5,3,13]{2,1,0:T(8,128)} fusion(%buffer, %row, %i), kind=kLoop, calls=%fused_update
  ROOT %next = (s32[]{:T(128)}, f32[5,3,13]{2,1,0}, f32[1,3,13]{2,1,0}) tuple(%i, %written, %row)
}

%condition (state.1: (s32[], f32[5,3,13], f32[1,3,13])) -> pred[] {
  %state.1 = (s32[]{:T(128)}, f32[5,3,13]{2,1,0:T(8,128)}, f32[1,3,13]{2,1,0}) parameter(0)
  %i.2 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  %five = s32[]{:T(128)} constant(5)
  ROOT %goes_on = pred[]{:T(512)} compare(%i.2, %five), direction=LT
}

ENTRY %main (table: f32[101,11], w: bf16[11,13], ids: s32[7]) -> bf16[7,13] {
  %table = f32[101,11]{1,0:T(8,128)} parameter(0)
  %w = bf16[11,13]{1,0:T(8,128)(2,1)} parameter(1)
  %ids = s32[7]{0:T(128)} parameter(2)
  %fetch = (bf16[11,13]{1,0:T(8,128)(2,1)S(1)}, bf16[11,13]{1,0}, u32[]{:S(2)}) copy-start(%w)
  %ids.2 = s32[7]{0:T(128)S(1)} copy(%ids)
  %gathered = bf16[7,11]{1,0:T(8,128)(2,1)} fusion(%table, %ids.2), kind=kCustom, \
calls=%fused_gather, backend_config={"window_config":{"estimated_cycles":"1000"}}
  %fetched = bf16[11,13]{1,0:T(8,128)(2,1)S(1)} copy-done(%fetch)
  %key = u32[]{:T(128)S(6)} constant(17)
  %drawn = (bf16[7,13]{1,0:T(8,128)(2,1)}, u32[7,13]{1,0:T(8,128)S(1)}) fusion(%gathered, \
%fetched, /*index=2*/%key), kind=kOutput, calls=%fused_product
  %out = bf16[7,13]{1,0:T(8,128)(2,1)} get-tuple-element(%drawn), index=0
  %begun = (bf16[7,13]{1,0}, bf16[7,13]{1,0}) all-reduce-start(%out), to_apply=%add
  %first = s32[]{:T(128)} constant(0)
  %buffer.2 = f32[5,3,13]{2,1,0:T(8,128)} custom-call(), custom_call_target="AllocateBuffer"
  %row.2 = f32[1,3,13]{2,1,0:T(8,128)} iota(), iota_dimension=2
  %start = (s32[]{:T(128)}, f32[5,3,13]{2,1,0}, f32[1,3,13]{2,1,0}) tuple(%first, %buffer.2, %row.2)
  %loop = (s32[]{:T(128)}, f32[5,3,13]{2,1,0}, f32[1,3,13]{2,1,0}) while(%start), \
condition=%condition, body=%body
  %summed = bf16[7,13]{1,0:T(8,128)(2,1)} all-reduce-done(%begun)
  ROOT %result = bf16[7,13]{1,0:T(8,128)(2,1)} bitcast(%summed)
}
"""


@pytest.fixture
def hlo_bytes(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("hlo_bytes")


def test_bytes_are_those_of_high_bandwidth_memory(hlo_bytes):
    moved = {name.split()[0]: n for name, n in hlo_bytes.read(PROGRAM).movers.items()}
    assert moved == {
        "fetch": 11 * 13 * 2,  # A prefetch is one read.
        "ids.2": 7 * 4,
        "gathered": 7 * 11 * 4 + 7 * 11 * 2,  # Of the table the rows.
        "drawn": 7 * 11 * 2 + 7 * 13 * 2,  # The weights and the draws stay on the chip.
        "begun": 7 * 13 * 2,
        "row.2": 3 * 13 * 4,
        "written": 5 * (3 * 13 * 4 + 3 * 13 * 4),  # A row is read and written, five times.
        "summed": 7 * 13 * 2,
    }


def test_work_inside_fusions_counts(hlo_bytes):
    costs = hlo_bytes.read(PROGRAM)
    assert costs.flops == 2 * 7 * 11 * 13
    assert costs.integer_ops == 2 * 7 * 13
    assert costs.draws == {(7, 13): 7 * 13}
    assert costs.cycles == 1000


def test_an_exchange_beside_a_loop_is_overlapped(hlo_bytes):
    costs = hlo_bytes.read(PROGRAM)
    assert hlo_bytes.collectives_by_kind(costs.collectives) == {
        ("all-reduce", "bf16"): {"count": 1, "bytes": 182, "async": 1, "overlapped": 1}
    }
    lines = PROGRAM.splitlines()
    begun, done = (
        next(i for i, line in enumerate(lines) if f"%{name} = " in line)
        for name in ("begun", "summed")
    )
    lines.insert(begun + 1, lines.pop(done))
    costs = hlo_bytes.read("\n".join(lines))
    assert [one.is_overlapped for one in costs.collectives] == [False]


PREFETCHED = """\
ENTRY %main (w: f32[11,13]) -> f32[11,13] {
  %w = f32[11,13]{1,0:T(8,128)} parameter(0)
  %fetch = (f32[11,13]{1,0:T(8,128)S(1)}, f32[11,13]{1,0:T(8,128)}, u32[]{:S(2)}) \
copy-start(%w), cross_program_prefetch_index=0
  %fetched = f32[11,13]{1,0:T(8,128)S(1)} copy-done(%fetch)
  %out = f32[11,13]{1,0:T(8,128)S(1)} negate(%fetched)
  ROOT %again = f32[11,13]{1,0:T(8,128)S(1)} bitcast(%out)
}
"""
FOR_THE_NEXT_RUN = """\
  %next = (f32[11,13]{1,0:T(8,128)S(1)}, f32[11,13]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%w)
  %kept = f32[11,13]{1,0:T(8,128)S(1)} copy-done(%next)
"""


def test_what_is_prefetched_for_the_next_run_is_read_once(hlo_bytes):
    alone = hlo_bytes.read(PREFETCHED)
    both = hlo_bytes.read(PREFETCHED.replace("  ROOT", FOR_THE_NEXT_RUN + "  ROOT"))
    assert alone.bytes == both.bytes == 11 * 13 * 4


@pytest.mark.parametrize(
    ("window", "labels", "shapes", "flops"),
    [
        # A product with the rows' batch as a window, as the compiler writes gradients of weights.
        ("{size=5}", "0fb_0io->bf0", ["5,3,7", "5,3,11", "7,11,1"], 2 * 5 * 3 * 7 * 11),
        # A product a batch, of whose windows all but one place are padding.
        (
            "{size=5 stride=4 pad=0_0 lhs_dilate=5}",
            "0bf_0oi->0bf",
            ["5,3,7", "5,11,7", "5,3,11"],
            2 * 5 * 3 * 7 * 11,
        ),
    ],
)
def test_places_that_are_padding_are_not_multiplied(hlo_bytes, window, labels, shapes, flops):
    left, right, result = (f"f32[{shape}]" for shape in shapes)
    program = f"""\
ENTRY %main (a: {left}, b: {right}) -> {result} {{
  %a = {left} parameter(0)
  %b = {right} parameter(1)
  ROOT %c = {result} convolution(%a, %b), window={window}, dim_labels={labels}
}}
"""
    assert hlo_bytes.read(program).flops == flops


KERNEL = """\
ENTRY %main (x: bf16[7,11]) -> bf16[7,13] {
  %x = bf16[7,11]{1,0:T(8,128)(2,1)} parameter(0)
  %kernel = f32[7,13]{1,0:T(8,128)} custom-call(%x), custom_call_target="tpu_custom_call", \
frontend_attributes={kernel_metadata={
"block": "{\\"rows\\": 7}"
}}, backend_config={"cost_estimate":{"flops":"2002"}}
  ROOT %out = bf16[7,13]{1,0:T(8,128)(2,1)} convert(%kernel)
}
"""


def test_a_kernel_whose_attributes_take_several_lines(hlo_bytes):
    costs = hlo_bytes.read(KERNEL)
    assert costs.flops == 2002
    assert costs.bytes == 7 * 11 * 2 + 2 * (7 * 13 * 4) + 7 * 13 * 2


def test_a_text_without_a_program_is_refused(hlo_bytes):
    with pytest.raises(ValueError, match="must have an ENTRY computation. Received: 'nothing'"):
        hlo_bytes.read("nothing")


COMPILED = """
import hlo_bytes, jax, jax.numpy as jnp
from jax.experimental import topologies
device = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]
on = jax.sharding.SingleDeviceSharding(device)
table = jax.ShapeDtypeStruct((1 << 20, 256), jnp.float32, sharding=on)
ids = jax.ShapeDtypeStruct((512,), jnp.int32, sharding=on)
w = jax.ShapeDtypeStruct((256, 384), jnp.float32, sharding=on)
step = jax.jit(lambda table, ids, w: jnp.take(table, ids, axis=0) @ w)
costs = hlo_bytes.read(step.lower(table, ids, w).compile().as_text())
print(costs.flops, costs.bytes)
"""


@pytest.mark.slow
def test_a_program_of_the_compiler_reads_rows_and_not_the_table():
    if not importlib.util.find_spec("libtpu"):
        pytest.skip("the TPU's compiler is not installed (pip install libtpu)")
    environment = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "PYTHONPATH": str(BENCHMARKS)}
    paths = [environment["PYTHONPATH"], os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    printed = subprocess.run(
        [sys.executable, "-c", COMPILED],
        env={**os.environ, **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    flops, moved = map(int, printed.split())
    assert flops == 2 * 512 * 256 * 384
    arguments = 4 * (512 * 256 + 512 + 256 * 384 + 512 * 384)
    assert arguments <= moved < 3 * arguments
