"""Reads and writes objects in remote storage that fsspec supports, such as `s3://` and `gs://`.

A path is in a store if it starts with the store's scheme and `://`. Functions that also accept
local paths say so, and do not use fsspec for them: see `on_disk`.
"""

# ruff: noqa: F401
from keras_spanbert.stores.checksums import (
    CHECKSUMS,
    checksum_lines,
    read_checksums,
    write_checksums,
)
from keras_spanbert.stores.fsspec_calls import StoreError, call, is_store, join, on_disk
from keras_spanbert.stores.reading import (
    ChecksumError,
    check_unchanged,
    entries,
    exists,
    fetch,
    find,
    is_file,
    is_folder,
    local_copy,
    names,
    open_binary,
    open_cached,
    size,
    temporary_copy,
)
from keras_spanbert.stores.writing import (
    PARTIAL,
    put_file,
    put_folder,
    remove,
    remove_folder,
    rename_folder,
    write_order,
)
