"""Checks that a model can be trained with a dtype policy on this machine."""

import logging
import warnings

import keras
import numpy as np
from keras import ops

from keras_spanbert.distribution import without_distribution
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.runs import cost

# The flags in Linux's /proc/cpuinfo of CPUs with instructions for a dtype, on x86 and ARM.
_INSTRUCTIONS = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}
_CPU_INFO = "/proc/cpuinfo"


def dtype_policy(name: str) -> str:
    """Returns the dtype policy to train with. Warns if the CPU emulates its dtype.

    This is `name`, or a mixed policy if `name` is one with 16-bit weights. Raises `ValueError` if
    the encoder cannot compute in its dtype with this backend. For example, JAX computes in float32
    instead of float64.
    """
    logger = logging.getLogger("keras_spanbert")
    if keras.dtype_policies.get(name).variable_dtype in _INSTRUCTIONS:
        logger.warning("16-bit weights lose small updates. Using --dtype=mixed_%s instead", name)
        name = f"mixed_{name}"
    if name == "float32":
        return name
    dtype = keras.dtype_policies.get(name).compute_dtype
    try:
        found = _probe(name)
        reason = None if found == dtype else f"computes in {found}"
    except Exception as error:  # Each backend raises errors of its own.
        _probe("float32")  # If this fails too, the dtype is not the reason.
        reason = f"fails with {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if reason is not None:
        raise ValueError(
            "`--dtype` must be a policy that the backend can compute in on this machine. Received: "
            f"--dtype={name}, with which {keras.backend.backend()} {reason}"
        )
    if _is_emulated(dtype):
        logger.warning(
            "With %s, this CPU emulates %s: --dtype=%s can be much slower than float32",
            *(keras.backend.backend(), dtype, name),
        )
    return name


def _is_emulated(dtype):
    """Returns whether a CPU without instructions for a 16-bit dtype computes in it."""
    if dtype not in _INSTRUCTIONS or cost.has_accelerator():
        return False
    # JAX does not use the instructions. Steps of a mini model took 1.01 to 1.17 times as long as in
    # float32 (`benchmarks/training_step.py --size=mini --variants=both`).
    if keras.backend.backend() == "jax":
        return True
    try:
        with open(_CPU_INFO, encoding="utf-8") as file:
            return not _INSTRUCTIONS[dtype] & set(file.read().split())
    except OSError:  # Not Linux.
        return False


def _probe(policy):
    """Returns the dtype of a small encoder's outputs, computed on this process's device."""
    with without_distribution(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns about float64.
        sizes = SpanBertBackbone.SIZES["tiny"]
        backbone = SpanBertBackbone(4, dtype=policy, name="probe", **sizes)
        ids = np.zeros((1, 2), "int32")
        outputs = backbone({"token_ids": ids, "segment_ids": ids}, training=True)
        # Some backends fail only when the values are read.
        ops.convert_to_numpy(ops.cast(outputs, "float32"))
    return keras.backend.standardize_dtype(outputs.dtype)
