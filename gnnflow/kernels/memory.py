"""What becomes of freed memory while a model is trained.

The C library gives large pieces back to the system when they are freed, and every step of training asks for them anew:
the system then clears each page at its first touch, which takes longer than what is computed in it. Copying 46 MB took
13 ms, and 2 ms in memory that was kept (docs/decisions/0008-native-core.md).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

# Numbers of glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_NEVER = 2**31 - 1
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _MMAP_THRESHOLD: 32 * 1024**2, _MMAP_MAX: 65536}


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed memory for reuse for the length of a block, and give it back behind it.

    The process then holds its peak throughout. With another C library than glibc nothing changes.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        yield
        return
    library.mallopt(_TRIM_THRESHOLD, _NEVER)
    library.mallopt(_MMAP_MAX, 0)
    try:
        yield
    finally:
        for option, value in _DEFAULTS.items():
            library.mallopt(option, value)
        library.malloc_trim(0)
