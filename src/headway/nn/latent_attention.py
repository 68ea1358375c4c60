"""Self-attention that looks elsewhere than at plain keys: at nothing at all (a sink), at keys made of few numbers, at
distances as much as its input says, at keys that are held within bounds, or at keys that depend on who looks.

Axes:  B batch   T queries   S keys   C width   H heads   L latent width   P plain and R turned width of a head
       E value width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.attention import BIASED, UNBIASED, Biases, Keys, SelfAttention, merge, share, split
from headway.nn.bias import GatedT5Bias
from headway.nn.block import Identity
from headway.nn.context import Context, PackedLengths, padded
from headway.nn.fused_linear import apply_each
from headway.ops.attend import DOT, Dot, Edit, Score
from headway.ops.attention_map import AttentionMap, Bias
from headway.ops.pattern import Causal, Global, Pattern, Positions, Window
from headway.ops.rotary import Rotary


class SinkAttention(SelfAttention):
    """Self-attention whose heads may look at nothing: a learned logit of each stands beside those of the keys (H)."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: Biases = BIASED,
        pattern: Pattern = Causal(),
        rotary: Rotary | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(
            dim,
            heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            bias=bias,
            pattern=pattern,
            rotary=rotary,
            dropout=dropout,
        )
        self.sink = nn.Parameter(torch.zeros(heads))

    def map(self, q: Tensor, keys: Keys, positions: Positions) -> AttentionMap:
        return replace(super().map(q, keys, positions), sink=self.sink)


class GatedBiasAttention(SelfAttention):
    """Self-attention whose inputs say how much each query minds the distances (WavLM).

    The gate of a head is a · (b · scale − 1) + 2, where a and b are σ of sums of four numbers each, W x + b, of the
    head's share x of the input.  Each query carries it behind its D numbers, where keys have a zero, to the bias.
    """

    weight_decay = False

    def __init__(self, dim: int, heads: int, *, logit_bias: GatedT5Bias, dropout: float = 0.0):
        width = share(dim, heads)
        super().__init__(dim, heads, logit_bias=logit_bias, score=Dot(width**-0.5), dropout=dropout)
        self.gate = nn.Linear(width, 8)
        self.scale = nn.Parameter(torch.ones(1, heads, 1, 1))

    def queries_keys(self, x: Tensor, positions: Positions, ctx: Context) -> tuple[Tensor, Keys]:
        q, keys = super().queries_keys(x, positions, ctx)
        parts = self.gate(split(padded(x, ctx.rows), self.heads)).unflatten(-1, (2, 4)).sum(-1)  # B H T 2
        a, b = parts.sigmoid().split(1, -1)
        gate = a * (b * self.scale - 1) + 2  # B H T 1
        return torch.cat([q, gate], -1), keys._replace(k=F.pad(keys.k, (0, 1)))


class ClippedAttention(SelfAttention):
    """Self-attention whose queries, keys and values are held within ±clip, each number by itself (MPT, OLMo)."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        clip: float,
        kv_heads: int | None = None,
        bias: Biases = BIASED,
        pattern: Pattern = Causal(),
        rotary: Rotary | None = None,
        qk_norm: Callable[[int], nn.Module] = Identity,
        logit_bias: Bias | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(
            dim,
            heads,
            kv_heads=kv_heads,
            bias=bias,
            pattern=pattern,
            rotary=rotary,
            qk_norm=qk_norm,
            logit_bias=logit_bias,
            dropout=dropout,
        )
        self.clip = clip

    def projections(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(y.clamp(-self.clip, self.clip) for y in super().projections(x))


class GlobalTokenAttention(SelfAttention):
    """Window attention whose first `tokens` see all, and are seen by all, by projections of their own (Longformer).

    Every other query sees `radius` tokens on each side, and the first ones.  There is one map for both: a query has two
    halves, of which one is 0; keys and values have one half for each kind of query, which takes that of the sums.
    """

    def __init__(self, dim: int, heads: int, *, tokens: int, radius: int, dropout: float = 0.0):
        pattern = Window(radius) | Global(tokens) if tokens else Window(radius)
        super().__init__(dim, heads, pattern=pattern, score=Dot(share(dim, heads) ** -0.5), dropout=dropout)
        self.tokens = tokens  # 0: the last three layers do nothing
        self.global_q, self.global_k, self.global_v = (nn.Linear(dim, dim) for _ in range(3))

    def queries_keys(self, x: Tensor, positions: Positions, ctx: Context) -> tuple[Tensor, Keys]:
        q, keys = super().queries_keys(x, positions, ctx)
        if not self.tokens:
            return q, keys
        wide = apply_each(x, self.global_q, self.global_k, self.global_v)
        far_q, far_k, far_v = (split(padded(y, ctx.rows), self.heads) for y in wide)
        first = first_tokens(positions, self.tokens)
        q = torch.cat([q.masked_fill(first, 0.0), far_q.masked_fill(~first, 0.0)], -1)
        return q, keys._replace(k=torch.cat([keys.k, far_k], -1), v=torch.cat([keys.v, far_v], -1))

    def map(self, q: Tensor, keys: Keys, positions: Positions) -> AttentionMap:
        found = super().map(q, keys, positions)
        return TwofoldMap(**vars(found), tokens=self.tokens) if self.tokens else found


@dataclass(frozen=True, eq=False)
class TwofoldMap(AttentionMap):
    """A map whose values have two halves: the first `tokens` take the second of the sums, all others the first."""

    tokens: int = 0

    def times(self, v: Tensor, *, dropout: float = 0.0, edit: Edit | None = None) -> Tensor:
        near, far = super().times(v, dropout=dropout, edit=edit).chunk(2, -1)
        return torch.where(first_tokens(self.q_pos, self.tokens), far, near)


def first_tokens(positions: Positions, tokens: int) -> Tensor:
    """Which positions are of the first tokens, B|1 1 T 1."""
    return (positions.at < tokens)[:, None, :, None]


class LowRank(nn.Module):
    """up(norm(down(x))): a matrix of rank `rank` at most, … C → … and its own width."""

    tokenwise = True

    def __init__(self, dim: int, rank: int, out_dim: int, *, bias: bool = False):
        super().__init__()
        self.down, self.norm = nn.Linear(dim, rank, bias), nn.RMSNorm(rank, eps=1e-6)
        self.up = nn.Linear(rank, out_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.norm(self.down(x)))


class LatentAttention(SelfAttention):
    """Self-attention whose keys and values are made of one narrow vector per token: multi-head latent attention.

    `k` projects a token to its latent (L) and to the turned dims of its keys (R), which all heads share; `v` the normed
    latent to the plain dims of each head's keys (P) and to its values (E).  The state holds L + R numbers of a token.
    The rotary embedding turns the last dims of a query, R; with `rank`, queries are projected through so few dims.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        latent: int,
        plain: int,
        rotary: Rotary,
        value: int,
        rank: int | None = None,
        bias: bool = False,
        pattern: Pattern = Causal(),
        score: Score = DOT,
        dropout: float = 0.0,
    ):
        head_dim = plain + rotary.head_dim
        super().__init__(
            dim, heads, kv_heads=1, head_dim=head_dim, bias=UNBIASED, pattern=pattern, score=score, dropout=dropout
        )
        self.rotary, self.plain, self.latent = rotary, plain, latent
        if rank is not None:
            self.q = LowRank(dim, rank, heads * head_dim, bias=bias)
        self.k, self.k_norm = nn.Linear(dim, latent + rotary.head_dim, bias), nn.RMSNorm(latent, eps=1e-6)
        self.v = nn.Linear(latent, heads * (plain + value), bias=False)
        self.out = nn.Linear(heads * value, dim, bias)

    def queries_keys(self, x: Tensor, positions: Positions, ctx: Context) -> tuple[Tensor, Keys]:
        held = self.keys(*self.latents(self.k(x), positions, ctx.rows), positions, ctx)  # B 1 S L, B 1 S R
        plain, v = split(self.v(merge(held.k)), self.heads).tensor_split([self.plain], -1)  # B H S P, B H S E
        k = torch.cat([plain, held.v.expand(-1, self.heads, -1, -1)], -1)
        return self.queries(self.q(x), positions, ctx.rows), held._replace(k=k, v=v)

    def latents(self, x: Tensor, positions: Positions, rows: PackedLengths | None) -> tuple[Tensor, Tensor]:
        latent, turned = padded(x, rows)[:, None].tensor_split([self.latent], -1)
        assert self.rotary is not None
        return self.k_norm(latent), self.rotary(turned, positions.at)

    def turn(self, x: Tensor, positions: Positions) -> Tensor:
        plain, turned = x.tensor_split([self.plain], -1)
        assert self.rotary is not None
        return torch.cat([plain, self.rotary(turned, positions.at)], -1)
