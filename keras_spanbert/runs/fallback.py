"""What this backend and machine lack, told once, and what is taken instead."""

import logging

import keras
import numpy as np
from keras import ops

from keras_spanbert.distribution import without_distribution
from keras_spanbert.models.backbone import SpanBertBackbone


def dtype_policy(name: str) -> str:
    """A dtype policy that a model can be trained in with this backend and device.

    Args:
        name: string, the name of a Keras dtype policy.

    Returns:
        `name`, or with a warning another one: `"float32"` where the encoder
        cannot be computed so or would be in another dtype (float64 on JAX, for
        example, which takes float32 unless it is told otherwise), and the mixed
        policy for weights of 16 bits, in which AdamW's steps vanish.

    Raises:
        ValueError: where `name` is no policy.

    Example:
    ```python
    keras.config.set_dtype_policy(fallback.dtype_policy("mixed_bfloat16"))
    ```
    """
    if keras.dtype_policies.get(name).variable_dtype in ("bfloat16", "float16"):
        _warn("dtype policy", name, "weights of 16 bits do not learn", f"mixed_{name}")
        name = f"mixed_{name}"
    if name == "float32":
        return name
    dtype = keras.dtype_policies.get(name).compute_dtype
    try:
        found = _probe(name)
        reason = None if found == dtype else f"computes in {found}"
    except Exception as error:  # Each backend has its own.
        _probe("float32")  # Else it was not for the dtype.
        reason = _reason(error)
    if reason is None:
        return name
    _warn("dtype policy", name, reason, "float32")
    return "float32"


def jit_compile(value):
    """`value`, or `False` with a warning where PyTorch has no compiler to do it with."""
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
    """The dtype that a small encoder's outputs have, computed on this process's device."""
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
        "%s=%s is not to be had with %s here (%s): %s is taken instead",
        *(what, value, keras.backend.backend(), reason, instead),
    )
