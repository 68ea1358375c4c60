"""The attention operator, its scores, and dropout.

The explicit text of `attend` is its definition; the fused kernel is an evaluation of it, and so is `LearnedBias` where
that kernel has no gradient.  Dot product, bilinear and cosine score are dot products once query and key are prepared
(`dotted`), so the fused kernel evaluates them too; the additive and the capped score are written out.

Axes:  B batch   H heads   G kv-heads   T queries   S keys   D head width   E value width
       A width of the additive score
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from headway.errors import UserError
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
    dropout: float = 0.0,
    edit: Edit | None = None,
) -> Tensor:
    """softmax(score(q, k) + bias, over the keys in `keep`) @ v.  A query that may see no key gives zeros.

    `q` is B H T D, `k` is B G S D and `v` B G S E with H a multiple of G; the result is B H T E.  `keep` is bool,
    B T S, True where a key may be seen; `bias` is float, B H T S, added to the logits; in both an axis may be 1.
    `causal` hides the keys after the query's own index.  `edit` receives the weights (B H T S) and returns those to
    use.  The fused kernel runs wherever the score is a dot product and nobody edits.
    """
    check(q, k, v, keep, bias)
    if edit is None and isinstance(score, DotScore):
        return fused(q, k, v, keep=keep, bias=bias, causal=causal, score=score, dropout=dropout)
    weights = attention_weights(q, k, keep=keep, bias=bias, causal=causal, score=score)  # B H T S
    weights = (weights if edit is None else edit(weights)).to(v.dtype)
    return drop(weights, dropout) @ per_head(v, q.shape[1])


def attention_weights(
    q: Tensor, k: Tensor, *, keep: Tensor | None, bias: Tensor | None, causal: bool, score: Score
) -> Tensor:
    """The weights that `attend` gives to the values, B H T S, in float32 or better."""
    keep = both(keep, causal_keep(q, k)) if causal else keep
    logits = score(q, per_head(k, q.shape[1]))
    # bf16 logits lose the tail of long contexts
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    seen = None if keep is None else keep[:, None]  # B 1 T S
    if bias is not None:
        finite = ~bias.isneginf()
        logits, seen = logits + torch.where(finite, bias, 0.0), both(seen, finite)
    return softmax_over(logits, seen)


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
    """`attend` by torch's kernel, which takes one mask or the causal flag, not both."""
    if causal and (keep is not None or bias is not None):
        keep, causal = both(keep, causal_keep(q, k)), False
    mask = None if keep is None else keep[:, None]  # B 1 T S
    q, k, scale = score.dotted(q, k)
    if bias is not None:
        bias = bias.to(q.dtype)
        if dropout == 0.0 and needs_bias_gradient(bias, q, k):
            return with_learned_bias(q, k, v, keep, bias, scale)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    grouped = q.shape[1] != k.shape[1]
    if grouped and not causal and (mask is None or (mask.shape[1] == 1 and mask.shape[2] == 1)):
        # all queries see alike, so the heads of a group can be queries of its keys: 0.29 against 0.56 ms, one query,
        # 32 heads in 8 groups, 1k keys
        folded = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])  # B G (H/G · T) D
        y = F.scaled_dot_product_attention(folded, k, v, mask, dropout, scale=scale)
        return y.reshape(*q.shape[:3], v.shape[3])
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=scale, enable_gqa=grouped)


def needs_bias_gradient(bias: Tensor, q: Tensor, k: Tensor) -> bool:
    """Whether the bias needs a gradient, for which torch's kernel would take its slow path, and ours is made for it."""
    if not (bias.requires_grad and torch.is_grad_enabled()) or torch.compiler.is_compiling():
        return False
    plain = q.device.type == "cpu" and q.dtype in (torch.float32, torch.float64) and q.shape[1] == k.shape[1]
    return plain and bias.shape[0] == 1 and not bool(bias.detach().isneginf().any())


def with_learned_bias(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, bias: Tensor, scale: float) -> Tensor:
    if keep is None:
        return LearnedBias.apply(q, k, v, bias, None, scale)
    hidden = q.new_zeros(keep.shape).masked_fill_(~keep, HIDDEN)[:, None]  # B 1 T S
    y, some = LearnedBias.apply(q, k, v, bias, hidden, scale), keep.any(-1)
    return y if bool(some.all()) else y * some[:, None, :, None]  # a query that may see no key gives zeros


HIDDEN = -1e30  # a logit beside which any other is infinite, and which is equal to itself


class LearnedBias(torch.autograd.Function):
    """softmax(scale · q kᵀ + bias + hidden) v, for a bias 1 H T S that learns and `hidden` B 1 T S that does not.

    torch's path for a mask with a gradient takes 1.2 times as long, and 1.5 times where something is hidden (256
    windows of 49 cells, 3 heads, forward and backward), looking for rows that see nothing in the whole matrix.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, hidden: Tensor | None, scale: float
    ) -> Tensor:
        whole = bias.expand(*q.shape[:3], k.shape[2])
        logits = (whole.clone() if hidden is None else whole + hidden).flatten(0, 1)  # (B H) T S
        q_flat, k_flat, v_flat = (x.flatten(0, 1) for x in (q, k, v))
        weights = logits.baddbmm_(q_flat, k_flat.mT, alpha=scale).softmax(-1)
        ctx.save_for_backward(q_flat, k_flat, v_flat, weights)
        ctx.scale, ctx.bias = scale, bias.shape  # pyright: ignore[reportAttributeAccessIssue]
        return (weights @ v_flat).unflatten(0, q.shape[:2])

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        heads, grad = grads[0].shape[:2], grads[0].flatten(0, 1)
        inner = torch.ops.aten._softmax_backward_data(grad @ v.mT, weights, -1, weights.dtype)  # (B H) T S
        grad_q = torch.baddbmm(q, inner, k, beta=0, alpha=ctx.scale)
        grad_k = torch.baddbmm(k, inner.mT, q, beta=0, alpha=ctx.scale)
        each = (x.unflatten(0, heads) for x in (grad_q, grad_k, weights.mT @ grad))
        return *each, inner.unflatten(0, heads).sum_to_size(ctx.bias), None, None


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


def no_autocast(x: Tensor) -> torch.autocast:
    """A context in which products keep the dtype of their inputs, in mixed precision too; `x` tells the device."""
    kind = x.device.type  # the meta device has no autocast
    return torch.autocast(kind if torch.amp.is_autocast_available(kind) else "cpu", enabled=False)


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
