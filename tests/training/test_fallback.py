import keras
import pytest

from keras_spanbert.training import fallback

BACKEND = keras.backend.backend()


@pytest.mark.parametrize("name", ["float32", "bfloat16", "mixed_bfloat16", "mixed_float16"])
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


def test_dtype_without_kernels_gives_way_to_float32_with_one_warning(caplog):
    assert fallback.dtype_policy("float8_from_float32") == "float32"
    [record] = caplog.records
    assert "float8_from_float32" in record.getMessage() and BACKEND in record.getMessage()


def test_unknown_dtype_is_an_error():
    with pytest.raises(ValueError, match="float23"):
        fallback.dtype_policy("float23")


@pytest.mark.skipif(BACKEND != "torch", reason="the others bring their compilers")
def test_without_a_compiler_steps_are_not_compiled(monkeypatch, caplog):
    import torch

    torch._dynamo.reset()
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("no-such-compiler",))
    assert fallback.jit_compile(True) is False
    [warning] = [r for r in caplog.records if r.name == "keras_spanbert"]
    assert "jit_compile" in warning.getMessage()
    assert fallback.jit_compile("auto") == "auto" and fallback.jit_compile(False) is False
