"""SpanBERT in Keras 3: pretraining, fine-tuning and serving.

The public names are those of `keras_spanbert.api`.
"""

import importlib
import importlib.util
import os
from typing import TYPE_CHECKING

from keras_spanbert import tensorflow_log

__version__ = "0.2.0"

# The commands read their flags before a backend is loaded: they set this variable, and the names
# are imported when the first one is asked for.
_IS_LAZY = os.environ.pop("KERAS_SPANBERT_LAZY", "") == "1"

if TYPE_CHECKING or not _IS_LAZY:
    with tensorflow_log.held_back():
        from keras_spanbert.api import *  # noqa: F403
        from keras_spanbert.api import __all__  # noqa: F401


def __getattr__(name):
    is_module = importlib.util.find_spec(f"{__name__}.{name}") is not None
    # Of a module, `from keras_spanbert import files` then imports that alone.
    if not (name.startswith("_") or is_module):
        with tensorflow_log.held_back():
            api = importlib.import_module(f"{__name__}.api")
        if name in api.__all__:
            return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
