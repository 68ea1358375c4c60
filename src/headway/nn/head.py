"""Heads: logits of words and classes from the hidden states of each token, or of a pooled row.

A head of single tokens works on any selection of them, … C: call it on those that have a target.  A head of whole rows
first pools their real tokens into one vector.

Axes:  B batch   T tokens   Y X grid   C width   V vocabulary   K classes   N tokens of all packed rows
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headway.errors import UserError
from headway.nn.attention import CrossAttention
from headway.nn.block import Dropout, Scale, add_modules
from headway.nn.context import EMPTY, Context, PackedLengths, TokenSelection, padded
from headway.nn.ffn import Activation
from headway.ops.attend import shape_text, soft_cap
from headway.ops.linear import linear


class WordHead(nn.Module):
    """A head that gives each word a logit, … C → … V."""

    def loss(self, x: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """The cross-entropy of all targets together, without ever holding all logits: N C, N → a number."""
        raise NotImplementedError

    def losses(self, x: Tensor, targets: Tensor) -> Tensor:
        """That of each target, N, to measure by: it has no gradient."""
        raise NotImplementedError


class LMHead(WordHead):
    """scale · x Wᵀ + b: a logit for each word, … C → … V.

    `tied` shares its parameter: an embedding of the same words.  T5 has scale = C^−½ where it is tied.
    """

    weight_decay = True

    def __init__(
        self,
        dim: int,
        vocab: int,
        *,
        bias: bool = False,
        tied: nn.Parameter | nn.Embedding | None = None,
        scale: float = 1.0,
    ):
        super().__init__()
        self.weight = linear_weight(vocab, dim) if tied is None else tied_weight(tied, vocab, dim)
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None
        self.multiplier = Scale(scale)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return linear(self.multiplier(x), self.weight, self.bias)

    def loss(self, x: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        from headway.ops.cross_entropy import linear_cross_entropy  # late: for training alone

        return linear_cross_entropy(self.multiplier(x), self.weight, self.bias, targets, smoothing=smoothing)

    def losses(self, x: Tensor, targets: Tensor) -> Tensor:
        from headway.ops.cross_entropy import token_losses

        return token_losses(self.multiplier(x), self.weight, self.bias, targets)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]} → {self.weight.shape[0]}"


class SoftCappedHead(LMHead):
    """cap · tanh(LMHead(x) / cap), … C → … V: no logit passes ±cap (Gemma 2)."""

    def __init__(self, dim: int, vocab: int, *, cap: float, tied: nn.Parameter | nn.Embedding | None = None):
        super().__init__(dim, vocab, tied=tied)
        self.cap = cap

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return soft_cap(super().forward(x), self.cap)

    def loss(self, x: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        def part(x: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(self(x).float(), targets, reduction="sum", label_smoothing=smoothing)

        pairs = zip(x.split(CAPPED_TOKENS), targets.split(CAPPED_TOKENS), strict=True)
        # each part's logits are computed again for the gradient, so that only one part's are ever held
        parts = [checkpoint(part, *pair, use_reentrant=False) for pair in pairs]
        return torch.stack(cast(list[Tensor], parts)).sum()

    @torch.no_grad()
    def losses(self, x: Tensor, targets: Tensor) -> Tensor:
        pairs = zip(x.split(CAPPED_TOKENS), targets.split(CAPPED_TOKENS), strict=True)
        return torch.cat([F.cross_entropy(self(x).float(), target, reduction="none") for x, target in pairs])


CAPPED_TOKENS = 128  # of which the logits are held at a time


class MLMHead(WordHead):
    """words(norm(act(dense(x)))): BERT's head of masked words, … C → … V.

    `width` is that of the words' vectors: C unless given, less in ALBERT.  ModernBERT has `dense` without a bias.
    """

    def __init__(
        self,
        dim: int,
        vocab: int,
        *,
        width: int | None = None,
        act: Activation = F.gelu,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        bias: bool = True,
        tied: nn.Parameter | nn.Embedding | None = None,
    ):
        super().__init__()
        width = dim if width is None else width
        self.dense, self.act, self.norm = nn.Linear(dim, width, bias), act, norm(width)
        self.words = LMHead(width, vocab, bias=True, tied=tied)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.words(self.narrowed(x))

    def loss(self, x: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        return self.words.loss(self.narrowed(x), targets, smoothing)

    def losses(self, x: Tensor, targets: Tensor) -> Tensor:
        return self.words.losses(self.narrowed(x), targets)

    def narrowed(self, x: Tensor) -> Tensor:
        """… C → … width"""
        return self.norm(self.act(self.dense(x)))


class CTCHead(nn.Linear):
    """The logarithm of each symbol's probability at each frame, … C → … V.  Symbol 0 is the blank."""

    def __init__(self, dim: int, vocab: int, *, dropout: float = 0.0):
        super().__init__(dim, vocab)
        self.drop = Dropout(dropout)

    def forward(self, input: Tensor, ctx: Context = EMPTY) -> Tensor:
        logits = super().forward(self.drop(input))
        # sums over long inputs: bf16 would lose the likely symbols' digits
        return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


class TokenClassifier(nn.Module):
    """out(drop(inside(x))): classes of each token, … C → … K."""

    def __init__(self, dim: int, classes: int, *, inside: nn.Module | None = None, dropout: float = 0.0):
        super().__init__()
        self.inside = inside or nn.Identity()
        self.drop, self.out = Dropout(dropout), nn.Linear(dim, classes)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.out(self.drop(self.inside(x)))


class RowHead(nn.Module):
    """A head that reads of each row what `pool` makes of it, and nothing else."""

    def __init__(self, pool: nn.Module):
        super().__init__()
        self.pool = pool


class Classifier(RowHead):
    """out(drop(inside(norm(pool(x))))): classes of a whole row, B T C or B Y X C → B K.

    BERT has inside=TanhLayer(dim); ViT that averages has pool=MeanPool() and a norm; GPT-2 has pool=LastToken().
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        pool: nn.Module | None = None,
        norm: nn.Module | None = None,
        inside: nn.Module | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__(pool or FirstToken())
        self.norm, self.inside = norm or nn.Identity(), inside or nn.Identity()
        self.drop = Dropout(dropout)
        self.out = nn.Linear(dim, classes, bias=bias)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.out(self.drop(self.inside(self.norm(self.pool(x, ctx)))))


class DistilledClassifier(Classifier):
    """(out(class token) + distilled(distillation token)) / 2: DeiT's two heads, B T C → B K."""

    def __init__(self, dim: int, classes: int):
        super().__init__(dim, classes, pool=FirstTokens(2))
        self.distilled = nn.Linear(dim, classes)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        of_class, of_teacher = self.pool(x, ctx).unbind(1)
        return (self.out(of_class) + self.distilled(of_teacher)) / 2


class Pooler(RowHead):
    """inside(pool(x)): BERT's vector of a whole row, B T C → B C; others have a norm inside."""

    def __init__(self, dim: int, *, pool: nn.Module | None = None, inside: nn.Module | None = None):
        super().__init__(pool or FirstToken())
        self.inside = inside or TanhLayer(dim)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.inside(self.pool(x, ctx))


class AuxHeads(nn.Module):
    """main(x); other heads of the same features stand beside it, each called by its name."""

    def __init__(self, main: nn.Module, **others: nn.Module):
        super().__init__()
        self.main = main
        add_modules(self, others)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.main(x, ctx)


class TanhLayer(nn.Linear):
    """tanh(W x + b), as wide as its input: BERT's pooler is this of the first token."""

    def __init__(self, dim: int):
        super().__init__(dim, dim)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).tanh()


class Pool(nn.Module):
    """One vector for each row from its real tokens: B T C, a grid B Y X C, or packed 1 N C → B C."""

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        x = x.flatten(1, -2)
        return self.pooled(padded(x, ctx.rows), token_mask(x, ctx))

    def pooled(self, x: Tensor, real: Tensor) -> Tensor:
        """B T C → B C, where `real` (B T) is True."""
        raise NotImplementedError


class OneToken(Pool):
    """One of the real tokens."""

    def pooled(self, x: Tensor, real: Tensor) -> Tensor:
        return select_token(x, self.place(real))

    def place(self, real: Tensor) -> Tensor:
        """Which one, B, where `real` (B T) is True."""
        raise NotImplementedError

    def chosen(self, x: Tensor, ctx: Context) -> TokenSelection:
        """That one of each row of a batch, B T C or packed."""
        real = token_mask(x, ctx)
        slots = torch.arange(len(real), device=x.device) * real.shape[1] + self.place(real)
        index = slots if ctx.rows is None else torch.searchsorted(ctx.rows.slots, slots)
        return TokenSelection(index, PackedLengths.of([1] * len(real), x.device))


class FirstToken(OneToken):
    """The first real token: the class token, where there is one."""

    def place(self, real: Tensor) -> Tensor:
        return real.int().argmax(1)


class LastToken(OneToken):
    """The last real token: the one that has seen all others, in a causal model."""

    def place(self, real: Tensor) -> Tensor:
        return real.shape[1] - 1 - real.flip(1).int().argmax(1)


class MeanPool(Pool):
    """The mean of the real tokens, or of those from `first` to before `last`, such as all but a class token."""

    def __init__(self, first: int = 0, last: int | None = None):
        super().__init__()
        self.chosen = slice(first, last)

    def pooled(self, x: Tensor, real: Tensor) -> Tensor:
        x, real = x[:, self.chosen], real[:, self.chosen, None]
        return x.masked_fill(~real, 0.0).sum(1) / real.sum(1).clamp(min=1)


class ClassAndMean(Pool):
    """The class token beside the mean of the patches, which stand behind `first` tokens: B T C → B 2·C (DINOv2)."""

    def __init__(self, first: int):
        super().__init__()
        self.first = first

    def pooled(self, x: Tensor, real: Tensor) -> Tensor:
        return torch.cat([x[:, 0], x[:, self.first :].mean(1)], -1)


class FirstTokens(Pool):
    """The first `count` tokens: B T C → B count C."""

    def __init__(self, count: int):
        super().__init__()
        self.count = count

    def pooled(self, x: Tensor, real: Tensor) -> Tensor:
        return x[:, : self.count]


class SumPool(Pool):
    """The sum of the real tokens."""

    def pooled(self, x: Tensor, real: Tensor) -> Tensor:
        return x.masked_fill(~real[..., None], 0.0).sum(1)


class AttentionPool(nn.Module):
    """What a learned query sees in each row, in `heads` heads: B T C, B Y X C or packed 1 N C → B C."""

    weight_decay = True

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 1, dim) * dim**-0.5)
        self.attention = CrossAttention(dim, heads)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        rows = x.shape[0] if ctx.rows is None else len(ctx.rows.lengths)
        seen = Context(memory=x.flatten(1, -2), memory_keep=ctx.keep, memory_rows=ctx.rows, trace=ctx.trace)
        return self.attention(self.query.expand(rows, 1, -1), seen)[:, 0]


def main_head(head: nn.Module) -> nn.Module:
    """The head that a model answers with, alone or beside others."""
    return head.main if isinstance(head, AuxHeads) else head


def word_head(head: nn.Module) -> WordHead:
    """The head of words that a model has on top, alone or beside others."""
    head = main_head(head)
    if not isinstance(head, WordHead):
        raise UserError(f"a model with {type(head).__name__} on top says no words", do="take one with a head of words")
    return head


def tokens_for_head(head: nn.Module, x: Tensor, ctx: Context) -> TokenSelection | None:
    """The tokens of x, B T C or packed, that a head reads; None: more than one of a row."""
    head = main_head(head)
    return head.pool.chosen(x, ctx) if isinstance(head, RowHead) and isinstance(head.pool, OneToken) else None


def token_mask(x: Tensor, ctx: Context) -> Tensor:
    """Which tokens of a batch, B T C or packed, are not padding, in its padded view, B T."""
    shape = x.shape[:2] if ctx.rows is None else ctx.rows.keep.shape[::2]
    real = ctx.real(shape[1])
    return x.new_ones(shape, dtype=torch.bool) if real is None else real.expand(shape)


def select_token(x: Tensor, index: Tensor) -> Tensor:
    """Token index (B) of each row of x, B T C → B C"""
    return x.gather(1, index[:, None, None].expand(-1, 1, x.shape[2]))[:, 0]  # torch exports no take_along_dim


def linear_weight(rows: int, cols: int) -> nn.Parameter:
    """Weights as `nn.Linear` draws them."""
    return nn.Parameter(torch.empty(rows, cols).uniform_(-(cols**-0.5), cols**-0.5))


def tied_weight(tied: nn.Parameter | nn.Embedding, vocab: int, dim: int) -> nn.Parameter:
    weight = tied if isinstance(tied, nn.Parameter) else tied.weight
    if weight.shape != (vocab, dim):
        allowed = f"{vocab}×{dim}, vocab × dim"
        raise UserError(
            f"the tied weight is {shape_text(weight)}", allowed=allowed, do="tie the embedding of these words"
        )
    assert isinstance(weight, nn.Parameter)
    return weight
