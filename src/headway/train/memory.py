"""How the process gets its memory.

Training takes and returns buffers of many megabytes in each step.  By default glibc gives large ones back to the system
at once and gets them anew, each page to be cleared again; kept, they cost nothing.
"""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt's names for them, in malloc.h
LARGE = 2**26  # bytes; kept too, buffers of 200 MB were 1.3 times as fast, but left gaps of twice their size
NEVER = 2**31 - 1  # the largest that mallopt takes


def keep_memory() -> bool:
    """Lets glibc keep what the process frees for its next use; False, and nothing done, where there is no glibc.

    Call it before the first large tensors.  The process then holds as much memory as it ever needed at once.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):  # musl
        return False
    # some versions refuse more than 32 MB
    mapped = any(libc.mallopt(MMAP_THRESHOLD, size) == 1 for size in (LARGE, LARGE // 2))
    return mapped and libc.mallopt(TRIM_THRESHOLD, NEVER) == 1
