"""A TensorFlow process that exports the models of other backends."""

import importlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import keras

from keras_spanbert.layers.sublayers import flatten_sublayers

_COMMAND = f"import sys; from {__name__} import main; main(*sys.argv[1:])"
# Exit code of the process if it cannot write its files.
_CANNOT_WRITE = 74


def check_is_registered(model: keras.Model) -> None:
    """Raises `ValueError` if another process cannot find the model's class: a subclass."""
    if _registered(type(model).__name__) is not type(model):
        raise ValueError(
            "With JAX and PyTorch a model is exported by a TensorFlow process, so `model` must not "
            f"be of a subclass. Received: {model!r}"
        )


def run_on_tensorflow(function: Callable, model: keras.Model, preset: str, *arguments) -> None:
    """Calls a function of this package with a model and `arguments` in a TensorFlow process.

    The model is saved to and loaded from the folder `preset`. JSON must preserve the arguments.
    Raises `OSError` if the function cannot write its files, and `RuntimeError` if it fails in
    another way, with the output of the process.
    """
    # This package's folder comes first in the path. The current folder is not in the path.
    root = str(pathlib.Path(__file__).parents[2])
    python_path = [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "CUDA_VISIBLE_DEVICES": "",  # The calling process may hold the GPU's memory.
        "PYTHONIOENCODING": "utf-8:backslashreplace",
        "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
    }
    model.save_to_preset(preset)
    is_quantized = any(layer.quantization_mode for layer in flatten_sublayers([model]))
    # A quantized preset has the policies of its layers, and a dtype would convert it.
    dtype = "" if is_quantized else getattr(model, "backbone", model).dtype_policy.name
    of_function = [function.__module__, function.__name__, json.dumps(arguments)]
    done = subprocess.run(
        [sys.executable, "-P", "-c", _COMMAND, type(model).__name__, preset, dtype, *of_function],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode == _CANNOT_WRITE:
        raise OSError(done.stdout.splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"The export under TensorFlow failed:\n{done.stdout}")


def main(
    class_name: str, preset: str, dtype: str, module: str, function: str, arguments: str
) -> None:
    """Runs in the process of `run_on_tensorflow`."""
    model = _registered(class_name).from_preset(preset, dtype=dtype or None)
    call = getattr(importlib.import_module(module), function)
    try:
        call(model, *json.loads(arguments))
    except OSError as error:
        print(" ".join(str(error).split()), flush=True)
        os._exit(_CANNOT_WRITE)  # At once, so that the error is the last line.


def _registered(class_name):
    return keras.saving.get_registered_object(f"keras_spanbert>{class_name}")
