"""The GPU benchmark: a CPU without TensorFlow, stand-ins for a GPU's tensors, turns."""

import argparse
import os
import sys

import keras
import numpy as np
import pytest
from processes import ROOT, run_python

import keras_spanbert as ks

PROGRAM = ROOT / "benchmarks" / "gpu.py"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(PROGRAM.parent), *sys.path])


@pytest.mark.long
def test_kernels_are_measured_without_tensorflow(tmp_path):
    pytest.importorskip("torch")
    # Imported by every Python process at startup.
    hide = "import sys; sys.modules.update(tensorflow=None, tensorflow_text=None)"
    (tmp_path / "sitecustomize.py").write_text(hide)
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    options = ["--size=tiny", "--length=16", "--batch_size=1", "--steps=1"]
    options += ["--device=cpu", "--part=5", "--library=torch"]
    out, _ = run_python(PROGRAM, *options, PYTHONPATH=os.pathsep.join(path))
    _, part, case, *kernels = out.splitlines()
    assert part == "5. slowest kernels" and "ms in kernels" in case
    assert 0 < len(kernels) <= 15 and float(kernels[0].split(" ms")[0]) > 0


@pytest.mark.once("torch")
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
        variant="objective",
    )  # fmt: skip
    monkeypatch.setattr(training_step, "VOCABULARY_SIZE", 300)
    for part in training_step.build_batch(case):
        assert all(isinstance(array, np.ndarray) for array in part.values())
    assert np.isfinite(float(training_step.pytorch_step(case)()))


STEPS = """\
import json, pathlib, sys
case, log = json.loads(sys.argv[1]), pathlib.Path(__file__).with_name("log.txt")
for turn in range(3):
    log.open("a").write(case["library"] + " ")
    print("noise", "{}", sep="\\n", flush=True)
    sys.stdin.readline()
    if case["library"] == "transformers" and turn == 1:
        raise RuntimeError("out of memory")
print(json.dumps({"step_ms": 1.0}))
"""


@pytest.mark.once("torch")
def test_libraries_run_in_turns(tmp_path, monkeypatch):
    import gpu

    (tmp_path / "steps.py").write_text(STEPS)
    monkeypatch.setattr(gpu, "PROGRAM", tmp_path / "steps.py")
    cases = [{"library": name, "card": "CPU"} for name in ["torch", "transformers", "jax"]]
    torch, transformers, jax = gpu.measure_in_turns(cases)
    assert torch == jax == {"step_ms": 1.0}
    assert transformers == {"error": "RuntimeError: out of memory"}
    order = (tmp_path / "log.txt").read_text().split()
    assert order == 2 * ["torch", "transformers", "jax"] + ["torch", "jax"]


@pytest.mark.once("torch")
@pytest.mark.long
@pytest.mark.parametrize("library", ["torch", "released", "keras_hub/torch"])
def test_parts_run_on_a_cpu(library):
    part = {"released": 6}.get(library, 2)
    options = ["--size=tiny", "--length=16", "--batch_size=1", "--steps=1"]
    out, _ = run_python(PROGRAM, *options, "--device=cpu", f"--part={part}", f"--library={library}")
    assert " ms " in out.splitlines()[2]
