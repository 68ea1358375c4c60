"""x Wᵀ + b, by whichever of torch's two libraries is faster here.

`F.linear` is the definition.  In float32 it asks MKL, which runs its AVX2 code on AVX-512 processors of other makers;
oneDNN uses all they have.  AMD EPYC with AVX-512, one thread, ms by MKL and by oneDNN: 8 rows of 768×768 0.13 and 0.10,
16 rows of 3072×768 1.14 and 0.56, 128 rows of 2304×768 5.3 and 2.4, 1500 rows of 1536×384 18.3 and 8.6.  The products
of a gradient gain as much: 1024 rows of 1024×256, GFLOP/s, y 104 and 231, dx 105 and 244, dW 100 and 183.

Axes:  … any   C inputs   O outputs
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.native.library import is_watched

MIN_ROWS = 8  # of fewer, memory sets the time
MIN_PRODUCTS = 2**22  # of fewer, oneDNN takes longer to compile its code for a new shape: about 1 ms


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """… C → … O"""
    if not suits_onednn(x, weight, bias):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and any(given is not None and given.requires_grad for given in (x, weight, bias)):
        return OneDNNLinear.apply(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class OneDNNLinear(torch.autograd.Function):
    """`linear` for autograd: its gradients are products like itself, of which there are gradients too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        return (
            linear(grad, weight.mT) if wants_x else None,
            linear(rows.mT, x.flatten(0, -2).mT) if wants_weight else None,
            rows.sum(0) if wants_bias else None,
        )


def suits_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether oneDNN is the faster one, and can read these tensors."""
    if torch.compiler.is_compiling() or not prefers_onednn():
        return False
    rows = x.numel() // max(weight.shape[1], 1)
    if rows < MIN_ROWS or rows * weight.numel() < MIN_PRODUCTS:
        return False
    # others take oneDNN's slow reference code
    readable = all(map(is_float32, (x, weight, bias))) and (weight.is_contiguous() or weight.mT.is_contiguous())
    return readable and not is_watched() and not torch.is_autocast_enabled("cpu")


def is_float32(x: Tensor | None) -> bool:
    """Whether a tensor is no more than numbers of float32 in this machine's memory, or there is none."""
    return x is None or (type(x) in (Tensor, nn.Parameter) and x.dtype == torch.float32 and x.device.type == "cpu")


@cache
def prefers_onednn() -> bool:
    """Whether this processor has AVX-512 and is not Intel's, so that MKL leaves half of it unused."""
    told = Path("/proc/cpuinfo")
    text = told.read_text() if told.is_file() else ""
    other = "vendor_id" in text and "GenuineIntel" not in text
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()
    return wide and other and hasattr(torch.ops.mkldnn, "_linear_pointwise")
