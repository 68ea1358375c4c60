"""Attention in training that keeps its weights for the gradient, for where torch's kernel has none or a slow one.

- A learned bias (T5, Swin): torch's path for a mask with a gradient takes 1.2 times as long, and 1.5 times where
  something is hidden (256 windows of 49 cells, 3 heads, forward and backward), looking for rows that see nothing in the
  whole matrix.
- bf16: torch's kernel multiplies no faster than in float32, and its gradient of short rows takes longer.  On a CPU with
  bf16 products, forward and backward: 8 rows of 256 causal tokens, 6 heads of 64, 38 ms against 21; 128 rows of 15, 4
  heads, 34 against 6.

The weights are computed for a few rows or heads at a time; the softmax and its gradient are in float32 or better.

Axes:  B batch   H heads   T queries   S keys   D head width   E value width
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from headway.ops.mixed_precision import at_least_float32, dtype_of_products

MAX_KEPT = 512 * 512  # weights of a head: beyond, to keep them takes more memory than the rest of a layer, or as much
PART = 2**19  # logits that are computed at a time, 2 MB in float32, so that they stay in the cache


def keeps_weights(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> bool:
    """Whether a gradient is wanted for which torch's kernel is slow: that of a learned bias, and any in bf16."""
    given = [x for x in (q, k, v, bias) if x is not None]
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in given)) or torch.compiler.is_compiling():
        return False
    dtype, learned = dtype_of_products(q), bias is not None and bias.requires_grad
    if dtype is torch.bfloat16:
        wanted = q.shape[2] * k.shape[2] <= MAX_KEPT
    else:
        wanted = learned and q.dtype is dtype and dtype in (torch.float32, torch.float64) and q.shape[1] == k.shape[1]
    return wanted and q.device.type == "cpu" and not (bias is not None and bool(bias.detach().isneginf().any()))


def with_kept_weights(
    q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, bias: Tensor | None, scale: float
) -> Tensor:
    dtype = dtype_of_products(q)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    bias = None if bias is None else bias.to(dtype)
    if keep is None:
        return KeptWeights.apply(q, k, v, bias, None, scale)
    hidden = q.new_zeros(keep.shape).masked_fill_(~keep, HIDDEN)[:, None]  # B 1 T S
    y, some = KeptWeights.apply(q, k, v, bias, hidden, scale), keep.any(-1)
    return y if bool(some.all()) else y * some[:, None, :, None]  # a query that may see no key gives zeros


HIDDEN = -1e30  # a logit beside which any other is infinite, and which is equal to itself


class KeptWeights(torch.autograd.Function):
    """softmax(scale · q kᵀ + bias + hidden) v, for a `bias` that may learn and `hidden`, B 1 T S, that does not."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        hidden: Tensor | None,
        scale: float,
    ) -> Tensor:
        weights = q.new_empty(*q.shape[:3], k.shape[2])
        y = q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)  # as heads are merged
        for part in parts(weights):
            added = [within(x, part).expand_as(weights[part]) for x in (bias, hidden) if x is not None]
            whole = sum(added[1:], added[0]).flatten(0, 1) if added else q.new_zeros(())
            q_flat, k_flat = q[part].flatten(0, 1), k[part].flatten(0, 1)
            logits = torch.baddbmm(whole, q_flat, k_flat.mT, beta=1 if added else 0, alpha=scale)
            weights[part] = at_least_float32(logits).softmax(-1).view_as(weights[part])
            y[part] = weights[part] @ v[part]
        ctx.save_for_backward(q, k, v, weights)
        ctx.scale, ctx.bias = scale, None if bias is None else bias.shape  # pyright: ignore[reportAttributeAccessIssue]
        return y

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
        grad_bias = at_least_float32(q.new_zeros(ctx.bias)) if ctx.needs_input_grad[3] else None
        for part in parts(weights):
            grad, own = grads[0][part], at_least_float32(weights[part])
            grad_v[part] = weights[part].mT @ grad
            inner = torch.ops.aten._softmax_backward_data(at_least_float32(grad @ v[part].mT), own, -1, own.dtype)
            if grad_bias is not None:
                some = within(grad_bias, part)
                some += inner.sum_to_size(some.shape)
            inner = inner.mul_(ctx.scale).to(q.dtype)
            grad_q[part], grad_k[part] = inner @ k[part], inner.mT @ q[part]
        return grad_q, grad_k, grad_v, grad_bias, None, None


def parts(weights: Tensor) -> Iterator[tuple[slice, slice]]:
    """Some rows, or some heads of one, at a time."""
    batch, heads, queries, keys = weights.shape
    size = max(1, queries * keys)
    some_rows, some_heads = max(1, PART // (size * heads)), max(1, PART // size)
    for row in range(0, batch, some_rows):
        for head in range(0, heads, some_heads):
            yield slice(row, row + some_rows), slice(head, head + some_heads)


def within(x: Tensor, part: tuple[slice, slice]) -> Tensor:
    """That part of a tensor in which rows and heads may be 1."""
    rows, heads = (one if length > 1 else slice(None) for one, length in zip(part, x.shape[:2], strict=True))
    return x[rows, heads]
