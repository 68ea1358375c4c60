"""Several projections of one input, evaluated as one matrix product where that is faster.

The definition is each layer by itself (`apply_each`):

- A step of decoding takes as long as reading its weights, and one wide matrix is read faster than three narrow ones:
  0.37 against 0.50 ms for the queries, keys and values of GPT-2 and one token.  They are joined where they lie side by
  side in memory, as `arrange` lays them.  From 4 tokens on nothing is gained, and results that lie apart are faster to
  go on with.
- A step of training goes through many more tokens than a layer is wide, so that its weights are cheap to lay side by
  side each time, and one wide product makes up for it: 1.03 to 1.07 times as fast, forward and backward.

Axes:  … any   C width   N width of fused outputs
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headway.ops.linear import linear, prefers_onednn

FEW = 2  # tokens


def apply_each(x: Tensor, *layers: nn.Module) -> tuple[Tensor, ...]:
    """What each layer makes of x, … C → … and its own width."""
    whole = fuse(layers, x.numel() // max(x.shape[-1], 1))
    if whole is None:
        return tuple(apply(layer, x) for layer in layers)
    return linear(x, whole.weight, whole.bias).split_with_sizes(whole.widths, -1)


def apply(layer: nn.Module, x: Tensor) -> Tensor:
    """layer(x), by `ops.linear` where it is torch's own and nobody is to be called."""
    if torch.compiler.is_compiling() or not (isinstance(layer, nn.Linear) and is_plain(layer)):
        return layer(x)
    return linear(x, layer.weight, bias_of(layer))


class FusedLinear(NamedTuple):
    weight: Tensor  # N C
    bias: Tensor | None  # N
    widths: list[int]


def fuse(layers: Sequence[nn.Module], tokens: int) -> FusedLinear | None:
    """The layers as one; None: that would not be faster for so many tokens, or somebody needs each by itself."""
    if torch.compiler.is_compiling():
        return None
    plain = [layer for layer in layers if isinstance(layer, nn.Linear) and is_plain(layer)]
    if len(plain) < len(layers):
        return None
    if torch.is_grad_enabled():
        return fuse_by_copy(plain) if tokens > plain[0].in_features else None
    return fuse_in_place(plain) if tokens <= FEW or prefers_onednn() else None  # which reads no strided weights


def fuse_by_copy(layers: list[nn.Linear]) -> FusedLinear | None:
    """The layers as one, copied; gradients find their way back to each."""
    weights, biases = [layer.weight for layer in layers], [bias_of(layer) for layer in layers]
    widths, given = [len(weight) for weight in weights], [bias for bias in biases if bias is not None]
    if given and len(given) < len(layers):
        return None
    return FusedLinear(torch.cat(weights), torch.cat(given) if given else None, widths)


def fuse_in_place(layers: list[nn.Linear]) -> FusedLinear | None:
    """The layers as one, without a copy; None: they are not laid out so."""
    first = layers[0]
    weight, bias, widths = first.weight, bias_of(first), list[int]()
    total = weight.stride(1)
    if weight.stride(0) != 1 or total <= weight.shape[0]:  # a matrix that lies by itself
        return None
    for layer in layers:
        if not is_adjacent(layer, first, sum(widths)):
            return None
        widths.append(layer.weight.shape[0])
    if sum(widths) != total:
        return None
    whole = weight.as_strided((total, weight.shape[1]), (1, total))
    return FusedLinear(whole, None if bias is None else bias.as_strided((total,), (1,)), widths)


def is_adjacent(layer: nn.Linear, first: nn.Linear, at: int) -> bool:
    """Whether a layer's weights lie `at` outputs behind those of the first."""
    weight, bias, other = layer.weight, bias_of(layer), bias_of(first)
    if weight.data_ptr() != first.weight.data_ptr() + at * weight.element_size():
        return False
    if weight.stride() != first.weight.stride():
        return False
    if bias is None or other is None:
        return bias is other
    return bias.data_ptr() == other.data_ptr() + at * bias.element_size()


def is_plain(layer: nn.Linear) -> bool:
    """Whether a layer does what torch's does, and nobody is to be called when it does."""
    hooked = nn.modules.module._has_any_global_hook() or has_hooks(layer)  # pyright: ignore[reportPrivateUsage]
    return type(layer).forward is nn.Linear.forward and "forward" not in vars(layer) and not hooked


def bias_of(layer: nn.Linear) -> Tensor | None:
    return layer.bias  # torch's own types know no layer without


def has_hooks(layer: nn.Module) -> bool:
    """Whether somebody is to be called when this layer is, forward or backward."""
    return bool(
        layer._forward_hooks  # pyright: ignore[reportPrivateUsage]
        or layer._forward_pre_hooks  # pyright: ignore[reportPrivateUsage]
        or layer._backward_hooks  # pyright: ignore[reportPrivateUsage]
        or layer._backward_pre_hooks  # pyright: ignore[reportPrivateUsage]
    )
