"""SpanBERT in Keras 3: pretraining, fine-tuning and serving.

`keras_spanbert.api` lists the public names.
"""

import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from keras_spanbert import tensorflow_log
from keras_spanbert.optional import exit_without_backend

__version__ = "0.2.0"

# The commands read their flags before a backend is loaded. They set this variable, and the public
# names are imported on first use.
_IS_LAZY = os.environ.pop("KERAS_SPANBERT_LAZY", "") == "1"

# `python -m keras_spanbert.checkpoints` imports this package before its own module.
if sys.argv[:1] == ["-m"]:
    for _program in [arg for arg in sys.orig_argv if arg.startswith(f"{__name__}.")][:1]:
        exit_without_backend(f"python -m {_program}")

if TYPE_CHECKING or not _IS_LAZY:
    with tensorflow_log.suppress_startup_log():
        from keras_spanbert.api import *  # noqa: F403
        from keras_spanbert.api import __all__  # noqa: F401


def __getattr__(name):
    is_module = importlib.util.find_spec(f"{__name__}.{name}") is not None
    # Names of submodules are left out, so that `from keras_spanbert import files` does not import
    # the whole API.
    if not (name.startswith("_") or is_module):
        with tensorflow_log.suppress_startup_log():
            api = importlib.import_module(f"{__name__}.api")
        if name in api.__all__:
            return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
