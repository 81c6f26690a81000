"""Calls of stores: which are tried again, and what is told of errors."""

import errno
import os
import random
import re
import time
from collections.abc import Callable

SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
# Of presets, which keras-hub and Hugging Face's library download.
_HANDLES = ("hf", "kaggle", "modelscope")
# Their paths begin with an owner and a name, or a path and a revision: a colon is of no password.
_REPOSITORIES = ("github", "git")
# They give parts of the very object that was opened alone.
PINNED = ("s3", "s3a")
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
# How often something is tried, and the seconds before the second time, which double then.
_ATTEMPTS = 6
_FIRST_PAUSE = 0.5
# A store's own tries within one of ours, so that a part of a large object is sent alone again.
_S3 = {
    "config_kwargs": {
        "connect_timeout": 10,
        "read_timeout": 20,
        "retries": {"mode": "standard", "total_max_attempts": 2},
    }
}
_OPTIONS = {"s3": _S3, "s3a": _S3}
# What the stores call it, the best first: of HTTP "Last-Modified", of FTP "modify", of HDFS
# "modificationTime".
_TAGS = (
    *("ETag", "etag", "generation", "LastModified", "mtime", "updated", "created"),
    *("Last-Modified", "modify", "modificationTime"),
)


class StoreError(OSError, ValueError):
    """What the user can mend: a store, bucket, object or permission that is not there."""


def is_store(path: str | os.PathLike) -> bool:
    """Whether a path leads to a store, and not to a file or a handle of a preset.

    Raises:
        StoreError: where it has a password, which messages and records would tell.
    """
    match = SCHEME.match(path) if isinstance(path, str) else None
    if match is None or match[1].lower() in _HANDLES:
        return False
    place = path[match.end() :].partition("/")[0]
    if ":" in place.rpartition("@")[0] and match[1].lower() not in _REPOSITORIES:
        raise StoreError(
            "The path of a store must have no password, which fsspec's configuration takes. "
            f"Received: {path.replace(place.rpartition('@')[0], '***', 1)}"
        )
    return True


def join(folder: str, *names: str) -> str:
    """A path in a folder, of a store or local."""
    if is_store(folder):
        return "/".join([folder.rstrip("/"), *names])
    return os.path.join(folder, *names)


def call(path: str, function: Callable):
    """Calls a function of a file system and a path in it, again where the store fails."""
    for attempt in range(_ATTEMPTS):
        try:
            return function(*_file_system(path))
        except Exception as error:  # Of many libraries' many classes.
            _raise_what_stays(error, path)
            if attempt + 1 == _ATTEMPTS:
                reason = str(error).strip().splitlines() or [""]
                raise OSError(
                    errno.EIO,
                    f"The store failed {_ATTEMPTS} times: {type(error).__name__}: {reason[0]}",
                    path,
                ) from None
        time.sleep(_FIRST_PAUSE * 2**attempt * (0.5 + random.random()))


def _file_system(path):
    import fsspec

    scheme = SCHEME.match(path)[1].lower()
    if scheme not in fsspec.available_protocols():
        raise StoreError(f"A store must be one that fsspec knows. Received: {path}")
    # The user's own, of fsspec's files and environment variables, come first.
    options = {**_OPTIONS.get(scheme, {}), **fsspec.config.conf.get(scheme, {})}
    try:
        fs, key = fsspec.core.url_to_fs(path, use_listings_cache=False, **options)
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        how = f"pip install keras-spanbert[{extra}]" if extra else str(error)
        raise StoreError(f"{scheme}:// takes another package ({how}). Received: {path}") from None
    if scheme in _OPTIONS:
        fs.retries = 1  # They would multiply with ours.
    return fs, key


def _raise_what_stays(error, path):
    """Raises what trying again would not change, in our words."""
    kind = type(error).__name__
    if isinstance(error, StoreError):
        raise error
    if kind == "FileExpired" or "pre-condition" in str(error):
        raise changed(path) from None
    if isinstance(error, FileNotFoundError):
        raise FileNotFoundError(errno.ENOENT, "No such object, folder or bucket", path) from None
    if isinstance(error, PermissionError) or "redential" in kind:
        text = " ".join(str(error).split()) or kind
        raise StoreError(f"A store must let you in. Received: {path}: {text}") from None
    if type(error) is ValueError:
        raise StoreError(f"A store must do what is asked. Received: {path}: {error}") from None
    if isinstance(error, (TypeError, AttributeError, NotImplementedError)):
        raise error


def changed(path: str) -> OSError:
    """The error of an object that is not the one of before."""
    return OSError(errno.EIO, "Changed since it was first read", path)


def info_of(path: str) -> tuple:
    """What `tag_of` gives of an object."""
    return call(path, lambda fs, key: tag_of(fs.info(key)))


def tag_of(info: dict) -> tuple:
    """Size of an object, and what another one in its place would not have."""
    tag = next((info[name] for name in _TAGS if info.get(name)), None)
    # Some stores give one thing in two forms, in listings and alone.
    if hasattr(tag, "timestamp"):
        tag = tag.timestamp()
    return info["size"], tag and str(tag).removeprefix("W/").strip('"')
