"""x Wᵀ + b, by whichever of torch's two libraries is faster here.

`F.linear` is the definition.  In float32 it asks MKL, which runs its AVX2 code on AVX-512 processors of other makers;
oneDNN uses all they have.  AMD EPYC with AVX-512, one thread, ms by MKL and by oneDNN: 8 rows of 768×768 0.13 and 0.10,
16 rows of 3072×768 1.14 and 0.56, 128 rows of 2304×768 5.3 and 2.4, 1500 rows of 1536×384 18.3 and 8.6.

Axes:  … any   C inputs   O outputs
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.native.library import is_plain, is_watched

MIN_ROWS = 8  # of fewer, memory sets the time
MIN_PRODUCTS = 2**22  # of fewer, oneDNN takes longer to compile its code for a new shape: about 1 ms


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """… C → … O"""
    if torch.compiler.is_compiling() or not prefers_onednn():
        return F.linear(x, weight, bias)
    rows = x.numel() // max(weight.shape[1], 1)
    if rows < MIN_ROWS or rows * weight.numel() < MIN_PRODUCTS:
        return F.linear(x, weight, bias)
    readable = all(map(is_plain, (x, weight, bias))) and (weight.is_contiguous() or weight.mT.is_contiguous())
    if not readable or is_watched() or torch.is_autocast_enabled("cpu"):  # others take oneDNN's slow reference code
        return F.linear(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@cache
def prefers_onednn() -> bool:
    """Whether this processor has AVX-512 and is not Intel's, so that MKL leaves half of it unused."""
    told = Path("/proc/cpuinfo")
    text = told.read_text() if told.is_file() else ""
    other = "vendor_id" in text and "GenuineIntel" not in text
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()
    return wide and other and hasattr(torch.ops.mkldnn, "_linear_pointwise")
