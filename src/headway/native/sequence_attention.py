"""Attention of many queries by the library: whole sequences in float32, whose gradient nobody wants.

    y = softmax(scale · q kᵀ) v

Each sequence is attended by itself, so that packed rows need no padding.  `headway.ops.attend` is the definition.

Axes:  B batch   N tokens of all sequences   T queries   S keys   H heads   G kv-heads   D head width
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from headway.native.library import NativeLibrary, Unusable, is_plain, is_watched, native_library

MIN_QUERIES = 32  # of fewer, to arrange the keys takes as long as to multiply them: torch is as fast at 16
MAX_KEYS = 8192  # of more, keys and values of a head no longer stay in the second cache
PAIR, ROWS = 32, 12  # as many keys, and queries, as the largest vectors compute together

I64, POINTER = ctypes.c_int64, ctypes.c_void_p
# of each sequence: q, k, v in numbers; row of the output; keep; how many queries and keys
Starts = list[tuple[int, ...]]


class AttentionSizes(NamedTuple):
    """Heads, kv-heads, and the width of each."""

    heads: int
    kv_heads: int
    width: int


class AttentionCall(ctypes.Structure):
    _fields_ = (
        *((name, POINTER) for name in ("q", "k", "v", "out", "keep", "sequences")),
        *((name, I64) for name in ("count", "heads", "kv_heads", "head_dim")),
        *((name, I64) for name in ("q_token", "k_token", "v_token", "q_head", "k_head", "v_head")),
        ("room", POINTER),
        ("room_each", I64),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_int32),
    )


def native_attend(q: Tensor, k: Tensor, v: Tensor, *, keep: Tensor | None, causal: bool, scale: float) -> Tensor | None:
    """Queries B H T D, keys and values B G S D → B H T D, laid out token by token; None: that is for torch.

    `keep` is B 1 S, bool; `causal` hides the keys after the query's own index.
    """
    if torch.compiler.is_compiling() or q.shape[2] < MIN_QUERIES or k.shape[2] > MAX_KEYS or scale <= 0.0:
        return None
    library = usable_library(q, k, v)
    if library is None or q.shape[3] != v.shape[3] or (keep is not None and keep.shape[1] != 1):
        return None
    batch, heads, queries, width = q.shape
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if keep is not None:
        keep = keep.expand(batch, 1, k.shape[1]).contiguous()
    keys, starts = k.shape[1], Starts()
    for b in range(batch):
        first = (*(b * x.stride(0) for x in (q, k, v)), b * queries, -1 if keep is None else b * keys)
        starts.append((*first, queries, keys))
    out = torch.empty(batch, queries, heads, width, dtype=torch.float32)
    call(library, library.best, (q, k, v), out, starts, keep, causal, scale)
    return out.transpose(1, 2)


def attend_packed(
    library: NativeLibrary, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], *, causal: bool, scale: float
) -> Tensor:
    """Queries N H D, keys and values N G D of sequences of these lengths → N H D: the same numbers, bit for bit, that
    their padded view gives."""
    out, starts = torch.empty(q.shape, dtype=torch.float32), packed_starts(lengths, [x.stride(0) for x in (q, k, v)])
    call(library, library.best, (q, k, v), out, starts, None, causal, scale)
    return out


def packed_starts(lengths: Sequence[int], strides: Sequence[int]) -> Starts:
    """Sequences that follow one another; strides are those of the tokens of q, k and v."""
    starts, first = Starts(), 0
    for length in lengths:
        starts.append((*(first * stride for stride in strides), first, -1, length, length))
        first += length
    return starts


def usable_library(*given: Tensor) -> NativeLibrary | None:
    """The library, if it can read these tensors, and nobody watches what torch does."""
    library = Unusable("compiling") if torch.compiler.is_compiling() else native_library()
    if isinstance(library, Unusable):
        return None
    readable = all(type(x) is Tensor and is_plain(x) and x.stride(-1) == 1 and x.numel() for x in given)
    return library if readable and not is_watched() and not torch.is_autocast_enabled("cpu") else None


def call(
    library: NativeLibrary,
    instructions: int,
    given: tuple[Tensor, Tensor, Tensor],
    out: Tensor,
    starts: Starts,
    keep: Tensor | None,
    causal: bool,
    scale: float,
) -> None:
    """Queries, keys and values, … heads width, from their starts into the rows of `out`, by an instruction set."""
    sizes = AttentionSizes(given[0].shape[-2], given[1].shape[-2], given[0].shape[-1])
    strides = (*(x.stride(-3) for x in given), *(x.stride(-2) for x in given))
    arguments, _alive = attention_call(sizes, starts, strides)
    arguments.q, arguments.k, arguments.v, arguments.out = (x.data_ptr() for x in (*given, out))
    arguments.keep, arguments.scale, arguments.causal = None if keep is None else keep.data_ptr(), scale, causal
    library.handle.headway_attend(ctypes.byref(arguments), torch.get_num_threads(), instructions)


def attention_call(
    sizes: AttentionSizes, starts: Starts, strides: tuple[int, ...]
) -> tuple[AttentionCall, tuple[Tensor, Tensor]]:
    """The arguments of a call but for what it reads and writes, and the tensors that they point at; strides are those
    of the tokens of q, k and v, and of their heads."""
    keys, width = max(one[6] for one in starts), sizes.width
    padded, wide = -(-keys // PAIR) * PAIR, -(-width // PAIR) * PAIR
    each = padded * width + keys * wide + ROWS * (padded + wide)
    room, sequences = torch.empty(max(torch.get_num_threads(), 1), each, dtype=torch.float32), torch.tensor(starts)
    made = AttentionCall(None, None, None, None, None, sequences.data_ptr(), len(starts), *sizes, *strides)
    made.room, made.room_each = room.data_ptr(), each
    return made, (room, sequences)
