"""Settings of glibc's malloc.

Training allocates and frees buffers of many megabytes in each step.  By default glibc returns large ones to the system
at once and requests them again, each page to be cleared anew; kept, they cost nothing.
"""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt's names for them, in malloc.h
LARGE = 2**26  # bytes; kept too, buffers of 200 MB were 1.3 times as fast, but left gaps of twice their size
NEVER = 2**31 - 1  # the largest that mallopt takes


def keep_memory() -> bool:
    """Lets glibc keep freed memory for reuse; False, without effect, where there is no glibc.

    Call it before the first large tensors.  The process then holds its peak memory.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):  # musl
        return False
    # some versions refuse more than 32 MB
    mapped = any(libc.mallopt(MMAP_THRESHOLD, size) == 1 for size in (LARGE, LARGE // 2))
    return mapped and libc.mallopt(TRIM_THRESHOLD, NEVER) == 1
