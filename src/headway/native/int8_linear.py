"""A linear layer of int8 by the library: int8 weights with a scale per output, activations scaled row by row.

    y = (q(x) Wᵀ) · scale · s + bias,    q(x) = round(x / s),    s = max |x| / 127 of each row

One call does it all, for any number of rows.  The sums are exact integers, so that every instruction set gives the same
bits.  `Int8Panels` are the weights as the library reads them.

Axes:  … rows   C inputs   N outputs   P panels
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from headway.native.library import NativeLibrary, is_plain, native_library

MAX_INPUTS = 2**16  # of products of at most 255 · 128, whose sum int32 holds
PANEL, CHUNK = 16, 96  # outputs of a panel, and rows whose codes need room at a time; as in step.c
PLAIN = -1  # no activation


class Int8Panels(NamedTuple):
    """Weights in panels of 16 outputs, of which four inputs at a time lie side by side, padded by zeros."""

    weight: Tensor  # int8 P C/4 16 4, flat
    offsets: Tensor  # int32 (P 16): −128 · the sum of an output's weights, as activations are multiplied 128 too large
    outputs: int

    @staticmethod
    def bytes(weight: Tensor) -> int:
        """The room that the panels of a weight need."""
        outputs, inputs = weight.shape
        return -(-outputs // PANEL) * PANEL * -(-inputs // 4) * 4

    @staticmethod
    def of(weight: Tensor, room: Tensor) -> Int8Panels | None:
        """The panels of int8 weights (N C), in `room`; None: the library cannot read them.

        It cannot where two neighbours of like sign are more than 128 together: their products would not fit 16 bits.
        """
        library, (outputs, inputs) = native_library(), weight.shape
        if not isinstance(library, NativeLibrary) or inputs >= MAX_INPUTS or weight.device.type != "cpu":
            return None
        weight, offsets = weight.contiguous(), torch.empty(-(-outputs // PANEL) * PANEL, dtype=torch.int32)
        pointers = (one.data_ptr() for one in (weight, room, offsets))
        if library.handle.headway_pack_int8(outputs, inputs, *pointers):
            return None
        return Int8Panels(room, offsets, outputs)


def int8_linear(
    x: Tensor, panels: Int8Panels, scale: Tensor, bias: Tensor | None = None, style: int = PLAIN
) -> Tensor | None:
    """… C → … N by the library; None: it cannot read these tensors.

    `scale` and `bias` are float32, N; `style` is the library's number of an activation that follows.
    """
    library = native_library()
    plain = type(x) is Tensor and not torch.compiler.is_compiling()
    if not plain or not isinstance(library, NativeLibrary) or not all(is_plain(one) for one in (x, scale, bias)):
        return None
    return multiply(library, library.best, x, panels, scale, bias, style)


def multiply(
    library: NativeLibrary,
    instructions: int,
    x: Tensor,
    panels: Int8Panels,
    scale: Tensor,
    bias: Tensor | None,
    style: int = PLAIN,
) -> Tensor:
    """The product by one of the library's instruction sets."""
    inputs = x.shape[-1]
    flat = x.reshape(-1, inputs).contiguous()
    rows, depth = len(flat), -(-inputs // 4) * 4
    out = torch.empty(rows, panels.outputs)
    codes, steps = torch.empty(min(rows, CHUNK), depth, dtype=torch.uint8), torch.empty(min(rows, CHUNK))
    tensors = (panels.weight, panels.offsets, scale, bias, out, codes, steps)
    given = (0 if one is None else one.data_ptr() for one in tensors)
    last = (style, torch.get_num_threads(), instructions)
    library.handle.headway_linear_int8(flat.data_ptr(), rows, inputs, panels.outputs, *given, *last)
    return out.view(*x.shape[:-1], panels.outputs)
