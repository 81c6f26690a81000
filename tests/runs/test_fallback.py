import functools

import keras
import pytest

from keras_spanbert.runs import fallback

BACKEND = keras.backend.backend()


@pytest.mark.parametrize("name", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_dtypes_that_each_backend_has(name, caplog):
    assert fallback.dtype_policy(name) == name
    assert not caplog.records


def test_float64_is_not_computed_in_less_unnoticed(caplog):
    found = fallback.dtype_policy("float64")
    if BACKEND == "jax":  # Which makes float32 of it.
        assert found == "float32"
        [record] = caplog.records
        assert "float64" in record.getMessage() and "float32" in record.getMessage()
    else:
        assert found == "float64" and not caplog.records


def test_dtype_that_layers_refuse_gives_way_to_float32_with_one_warning(caplog):
    assert fallback.dtype_policy("float8_from_float32") == "float32"
    [record] = caplog.records
    assert "float8_from_float32" in record.getMessage() and BACKEND in record.getMessage()


def test_weights_of_16_bits_give_way_to_a_mixed_policy_with_one_warning(caplog):
    assert fallback.dtype_policy("bfloat16") == "mixed_bfloat16"
    [record] = caplog.records
    assert "mixed_bfloat16" in record.getMessage()


def test_unknown_dtype_is_an_error():
    with pytest.raises(ValueError, match="float23"):
        fallback.dtype_policy("float23")


def test_what_fails_in_float32_too_is_not_for_the_dtype(monkeypatch):
    def out_of_memory(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(fallback, "SpanBertBackbone", out_of_memory)
    out_of_memory.SIZES = {"tiny": {}}
    with pytest.raises(RuntimeError, match="out of memory"):
        fallback.dtype_policy("mixed_bfloat16")


@pytest.mark.skipif(BACKEND != "torch", reason="the others bring their compilers")
def test_without_a_compiler_steps_are_not_compiled(monkeypatch, caplog):
    import torch

    def no_compiler(function):
        raise RuntimeError

    # Its own compiler takes a C++ compiler and 20 s.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    assert fallback.jit_compile(True) is True
    monkeypatch.setattr(torch, "compile", no_compiler)
    assert fallback.jit_compile(True) is False
    [warning] = [record for record in caplog.records if record.name == "keras_spanbert"]
    assert "jit_compile" in warning.getMessage() and "RuntimeError" in warning.getMessage()
    assert fallback.jit_compile("auto") == "auto" and fallback.jit_compile(False) is False
