"""Paths in stores that fsspec supports, such as `s3://` and `gs://`, and the way to and from them.

A path is in a store if it starts with the store's scheme and `://`. `cache.local_copy` copies what
is read, and `local_output` copies what was written: all other code knows only the disk.
"""

import contextlib
import errno
import glob
import os
import re
import tempfile
from collections.abc import Iterable, Iterator

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
# Written last and removed first: a checkpoint in a store is incomplete without it.
CHECKSUMS = "SHA256SUMS"
# The beginning of the names of the objects that `files.check_writable` writes to a store.
PROBE = ".writable-"
# The names of version tags in the stores' answers, the best first. HTTP has "Last-Modified", FTP
# "modify", HDFS "modificationTime".
_TAGS = ("ETag", "etag", "generation", "LastModified", "mtime", "updated", "created")
_TAGS += ("Last-Modified", "modify", "modificationTime")


class StoreError(OSError, ValueError):
    """An error that the user can fix: a missing package, bucket or permission."""


def is_store(path: str | os.PathLike) -> bool:
    """Returns whether a path is in a store, and is not a local file or a handle of a preset."""
    match = _SCHEME.match(path) if isinstance(path, str) else None
    # keras-hub and Hugging Face's library download presets with a handle.
    if match is None or match[1].lower() in ("hf", "kaggle", "modelscope"):
        return False
    login = path[match.end() :].partition("/")[0].rpartition("@")[0]
    if ":" in login and match[1].lower() not in ("github", "git"):  # These have `owner:name@`.
        # Messages and records would reveal it.
        raise StoreError(
            "The path of a store must not contain a password: put it into fsspec's configuration. "
            f"Received: {path.replace(login, '***', 1)}"
        )
    return True


def join(folder: str, *names: str) -> str:
    """Returns the path of a name in a folder, which may be local or in a store."""
    if not is_store(folder):
        return os.path.join(folder, *names)
    return "/".join([folder.rstrip("/"), *names])  # A name may start with "/".


@contextlib.contextmanager
def file_system(path: str | os.PathLike) -> Iterator[tuple]:
    """Yields the file system of a path, local or in a store, and the path as it takes it.

    Raises a `StoreError` if the user can fix an error of the store, otherwise an `OSError`.
    """
    import fsspec  # Slow.

    if not is_store(path):
        # Not `abspath`: it drops a link before "..".
        yield fsspec.filesystem("file"), os.path.join(os.getcwd(), path)
        return
    try:
        yield fsspec.core.url_to_fs(path, use_listings_cache=False)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "No such object, folder or bucket", path) from None
    except (StoreError, TypeError, AttributeError, NotImplementedError):
        raise
    except Exception as error:  # Each library has errors of its own.
        name = type(error).__name__
        text = f"{name}: {' '.join(str(error).split())}"
        if isinstance(error, ImportError):
            text += " (pip install keras-spanbert[s3] or keras-spanbert[gcs])"
        elif not (isinstance(error, PermissionError) or "redential" in name):
            if type(error) is not ValueError:
                raise OSError(errno.EIO, f"The store failed: {text}", path) from None
        raise StoreError(
            f"A path must be in a store that can be used here. Received: {path}: {text}"
        ) from None


# === Names in folders, on the disk and in stores ===
def kind(path: str | os.PathLike) -> str | None:
    """Returns "file", "directory", "other", or `None` if nothing exists.

    In a store, no folder is empty. A broken link is "other".
    """
    if is_store(path):
        with contextlib.suppress(FileNotFoundError), file_system(path) as (fs, key):
            return fs.info(key)["type"]
        return None
    if os.path.isfile(path):
        return "file"
    return "directory" if os.path.isdir(path) else "other" if os.path.lexists(path) else None


def names(path: str) -> dict[str, tuple]:
    """Returns the files in a folder and its subfolders: name, with `/`, to size and tag.

    The tag changes when the file is replaced. The name of `path` itself, if it is a file, is "".
    """
    with contextlib.suppress(FileNotFoundError), file_system(path) as (fs, key):
        info, root = fs.info(key), key.rstrip("/") + "/"
        found = {root: info}
        if info["type"] == "directory":
            # An object whose name ends with a slash marks an empty folder.
            found = {k: v for k, v in fs.find(root, detail=True).items() if not k.endswith("/")}
        return {
            name.removeprefix(root): (v["size"], str(next(filter(None, map(v.get, _TAGS)), None)))
            for name, v in found.items()
            if name.startswith(root)
        }
    return {}


def entries(folder: str) -> list[str]:
    """Returns the sorted names in a folder, except those of `files.check_writable`."""
    missing = (FileNotFoundError, NotADirectoryError)
    with contextlib.suppress(*missing), file_system(folder) as (fs, key):
        root = key.rstrip("/") + "/"
        found = [path.rstrip("/") for path in fs.ls(key, detail=False)]
        found = [path.removeprefix(root) for path in found if path.startswith(root)]
        return sorted(name for name in found if not name.startswith(PROBE))
    return []


def as_glob(path: str) -> str:
    """Returns a glob for a glob or path, in which a name that exists, `a[1]`, is no pattern."""
    ends = (match.end() for match in re.finditer("/|$", path))
    end = max(filter(lambda end: os.path.lexists(path[:end]), ends), default=0)
    return glob.escape(path[:end]) + path[end:]


def find(pattern: str) -> Iterator[str]:
    """Yields the paths that match a glob or path: see `as_glob`. In a store, globs skip folders."""
    # On disk, globs of fsspec would match hidden files too.
    if not is_store(pattern):
        return glob.iglob(as_glob(pattern), recursive=True)
    if (exists := kind(pattern)) or not glob.has_magic(pattern):
        return iter([pattern] if exists else [])
    with contextlib.suppress(FileNotFoundError), file_system(pattern) as (fs, key):
        # The key may lack the beginning of the path, such as a host, or have an additional one,
        # such as the working folder.
        common = len(os.path.commonprefix([pattern[::-1], key[::-1]]))
        before, added = pattern[: len(pattern) - common], key[: len(key) - common]
        # Without this check, a bucket that does not exist would look empty.
        root = key[: re.search(r"[*?[]", key).start()].rpartition("/")[0]
        with contextlib.suppress(FileNotFoundError):
            fs.ls(root)
        found = fs.glob(key, detail=True).items()
        names = [name for name, info in found if info["type"] == "file"]
        return iter([before + name.removeprefix(added) for name in names])
    return iter([])


def remove(path: str) -> None:
    """Removes a file or folder if it exists."""
    with contextlib.suppress(FileNotFoundError), file_system(path) as (fs, key):
        # In stores, `rm` takes globs.
        fs.rm(glob.escape(key) if is_store(path) else key, recursive=True)


def rename(folder: str, new: str) -> None:
    """Renames a folder. In a store, its objects are copied, then removed."""
    if not is_store(folder):
        os.rename(folder, new)
        return
    for name in names(folder):
        with file_system(join(folder, name)) as (fs, key), file_system(join(new, name)) as (_, to):
            fs.cp_file(key, to)
    remove(folder)


# === Copying from and to stores ===
def fetch(path: str, local: str, found: dict[str, tuple] | None = None) -> None:
    """Copies a file or folder of a store into a local folder, or only the `names` in `found`."""
    for name, (size, _) in (names(path) if found is None else found).items():
        target = os.path.join(local, *(name or os.path.basename(path)).split("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        source = join(path, name) if name else path
        with file_system(source) as (fs, key):
            fs.get_file(key, target)
        _check_complete(os.path.getsize(target), size, source)


def upload(local: str, path: str, only: Iterable[str] | None = None) -> None:
    """Copies a file or folder to a store, or `only` some names in it. Replaces their objects.

    Settings such as `config.json` are copied last, so that no library finds an incomplete model.
    """
    found = sorted(names(local) if only is None else only, key=lambda n: (write_order(n), n))
    # Checksums of the objects that are replaced would be wrong.
    marks = [name for name in {*found, CHECKSUMS} & {*names(path)} if write_order(name) > 0]
    for name in sorted(marks, key=write_order, reverse=True):
        remove(join(path, name))
    for name in found:
        source, target = (os.path.join(local, name), join(path, name)) if name else (local, path)
        expected = os.path.getsize(source)
        with file_system(target) as (fs, key):
            fs.put_file(source, key)
            size = fs.info(key)["size"]
        if size != expected:
            with contextlib.suppress(OSError):
                remove(target)
        _check_complete(size, expected, target)


def _check_complete(num_bytes, expected, path):
    if expected not in (None, num_bytes):  # Some web pages have no size.
        raise OSError(errno.EIO, f"{num_bytes} bytes instead of {expected} were copied", path)


def write_order(name: str) -> int:
    """Returns the sort key for writing. `run.json` is first, files that mark a model are last."""
    order = {"run.json": -1, "config.json": 2, CHECKSUMS: 3}
    return order.get(name, int("/" not in name and name.endswith((".json", ".pb"))))


@contextlib.contextmanager
def local_output(path: str) -> Iterator[str]:
    """Yields a path to write a file or folder to: `path`, or a local one that is uploaded to it."""
    if not is_store(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as folder:
        local = os.path.join(folder, os.path.basename(path.rstrip("/")))
        yield local
        upload(local, path)
