"""Contrastive losses: InfoNCE (CLIP) and NT-Xent (SimCLR).

Each vector is to find its partner among all candidates of the batch: a classification whose classes are the rows and
whose logits are scaled cosine similarities. Both losses are sums over pairs, each pair counting the mean of its two
directions, so that loss / pairs is the published mean.

Axes:  N pairs   P width of the vectors that are compared
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import UserError
from headway.ops.attend import shape_text


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of each row of `a` with each row of `b`: N P, M P → N M."""
    return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT


def info_nce(a: Tensor, b: Tensor, scale: float | Tensor, owners: Tensor | None = None) -> Tensor:
    """½ Σ (−log p(bᵢ | aᵢ) − log p(aᵢ | bᵢ)), p over the batch: CLIP's loss, both ways.

    `a` and `b` are N P; `scale` is the inverse temperature.  Rows with the same number in `owners` (N), as two captions
    of one image, are not each other's wrong answers.
    """
    check(a, b)
    logits = to_float32(scale * cosines(a, b))  # N N
    if owners is not None:
        logits = logits.masked_fill(negatives_mask(owners).logical_not(), float("-inf"))
    right = torch.arange(len(logits), device=logits.device)
    there, back = (F.cross_entropy(x, right, reduction="sum") for x in (logits, logits.mT))
    return (there + back) / 2


def nt_xent(a: Tensor, b: Tensor, temperature: float = 0.5) -> Tensor:
    """½ Σ over all 2N views of −log p(its other view | the 2N − 1 others): SimCLR's loss of two views, N P each."""
    check(a, b)
    if temperature <= 0.0:
        raise UserError(f"nt_xent(temperature={temperature:g})", allowed="a temperature above 0", do="try 0.5")
    views = torch.cat([a, b])  # 2N P
    logits = to_float32(cosines(views, views) / temperature).fill_diagonal_(float("-inf"))
    right = torch.arange(len(views), device=views.device).roll(len(a))  # i ↔ i + N
    return F.cross_entropy(logits, right, reduction="sum") / 2


def negatives_mask(owners: Tensor) -> Tensor:
    """The candidates of each row, N N: the rows of other owners (negatives), and its own partner."""
    return (owners[:, None] != owners).logical_or_(torch.eye(len(owners), dtype=torch.bool, device=owners.device))


def to_float32(logits: Tensor) -> Tensor:
    """In float32 or better: sums over a large batch lose too much in bf16."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def check(a: Tensor, b: Tensor) -> None:
    if a.dim() != 2 or a.shape != b.shape or len(a) == 0:
        said = f"a contrastive loss of {shape_text(a)} and {shape_text(b)}"
        raise UserError(said, allowed="N×P both, row i of one belonging to row i of the other")
