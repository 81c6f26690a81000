import functools

import keras
import pytest
import train_script
from absl.testing import flagsaver

from keras_spanbert.recipes import fit
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.run import parse_flags
from keras_spanbert.runs import cost, dtypes

BACKEND = keras.backend.backend()


@pytest.fixture
def cpu_flags(tmp_path, monkeypatch):
    """Writes the flags of a CPU."""

    def write(flags):
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags} sse\n")

    monkeypatch.setattr(dtypes, "_CPU_INFO", str(tmp_path / "cpuinfo"))
    monkeypatch.setattr(cost, "has_accelerator", lambda: False)
    return write


@pytest.mark.parametrize(
    "name, flags, is_emulated",
    [
        ("float32", "", False),
        ("mixed_bfloat16", "avx512f amx_bf16", False),
        ("mixed_bfloat16", "avx512_bf16", False),
        ("mixed_bfloat16", "avx512f avx512_fp16", True),
        ("mixed_float16", "avx512_bf16", True),
    ],
)
def test_flag_is_obeyed_with_a_warning_on_cpus_that_emulate(
    name, flags, is_emulated, cpu_flags, caplog
):
    cpu_flags(flags)
    assert dtypes.dtype_policy(name) == name
    if is_emulated or BACKEND == "jax" and name != "float32":  # JAX has no such instructions.
        [record] = caplog.records
        dtype = name.removeprefix("mixed_")
        assert record.getMessage() == (
            f"With {BACKEND}, this CPU emulates {dtype}: --dtype={name} can be much slower than "
            "float32"
        )
    else:
        assert not caplog.records


def test_no_warning_on_accelerators_and_other_systems(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(dtypes, "_CPU_INFO", str(tmp_path / "none"))
    monkeypatch.setattr(cost, "has_accelerator", lambda: BACKEND == "jax")
    assert dtypes.dtype_policy("mixed_bfloat16") == "mixed_bfloat16"
    assert not caplog.records


@pytest.mark.parametrize("name", ["float64", "float8_from_float32"])
def test_policy_that_cannot_be_used_is_an_error(name, caplog):
    if name == "float64" and BACKEND != "jax":  # JAX converts it to float32.
        assert dtypes.dtype_policy(name) == name and not caplog.records
        return
    with pytest.raises(
        ValueError, match=f"`--dtype` must .* Received: --dtype={name}, .*{BACKEND}"
    ):
        dtypes.dtype_policy(name)


@pytest.mark.skipif(BACKEND != "jax", reason="the other backends compute in float64")
def test_train_py_ends_with_one_line(texts, tmp_path, capsys):
    flags = [f"--train_data={texts}", f"--output={tmp_path / 'run'}", "--dtype=float64"]
    train_script.check_fails(capsys, flags, "--dtype=float64", "computes in float32")
    assert not (tmp_path / "run").exists()


def test_sixteen_bit_weights_become_a_mixed_policy(cpu_flags, caplog):
    cpu_flags("amx_bf16")
    assert dtypes.dtype_policy("bfloat16") == "mixed_bfloat16"
    assert "Using --dtype=mixed_bfloat16" in caplog.records[0].getMessage()


def test_check_keeps_the_distribution():
    engine = object()
    keras.distribution.set_distribution(engine)
    try:
        dtypes.dtype_policy("mixed_bfloat16")
        assert keras.distribution.distribution() is engine
    finally:
        keras.distribution.set_distribution(None)


def test_other_errors_are_raised(monkeypatch):
    with pytest.raises(ValueError, match="float23"):
        dtypes.dtype_policy("float23")

    def out_of_memory(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(dtypes, "SpanBertBackbone", out_of_memory)
    out_of_memory.SIZES = {"tiny": {}}
    with pytest.raises(RuntimeError, match="out of memory"):
        dtypes.dtype_policy("mixed_bfloat16")


@pytest.mark.skipif(BACKEND != "torch", reason="specific to PyTorch")
def test_steps_are_not_compiled_without_a_compiler(monkeypatch, caplog):
    import torch

    def no_compiler(function):
        raise RuntimeError

    def jit_compile(value):
        with flagsaver.flagsaver():
            parse_flags(["train.py"])
            FLAGS.jit_compile = value
            return fit.jit_compile()

    # The default compiler needs a C++ compiler and 20 s.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    assert jit_compile("true") is True
    monkeypatch.setattr(torch, "compile", no_compiler)
    assert jit_compile("true") is False
    [warning] = [record for record in caplog.records if record.name == "keras_spanbert"]
    assert "--jit_compile" in warning.getMessage() and "RuntimeError" in warning.getMessage()
    assert jit_compile("auto") == "auto" and jit_compile("false") is False
