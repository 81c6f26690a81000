"""Tests of `benchmarks/compiled_step.py`: programs by hand, and a tiny step of each compiler."""

import importlib.util

import pytest
from processes import ROOT, run_python

import keras_spanbert as ks
from keras_spanbert.runs.cost import step_flops

BENCHMARKS = ROOT / "benchmarks"

# 7 rows of 11 times [11, 13], and 5 runs of a loop that negates [3, 2].
PROGRAM = """\
HloModule step

%fused_product (x.1: bf16[7,11], w.1: bf16[11,13]) -> f32[7,13] {
  %x.1 = bf16[7,11]{1,0:T(8,128)(2,1)} parameter(0)
  %w.1 = bf16[11,13]{1,0:T(8,128)(2,1)S(1)} parameter(1)
  ROOT %product = f32[7,13]{1,0:T(8,128)} convolution(%x.1, %w.1), dim_labels=bf_io->bf
}

%body (state: (s32[], f32[3,2])) -> (s32[], f32[3,2]) {
  %state = (s32[]{:T(128)}, f32[3,2]{1,0:T(8,128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%state), index=0
  %y = f32[3,2]{1,0:T(8,128)} get-tuple-element(%state), index=1
  %z = f32[3,2]{1,0:T(8,128)} negate(%y), metadata={op_name="jit(train_step)/transpose(jvp(heads))/\
norm_2/neg"}, backend_config={"estimated_cycles":"17"}
  ROOT %next = (s32[]{:T(128)}, f32[3,2]{1,0:T(8,128)}) tuple(%i, %z)
}

ENTRY %main (x: bf16[7,11], w: bf16[11,13], y: f32[3,2]) -> f32[7,13] {
  %x = bf16[7,11]{1,0:T(8,128)(2,1)} parameter(0)
  %w = bf16[11,13]{1,0:T(8,128)(2,1)S(1)} parameter(1)
  %begin = (s32[]{:T(128)}, f32[3,2]{1,0:T(8,128)}) parameter(2)
  %fusion.1 = f32[7,13]{1,0:T(8,128)} fusion(%x, %w), kind=kOutput, calls=%fused_product, \
metadata={op_name="jit(train_step)/jvp(heads)/dense_1/dot_general"}, \
backend_config={"estimated_cycles":"1000"}
  %loop = (s32[]{:T(128)}, f32[3,2]{1,0:T(8,128)}) while(%begin), condition=%less, body=%body, \
backend_config={"known_trip_count":{"n":"5"}}
  ROOT %sum = f32[7,13]{1,0:T(8,128)} all-reduce(%fusion.1), to_apply=%add
}
"""


@pytest.fixture
def compiled_step(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("compiled_step")


def costs(compiled_step, device):
    layers = {"heads", "dense_1", "norm_2"}
    found = compiled_step.operations(PROGRAM, device)
    return {
        compiled_step.group(operation.path, layers): (operation.cost, operation.is_product)
        for operation in found
        if operation.cost
    }


def test_cycles_of_a_tpu_and_bytes_of_a_gpu(compiled_step, capsys):
    assert costs(compiled_step, "tpu") == {
        "heads/dense": (1000, True),
        "heads/norm, backward": (5 * 17, False),
    }
    assert costs(compiled_step, "gpu") == {
        "heads/dense": (2 * 7 * 11 + 2 * 11 * 13 + 4 * 7 * 13, True),
        "heads/norm, backward": (5 * 2 * 4 * 3 * 2, False),
        "outside of layers": (2 * 4 * 7 * 13, False),
    }
    compiled_step.report(PROGRAM, "tpu", {"heads"})
    assert capsys.readouterr().out.splitlines()[0] == "1,085 cycles, without sum (0.000 GB)"


def compile_tiny(library, device):
    """Returns the first number of each printed line, by the line's name."""
    flags = "--size=tiny --layers=1 --length=128 --batch_size=8 --attention_dropout=0".split()
    program = BENCHMARKS / "compiled_step.py"
    out, _ = run_python(program, library, f"--device={device}", *flags, OMP_NUM_THREADS="1")
    rows = [line.removesuffix(" GB").rsplit(maxsplit=1) for line in out.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 2}


@pytest.mark.long
@pytest.mark.parametrize("library", ["ours", "keras_hub"])
def test_a_tpu_multiplies_no_faster_than_its_peak(library):
    if not importlib.util.find_spec("libtpu"):
        pytest.skip("the TPU's compiler is not installed (pip install libtpu)")
    sizes = {**ks.SpanBertBackbone.SIZES["tiny"], "num_layers": 1}
    model = ks.SpanBertPretrainer(
        ks.SpanBertBackbone(28_996, **sizes), span_boundary=library == "ours"
    )
    least = 1e3 * step_flops(model, 8, 128, num_predictions=24) / 197e12
    rows = compile_tiny(library, "tpu")
    products, others = float(rows["matrix products"]), float(rows["other operations"])
    assert least < products < 20 * least
    assert products + others == pytest.approx(float(rows["all"]), abs=0.02)
