"""Centred kernel alignment: how alike two layers hold the same samples, whatever their widths, turns and scales.

    CKA(X, Y) = ‖Xᵀ Y‖² / (‖Xᵀ X‖ · ‖Yᵀ Y‖) = ⟨K, L⟩ / (‖K‖ · ‖L‖),  K = X Xᵀ,  L = Y Yᵀ,  X and Y centred

Kornblith et al. (2019, arXiv:1905.00414), with linear kernels and Frobenius norms.  1 is the same up to a turn and a
scale.  A few samples in wide layers always look alike: give several times as many samples as a layer is wide.

Axes:  N samples   C width   I J layers
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headway.errors import UserError


def cka(x: Tensor, y: Tensor) -> float:
    """The alignment of two layers, each N by its width, from 0 to 1; NaN where all samples are the same in one."""
    return float(cka_matrix([x], [y])[0, 0])


def cka_matrix(ones: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """The alignment of each of I layers with each of J, I J.  All hold the same N samples; N² numbers are held of each.

    By kernels, which are computed once for each layer: products of widths would be for each pair of layers.
    """
    counts = {len(layer) for layer in (*ones, *others)}
    if len(counts) != 1 or min(counts) < 2:
        said = f"layers of {' and '.join(str(count) for count in sorted(counts))} samples cannot be compared"
        raise UserError(said, allowed="the same samples in all, 2 or more")
    left, right = (torch.stack([kernel(layer) for layer in layers]) for layers in (ones, others))
    return left.flatten(1) @ right.flatten(1).mT


def kernel(x: Tensor) -> Tensor:
    """X Xᵀ of length 1, N N, from N C."""
    x = x.double()  # what is compared is a difference of large numbers
    x = x - x.mean(0)
    found = x @ x.mT
    return found / found.norm()
