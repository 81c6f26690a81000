"""What this backend and machine lack, told once, and what is taken instead."""

import logging

import keras
import numpy as np
from keras import ops

from keras_spanbert.models.backbone import SpanBertBackbone


def dtype_policy(name):
    """A dtype policy that the backend computes in on this device.

    Args:
        name: string, the name of a Keras dtype policy.

    Returns:
        `name`, or `"float32"`, with a warning, where the encoder cannot be
        computed so or would be in another dtype: float64 on JAX, for example,
        which takes float32 unless it is told otherwise.

    Raises:
        ValueError: where `name` is no policy.

    Example:
    ```python
    keras.config.set_dtype_policy(fallback.dtype_policy("mixed_bfloat16"))
    ```
    """
    dtype = keras.dtype_policies.get(name).compute_dtype
    if name == "float32":
        return name
    try:
        backbone = SpanBertBackbone(4, dtype=name, name="probe", **SpanBertBackbone.SIZES["tiny"])
        ids = np.zeros((1, 2), "int32")
        outputs = backbone({"token_ids": ids, "segment_ids": ids}, training=True)
        found = keras.backend.standardize_dtype(outputs.dtype)
        ops.convert_to_numpy(ops.cast(outputs, "float32"))  # Some fail only then.
        reason = None if found == dtype else f"computes in {found}"
    except Exception as error:  # Each backend has its own.
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if reason is None:
        return name
    _warn("dtype policy %s", name, "float32", reason)
    return "float32"


def jit_compile(value):
    """`value`, or `False` with a warning where PyTorch has no compiler to do it with."""
    if value is not True or keras.backend.backend() != "torch":
        return value
    import torch

    try:
        torch.compile(lambda x: x + 1)(ops.ones(2))
    except Exception as error:
        _warn("jit_compile=%s", value, False, str(error).strip().splitlines()[0][:200])
        return False
    return value


def _warn(what, value, instead, reason):
    logging.getLogger("keras_spanbert").warning(
        f"{what} is not to be had with %s here (%s): %s is taken instead",
        value,
        keras.backend.backend(),
        reason,
        instead,
    )
