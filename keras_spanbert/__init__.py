"""SpanBERT in Keras 3: pretraining, fine-tuning and serving.

The public names are those of `keras_spanbert.api`. They are imported when the
first one is asked for, or together with Keras: what does without a backend, as
the flags of `spanbert-train`, does not wait for one.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_spanbert.api import *  # noqa: F403

__version__ = "0.2.0"

_API = f"{__name__}.api"


def __getattr__(name):
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    try:
        return getattr(importlib.import_module(_API), name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__():
    return [*globals(), *importlib.import_module(_API).__all__]


class _ImportWithKeras(importlib.abc.MetaPathFinder):
    """Imports the classes behind Keras, which looks them up by name in the files it loads."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("keras")
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_import(module):
            execute(module)
            importlib.import_module(_API)

        spec.loader.exec_module = execute_and_import
        return spec


if "keras" in sys.modules:
    importlib.import_module(_API)
else:
    sys.meta_path.insert(0, _ImportWithKeras())
