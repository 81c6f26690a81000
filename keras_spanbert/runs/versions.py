"""Versions of what a run computes with, found without loading any of it."""

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
    """Of Python and of the packages that are installed, by name."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return found
