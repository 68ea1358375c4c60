"""Residual sublayers with layers of int8 by the library: an encoder's blocks in one call.

    x = after(x + last(between(first(before(x))))),   sublayer after sublayer

`between` is an activation, or attention over whole sequences, where `first` are queries, keys and values, whose rows
are quantised once.  Norms are part of quantising, and sums of writing, so that neither goes through memory by itself.
`headway.nn.native_blocks` lowers the modules that are the definition.  The structures are those of step.c.

Axes:  B rows of a batch   T tokens   C width
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headway.native.int8_linear import CHUNK, PLAIN, Int8Panels
from headway.native.library import NativeLibrary
from headway.native.sequence_attention import I64, POINTER, AttentionSizes, attention_call, packed_starts


class RowNorm(NamedTuple):
    """A layer norm, or an RMS norm where it is not `centred`."""

    weight: Tensor | None  # float32, dense
    bias: Tensor | None
    eps: float
    centred: bool


class Int8Layer(NamedTuple):
    """act(linear(x)): float32 `scale` and `bias`; `style` is the library's number of the activation."""

    inputs: int
    panels: Int8Panels
    scale: Tensor
    bias: Tensor | None
    style: int = PLAIN


@dataclass(frozen=True)
class ResidualSublayer:
    """after(x + last(between(first(before(x)))))"""

    before: RowNorm | None
    first: tuple[Int8Layer, ...]  # one, or queries, keys and values
    last: Int8Layer
    after: RowNorm | None
    scale: float = 1.0  # of attention
    causal: bool = False


class Int8Product(ctypes.Structure):
    _fields_ = (
        *((name, POINTER) for name in ("codes", "steps", "panels", "offsets", "scale", "bias", "added", "out")),
        *((name, I64) for name in ("rows", "inputs", "depth", "outputs", "style")),
    )


class Norm(ctypes.Structure):
    _fields_ = (("weight", POINTER), ("bias", POINTER), ("eps", ctypes.c_float), ("centred", ctypes.c_int32))


class Sublayer(ctypes.Structure):
    _fields_ = (
        ("before", POINTER),
        ("after", POINTER),
        ("first", Int8Product * 3),
        ("last", Int8Product),
        ("count", I64),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_int32),
    )


class EncoderCall(ctypes.Structure):
    _fields_ = (
        ("sublayers", POINTER),
        *((name, I64) for name in ("count", "rows", "width")),
        *((name, POINTER) for name in ("x", "out", "other", "between", "row", "codes", "steps", "attention")),
    )


class SublayerProgram:
    """Residual sublayers as the library reads them; all attention has the same sizes, None: there is none."""

    def __init__(self, sublayers: Sequence[ResidualSublayer], width: int, sizes: AttentionSizes | None):
        self.width, self.sizes = width, sizes
        self.given = tuple(sublayers)  # what the structures point at
        self.norms = list[Norm]()
        self.structures = (Sublayer * len(self.given))(*map(self.structure, self.given))
        layers = [layer for one in self.given for layer in (*one.first, one.last)]
        self.deepest = max(layer.inputs for layer in layers)
        seen = 0 if sizes is None else sizes.heads * sizes.width
        self.between = seen + max(sum(layer.panels.outputs for layer in one.first) for one in self.given)

    def structure(self, one: ResidualSublayer) -> Sublayer:
        first = (Int8Product * 3)(*map(product, one.first))
        norms = (self.norm(one.before), self.norm(one.after))
        return Sublayer(*norms, first, product(one.last), len(one.first), one.scale, one.causal)

    def norm(self, one: RowNorm | None) -> int | None:
        if one is None:
            return None
        self.norms.append(Norm(address(one.weight), address(one.bias), one.eps, one.centred))
        return ctypes.addressof(self.norms[-1])

    def run(self, library: NativeLibrary, instructions: int, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """B T C → B T C, by an instruction set; the rows are those of sequences of these lengths."""
        flat = x.reshape(-1, self.width).contiguous()
        rows, few = len(flat), min(len(flat), CHUNK)
        out, between = torch.empty(2, rows, self.width), torch.empty(rows, self.between)
        codes, numbers = torch.empty(few, self.deepest + 3, dtype=torch.uint8), torch.empty(self.width + few)
        call = EncoderCall(ctypes.addressof(self.structures), len(self.structures), rows, self.width)
        call.x, call.out, call.other = flat.data_ptr(), out[0].data_ptr(), out[1].data_ptr()
        call.between, call.codes = between.data_ptr(), codes.data_ptr()
        call.row, call.steps = numbers.data_ptr(), numbers[self.width :].data_ptr()
        if self.sizes is not None:
            heads, kv_heads, width = self.sizes
            tokens = (heads * width, kv_heads * width, kv_heads * width)
            attention, _alive = attention_call(self.sizes, packed_starts(lengths, tokens), (*tokens, *[width] * 3))
            call.attention = ctypes.addressof(attention)
        library.handle.headway_encode(ctypes.byref(call), torch.get_num_threads(), instructions)
        return out[0].view(x.shape)


def product(layer: Int8Layer) -> Int8Product:
    """A layer without codes, sums and outputs."""
    panels, offsets, outputs = layer.panels
    read = (address(one) for one in (panels, offsets, layer.scale, layer.bias))
    return Int8Product(None, None, *read, None, None, 0, layer.inputs, 0, outputs, layer.style)


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
