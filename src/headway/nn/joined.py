"""Layers that read the same input: one product where their weights lie side by side in memory, as `arrange` lays them.

The definition is each layer by itself.  A step of decoding takes as long as reading its weights, and one wide matrix is
read faster than three narrow ones: 0.37 against 0.50 ms for the queries, keys and values of GPT-2 and one token.  From
4 tokens on nothing is gained, and results that lie apart are faster to go on with.

Axes:  … any   C width   N width of all outputs together
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEW = 2  # tokens


def each(x: Tensor, *layers: nn.Module) -> tuple[Tensor, ...]:
    """What each layer makes of x, … C → … and its own width."""
    whole = joined(layers) if x.numel() <= FEW * x.shape[-1] else None
    if whole is None:
        return tuple(layer(x) for layer in layers)
    return F.linear(x, whole.weight, whole.bias).split_with_sizes(whole.widths, -1)


class Joined(NamedTuple):
    weight: Tensor  # N C
    bias: Tensor | None  # N
    widths: list[int]


def joined(layers: tuple[nn.Module, ...]) -> Joined | None:
    """The layers as one, without a copy; None: they are not laid out so, or somebody needs each by itself."""
    first = layers[0]
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not isinstance(first, nn.Linear):
        return None
    weight, bias, widths = first.weight, bias_of(first), list[int]()
    total = weight.stride(1)
    if weight.stride(0) != 1 or total <= weight.shape[0]:  # a matrix that lies by itself
        return None
    for layer in layers:
        if not isinstance(layer, nn.Linear) or not follows(layer, first, sum(widths)):
            return None
        widths.append(layer.weight.shape[0])
    if sum(widths) != total:
        return None
    whole = weight.as_strided((total, weight.shape[1]), (1, total))
    return Joined(whole, None if bias is None else bias.as_strided((total,), (1,)), widths)


def follows(layer: nn.Linear, first: nn.Linear, at: int) -> bool:
    """Whether a layer does what torch's does, and its weights lie `at` outputs behind those of the first."""
    if type(layer).forward is not nn.Linear.forward or hooked(layer):
        return False
    weight, bias, other = layer.weight, bias_of(layer), bias_of(first)
    if weight.data_ptr() != first.weight.data_ptr() + at * weight.element_size():
        return False
    if weight.stride() != first.weight.stride():
        return False
    if bias is None or other is None:
        return bias is other
    return bias.data_ptr() == other.data_ptr() + at * bias.element_size()


def bias_of(layer: nn.Linear) -> Tensor | None:
    return layer.bias  # torch's own types know no layer without


def hooked(layer: nn.Module) -> bool:
    """Whether somebody is to be called when this layer is."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)  # pyright: ignore[reportPrivateUsage]
