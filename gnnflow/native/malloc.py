"""glibc's options of malloc for the whole process. With another C library nothing changes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

# numbers of <malloc.h>
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -3, -4, -8


def set_options(values: Mapping[int, int]) -> bool:
    """Set options of malloc, and return whether this C library has them."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    for option, value in values.items():
        library.mallopt(option, value)
    return True


def trim() -> None:
    """Return freed memory between used pieces to the system."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
