"""Rows of attention weights as small integers: the strongest weights of a row rounded, the others in a few classes.

Each row has a number of decimals, more where its weights are small, and a `floor`; a unit is one of the last decimal.

    0                 hidden: the query does not see the key
    1                 the weight rounds to 0
    2 … CLASSES + 1   a class: equal ratios divide the range from half a unit to (floor + ½) units, upward
    CLASSES + 2 + n   the weight rounds to floor + n units

So what is shown of a code is true: a number with just these decimals, or an upper bound.  A row of weights sums to 1:
what the rounded ones leave is divided among the classes.

Axes:  H heads   T queries   S keys
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

STRONGEST = 12  # weights of a row that are rounded in a large page, and those equal to the last; the page lists ten
CLASSES = 3  # measured on 144 heads of MiniLM at 512 tokens: 2 classes 9.0 MB, 3 11.5, 4 13.2
ROUNDED = CLASSES + 2  # the first code of a rounded weight
MIN_DECIMALS, MAX_DECIMALS = 3, 7
MIN_UNITS = 16  # of the largest weight of a row
HIDDEN = -1.0  # in place of a weight that the query does not see
CHUNK = 2**20  # weights that are encoded at once


class EncodedRows(NamedTuple):
    """Codes H T S, and the decimals and floors of their rows, H T."""

    codes: NDArray[np.uint16]
    decimals: NDArray[np.uint8]
    floors: NDArray[np.uint16]

    def columns(self, first: int, last: int) -> EncodedRows:
        return EncodedRows(self.codes[..., first:last], self.decimals, self.floors)

    def head(self, head: int) -> EncodedRows:
        only = slice(head, head + 1)
        return EncodedRows(self.codes[only], self.decimals[only], self.floors[only])

    def to_bytes(self) -> bytes:
        """Of each row its decimals, floor and number of rounded weights; then all symbols, then all rounded weights.

        A symbol is a code, or ROUNDED; three are a byte, a + 6 b + 36 c, since most are the same and deflate gives each
        byte a bit or more.  Rounded weights follow as their codes less ROUNDED.
        """
        codes = self.codes.reshape(-1, self.codes.shape[-1])
        rounded = codes >= ROUNDED
        symbols = np.pad(np.minimum(codes, ROUNDED), ((0, 0), (0, -codes.shape[1] % 3)))
        triples = symbols.reshape(len(codes), -1, 3) @ np.array([1, ROUNDED + 1, (ROUNDED + 1) ** 2])
        counts, values = rounded.sum(-1).astype(np.uint16), (codes[rounded] - ROUNDED).astype(np.uint16)
        parts = (self.decimals, self.floors, counts, triples.astype(np.uint8), values)
        return b"".join(map(byte_planes, parts))


def encode_rows(weights: Tensor, strongest: int) -> EncodedRows:
    """The codes of rows H T S; HIDDEN where a key is not seen.  The `strongest` weights of each row are rounded."""
    heads, rows, columns = weights.shape
    size = max(1, CHUNK // max(1, heads * columns))
    parts = [encode_chunk(weights[:, at : at + size], strongest) for at in range(0, rows, size)]
    return EncodedRows(*(np.concatenate(part, 1) for part in zip(*parts, strict=True)))


def encode_chunk(weights: Tensor, strongest: int) -> EncodedRows:
    hidden = weights < 0
    found = weights.nan_to_num(0).clamp(0, 1).double()
    decimals = row_decimals(found.amax(-1, keepdim=True))
    units = found * 10.0**decimals
    last = units.topk(min(strongest, units.shape[-1])).values[..., -1:]
    steps = units.round()
    rounded = (units >= last) & (steps > 0)
    floors = torch.where(rounded, steps, torch.inf).amin(-1, keepdim=True)
    floors = torch.where(floors.isinf(), 0.0, floors)
    # how far below the ceiling, in ratios: 0 is the largest class
    below = (((floors + 0.5) / units).log() / (2 * floors + 1).log() * CLASSES).floor().nan_to_num(0)
    classes = torch.where(steps > 0, CLASSES + 1 - below.clamp(0, CLASSES - 1), 1.0)
    codes = torch.where(rounded, steps - floors + ROUNDED, classes)
    codes = torch.where(hidden, 0.0, codes).to(torch.int32).numpy().astype(np.uint16)
    flat = (part[..., 0].to(torch.int32).numpy() for part in (decimals, floors))
    return EncodedRows(codes, next(flat).astype(np.uint8), next(flat).astype(np.uint16))


def row_decimals(largest: Tensor) -> Tensor:
    """The decimals of rows with such a largest weight, float64: at least MIN_UNITS units."""
    needed = (MIN_UNITS / largest.double()).log10().ceil()
    return needed.nan_to_num(MIN_DECIMALS, posinf=MIN_DECIMALS).clamp(MIN_DECIMALS, MAX_DECIMALS)


def byte_planes(values: NDArray[np.generic]) -> bytes:
    """The lowest byte of each value, then the next byte of each: planes of small numbers compress well."""
    values = np.ascontiguousarray(values)
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return little.reshape(-1).view(np.uint8).reshape(-1, values.dtype.itemsize).T.tobytes()
