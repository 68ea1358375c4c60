"""The compiled library: found beside this module, recognised, and loaded without Python's C interface.

A library is used only if it was compiled from the very sources that lie beside it, so that one of an older version, or
of another program, is never called.  Of the instruction sets that it holds the best is taken that the processor has and
that torch's variable ATEN_CPU_CAPABILITY permits.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from sysconfig import get_config_var
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SOURCES = ("step.c", "kernels.h")  # beside this file
CAPABILITY = "ATEN_CPU_CAPABILITY"  # what torch may use at most
PERMITTED = {"default": 1, "avx2": 2}  # how many of the sets, the least first


@dataclass(frozen=True, eq=False)
class NativeLibrary:
    """A library that may be called."""

    handle: ctypes.CDLL
    sets: tuple[
        str, ...
    ]  # the instruction sets that it holds, this processor has and the user permits, by their numbers
    missing: tuple[str, ...]  # those that this processor lacks

    @property
    def best(self) -> int:
        return len(self.sets) - 1


@dataclass(frozen=True)
class Unusable:
    """Why there is no library to call."""

    reason: str


@cache
def native_library() -> NativeLibrary | Unusable:
    """The library of this installation."""
    name = f"_step{get_config_var('EXT_SUFFIX')}"
    return open_library(Path(str(files("headway.native").joinpath(name))))


def open_library(path: Path) -> NativeLibrary | Unusable:
    if not path.is_file():
        return Unusable("not built, as no C compiler was found when headway was installed")
    try:
        handle = ctypes.CDLL(str(path))
        declare(handle)
    except (OSError, AttributeError) as error:
        return Unusable(f"{path.name} is not a library for this machine ({str(error).splitlines()[0]})")
    if handle.headway_fingerprint().decode() != source_fingerprint():
        return Unusable(f"{path.name} was built from other sources than this version of headway has")
    names = [handle.headway_set_name(index).decode() for index in range(handle.headway_sets())]
    runs = next((index for index in range(len(names)) if not handle.headway_runs(index)), len(names))
    permitted = PERMITTED.get(os.environ.get(CAPABILITY, ""), runs)
    return NativeLibrary(handle, tuple(names[: min(runs, permitted)]), tuple(names[runs:]))


def fingerprint(texts: Iterable[bytes]) -> str:
    """A short hash of the contents of `SOURCES`, in their order; setup.py writes it into the library."""
    return sha256(b"\0".join(texts)).hexdigest()[:16]


def source_fingerprint() -> str:
    return fingerprint(files("headway.native").joinpath(name).read_bytes() for name in SOURCES)


def declare(handle: ctypes.CDLL) -> None:
    """Tells the types of its functions; a library without one of them is not ours."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    handle.headway_fingerprint.restype = handle.headway_set_name.restype = ctypes.c_char_p
    handle.headway_sets.argtypes = []
    handle.headway_set_name.argtypes = handle.headway_runs.argtypes = [ctypes.c_int]
    handle.headway_step.argtypes = [pointer, number, number]
    handle.headway_pack_int8.argtypes = [number, number, pointer, pointer, pointer]
    handle.headway_linear_int8.restype = handle.headway_attend.restype = handle.headway_encode.restype = None
    handle.headway_attend.argtypes = handle.headway_encode.argtypes = [pointer, ctypes.c_int, ctypes.c_int]
    handle.headway_linear_int8.argtypes = [pointer, number, number, number, *[pointer] * 7, *[ctypes.c_int] * 3]


def is_watched() -> bool:
    """Whether somebody sees, counts or changes what torch does, to whom calls of other libraries would be hidden."""
    import torch

    return torch._C._len_torch_dispatch_stack() > 0  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


def is_plain(x: Tensor | None) -> bool:
    """Whether the library can read a tensor, or there is none."""
    import torch

    return x is None or (
        x.dtype == torch.float32 and x.device.type == "cpu" and not (x.requires_grad and torch.is_grad_enabled())
    )


def large_pages(size: int) -> Tensor:
    """`size` bytes for weights, in large pages where the system has them."""
    import torch

    if size == 0 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8)
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(block, dtype=torch.uint8)
