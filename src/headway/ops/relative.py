"""Relative positions: indices into tables of learned biases (T5, Swin, MViT-v2), and ALiBi's slopes.

Everything here is a function of positions.  The indices say which row of a table a pair (query, key) reads; who owns
the table is not their business.  Flat positions in a grid run along its rows: position = y · cols + x.

Axes:  B batch   H heads   T queries   S keys
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headway.errors import UserError


def t5_bucket_both_ways(distance: Tensor, buckets: int = 32, longest: int = 128) -> Tensor:
    """T5's encoder: `distance` = key − query to one of `buckets`, half of them for keys that stand ahead."""
    side = buckets // 2
    return bucket(distance.abs(), side, longest) + side * (distance > 0)


def t5_bucket_backward(distance: Tensor, buckets: int = 32, longest: int = 128) -> Tensor:
    """T5's decoder: `distance` = key − query to one of `buckets`; whatever stands ahead shares bucket 0."""
    return bucket((-distance).clamp(min=0), buckets, longest)


def bucket(far: Tensor, buckets: int, longest: int) -> Tensor:
    """Half of the buckets hold one distance each; the others grow as its logarithm, the last from `longest` on."""
    exact = buckets // 2
    if not 0 < exact < longest:
        raise UserError(
            f"{buckets} buckets per direction cannot reach distance {longest}",
            allowed="2 buckets or more per direction, and a longest distance above half of them",
        )
    # float32 in this order, as in T5: a distance on the edge of two buckets must fall on the same side
    share = torch.log(far.clamp(min=exact).float() / exact) / math.log(longest / exact)
    spaced = exact + (share * (buckets - exact)).long()
    return torch.where(far < exact, far, spaced.clamp(max=buckets - 1))


def log_bucket(distance: Tensor, buckets: int, longest: int) -> Tensor:
    """DeBERTa's bucket of each distance, −buckets … buckets: itself up to half of them, and then spaced by logarithm.

    `distance` may have either sign, which its bucket keeps; the bucket of `longest` − 1 is the last.
    """
    half = buckets // 2
    if half < 2 or longest - 1 <= half:
        said = f"{buckets} buckets cannot reach distance {longest}"
        raise UserError(said, allowed="4 buckets or more, and a longest distance above half of them")
    far = distance.abs().clamp(min=half)
    # float32 in this order, as in DeBERTa: a distance on the edge of two buckets must fall on the same side
    scale = torch.log(torch.tensor((longest - 1) / half, device=distance.device))
    spaced = torch.ceil(torch.log(far / half) / scale * (half - 1)) + half
    return torch.where(distance.abs() <= half, distance, spaced.long() * distance.sign())


def alibi_slopes(heads: int, device: torch.device | None = None) -> Tensor:
    """How much each head's logits fall per position of distance, (H,): 2^(−8/n), 2^(−16/n), … 2^(−8) for n heads.

    Where `heads` is not a power of two, those of the power below, then every second one of the power above.
    """
    if heads < 1:
        raise UserError(f"heads={heads} has no slopes", allowed="1 head or more")
    below = 1 << (heads.bit_length() - 1)
    powers = [i / below for i in range(1, below + 1)] + [(i + 0.5) / below for i in range(heads - below)]
    return torch.tensor([2 ** (-8 * power) for power in powers], device=device)


def grid_offset(q_pos: Tensor, k_pos: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """(dy, dx), each B|1 T S: query minus key, for flat positions B|1 T and B|1 S in a grid of `width` columns."""
    q, k = q_pos[..., :, None], k_pos[..., None, :]
    return q // width - k // width, q % width - k % width


def relative_index_2d(q_pos: Tensor, k_pos: Tensor, grid: tuple[int, int]) -> Tensor:
    """Which of the (2·rows − 1)·(2·cols − 1) offsets in a `grid` of (rows, cols) each pair has, B|1 T S, as in Swin."""
    rows, cols = grid
    dy, dx = grid_offset(q_pos, k_pos, cols)
    return (dy + rows - 1) * (2 * cols - 1) + dx + cols - 1


def log_offsets(
    window: tuple[int, int], pretrained: tuple[int, int] | None = None, device: torch.device | None = None
) -> Tensor:
    """Swin-V2's coordinates of every offset (dy, dx) in a window, in the order of `relative_index_2d`.

    Offsets, as shares of the window that was trained (`pretrained`; None: this one), are spaced by logarithm, so that
    a larger window asks the network for little that it has not seen.  ((2·rows − 1)·(2·cols − 1), 2), about −1 … 1.
    """
    sides = zip(window, pretrained or window, strict=True)
    dy, dx = (torch.arange(1 - now, now, device=device).float() / max(then - 1, 1) * 8 for now, then in sides)
    offsets = torch.cartesian_prod(dy, dx)
    return offsets.sign() * torch.log2(offsets.abs() + 1) / math.log2(8)


def decomposed_index(q_len: int, k_len: int, device: torch.device | None = None) -> Tensor:
    """MViT's offset of each pair along one axis, T S, as one of 2·max(q_len, k_len) − 1 rows of a table.

    Pooling gives queries and keys different lengths; the coarser one then stands on the finer one's positions.
    """
    q_step, k_step = max(k_len / q_len, 1.0), max(q_len / k_len, 1.0)
    q = torch.arange(q_len, device=device)[:, None] * q_step
    k = torch.arange(k_len, device=device)[None, :] * k_step
    return (q - k + (k_len - 1) * k_step).long()
