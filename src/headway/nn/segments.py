"""XLNet's parts: attention that minds whether two tokens are of one text, and tokens that are predicted unseen.

Segments are alike or unlike: their numbers say nothing else.  A hidden token is one learned vector that sees the others
and is seen by none, itself included: XLNet's query stream, where hidden tokens are predicted independently of each
other.

Axes:  B batch   T tokens   C width   H heads   D head width   M segments
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from headway.nn.attention import UNBIASED, Keys, SelfAttention, share
from headway.nn.bias import TransformerXLBias, learned_table
from headway.nn.context import EMPTY, Context, padded
from headway.nn.embed import TokenEmbed
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk
from headway.ops.attend import Dot
from headway.ops.pattern import Positions, both
from headway.ops.rotary import HALVES

SEGMENTS = 4  # the first text, the second, the class token behind them, and padding


class SegmentAttention(SelfAttention):
    """Self-attention by Transformer-XL's distances, plus (q + w) · `alike` at keys of a query's own segment and
    (q + w) · `unlike` at all others, each (H, D).

    Segments are the context's positions, B|1 T; tokens stand in the order of their row.  What keys of the same segment
    have more than others is a product with M numbers more behind each query and key.
    """

    weight_decay = True

    def __init__(self, dim: int, heads: int, *, dropout: float = 0.0):
        width = share(dim, heads)
        distances, score = TransformerXLBias(heads, width, dim, layout=HALVES), Dot(width**-0.5)
        super().__init__(dim, heads, bias=UNBIASED, logit_bias=distances, score=score, dropout=dropout)
        self.w, self.alike, self.unlike = (learned_table(heads, width) for _ in range(3))

    def locate(self, x: Tensor, ctx: Context) -> Positions:
        return super().locate(x, replace(ctx, positions=None))

    def queries_keys(self, x: Tensor, positions: Positions, ctx: Context) -> tuple[Tensor, Keys]:
        q, keys = super().queries_keys(x, positions, ctx)
        if ctx.positions is None:  # one segment: what all keys have, softmax takes no notice of
            return q, keys
        segments = padded(ctx.positions, ctx.rows)[:, None, :, None]  # B|1 1 T 1
        own = (segments == torch.arange(SEGMENTS, device=x.device)).to(q.dtype)  # B|1 1 T M
        more = (q + self.w[:, None]) @ (self.alike - self.unlike)[:, :, None]  # B H T 1
        k = torch.cat([keys.k, own.expand(*keys.k.shape[:2], -1, -1)], -1)
        return torch.cat([q, more * own], -1), keys._replace(k=k)


class HiddenTokenEmbed(TokenEmbed):
    """Tokens, of which the hidden ones (B T, True) are one learned vector instead: XLNet's.  Segments add nothing."""

    weight_decay = False

    def __init__(self, vocab: int, dim: int, *, dropout: float = 0.0):
        super().__init__(vocab, dim, dropout=dropout)
        self.hidden = nn.Parameter(torch.zeros(dim))

    def forward(
        self, tokens: Tensor, ctx: Context = EMPTY, segments: Tensor | None = None, hidden: Tensor | None = None
    ) -> Tensor:
        x = self.token(tokens)
        x = x if hidden is None else torch.where(hidden[..., None], self.hidden, x)
        return ctx.emit(self, "out", self.drop(x))


class SegmentTrunk(Trunk):
    """A trunk of `SegmentAttention`; its further inputs are segments, all alike unless given, and the hidden tokens."""

    @property
    def segments(self) -> int:
        return SEGMENTS

    @property
    def fills_masks(self) -> bool:
        return isinstance(self.head, LMHead)

    def hiding(self, hidden: Tensor, *marks: Tensor) -> tuple[Tensor, ...]:
        return *(marks or (torch.zeros_like(hidden, dtype=torch.int64),)), hidden

    def forward(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        return super().forward(inputs, with_marks(ctx, *marks), *marks)

    def features(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        return super().features(inputs, with_marks(ctx, *marks), *marks)

    def features_at(self, index: Tensor, inputs: Tensor, ctx: Context, *marks: Tensor) -> Tensor:
        return super().features_at(index, inputs, with_marks(ctx, *marks), *marks)


def with_marks(ctx: Context, segments: Tensor | None = None, hidden: Tensor | None = None) -> Context:
    """The context with segments as positions, and with hidden tokens that nobody sees."""
    seen = None if hidden is None else ~padded(hidden, ctx.rows)[:, None]  # B 1 T
    return replace(ctx, positions=segments, keep=both(ctx.keep, seen))
