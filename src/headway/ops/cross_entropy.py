"""Cross-entropy of a linear layer over a vocabulary, without holding the logits of all tokens at once.

`linear_cross_entropy_plain` is the definition.  `ChunkedCrossEntropy` evaluates it a few hundred tokens at a time: in
one buffer their logits become the gradients of their losses and are multiplied out on the spot, so that the backward
pass has only to scale what is there.  (To make the logits once more in the backward pass took 1.4 times as long.)

In mixed precision the products with the weights, and those of the gradients, are computed in its dtype like those of
every other layer; the softmax and all sums over words and tokens are in float32.

Axes:  N tokens   R tokens of one chunk   C width   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from headway.errors import UserError
from headway.ops.attend import shape_text
from headway.ops.linear import linear, suits_onednn
from headway.ops.mixed_precision import dtype_of_products

BUFFER = 2**23  # logits of a chunk, 32 MB: twice as many are 3 % faster at a vocabulary of 50k, 6 % slower at 8k
WORDS = 2**13  # whose gradient is made at a time where it cannot be added in place: 50k peaked at 938, now 750 MiB
FEW = 2**18  # logits that are sooner made all at once


def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *, smoothing: float = 0.0, scale: float = 1.0
) -> Tensor:
    """The sum over tokens of the cross-entropy of scale · x Wᵀ + b, in float32 or better but for mixed precision.

    `x` is N C, `weight` V C, `bias` V and `targets` N.  Of each target the share `smoothing` goes evenly to all words.
    """
    check(x, weight, bias, targets, smoothing)
    if len(x) * len(weight) <= FEW:
        return linear_cross_entropy_plain(x, weight, bias, targets, smoothing=smoothing, scale=scale)
    x, weight, bias = to_float32(x * scale, weight, bias)
    if torch.is_grad_enabled() and any(given is not None and given.requires_grad for given in (x, weight, bias)):
        return ChunkedCrossEntropy.apply(x, weight, bias, targets, smoothing)
    return chunked(x, weight, bias, targets, smoothing, Gradients(None, None, None)).sum()


@torch.no_grad()
def token_losses(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, scale: float = 1.0) -> Tensor:
    """The cross-entropy of each token, N, for perplexity; no gradients."""
    check(x, weight, bias, targets)
    return chunked(*to_float32(x * scale, weight, bias), targets, 0.0, Gradients(None, None, None))


def linear_cross_entropy_plain(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *, smoothing: float = 0.0, scale: float = 1.0
) -> Tensor:
    """The definition of `linear_cross_entropy`."""
    x, weight, bias = to_float32(x * scale, weight, bias)
    logits = F.linear(x, weight, bias).to(x.dtype)  # N V
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)


class ChunkedCrossEntropy(torch.autograd.Function):
    """The evaluation by chunks, for autograd: x, weight, bias, targets, smoothing → the sum of losses."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
        wanted = zip((x, weight, bias), ctx.needs_input_grad, strict=False)
        # only to fill them with zeros would take 2 % of a step with a vocabulary of 30k
        make = torch.empty_like if len(x) else torch.zeros_like
        grads = Gradients(*(make(given) if given is not None and want else None for given, want in wanted))
        losses = chunked(x, weight, bias, targets, smoothing, grads)
        ctx.save_for_backward(grads.x, grads.weight, grads.bias)
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return *(None if grad is None else grad * upstream for grad in ctx.saved_tensors), None, None


@dataclass(frozen=True)
class Gradients:
    """Where the gradients of a sum of losses gather, from the first chunk on; None for one that nobody wants."""

    x: Tensor | None  # N C
    weight: Tensor | None  # V C
    bias: Tensor | None  # V

    def wanted(self) -> bool:
        return not (self.x is None and self.weight is None and self.bias is None)

    def add(self, chunk: slice, x: Tensor, weight: Tensor, logits: Tensor) -> None:
        """Carries the gradient of a chunk's logits, R V, over to x, weight and bias; products in the dtype of x."""
        first = chunk.start == 0
        if self.bias is not None:
            (self.bias.copy_ if first else self.bias.add_)(logits.sum(0))
        logits = logits.to(x.dtype)
        if self.x is not None:
            self.x[chunk] = linear(logits, weight.T)
        if self.weight is not None and self.weight.dtype is x.dtype and not suits_onednn(logits.T, x[chunk].T):
            self.weight.addmm_(logits.T, x[chunk], beta=0 if first else 1)
        elif self.weight is not None:
            for words, part in zip(self.weight.split(WORDS), logits.split(WORDS, 1), strict=True):
                (words.copy_ if first else words.add_)(linear(part.T, x[chunk].T))


def chunked(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, grads: Gradients
) -> Tensor:
    """The loss of each token, N; where gradients are wanted they are added to `grads`."""
    losses, dtype = x.new_zeros(len(x)), dtype_of_products(x)
    x, weight = x.to(dtype), weight.to(dtype)
    for chunk, logits in chunks_of_logits(x, weight, bias):
        here = targets[chunk, None]
        logits -= logits.amax(1, keepdim=True)
        losses[chunk] -= (1.0 - smoothing) * logits.gather(1, here)[:, 0]
        if smoothing:
            losses[chunk] -= smoothing * logits.mean(1)
        total = logits.exp_().sum(1, keepdim=True)
        losses[chunk] += total[:, 0].log()
        if grads.wanted():
            # softmax − target, the target being smoothed
            logits /= total
            if smoothing:
                logits -= smoothing / logits.shape[1]
            logits.scatter_add_(1, here, logits.new_full((1, 1), smoothing - 1.0).expand_as(here))
            grads.add(chunk, x, weight, logits)
        del logits  # before there are others
    return losses


def chunks_of_logits(x: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """The logits x Wᵀ + b of some tokens at a time, R V, in room that is used again."""
    count, vocab = len(x), len(weight)
    pieces = -(-count * vocab // BUFFER)
    rows = -(-count // max(pieces, 1))
    # Rows begin at odd multiples of 64 floats: the product is 1.3 times as fast as with rows of 50,257, not aligned,
    # and 1.1 times as with rows of 32,768, which fall on one another in the cache.  No column is added for it.
    wide = torch.promote_types(x.dtype, torch.float32)
    buffer = x.new_empty(rows, (-(-vocab // 64) | 1) * 64, dtype=wide)[:, :vocab]
    for start in range(0, count, max(rows, 1)):
        chunk = slice(start, min(start + rows, count))
        yield chunk, logits_in(buffer[: chunk.stop - start], x[chunk], weight, bias)  # kept by who gets them alone


def logits_in(buffer: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b in a buffer, or in room of its own where the product cannot be told where to go."""
    if suits_onednn(x, weight):
        return linear(x, weight, bias)
    if x.dtype is buffer.dtype:
        torch.mm(x, weight.T, out=buffer)
    else:
        buffer.copy_(x @ weight.T)
    return buffer if bias is None else buffer.add_(bias)


def to_float32(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """All in float32 or better: sums over a vocabulary lose too much in bf16."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32)
    return x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


def check(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0) -> None:
    fits = x.dim() == weight.dim() == 2 and x.shape[1] == weight.shape[1] and targets.shape == x.shape[:1]
    if not fits or (bias is not None and bias.shape != weight.shape[:1]):
        given = {"x": x, "weight": weight, "bias": bias, "targets": targets}
        told = ", ".join(f"{name} {shape_text(value)}" for name, value in given.items() if value is not None)
        raise UserError(f"cross-entropy of {told}", allowed="x N×C, weight V×C, bias V, targets N")
    if not 0.0 <= smoothing < 1.0:
        raise UserError(f"smoothing={smoothing}", allowed="a share from 0 up to, but not, 1")
