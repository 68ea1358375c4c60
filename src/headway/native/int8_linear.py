"""A linear layer of int8 for few rows: int8 weights with a scale per output, activations scaled row by row.

    y = (q(x) Wᵀ) · scale · s + bias,    q(x) = round(x / s),    s = max |x| / 127 of each row

torch has no fast product of this form.  The sums are exact integers, so that every instruction set gives the same bits.

Axes:  … rows   C inputs   N outputs
"""

from __future__ import annotations

import torch
from torch import Tensor

from headway.native.library import NativeLibrary, native_library

MAX_INPUTS = 2**17  # of products of at most 127 · 128, whose sum int32 holds


def int8_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """… C → … N by the library; None: there is none, or it cannot read these tensors.

    `weight` is int8, N C, `scale` and `bias` float32, N.
    """
    library = native_library()
    if not isinstance(library, NativeLibrary) or not is_int8_layer(weight, scale, bias) or not is_plain(x):
        return None
    return multiply(library, library.best, x, weight, scale, bias)


def multiply(
    library: NativeLibrary, instructions: int, x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None
) -> Tensor:
    """The product by one of the library's instruction sets."""
    outputs, inputs = weight.shape
    flat = x.reshape(-1, inputs).contiguous()
    rows = len(flat)
    out, sums = torch.empty(rows, outputs), torch.empty(rows, outputs, dtype=torch.int32)
    codes, steps = torch.empty(rows, inputs, dtype=torch.int8), torch.empty(rows)
    given = (0 if one is None else one.data_ptr() for one in (weight, scale, bias, out, codes, steps, sums))
    threads = torch.get_num_threads()
    library.handle.headway_linear_int8(flat.data_ptr(), rows, inputs, outputs, *given, threads, instructions)
    return out.view(*x.shape[:-1], outputs)


def is_int8_layer(weight: Tensor, scale: Tensor, bias: Tensor | None) -> bool:
    """Whether the library can read such a layer."""
    vectors = [one for one in (scale, bias) if one is not None]
    codes = weight.dtype == torch.int8 and weight.device.type == "cpu" and weight.is_contiguous()
    return codes and weight.shape[1] < MAX_INPUTS and all(is_plain(one) and one.is_contiguous() for one in vectors)


def is_plain(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu" and not (x.requires_grad and torch.is_grad_enabled())
