"""The attention operator, its scores, and dropout.

The explicit text of `attend` is its definition; the fused kernels, torch's and the native library's, are evaluations of
it, and so is `KeptWeights` where they have no gradient, or a slow one.  Dot product, bilinear and cosine score are dot
products once query and key are prepared (`dotted`), so the fused kernels evaluate them too; the additive and the capped
score are written out.

Axes:  B batch   H heads   G kv-heads   T queries   S keys   D head width   E value width
       A width of the additive score
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from headway.errors import UserError
from headway.native.sequence_attention import native_attend
from headway.ops.mixed_precision import at_least_float32, dtype_of_products
from headway.ops.pattern import Causal, Positions, both

Edit = Callable[[Tensor], Tensor]


class Score(Protocol):
    """score(q, k): B H T D, B H S D → B H T S"""

    def __call__(self, q: Tensor, k: Tensor) -> Tensor: ...


class DotScore(ABC):
    """A score that is a dot product of prepared queries and keys."""

    @abstractmethod
    def dotted(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        """(q′, k′, scale) with score(q, k) = scale · q′ k′ᵀ.  Query and key may differ in their number of heads."""

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        q, k, scale = self.dotted(q, k)
        return (q * scale) @ k.mT


@dataclass(frozen=True)
class Dot(DotScore):
    """Scaled dot product, q kᵀ / √D; another `scale` may be given (T5 takes 1)."""

    scale: float | None = None

    def dotted(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q, k, q.shape[-1] ** -0.5 if self.scale is None else self.scale


DOT = Dot()


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keep: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    score: Score = DOT,
    sink: Tensor | None = None,
    dropout: float = 0.0,
    edit: Edit | None = None,
) -> Tensor:
    """softmax(score(q, k) + bias, over the keys in `keep`) @ v.  A query that may see no key gives zeros.

    `q` is B H T D, `k` is B G S D and `v` B G S E with H a multiple of G; the result is B H T E.  `keep` is bool,
    B T S, True where a key may be seen; `bias` is float, B H T S, added to the logits; in both an axis may be 1.
    `causal` hides the keys after the query's own index.  `edit` receives the weights (B H T S) and returns those to
    use.  `sink` (H) is the logit of a key that every query sees and that has no value: weights need not sum to 1.  The
    fused kernel runs wherever the score is a dot product, nobody edits, nobody exports, and there is no sink.
    """
    check(q, k, v, keep, bias)
    # exported, the definition: other runtimes' kernels make NaN of a query that may see no key
    if edit is None and sink is None and isinstance(score, DotScore) and not torch.compiler.is_exporting():
        return fused(q, k, v, keep=keep, bias=bias, causal=causal, score=score, dropout=dropout)
    weights = attention_weights(q, k, keep=keep, bias=bias, causal=causal, score=score, sink=sink)  # B H T S
    weights = (weights if edit is None else edit(weights)).to(v.dtype)
    return drop(weights, dropout) @ per_head(v, q.shape[1])


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    keep: Tensor | None,
    bias: Tensor | None,
    causal: bool,
    score: Score,
    sink: Tensor | None = None,
) -> Tensor:
    """The weights that `attend` gives to the values, B H T S, in float32 or better."""
    keep = both(keep, causal_keep(q, k)) if causal else keep
    logits = score(q, per_head(k, q.shape[1]))
    # bf16 logits lose the tail of long contexts
    logits = at_least_float32(logits)
    seen = None if keep is None else keep[:, None]  # B 1 T S
    if bias is not None:
        finite = ~bias.isneginf()
        logits, seen = logits + torch.where(finite, bias, 0.0), both(seen, finite)
    if sink is None:
        return softmax_over(logits, seen)
    logits = logits if seen is None else logits.masked_fill(~seen, float("-inf"))
    return torch.cat([logits, sink.to(logits)[:, None, None].expand(*logits.shape[:3], 1)], -1).softmax(-1)[..., :-1]


def softmax_over(logits: Tensor, seen: Tensor | None) -> Tensor:
    """Softmax over the keys that are `seen`; a row that sees none gives zeros and no gradient rather than NaN."""
    if seen is None:
        return logits.softmax(-1)
    some = seen.any(-1, keepdim=True)
    return torch.where(some & ~seen, float("-inf"), logits).softmax(-1) * some


def per_head(x: Tensor, heads: int) -> Tensor:
    """Keys or values of shared kv-heads, B G S D, repeated for each head, B H S D."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keep: Tensor | None,
    bias: Tensor | None,
    causal: bool,
    score: DotScore,
    dropout: float,
) -> Tensor:
    """`attend` by the native library's kernel, or by torch's, which takes one mask or the causal flag, not both."""
    q, k, scale = score.dotted(q, k)
    if bias is None and dropout == 0.0:
        found = native_attend(q, k, v, keep=keep, causal=causal, scale=scale)
        if found is not None:
            return found
    kept_weights = dropout == 0.0 and keeps_weights(q, k, v, bias)
    if causal and (keep is not None or bias is not None or kept_weights):
        keep, causal = both(keep, causal_keep(q, k)), False
    if kept_weights:
        return with_kept_weights(q, per_head(k, q.shape[1]), per_head(v, q.shape[1]), keep, bias, scale)
    mask = None if keep is None else keep[:, None]  # B 1 T S
    if bias is not None:
        bias = bias.to(q.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    grouped = q.shape[1] != k.shape[1]
    if grouped and not causal and (mask is None or (mask.shape[1] == 1 and mask.shape[2] == 1)):
        # all queries see alike, so the heads of a group can be queries of its keys: 0.29 against 0.56 ms, one query,
        # 32 heads in 8 groups, 1k keys
        folded = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])  # B G (H/G · T) D
        y = F.scaled_dot_product_attention(folded, k, v, mask, dropout, scale=scale)
        return y.reshape(*q.shape[:3], v.shape[3])
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=scale, enable_gqa=grouped)


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
    """softmax(scale · q kᵀ + bias + hidden) v, for a `bias` that may learn and `hidden`, B 1 T S, that does not.

    The weights are kept for the gradient, and computed for a few rows or heads at a time; the softmax and its gradient
    are in float32 or better.  torch's kernel has no gradient of a learned bias: its slow path takes 1.2 times as long,
    and 1.5 times where something is hidden (256 windows of 49 cells, 3 heads, forward and backward), looking for rows
    that see nothing in the whole matrix.  In bf16 it multiplies no faster than in float32 and its gradient of short
    rows takes longer.  On a CPU with bf16 products, forward and backward: 8 rows of 256 causal tokens, 6 heads of 64,
    38 ms against 21; 128 rows of 15, 4 heads, 34 against 6.
    """

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


def causal_keep(q: Tensor, k: Tensor) -> Tensor:
    queries, keys = (Positions.run(0, x.shape[2], x.device).at for x in (q, k))
    return Causal().keep(queries, keys)


@dataclass(frozen=True, eq=False)
class Additive:
    """v · tanh(q + k) for each pair: Bahdanau's score, its two matrices already applied.  `v` is (A,)."""

    v: Tensor

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.tanh(q[:, :, :, None] + k[:, :, None]) @ self.v


@dataclass(frozen=True, eq=False)
class Bilinear(DotScore):
    """q W kᵀ, Luong's general score.  `weight` is (D, D′) for keys of width D′, or (H, D, D′)."""

    weight: Tensor

    def dotted(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q @ self.weight, k, 1.0


@dataclass(frozen=True, eq=False)
class Cosine(DotScore):
    """The cosine of the angle times a factor per head, exp(log_factor) (H 1 1), held at `most` (Swin-V2: 100)."""

    log_factor: Tensor
    most: float = 100.0

    def dotted(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        factor = self.log_factor.clamp(max=log(self.most)).exp()
        return F.normalize(q, dim=-1) * factor, F.normalize(k, dim=-1), 1.0


@dataclass(frozen=True)
class SoftCapped:
    """cap · tanh(scale · q kᵀ / cap): a scaled dot product that never passes ±cap (Gemma 2)."""

    cap: float
    scale: float | None = None

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        return soft_cap(Dot(self.scale)(q, k), self.cap)


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """cap · tanh(x / cap): about x where that is small, and never beyond ±cap."""
    return (x / cap).tanh() * cap


def drop(x: Tensor, share: float) -> Tensor:
    """`x` with about `share` of its values replaced by 0, in expectation unchanged.

    `F.dropout` is the definition.  On a CPU it draws a double for each value, which costs a translator a twentieth of
    its training; here four values share 64 bits of the same generator, so that the share left out is a multiple of
    1/65,536, and the others are enlarged by exactly that share.
    """
    if x.device.type != "cpu" or not 0.0 < share < 1.0:
        return F.dropout(x, share)
    out = min(max(round(share * STEPS), 1), STEPS - 1)
    chance = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    chance = chance.view(torch.int16)
    kept = chance[: x.numel()].view(x.shape) >= out - STEPS // 2
    return x * (kept * torch.tensor(STEPS / (STEPS - out), dtype=x.dtype))


STEPS = 2**16  # values of the 16 bits that decide


def check(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, bias: Tensor | None) -> None:
    """Shapes and types that could only give a wrong or an unreadable result are told to the person."""
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        shapes = ", ".join(f"{name} {shape_text(x)}" for name, x in (("q", q), ("k", k), ("v", v)))
        raise UserError(
            f"attend was given {shapes}",
            allowed="four axes each: q is B H T D, k and v are B G S D",
            do="add the missing axis with x[None]",
        )
    batch, heads, queries = q.shape[:3]
    if k.shape[:3] != v.shape[:3] or k.shape[0] != batch:
        raise UserError(
            f"q {shape_text(q)}, k {shape_text(k)} and v {shape_text(v)} do not belong together",
            allowed="one batch size in all three; the same heads and length in k and v",
            do="check which memory these keys and values come from",
        )
    if heads % max(k.shape[1], 1):
        raise UserError(
            f"{k.shape[1]} kv-heads do not divide {heads} heads",
            allowed=f"kv-heads of {divisors(heads)}",
            do="project k and v to one of these",
        )
    full = (batch, queries, k.shape[2])
    if keep is not None and (keep.dtype != torch.bool or not broadcasts_to(keep, full)):
        raise UserError(
            f"keep is {keep.dtype} {shape_text(keep)}",
            allowed=f"torch.bool, B T S = {full}, an axis may be 1",
            do="True means that a key may be seen; for padding give keep[:, None, :], for a bias use bias=",
        )
    if bias is not None and not (bias.is_floating_point() and broadcasts_to(bias, (batch, heads, *full[1:]))):
        raise UserError(
            f"bias is {bias.dtype} {shape_text(bias)}",
            allowed=f"a float tensor, B H T S = {(batch, heads, *full[1:])}, an axis may be 1",
            do="a bool mask goes to keep=",
        )


def broadcasts_to(x: Tensor, shape: tuple[int, ...]) -> bool:
    return x.dim() == len(shape) and all(a == 1 or a == b for a, b in zip(x.shape, shape, strict=True))


def shape_text(x: Tensor) -> str:
    return "×".join(str(n) for n in x.shape) or "()"


def divisors(n: int) -> str:
    return ", ".join(str(d) for d in range(1, n + 1) if n % d == 0)
