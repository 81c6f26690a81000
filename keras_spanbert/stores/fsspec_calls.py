"""Calls to stores, with retries and readable errors."""

import errno
import functools
import os
import random
import re
import time
from collections.abc import Callable

from keras_spanbert.checks import check_path
from keras_spanbert.optional import missing

SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
# Schemes of presets that keras-hub and Hugging Face's library download.
_HANDLES = ("hf", "kaggle", "modelscope")
# Schemes whose paths may have a colon that does not precede a password, such as `owner:name`.
_REPOSITORIES = ("github", "git")
# Schemes whose reads are pinned to the version of the object that was opened.
PINNED = ("s3", "s3a")
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
# Number of attempts, and the seconds before the second one, which double after each attempt.
_ATTEMPTS = 6
_FIRST_PAUSE = 0.5
# The client's own retries per attempt, so that one part of a large object can be sent again.
_S3 = {
    "config_kwargs": {
        "connect_timeout": 10,
        "read_timeout": 20,
        "retries": {"mode": "standard", "total_max_attempts": 2},
    }
}
_OPTIONS = {"s3": _S3, "s3a": _S3}
# Not the global generator: Keras draws the seeds of layers from it.
_JITTER = random.Random()
# The names of version tags in the stores' answers, the best first. HTTP has "Last-Modified", FTP
# "modify", HDFS "modificationTime".
_TAGS = (
    *("ETag", "etag", "generation", "LastModified", "mtime", "updated", "created"),
    *("Last-Modified", "modify", "modificationTime"),
)


class StoreError(OSError, ValueError):
    """An error that the user can fix: a missing store, bucket, object or permission."""


def is_store(path: str | os.PathLike) -> bool:
    """Returns whether a path is in a store, and is not a local file or a handle of a preset.

    Raises:
        StoreError: if it contains a password, which messages and records would reveal.
    """
    match = SCHEME.match(path) if isinstance(path, str) else None
    if match is None or match[1].lower() in _HANDLES:
        return False
    place = path[match.end() :].partition("/")[0]
    if ":" in place.rpartition("@")[0] and match[1].lower() not in _REPOSITORIES:
        raise StoreError(
            "The path of a store must not contain a password: put it into fsspec's configuration. "
            f"Received: {path.replace(place.rpartition('@')[0], '***', 1)}"
        )
    return True


def on_disk(local: Callable) -> Callable:
    """Decorator of a function of a path in a store: for a local path, `local` is called instead.

    Local paths are not passed to fsspec.
    """

    def decorate(function):
        @functools.wraps(function)
        def choose(path, /, *args, **kwargs):
            check_path("path", path)
            return (function if is_store(path) else local)(path, *args, **kwargs)

        return choose

    return decorate


def join(folder: str, *names: str) -> str:
    """Returns the path of a name in a folder, which may be local or in a store."""
    check_path("path", folder)
    if is_store(folder):  # A name may start with "/", which must not replace the folder.
        return "/".join([folder.rstrip("/"), *names])
    return os.path.join(folder, *names)


def call(path: str, function: Callable):
    """Calls a function of a file system and a path in it, with retries if the store fails."""
    for attempt in range(_ATTEMPTS):
        try:
            return function(*_file_system(path))
        except Exception as error:  # Each library has errors of its own.
            _raise_if_permanent(error, path)
            if attempt + 1 == _ATTEMPTS:
                reason = str(error).strip().splitlines() or [""]
                raise OSError(
                    errno.EIO,
                    f"The store failed {_ATTEMPTS} times: {type(error).__name__}: {reason[0]}",
                    path,
                ) from None
        time.sleep(_FIRST_PAUSE * 2**attempt * (0.5 + _JITTER.random()))


def _file_system(path):
    import fsspec

    scheme = SCHEME.match(path)[1].lower()
    if scheme not in fsspec.available_protocols():
        raise StoreError(
            f"The scheme of a store must be one that fsspec supports. Received: {path}"
        )
    # The user's settings, from fsspec's files and environment variables, have priority.
    options = {**_OPTIONS.get(scheme, {}), **fsspec.config.conf.get(scheme, {})}
    try:
        fs, key = fsspec.core.url_to_fs(path, use_listings_cache=False, **options)
    except ImportError as error:
        package = _PACKAGES.get(scheme)
        message = package and missing(package, f"{scheme}://")
        message = message or f"{scheme}:// needs another package: {error}"
        raise StoreError(f"{message}. Received: {path}") from None
    if scheme in _OPTIONS:
        fs.retries = 1  # Otherwise these retries would multiply with ours.
    return fs, key


def _raise_if_permanent(error, path):
    """Raises errors that a retry would not fix, with messages of our own."""
    kind = type(error).__name__
    if isinstance(error, StoreError):
        raise error
    if kind == "FileExpired" or "pre-condition" in str(error):
        raise changed_error(path) from None
    if isinstance(error, FileNotFoundError):
        raise FileNotFoundError(errno.ENOENT, "No such object, folder or bucket", path) from None
    if isinstance(error, PermissionError) or "redential" in kind:
        text = " ".join(str(error).split()) or kind
        raise StoreError(f"The store denies access. Received: {path}: {text}") from None
    if type(error) is ValueError:
        raise StoreError(f"The store cannot do what is asked. Received: {path}: {error}") from None
    if isinstance(error, (TypeError, AttributeError, NotImplementedError)):
        raise error


def changed_error(path: str) -> OSError:
    """Returns the error for an object that was replaced."""
    return OSError(errno.EIO, "Changed since it was first read", path)


def _version_on_disk(path):
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


@on_disk(_version_on_disk)
def version(path: str | os.PathLike) -> tuple:
    """Returns the size of a file and a tag that changes when it is replaced."""
    return call(path, lambda fs, key: version_from_info(fs.info(key)))


def version_from_info(info: dict) -> tuple:
    """Returns the size of an object and a tag that changes when the object is replaced."""
    tag = next((info[name] for name in _TAGS if info.get(name)), None)
    # Some stores give the tag in different forms for listings and for single objects.
    if hasattr(tag, "timestamp"):
        tag = tag.timestamp()
    return info["size"], tag and str(tag).removeprefix("W/").strip('"')
