"""Objects in stores that fsspec knows, as `s3://` and `gs://`: read, fetched and written whole.

A path is a store's where it begins with the name of one and `://`. Functions that also take
local paths say so, and read these without fsspec.
"""

from keras_spanbert.stores.calls import StoreError, is_store, join
from keras_spanbert.stores.reading import (
    SumError,
    check_same,
    exists,
    fetch,
    find,
    is_file,
    is_folder,
    local_copy,
    names,
    open_binary,
    size,
)
from keras_spanbert.stores.sums import SUMS, read_sums, sum_lines, write_sums
from keras_spanbert.stores.writing import (
    check_writable,
    entries,
    put_file,
    put_folder,
    remove,
    remove_folder,
    rename_folder,
)

__all__ = [
    "SUMS",
    "StoreError",
    "SumError",
    "check_same",
    "check_writable",
    "entries",
    "exists",
    "fetch",
    "find",
    "is_file",
    "is_folder",
    "is_store",
    "join",
    "local_copy",
    "names",
    "open_binary",
    "put_file",
    "put_folder",
    "read_sums",
    "remove",
    "remove_folder",
    "rename_folder",
    "size",
    "sum_lines",
    "write_sums",
]
