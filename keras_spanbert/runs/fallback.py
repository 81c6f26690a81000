"""Replaces settings that this backend or machine cannot run, with a warning."""

import logging

import keras
import numpy as np
from keras import ops

from keras_spanbert.distribution import all_gather, without_distribution
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.runs import cost

_HALF = ("bfloat16", "float16")
# Size of the matrices whose products are timed: small, because the slowest take seconds.
_SIDE = 512


def dtype_policy(name: str, may_be_slow: bool = False) -> str:
    """Returns a dtype policy that a model can be trained with on this backend and device.

    Args:
        name: string, the name of a Keras dtype policy.
        may_be_slow: bool. Whether to keep 16-bit policies that are not faster than
            float32, such as that of a resumed run. Defaults to `False`.

    Returns:
        `name`, or another policy with a warning. A policy with 16-bit weights
        becomes a mixed policy, because such weights lose small updates. The result
        is `"float32"` if the encoder cannot compute in the policy's dtype, if the
        backend uses another dtype (for example, JAX uses float32 for float64 by
        default), or if a 16-bit dtype is slow on this CPU.

    Raises:
        ValueError: if `name` is not a policy.

    Example:
    ```python
    keras.config.set_dtype_policy(fallback.dtype_policy("mixed_bfloat16"))
    ```
    """
    if keras.dtype_policies.get(name).variable_dtype in _HALF:
        _warn("dtype policy", name, "16-bit weights lose small updates", f"mixed_{name}")
        name = f"mixed_{name}"
    if name == "float32":
        return name
    dtype = keras.dtype_policies.get(name).compute_dtype
    try:
        found = _probe(name)
        reason = None if found == dtype else f"computes in {found}"
    except Exception as error:  # Each backend raises errors of its own.
        _probe("float32")  # If this fails too, the dtype is not the reason.
        reason = _reason(error)
    if reason is not None:
        _warn("dtype policy", name, reason, "float32")
        return "float32"
    # All processes must choose the same policy.
    if not may_be_slow and dtype in _HALF and any(all_gather(int(_is_slow(dtype)))):
        logging.getLogger("keras_spanbert").warning(
            "With %s, dtype policy=%s is not faster than float32 on this CPU. Using float32 "
            "instead",
            *(keras.backend.backend(), name),
        )
        return "float32"
    return name


def _is_slow(dtype):
    """Returns whether a 16-bit dtype is slow: JAX on CPUs, or below half of float32's rate."""
    if cost.has_accelerator():
        return False
    # With JAX, steps of a mini model took 1.01 to 1.17 times as long as in float32
    # (`benchmarks/training_step.py --size=mini --variants=both`).
    if keras.backend.backend() == "jax":
        return True
    # Without instructions for the dtype, PyTorch takes hundreds of times as long.
    rates = [cost.matrix_rate(each, side=_SIDE) for each in (dtype, "float32")]
    return rates[0] < 0.5 * rates[1]


def jit_compile(value):
    """Returns `value`, or `False` with a warning if PyTorch has no compiler to use."""
    if value is not True or keras.backend.backend() != "torch":
        return value
    import torch

    try:
        torch.compile(lambda x: x + 1)(ops.ones(2))
    except Exception as error:
        _warn("jit_compile", value, _reason(error), False)
        return False
    return value


def _probe(policy):
    """Returns the dtype of a small encoder's outputs, computed on this process's device."""
    with without_distribution():
        sizes = SpanBertBackbone.SIZES["tiny"]
        backbone = SpanBertBackbone(4, dtype=policy, name="probe", **sizes)
        ids = np.zeros((1, 2), "int32")
        outputs = backbone({"token_ids": ids, "segment_ids": ids}, training=True)
        # Some backends fail only when the values are read.
        ops.convert_to_numpy(ops.cast(outputs, "float32"))
    return keras.backend.standardize_dtype(outputs.dtype)


def _reason(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _warn(what, value, reason, instead):
    logging.getLogger("keras_spanbert").warning(
        "%s=%s does not work with %s on this machine (%s). Using %s instead",
        *(what, value, keras.backend.backend(), reason, instead),
    )
