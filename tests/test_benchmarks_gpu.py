"""The GPU benchmark: a CPU without TensorFlow, stand-ins for a GPU's tensors, estimates."""

import argparse
import os
import sys

import keras
import numpy as np
import pytest
from processes import ROOT, run_python

import keras_spanbert as ks
from keras_spanbert.runs.cost import step_flops

PROGRAM = ROOT / "benchmarks" / "gpu.py"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(PROGRAM.parent), *sys.path])


def test_batches_and_the_peer_accept_what_a_gpu_gives(monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    import training_step

    class OnGpu(torch.Tensor):
        """A tensor that NumPy cannot read."""

        device = torch.device("cuda", 0)

        def cpu(self):
            return self.as_subclass(torch.Tensor)

        def __array__(self, *args, **kwargs):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def span_masking(masking=ks.SpanMasking, **arguments):
        def call(tokens, seed):
            masks = dict(masking(**arguments)(tokens, seed=seed))
            masks["span_offsets"] = masks["span_offsets"] + 15  # As in spans of many tokens.
            convert = keras.ops.convert_to_tensor
            return {name: convert(value).as_subclass(OnGpu) for name, value in masks.items()}

        return call

    monkeypatch.setattr(ks, "SpanMasking", span_masking)
    case = argparse.Namespace(
        size="tiny", batch_size=2, length=16, dtype="float32", dropout=0.1, attention_dropout=0.0,
        vocabulary_size=300, variant="objective",
    )  # fmt: skip
    for part in training_step.build_batch(case):
        assert all(isinstance(array, np.ndarray) for array in part.values())
    assert np.isfinite(float(training_step.pytorch_step(case)()))


OPTIONS = "--size=tiny --length=16 --batch_size=1 --steps=1 --device=cpu".split()


@pytest.mark.long
@pytest.mark.parametrize("library", ["transformers", "keras_hub/torch"])
def test_parts_run_on_a_cpu(library):
    out, _ = run_python(PROGRAM, *OPTIONS, "--part=2", f"--library={library}")
    assert " ms " in out.splitlines()[2]


@pytest.mark.long
def test_both_mechanisms_are_measured_without_tensorflow(tmp_path):
    # Imported by every Python process at startup.
    hide = "import sys; sys.modules.update(tensorflow=None, tensorflow_text=None)"
    (tmp_path / "sitecustomize.py").write_text(hide)
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    out, _ = run_python(PROGRAM, *OPTIONS, "--part=7", PYTHONPATH=os.pathsep.join(path))
    _, part, *cases = out.splitlines()
    assert part == "7. the two mechanisms on PyTorch"
    assert len(cases) == 4 and all(" ms " in case for case in cases)
    assert ["called by Keras" in case for case in cases] == [False, True, False, True]


# 7 rows of 11 times [11, 13], and 5 runs of a loop that negates [3, 2].
HLO = """\
HloModule step

%fused_product (x.1: bf16[7,11], w.1: bf16[11,13]) -> f32[7,13] {
  ROOT %product = f32[7,13]{1,0:T(8,128)} convolution(%x.1, %w.1), dim_labels=bf_io->bf
}

%body (state: (s32[], f32[3,2])) -> (s32[], f32[3,2]) {
  %z = f32[3,2]{1,0:T(8,128)} negate(%y), metadata={op_name="jit(train_step)/transpose(jvp(heads))/\
norm_2/neg"}, backend_config={"estimated_cycles":"17"}
}

ENTRY %main (x: bf16[7,11], w: bf16[11,13], y: f32[3,2]) -> f32[7,13] {
  %x = bf16[7,11]{1,0:T(8,128)(2,1)} parameter(0)
  %fusion.1 = f32[7,13]{1,0:T(8,128)} fusion(%x, %w), kind=kOutput, calls=%fused_product, \
metadata={op_name="jit(train_step)/jvp(heads)/dense_1/dot_general"}, \
backend_config={"estimated_cycles":"1000"}
  %loop = (s32[]{:T(128)}, f32[3,2]{1,0:T(8,128)}) while(%begin), condition=%less, body=%body, \
backend_config={"known_trip_count":{"n":"5"}}
  ROOT %sum = f32[7,13]{1,0:T(8,128)} all-reduce(%fusion.1), to_apply=%add
}
"""


def test_cycles_of_a_tpu(capsys):
    import gpu

    layers = {"heads", "dense_1", "norm_2"}
    found = {
        gpu.group(path, layers): (cycles, is_product)
        for _, is_product, path, cycles in gpu.operations(HLO)
        if cycles
    }
    assert found == {"heads/dense": (1000, True), "heads/norm, backward": (5 * 17, False)}
    gpu.report(HLO, {"heads"})
    assert capsys.readouterr().out.splitlines()[0] == "1,085 cycles, without 1 x sum"


@pytest.mark.long
@pytest.mark.parametrize("library", ["jax", "keras_hub/jax"])
def test_a_tpu_multiplies_no_faster_than_its_peak(library):
    pytest.importorskip("libtpu", reason="the TPU's compiler is not installed")
    model = ks.SpanBertPretrainer(
        ks.SpanBertBackbone(28_996, **ks.SpanBertBackbone.SIZES["tiny"]),
        span_boundary=library == "jax",
    )
    least = 1e3 * step_flops(model, 8, 128, num_predictions=24) / 197e12
    flags = "--size=tiny --length=128 --batch_size=8 --attention_dropout=0".split()
    flags += ["--device=tpu", f"--library={library}"]
    out, _ = run_python(PROGRAM, *flags, OMP_NUM_THREADS="1")
    rows = [line.removesuffix(" GB").rsplit(maxsplit=1) for line in out.splitlines()]
    rows = {row[0]: row[1] for row in rows if len(row) == 2}
    products, others = float(rows["matrix products"]), float(rows["other operations"])
    assert least < products < 20 * least
    assert products + others == pytest.approx(float(rows["all"]), abs=0.02)
