"""Paths in stores that fsspec supports, such as `s3://` and `gs://`, and fsspec's file systems.

A path is in a store if it starts with the store's scheme and `://`.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator

from keras_spanbert.checks import check_path
from keras_spanbert.optional import missing

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
# Schemes of presets that keras-hub and Hugging Face's library download.
_HANDLES = ("hf", "kaggle", "modelscope")
# Schemes whose paths may have a colon that does not precede a password, such as `owner:name`.
_REPOSITORIES = ("github", "git")
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}


class StoreError(OSError, ValueError):
    """An error that the user can fix: a missing store, bucket, object or permission."""


def is_store(path: str | os.PathLike) -> bool:
    """Returns whether a path is in a store, and is not a local file or a handle of a preset."""
    match = _SCHEME.match(path) if isinstance(path, str) else None
    if match is None or match[1].lower() in _HANDLES:
        return False
    place = path[match.end() :].partition("/")[0]
    if ":" in place.rpartition("@")[0] and match[1].lower() not in _REPOSITORIES:
        # Messages and records would reveal it.
        raise StoreError(
            "The path of a store must not contain a password: put it into fsspec's configuration. "
            f"Received: {path.replace(place.rpartition('@')[0], '***', 1)}"
        )
    return True


def is_local(path: str | os.PathLike) -> bool:
    """Returns whether a path is on the disk. Raises a `ValueError` if it is no path."""
    return not is_store(check_path("path", path))


def join(folder: str, *names: str) -> str:
    """Returns the path of a name in a folder, which may be local or in a store."""
    if is_local(folder):
        return os.path.join(folder, *names)
    return "/".join([folder.rstrip("/"), *names])  # A name may start with "/".


@contextlib.contextmanager
def file_system(path: str | os.PathLike) -> Iterator[tuple]:
    """Yields the file system of a path, local or in a store, and the path as it takes it.

    Raises a `StoreError` if the user can fix an error of the store, otherwise an `OSError`.
    """
    import fsspec  # Slow.

    if is_local(path):
        # Not `abspath`: it drops a link before "..".
        yield fsspec.filesystem("file"), os.path.join(os.getcwd(), path)
        return
    scheme = _SCHEME.match(path)[1].lower()
    if scheme not in {*fsspec.available_protocols(), *fsspec.registry}:
        raise StoreError(
            f"The scheme of a store must be one that fsspec supports. Received: {path}"
        )
    try:
        yield fsspec.core.url_to_fs(path, use_listings_cache=False)
    except (StoreError, TypeError, AttributeError, NotImplementedError):
        raise
    except ImportError as error:
        package = _PACKAGES.get(scheme)
        message = package and missing(package, f"{scheme}://")
        message = message or f"{scheme}:// needs another package: {error}"
        raise StoreError(f"{message}. Received: {path}") from None
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "No such object, folder or bucket", path) from None
    except Exception as error:  # Each library has errors of its own.
        kind, text = type(error).__name__, " ".join(str(error).split())
        if isinstance(error, PermissionError) or "redential" in kind:
            message = f"The store denies access. Received: {path}: {text or kind}"
            raise StoreError(message) from None
        if type(error) is ValueError:
            message = f"The store cannot do what is asked. Received: {path}: {text}"
            raise StoreError(message) from None
        raise OSError(errno.EIO, f"The store failed: {kind}: {text}", path) from None
