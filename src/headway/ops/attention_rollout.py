"""Attention rollout: how much of each input token reaches each token of a layer, if values flow along the weights.

Each layer passes on a mixture A of its tokens and, by its residual connection, each token itself.  Following both
through the layers is a product of matrices.  `rollout` is Abnar and Zuidema's (2020, arXiv:2005.00928, section 3):

    Ā = ½ · mean over heads of A + ½ · I, each row divided by its sum          R_l = Ā_l · R_{l−1},  R_0 = I

`gradient_rollout` follows only weights with a positive gradient of the score y of one output.  It is Chefer, Gur and
Wolf's (2021, arXiv:2103.15679, equations 5 and 6), for self-attention:

    Ā = mean over heads of (∂y/∂A ⊙ A)⁺                                        R_l = R_{l−1} + Ā_l · R_{l−1}

A decoder has self-attention and cross-attention to an encoder, so its tokens t hold parts of the target (R^tt) and of
the source (R^ts, 0 at first).  `rollout_across` is the rollout of all tokens of source and target as one set, where the
decoder's layers leave the source unchanged:

    self    R^tt ← Ā · R^tt     R^ts ← Ā · R^ts          cross   R^ts ← ½ A · R^ss + ½ R^ts     R^tt ← ½ R^tt

`gradient_rollout_across` is Chefer, Gur and Wolf's for an encoder and a decoder, equations 6 to 10 (their 11 adds
nothing, because no encoder attends to its decoder):

    self    R^tt ← R^tt + Ā · R^tt     R^ts ← R^ts + Ā · R^ts
    cross   R^ts ← R^ts + (R̄^tt)ᵀ · Ā · R̄^ss      R̄ = I + (R − I), each row divided by its sum

The transpose is theirs: a token of the target is credited with the source tokens attended to by those that contain it.
Where R is I, so that nothing has been mixed, R̄ is I too; 0/0 has no other limit that keeps its rows.

Axes:  H heads   T tokens, of a target where there are two   S tokens of a source
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError, listed
from headway.ops.attend import shape_text


class SelfLayer(NamedTuple):
    """Self-attention of a decoder: H T T or T T."""

    weights: Tensor


class CrossLayer(NamedTuple):
    """Cross-attention of a decoder: H T S or T S."""

    weights: Tensor


class Reach(NamedTuple):
    """What is in each token of a target, after a layer."""

    target: Tensor  # T T
    source: Tensor  # T S


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
    return products([identity(step) + step for step in checked(relevances(maps, gradients))])


def rollout_across(layers: Sequence[SelfLayer | CrossLayer], memory: Tensor) -> list[Reach]:
    """How much of each token of target and source is in each of the target after each layer of a decoder.

    `memory` (S S) is the last of the encoder's rollout.  A row of target and source together sums to 1.
    """
    found = [initial_reach(layers, memory)]
    for layer in layers:
        target, source = found[-1]
        if isinstance(layer, SelfLayer):
            step = with_skip(layer.weights)
            found.append(Reach(step @ target, step @ source))
        else:
            seen = mean_of_heads(layer.weights)
            all = 1 + seen.sum(-1, keepdim=True)  # 2, but 1 for a token that attends to nothing
            found.append(Reach(target / all, (source + seen @ memory) / all))
    return found[1:]


def gradient_rollout_across(
    layers: Sequence[SelfLayer | CrossLayer], gradients: Sequence[Tensor], memory: Tensor
) -> list[Reach]:
    """The relevance of each token of target and source to each of the target after each layer, for a score.

    `gradients` are its derivatives by the layers' weights, `memory` (S S) the last of the encoder's gradient rollout.
    """
    found = [initial_reach(layers, memory)]
    steps = relevances([layer.weights for layer in layers], gradients)
    for layer, step in zip(layers, steps, strict=True):
        target, source = found[-1]
        if isinstance(layer, SelfLayer):
            found.append(Reach(target + step @ target, source + step @ source))
        else:
            found.append(Reach(target, source + row_normalised(target).mT @ step @ row_normalised(memory)))
    return found[1:]


def relevances(maps: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
    """The mean over heads of (∂y/∂A ⊙ A)⁺ of each layer."""
    if [map.shape for map in maps] != [gradient.shape for gradient in gradients]:
        raise UserError(f"{len(maps)} maps and {len(gradients)} gradients, which differ", allowed="one for each, alike")
    return [mean_of_heads((map * gradient).relu()) for map, gradient in zip(maps, gradients, strict=True)]


def row_normalised(relevance: Tensor) -> Tensor:
    """R̄: relevance between different tokens (R − I) with rows that sum to 1, plus I, so that depth has no weight."""
    own = identity(relevance)
    others = relevance - own
    total = others.sum(-1, keepdim=True)
    return own + torch.where(total > 0, others / total, 0.0)


def initial_reach(layers: Sequence[SelfLayer | CrossLayer], memory: Tensor) -> Reach:
    """The target's tokens before any layer: each holds itself alone."""
    checked([layer.weights for layer in layers if isinstance(layer, SelfLayer)])
    rows = {layer.weights.shape[-2] for layer in layers}
    columns = {layer.weights.shape[-1] for layer in layers if isinstance(layer, CrossLayer)}
    if len(rows) != 1 or columns - {len(memory)} or memory.shape != (len(memory), len(memory)):
        sizes = {" × ".join(map(str, layer.weights.shape[-2:])) for layer in layers}
        said = f"maps of {listed(sorted(sizes))} cannot be followed to a memory of {shape_text(memory)}"
        raise UserError(said, allowed="T × T, T × S and a memory of S × S")
    return Reach(torch.eye(*rows).to(memory), memory.new_zeros(*rows, len(memory)))


def with_skip(weights: Tensor) -> Tensor:
    """½ · mean over heads + ½ · I, rows summing to 1, T T: also that of a token that attends to nothing."""
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
