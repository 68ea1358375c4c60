"""Rollout: what reaches each token of a layer through all the layers below it, if values simply flow along weights.

Each layer passes on a mixture A of its tokens and, by its skip connection, each token itself.  Following both through
the layers is a product of matrices.  `rollout` is Abnar and Zuidema's (2020, arXiv:2005.00928, section 3):

    Ā = ½ · mean over heads of A + ½ · I, each row divided by its sum          R_l = Ā_l · R_{l−1},  R_0 = I

`gradient_rollout` follows only what speaks for one outcome: weights that would raise its score y if they grew.  It is
Chefer, Gur and Wolf's (2021, arXiv:2103.15679, equations 5 and 6), for self-attention:

    Ā = mean over heads of (∂y/∂A ⊙ A)⁺                                        R_l = R_{l−1} + Ā_l · R_{l−1}

Axes:  H heads   T tokens
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headway.errors import UserError


def rollout(maps: Sequence[Tensor]) -> list[Tensor]:
    """How much of each token of the input is in each token after each layer, T T, from the first layer on.

    `maps` are the layers' weights, H T T or T T (already a mean over heads), the first layer first.  Rows of the result
    sum to 1.
    """
    return products([with_skip(layer) for layer in checked(maps)])


def gradient_rollout(maps: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
    """The relevance of each token of the input to each token after each layer, T T, for the score of the gradients.

    `gradients` are the derivatives of one score by the weights in `maps`, each of its map's shape.  Rows sum to 1 or
    more: a token is always relevant to itself, with 1.
    """
    if [map.shape for map in maps] != [gradient.shape for gradient in gradients]:
        raise UserError(f"{len(maps)} maps and {len(gradients)} gradients, which differ", allowed="one for each, alike")
    steps = [mean_of_heads((map * gradient).relu()) for map, gradient in zip(maps, gradients, strict=True)]
    return products([identity(step) + step for step in checked(steps)])


def with_skip(weights: Tensor) -> Tensor:
    """½ · mean over heads + ½ · I, rows summing to 1, T T: also those of a token that may see nothing."""
    mixed = 0.5 * mean_of_heads(weights) + 0.5 * identity(weights)
    return mixed / mixed.sum(-1, keepdim=True)


def products(steps: Sequence[Tensor]) -> list[Tensor]:
    """Each layer's step times all the steps below it."""
    found = list[Tensor]()
    for step in steps:
        found.append(step @ found[-1] if found else step)
    return found


def checked(maps: Sequence[Tensor]) -> Sequence[Tensor]:
    """Maps of one set of tokens over itself: anything else cannot be followed from layer to layer."""
    sizes = {tuple(map.shape[-2:]) for map in maps}
    if len(sizes) > 1 or any(rows != columns for rows, columns in sizes):
        told = ", ".join(f"{rows} × {columns}" for rows, columns in sorted(sizes))
        do = "roll out layers of self-attention that share their tokens"
        raise UserError(f"maps of {told} cannot be rolled out", allowed="T × T, the same T in every layer", do=do)
    return maps


def mean_of_heads(weights: Tensor) -> Tensor:
    return weights.mean(0) if weights.dim() == 3 else weights


def identity(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
