"""Settings for how the C library manages freed memory."""

import ctypes

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Keeps freed memory for the next allocation.

    Backends allocate new tensors on the CPU in each step. By default glibc maps
    every large block from the system and returns it when it is freed, so that a
    step pays a page fault for every 4 kB of its tensors. With another C library
    than glibc this function does nothing.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, -1)  # Never trim.
