"""Versions of the packages that a run uses, found without importing them."""

import platform
from importlib import metadata

_PACKAGES = [
    "keras-spanbert",
    "keras",
    "keras-hub",
    "tensorflow",
    "tensorflow-text",
    "jax",
    "torch",
    "tokenizers",
    "numpy",
]


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the installed packages, by name."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return found
