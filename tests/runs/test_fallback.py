import functools

import keras
import pytest

from keras_spanbert.runs import cost, fallback

BACKEND = keras.backend.backend()


@pytest.fixture
def rates(monkeypatch):
    """Rates of matrix products by dtype. By default, 16-bit products are faster."""
    rates = {"bfloat16": 2.0, "float16": 2.0, "float32": 1.0}
    monkeypatch.setattr(cost, "matrix_rate", lambda dtype, side: rates[dtype])
    return rates


@pytest.mark.parametrize("name", ["float32", "mixed_bfloat16"])
def test_supported_dtypes(name, rates, caplog):
    may_be_slow = BACKEND == "jax"  # It always is on CPUs.
    assert fallback.dtype_policy(name, may_be_slow) == name
    assert not caplog.records


@pytest.mark.parametrize("name", ["mixed_float16", "bfloat16"])
def test_cpu_that_is_slow_in_sixteen_bits_uses_float32(name, rates, monkeypatch, caplog):
    if BACKEND != "jax":
        rates.update(bfloat16=0.4, float16=0.4)
    assert fallback.dtype_policy(name) == "float32"
    message = caplog.records[-1].getMessage()
    assert message.startswith(f"With {BACKEND}, dtype policy=mixed_")
    assert message.endswith("is not faster than float32 on this CPU. Using float32 instead")
    monkeypatch.setattr(cost, "has_accelerator", lambda: True)
    assert fallback.dtype_policy("mixed_bfloat16") == "mixed_bfloat16"


@pytest.mark.parametrize("name", ["float64", "float8_from_float32"])
def test_unsupported_dtype_falls_back_to_float32_with_a_warning(name, caplog):
    found = fallback.dtype_policy(name)
    if name == "float64" and BACKEND != "jax":  # JAX converts it to float32.
        assert found == "float64" and not caplog.records
        return
    assert found == "float32"
    [record] = caplog.records
    assert name in record.getMessage() and BACKEND in record.getMessage()


def test_sixteen_bit_weights_fall_back_to_mixed_policy(rates, caplog):
    assert fallback.dtype_policy("bfloat16", may_be_slow=True) == "mixed_bfloat16"
    [record] = caplog.records
    assert "mixed_bfloat16" in record.getMessage()


def test_other_errors_are_raised(monkeypatch):
    with pytest.raises(ValueError, match="float23"):
        fallback.dtype_policy("float23")

    def out_of_memory(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(fallback, "SpanBertBackbone", out_of_memory)
    out_of_memory.SIZES = {"tiny": {}}
    with pytest.raises(RuntimeError, match="out of memory"):
        fallback.dtype_policy("mixed_bfloat16")


@pytest.mark.skipif(BACKEND != "torch", reason="specific to PyTorch")
def test_steps_are_not_compiled_without_a_compiler(monkeypatch, caplog):
    import torch

    def no_compiler(function):
        raise RuntimeError

    # The default compiler needs a C++ compiler and 20 s.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    assert fallback.jit_compile(True) is True
    monkeypatch.setattr(torch, "compile", no_compiler)
    assert fallback.jit_compile(True) is False
    [warning] = [record for record in caplog.records if record.name == "keras_spanbert"]
    assert "jit_compile" in warning.getMessage() and "RuntimeError" in warning.getMessage()
    assert fallback.jit_compile("auto") == "auto" and fallback.jit_compile(False) is False
