"""Reads and writes files and folders, on disk and in stores. Writes them whole or not at all.

Paths may be in stores (`s3://...`), except those of `add_to_folder`, `lock`, `read_csv`,
`remove_partial`, `replace_files`, `sync_to_disk` and the functions of checksums.
"""

import contextlib
import csv
import errno
import fnmatch
import glob
import hashlib
import io
import json
import operator
import os
import pathlib
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from typing import IO, BinaryIO

import filelock

from keras_spanbert import stores
from keras_spanbert.checks import check_path

# The beginning of a file that Git LFS has not replaced with its content.
_POINTER = b"version https://git-lfs"
# Marks the names of local files and folders that are not complete.
PARTIAL = ".partial"
# Written last and removed first: a checkpoint in a store is incomplete without it.
CHECKSUMS = "SHA256SUMS"
# The beginning of the names of the objects that `check_writable` writes to a store.
_PROBE = ".writable-"
# The names of version tags in the stores' answers, the best first. HTTP has "Last-Modified", FTP
# "modify", HDFS "modificationTime".
_TAGS = ("ETag", "etag", "generation", "LastModified", "mtime", "updated", "created")
_TAGS += ("Last-Modified", "modify", "modificationTime")
_READ_BYTES = 1 << 23
# The umask can only be read by setting it, which is done here, before there are threads.
_UMASK = os.umask(0)
os.umask(_UMASK)


def ending(path: str | os.PathLike) -> str:
    """Returns the ending of a file's name in small letters: `".csv"` of `A.CSV.GZ`."""
    return os.path.splitext(os.fspath(path).lower().removesuffix(".gz"))[1]


def read_json(path: str) -> dict:
    """Reads a JSON file as a dict. Raises `ValueError` if it is not an object in UTF-8."""
    try:
        with io.TextIOWrapper(open_binary(path), encoding="utf-8") as file:
            value = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON in UTF-8. Received: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must have a JSON object. Received: {type(value).__name__}")
    return value


def write_json(path: str, value, indent: int | None = 2) -> None:
    """Writes a JSON value atomically. Large values are written faster without `indent`."""
    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        # JSON has no NaN and no infinity. They become `null`, for example for undefined scores.
        value = json.loads(json.dumps(value), parse_constant=lambda name: None)
        text = json.dumps(value, indent=indent)
    with atomic_write(path) as file:
        file.write(text + "\n")


def write_json_lines(path: str, values: Iterable) -> None:
    """Writes values atomically, one JSON value per line."""
    # `operator.index` accepts NumPy's integers.
    lines = [json.dumps(value, default=operator.index) + "\n" for value in values]
    with atomic_write(path) as file:
        file.writelines(lines)


def write_csv(path: str, rows: list[dict], delimiter: str = ",") -> None:
    """Writes rows atomically, with the columns of all rows."""
    columns = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    with atomic_write(path) as file:
        writer = csv.DictWriter(file, fieldnames=list(columns), restval="", delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: str) -> list[dict[str, str]]:
    """Reads the rows of a CSV file as text, by the names of the columns."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# === Writing ===
@contextlib.contextmanager
def _partial(path, inside=False):
    """Yields a temporary path, next to `path` or in it if this is on disk. Errors name `path`."""
    folder = tempfile.gettempdir()
    if stores.is_local(path):
        folder = path if inside else os.path.dirname(path)
    name = os.path.basename(path)[:50]
    place = os.path.join(folder, f".{name}-{uuid.uuid4().hex[:8]}{PARTIAL}")
    partial, path = os.path.join(place, "new"), os.fspath(path)

    def renamed(value):
        if isinstance(value, str):
            return value.replace(partial, path).replace(place, path)
        return value

    try:
        os.mkdir(place, 0o700)
        yield partial
    except Exception as error:
        error.args = tuple(map(renamed, error.args))
        if isinstance(getattr(error, "filename", None), str):
            error.filename = renamed(error.filename)
        elif type(error) is OSError:  # For example, the disk is full.
            message = error.strerror or str(error)
            raise OSError(error.errno or errno.EIO, message, path) from None
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def atomic_write(path: str, mode: str = "w") -> Iterator[IO]:
    """Opens a temporary file that replaces `path` once it is complete.

    `mode` is "w" for text in UTF-8, or "wb". An `OSError` names `path`. Links are written through.
    """
    path = check_path("path", path)
    path = os.path.realpath(path) if os.path.islink(path) else path
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    with _partial(path) as partial:
        with open(partial, mode, **text) as file:
            yield file
        sync_to_disk(partial)
        (os.replace if stores.is_local(path) else put_file)(partial, path)


def check_new(path: str) -> None:
    """Raises `ValueError` if a folder to write is not empty or cannot be created."""
    holds_some = entries(path) or exists(path) and not is_folder(path)
    if holds_some or not os.fspath(path):
        shown = path or "an empty name"
        raise ValueError(f"The folder to write must be new or empty. Received: {shown}")
    check_writable(path)


def check_writable(path: str, name: str = "The folder to write") -> None:
    """Raises `ValueError` if a folder, existing or new, cannot be written to.

    `name` is its name in the message. In a store, an object is written to it and removed.
    """
    if not stores.is_local(path):
        place = stores.join(path, f"{_PROBE}{uuid.uuid4().hex}")
        try:
            with stores.file_system(place) as (fs, key):
                fs.pipe_file(key, b"")
                fs.rm_file(key)
        except (stores.StoreError, FileNotFoundError) as error:
            message = f"{name} must be writable. Received: {path}: {error}"
            raise stores.StoreError(message) from None
        return
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        received = f"{path}, where {existing} is not a folder"
        raise ValueError(f"{name} must be a folder. Received: {received}")
    if not os.access(existing, os.W_OK):
        received = f"{path}, where {existing} is not writable"
        raise ValueError(f"{name} must be writable. Received: {received}")


@contextlib.contextmanager
def local_folder(path: str) -> Iterator[str]:
    """Yields a temporary local folder that becomes `path` once it is complete.

    `path` is a new or empty folder on disk, or a folder in a store: see `put_folder`.
    """
    is_local = stores.is_local(path)
    disk = pathlib.Path(os.path.realpath(path))
    new_parents = [place for place in disk.parents if is_local and not place.exists()]
    try:
        if is_local:
            disk.parent.mkdir(parents=True, exist_ok=True)
        with _partial(disk if is_local else path) as partial:
            os.mkdir(partial)
            yield partial
            if not is_local:
                put_folder(partial, path)
                return
            # Some libraries create private files.
            for made in [pathlib.Path(partial), *pathlib.Path(partial).rglob("*")]:
                os.chmod(made, (0o777 if made.is_dir() else 0o666) & ~_UMASK)
            if os.name == "nt" and disk.exists():
                disk.rmdir()  # Windows cannot rename to an existing path.
            os.replace(partial, disk)
    except BaseException:
        with contextlib.suppress(OSError):  # Others may have written to it meanwhile.
            for parent in new_parents:
                parent.rmdir()
        raise


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """Does what `local_folder` does. Raises `ValueError` if `path` is not a new or empty folder."""
    check_new(path)
    with local_folder(path) as folder:
        yield folder


@contextlib.contextmanager
def add_to_folder(path: str, replaced: Iterable[str] = ()) -> Iterator[str]:
    """Yields a temporary folder whose files are moved to `path` once all are complete.

    After an error, nothing in `path` has changed. Other files in `path` are kept, except a
    `SHA256SUMS` that lists a file with new content, and, if a new file matches any of the patterns
    in `replaced`, those that match any. If the process is killed while the files are moved,
    `config.json` is missing, so that no library loads a mixture of old and new files. The targets
    of symbolic links are replaced.
    """
    with _partial(path, inside=True) as new:
        os.mkdir(new)
        yield new
        with contextlib.ExitStack() as undo:
            _swap(new, path, f"{new}-old", replaced, undo)
            undo.pop_all()


def _swap(new, path, old, replaced, undo):
    """Moves files from `path` to `old` and from `new` to `path`. `undo` reverses each step."""
    made = sorted(pathlib.Path(new).rglob("*"))
    names = [item.relative_to(new).as_posix() for item in made if not item.is_dir()]

    def place(name):
        target = os.path.join(path, name)
        return os.path.realpath(target) if name in names else target

    removed = {name for name in names if os.path.lexists(place(name))}

    def matches(name):
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in replaced)

    if any(map(matches, names)):
        removed.update(filter(matches, os.listdir(path)))
    if os.path.isfile(os.path.join(path, CHECKSUMS)):
        with contextlib.suppress(ValueError):  # A file of another format belongs to the user.
            if not removed.isdisjoint(read_checksums(path)):
                removed.add(CHECKSUMS)
    for name in removed:
        if os.path.isdir(target := place(name)):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    for folder in filter(pathlib.Path.is_dir, made):
        target = os.path.join(path, folder.relative_to(new))
        if not os.path.isdir(target):
            os.mkdir(target)
            undo.callback(os.rmdir, target)

    def move_back(source, target):
        if not os.path.lexists(source):
            _move(target, source)

    order = sorted(removed, key=write_order, reverse=True)
    moves = [(place(name), os.path.join(old, name)) for name in order]
    moves += [(os.path.join(new, name), place(name)) for name in sorted(names, key=write_order)]
    for source, target in moves:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        undo.callback(move_back, source, target)  # Before the move, which may be interrupted.
        _move(source, target)


def _move(source, target):
    """Moves a file. On another disk it appears when it is complete."""
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(source, f"{target}{PARTIAL}")
        os.replace(f"{target}{PARTIAL}", target)
        os.remove(source)


def replace_in_folder(path: str, replaced: Iterable[str] = ()):
    """Does what `add_to_folder` does if `path` is a folder on disk, else what `new_folder` does.

    In a store, the new files are copied over the old ones: see `put_folder`.
    """
    if not stores.is_local(path):
        return local_folder(path)
    return add_to_folder(path, replaced) if os.path.isdir(path) else new_folder(path)


@contextlib.contextmanager
def replace_files(path: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary path to write a file or folder to, which becomes `path` when complete.

    Other files that are written next to it, such as shards of weights, are moved too.
    """
    folder, name = os.path.split(os.fspath(path).rstrip(os.sep))
    with add_to_folder(folder or os.curdir) as new:
        yield os.path.join(new, name)


def remove_partial(folder: str) -> None:
    """Removes the incomplete files that a killed process left in a folder."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.endswith(PARTIAL):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def sync_to_disk(path: str | os.PathLike) -> None:
    """Flushes a file, or the names in a folder, to the disk."""
    if os.name == "nt" and os.path.isdir(path):
        return  # Windows cannot open folders.
    # Windows flushes only files that are open for writing.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# === Reading and listing ===
def open_binary(path: str | os.PathLike) -> BinaryIO:
    """Opens a file for reading bytes. Refuses pointers of Git LFS. Reads a store in parts."""
    path = check_path("path", path)
    if stores.is_local(path):
        file = open(path, "rb")  # fsspec cannot open pipes.
        if not file.peek(len(_POINTER)).startswith(_POINTER):
            return file
        file.close()
        rule = "A file must have its content: run `git lfs pull` in its repository"
        raise ValueError(f"{rule}. Received: {path}, a pointer of Git LFS")
    with stores.file_system(path) as (fs, key):
        file = fs.open(key, "rb", cache_type="none")
        size = (getattr(file, "details", None) or fs.info(key))["size"]
    return io.BufferedReader(_ObjectReader(path, file, size), _READ_BYTES)


class _ObjectReader(io.RawIOBase):
    def __init__(self, path, file, size):
        super().__init__()
        self._path, self._file, self._size = path, file, size

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        return self._file.seek(offset, whence)

    def readall(self):
        return b"".join(iter(lambda: self.read(_READ_BYTES), b""))

    def readinto(self, buffer):
        with stores.file_system(self._path):
            data = self._file.read(len(buffer))
        if not data:
            _check_complete(self._file.tell(), self._size, self._path)
        buffer[: len(data)] = data
        return len(data)

    def close(self):
        self._file.close()
        super().close()


def _check_complete(num_bytes, expected, path):
    if expected not in (None, num_bytes):  # Some web pages have no size.
        raise OSError(errno.EIO, f"{num_bytes} bytes instead of {expected} were copied", path)


def version(path: str | os.PathLike) -> tuple:
    """Returns the size of a file and a tag that changes when it is replaced."""
    with stores.file_system(path) as (fs, key):
        return _version(fs.info(key))


def _version(info):
    tag = next((info[name] for name in _TAGS if info.get(name)), None)
    # Some stores give the tag in different forms for listings and for single objects.
    if hasattr(tag, "timestamp"):
        tag = tag.timestamp()
    return info["size"], tag and str(tag).removeprefix("W/").strip('"')


def size(path: str | os.PathLike) -> int:
    """Returns the size of a file in bytes."""
    return version(path)[0]


def is_file(path: str | os.PathLike) -> bool:
    """Returns whether a path is a file."""
    return _kind(path) == "file"


def is_folder(path: str | os.PathLike) -> bool:
    """Returns whether a path is a folder. In a store, no folder is empty."""
    return _kind(path) == "directory"


def exists(path: str | os.PathLike) -> bool:
    """Returns whether a path exists. It may be a broken link."""
    return _kind(path) is not None or os.path.islink(path)


def _kind(path):
    try:
        with stores.file_system(path) as (fs, key):
            return fs.info(key)["type"] if os.fspath(path) else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        if stores.is_local(path):  # For example, the name is too long.
            return None
        raise


def as_glob(path: str) -> str:
    """Returns a glob for a glob or path, in which a name that exists, `a[1]`, is no pattern."""
    ends = (match.end() for match in re.finditer("/|$", path))
    end = max(filter(lambda end: os.path.lexists(path[:end]), ends), default=0)
    return glob.escape(path[:end]) + path[end:]


def find(pattern: str) -> Iterator[str]:
    """Yields the paths that match a glob or path: see `as_glob`. In a store, globs skip folders."""
    # On disk, globs of fsspec would match hidden files too.
    if stores.is_local(pattern):
        return glob.iglob(as_glob(pattern), recursive=True)
    if exists(pattern) or not glob.has_magic(pattern):
        return iter([pattern] if exists(pattern) else [])
    with contextlib.suppress(FileNotFoundError), stores.file_system(pattern) as (fs, key):
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


def names(folder: str) -> dict[str, tuple]:
    """Returns the files in a folder and its subfolders: name, with `/`, to size and tag."""
    with contextlib.suppress(FileNotFoundError), stores.file_system(folder) as (fs, key):
        root = key.rstrip("/") + "/"
        found = fs.find(root, detail=True).items()
        return {k.removeprefix(root): _version(info) for k, info in found if k.startswith(root)}
    return {}


def entries(folder: str) -> list[str]:
    """Returns the sorted names in a folder, except those of `check_writable`."""
    missing = (FileNotFoundError, NotADirectoryError)
    with contextlib.suppress(*missing), stores.file_system(folder) as (fs, key):
        root = key.rstrip("/") + "/"
        found = [path.rstrip("/") for path in fs.ls(key, detail=False)]
        found = [path.removeprefix(root) for path in found if path.startswith(root)]
        return sorted(name for name in found if not name.startswith(_PROBE))
    return []


# === Copying from and to stores ===
@contextlib.contextmanager
def temporary_copy(folder: str) -> Iterator[str]:
    """Yields a local folder with the files of a folder: itself, or a copy if it is in a store."""
    if stores.is_local(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as local:
        fetch(folder, local, names(folder))
        yield local


def fetch(folder: str, local: str, found: dict[str, tuple]) -> None:
    """Copies objects of a store's folder, as returned by `names`, into a local one."""
    for name, (num_bytes, _) in found.items():
        path, target = stores.join(folder, name), os.path.join(local, *name.split("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with stores.file_system(path) as (fs, key):
            fs.get_file(key, target)
        _check_complete(os.path.getsize(target), num_bytes, path)


def put_file(local: str, path: str) -> None:
    """Copies a file to a store, where it appears when it is complete."""
    with stores.file_system(path) as (fs, key):
        fs.put_file(local, key)
    try:
        _check_complete(size(path), os.path.getsize(local), path)
    except OSError:
        with contextlib.suppress(OSError):
            remove(path)
        raise


def put_folder(local: str, folder: str) -> None:
    """Copies a local folder to a store, and replaces objects of the same names there.

    Settings such as `config.json` are written last, so that no library finds an incomplete model.
    """
    found = sorted(names(local), key=write_order)
    # Checksums of the objects that are replaced would be wrong.
    marks = [name for name in [*found, CHECKSUMS] if write_order(name)]
    for name in sorted({*marks}.intersection(names(folder)), key=write_order, reverse=True):
        remove(stores.join(folder, name))
    for name in found:
        put_file(os.path.join(local, *name.split("/")), stores.join(folder, name))


def write_order(name: str) -> int:
    """Returns the sort key for the order of writing. Files that mark a model are last."""
    if name in ("config.json", CHECKSUMS):
        return 2 + (name == CHECKSUMS)
    return int("/" not in name and name.endswith((".json", ".pb")))


# === Removing and moving ===
def remove(path: str) -> None:
    """Removes a file if it exists."""
    with contextlib.suppress(FileNotFoundError), stores.file_system(path) as (fs, key):
        fs.rm_file(key)


def remove_folder(folder: str) -> None:
    """Removes a folder if it exists. It is never seen half removed."""
    # On disk, it is renamed first. In a store, the files that mark it as complete go first.
    with contextlib.suppress(FileNotFoundError):
        if stores.is_local(folder):
            os.rename(folder, f"{folder}{PARTIAL}")
            folder = f"{folder}{PARTIAL}"
        for name in sorted(filter(write_order, names(folder)), key=write_order, reverse=True):
            remove(stores.join(folder, name))
        with stores.file_system(folder) as (fs, key):
            fs.rm(key, recursive=True)


def rename_folder(folder: str, other: str) -> None:
    """Renames a folder. In a store, its objects are copied and then removed."""
    if stores.is_local(folder):
        os.rename(folder, other)
        return
    with stores.file_system(folder) as (fs, key), stores.file_system(other) as (_, target):
        fs.copy(key, target, recursive=True)
    remove_folder(folder)


# === Checksums of the files in a local folder, as those of `sha256sum` ===
def sha256(path: str) -> str:
    """Returns the SHA-256 sum of a file, as a hexadecimal string."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(folder: str, names: Iterable[str], others: Iterable[str] = ()) -> None:
    """Writes the checksums of some files to `SHA256SUMS`, after the lines of `others`."""
    with open(os.path.join(folder, CHECKSUMS), "w", encoding="utf-8") as file:
        file.writelines(others)
        file.writelines(f"{sha256(os.path.join(folder, name))}  {name}\n" for name in names)


def read_checksums(folder: str) -> dict[str, str]:
    """Returns the checksums in `SHA256SUMS`, by name. Raises `ValueError` for other lines."""
    with open(os.path.join(folder, CHECKSUMS), encoding="utf-8") as file:
        # `sha256sum --binary` writes a star.
        matches = [re.fullmatch("([0-9a-f]{64}) [ *](.+)\n?", line) for line in file]
    if None in matches:
        raise ValueError(f"{CHECKSUMS} must have lines in the format of `sha256sum`")
    return {match[2]: match[1] for match in matches}


# === Locks ===
def lock(folder: str) -> filelock.BaseFileLock:
    """Locks a folder until `release` of the result is called or the process ends."""
    folder_lock = filelock.FileLock(os.path.join(folder, ".lock"), thread_local=False)
    try:
        folder_lock.acquire(blocking=False)
    except filelock.Timeout:
        rule = "One run at a time may write to a folder"
        raise ValueError(f"{rule}. Received: {folder}, in use by another process") from None
    return folder_lock
