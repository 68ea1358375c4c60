"""The blocks of GGUF's tensors: how 1, 32 or 256 numbers lie in so many bytes, as ggml defines them.

A block of Q4_0 is one scale d and 32 whole numbers q of 4 bits: x = d · (q − 8).  Q4_1 has a minimum m besides,
x = d · q + m, and Q5 a fifth bit.  K blocks hold 256 numbers in groups of 16 or 32, whose scales are whole numbers
themselves: x = d · scale · q − dmin · minimum.

Axes:  N blocks   G groups of a block   I numbers of a group
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Bytes = np.ndarray[Any, np.dtype[Any]]  # of unsigned bytes
Floats = np.ndarray[Any, np.dtype[np.float32]]
Dequantise = Callable[[Bytes], Floats]


@dataclass(frozen=True)
class BlockType:
    """`size` numbers in `bytes` bytes; either a `dtype` of torch, or blocks that are dequantised, N bytes → N size."""

    number: int  # ggml's
    name: str
    size: int
    bytes: int
    dtype: torch.dtype | None = None
    dequantise: Dequantise | None = None
    quantise: Callable[[Floats], Bytes] | None = None

    def store(self, x: Tensor) -> bytes:
        """The bytes of a tensor."""
        if self.dtype is not None:
            return x.detach().to(self.dtype).contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        assert self.quantise is not None
        return self.quantise(x.detach().float().contiguous().view(-1, self.size).numpy()).tobytes()


def halves(data: Bytes) -> Floats:
    """float16 → float32, N 2K → N K"""
    return np.ascontiguousarray(data).view(np.float16).astype(np.float32)


def parts(blocks: Bytes, *sizes: int) -> list[Bytes]:
    """Neighbouring parts of all blocks, of so many bytes each."""
    return np.split(blocks, np.cumsum(sizes)[:-1], axis=1)


def unpacked(data: Bytes, bits: int, run: int) -> Bytes:
    """Whole numbers of `bits` bits, N K → N (K·8/bits): of each run of bytes first all lowest bits, then the next."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return ((data.reshape(len(data), -1, 1, run) >> shifts) & (2**bits - 1)).reshape(len(data), -1)


def fifth(data: Bytes) -> Bytes:
    """32 bits, the lowest first, N 4 → N 32, each as 16 or 0"""
    return np.unpackbits(data, axis=1, bitorder="little") << 4


def q4_0(blocks: Bytes) -> Floats:
    d, q = parts(blocks, 2, 16)
    return halves(d) * (unpacked(q, 4, 16).astype(np.float32) - 8)


def q4_1(blocks: Bytes) -> Floats:
    d, m, q = parts(blocks, 2, 2, 16)
    return halves(d) * unpacked(q, 4, 16) + halves(m)


def q5_0(blocks: Bytes) -> Floats:
    d, high, q = parts(blocks, 2, 4, 16)
    return halves(d) * ((unpacked(q, 4, 16) | fifth(high)).astype(np.float32) - 16)


def q5_1(blocks: Bytes) -> Floats:
    d, m, high, q = parts(blocks, 2, 2, 4, 16)
    return halves(d) * (unpacked(q, 4, 16) | fifth(high)) + halves(m)


def q8_0(blocks: Bytes) -> Floats:
    d, q = parts(blocks, 2, 32)
    return halves(d) * q.view(np.int8)


def to_q8_0(x: Floats) -> Bytes:
    """The scale is the largest magnitude over 127; halves are rounded away from 0, as in C."""
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    scaled = x * np.divide(1, d, out=np.zeros_like(d), where=d != 0)
    q = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled).astype(np.int8)
    return np.concatenate([d.astype(np.float16).view(np.uint8), q.view(np.uint8)], 1)


def grouped(scales: Floats, q: Floats) -> Floats:
    """scales · q, each group by its own: N G, N (G I) → N (G I)"""
    return (scales[..., None] * q.reshape(*scales.shape, -1)).reshape(q.shape)


def q2_k(blocks: Bytes) -> Floats:
    scales, q, d, dmin = parts(blocks, 16, 64, 2, 2)
    values = unpacked(q, 2, 32).astype(np.float32)
    return grouped(halves(d) * (scales & 15), values) - grouped(halves(dmin) * (scales >> 4), np.ones_like(values))


def q3_k(blocks: Bytes) -> Floats:
    high, q, scales, d = parts(blocks, 32, 64, 12, 2)
    low = unpacked(scales[:, :8], 4, 8) | unpacked(scales[:, 8:], 2, 4) << 4
    values = unpacked(q, 2, 32).astype(np.float32) - 4 * (1 - unpacked(high, 1, 32).astype(np.float32))
    return grouped(halves(d) * (low.astype(np.float32) - 32), values)


def scales_and_minima(data: Bytes) -> tuple[Bytes, Bytes]:
    """Eight numbers of 6 bits each, N 12 → N 8 and N 8; the first four of each hold two bits of the last four."""
    first, second, low = parts(data, 4, 4, 4)
    scales = np.concatenate([first & 63, low & 15 | first >> 2 & 48], 1)
    return scales, np.concatenate([second & 63, low >> 4 | second >> 2 & 48], 1)


def of_scales(d: Bytes, dmin: Bytes, scales: Bytes, values: Bytes) -> Floats:
    scale, minimum = scales_and_minima(scales)
    q = values.astype(np.float32)
    return grouped(halves(d) * scale, q) - grouped(halves(dmin) * minimum, np.ones_like(q))


def q4_k(blocks: Bytes) -> Floats:
    d, dmin, scales, q = parts(blocks, 2, 2, 12, 128)
    return of_scales(d, dmin, scales, unpacked(q, 4, 32))


def q5_k(blocks: Bytes) -> Floats:
    d, dmin, scales, high, q = parts(blocks, 2, 2, 12, 32, 128)
    return of_scales(d, dmin, scales, unpacked(q, 4, 32) | unpacked(high, 1, 32) << 4)


def q6_k(blocks: Bytes) -> Floats:
    low, high, scales, d = parts(blocks, 128, 64, 16, 2)
    q = unpacked(low, 4, 64) | unpacked(high, 2, 32) << 4
    return grouped(halves(d) * scales.view(np.int8), q.astype(np.float32) - 32)


TYPES = (
    BlockType(0, "F32", 1, 4, torch.float32),
    BlockType(1, "F16", 1, 2, torch.float16),
    BlockType(30, "BF16", 1, 2, torch.bfloat16),
    BlockType(2, "Q4_0", 32, 18, dequantise=q4_0),
    BlockType(3, "Q4_1", 32, 20, dequantise=q4_1),
    BlockType(6, "Q5_0", 32, 22, dequantise=q5_0),
    BlockType(7, "Q5_1", 32, 24, dequantise=q5_1),
    BlockType(8, "Q8_0", 32, 34, dequantise=q8_0, quantise=to_q8_0),
    BlockType(10, "Q2_K", 256, 84, dequantise=q2_k),
    BlockType(11, "Q3_K", 256, 110, dequantise=q3_k),
    BlockType(12, "Q4_K", 256, 144, dequantise=q4_k),
    BlockType(13, "Q5_K", 256, 176, dequantise=q5_k),
    BlockType(14, "Q6_K", 256, 210, dequantise=q6_k),
)
BLOCKS = {one.number: one for one in TYPES}
