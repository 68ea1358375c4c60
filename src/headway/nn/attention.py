"""Attention layers: projections around the attention operator.

Self- and cross-attention differ only in where keys and values come from.

Axes:  B batch   T queries   S keys   C width   H heads   G kv-heads   D head width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.native.sequence_attention import MAX_KEYS, MIN_QUERIES, attend_packed, usable_library
from headway.nn.block import Identity
from headway.nn.context import EMPTY, Context, PackedLengths, TokenSelection, packed, padded
from headway.nn.fused_linear import apply, apply_each
from headway.ops.attend import DOT, Dot, Score, divisors, shape_text
from headway.ops.attention_map import AttentionMap, Bias, Weights
from headway.ops.pattern import Causal, Full, Pattern, Positions, both
from headway.ops.rotary import Rotary


class Biases(NamedTuple):
    """Which projections add a bias vector."""

    q: bool = True
    k: bool = True
    v: bool = True
    out: bool = True


BIASED = Biases()
UNBIASED = Biases(q=False, k=False, v=False, out=False)


class Keys(NamedTuple):
    """Keys and values, their positions and mask."""

    k: Tensor  # B G S D
    v: Tensor  # B G S D
    positions: Positions
    keep: Tensor | None  # B T S


class Attention(nn.Module):
    """out(softmax(score(q(x), k(source)) + bias) v(source)), in `heads` heads; `kv_heads` of them have own keys.

    B T C → B T C.  `head_dim` is C / heads unless given: full-width heads take head_dim=C.  The output is `out_dim`
    wide, C unless given.
    """

    tokenwise = False

    emits: tuple[str, ...] = ("input", "weights", "values", "heads")

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        kv_dim: int | None = None,
        out_dim: int | None = None,
        bias: Biases = BIASED,
        pattern: Pattern = Full(),
        rotary: Rotary | None = None,
        qk_norm: Callable[[int], nn.Module] = Identity,
        logit_bias: Bias | None = None,
        score: Score = DOT,
        dropout: float = 0.0,
    ):
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        head_dim = share(dim, heads) if head_dim is None else head_dim
        kv_dim = dim if kv_dim is None else kv_dim
        check_groups(heads, kv_heads)
        self.heads, self.kv_heads, self.head_dim, self.kv_dim = heads, kv_heads, head_dim, kv_dim
        self.pattern, self.rotary, self.logit_bias = pattern, rotary, logit_bias
        self.score, self.dropout = score, dropout
        self.q = nn.Linear(dim, heads * head_dim, bias.q)
        self.k = nn.Linear(kv_dim, kv_heads * head_dim, bias.k)
        self.v = nn.Linear(kv_dim, kv_heads * head_dim, bias.v)
        self.out = nn.Linear(heads * head_dim, dim if out_dim is None else out_dim, bias.out)
        self.q_norm, self.k_norm = qk_norm(head_dim), qk_norm(head_dim)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        x = ctx.emit(self, "input", x)
        positions = self.locate(x, ctx)
        return self.attended(*self.queries_keys(x, positions, ctx), positions, ctx)

    def attended(self, q: Tensor, keys: Keys, positions: Positions, ctx: Context) -> Tensor:
        """What queries, B H T D, see from their positions."""
        y = self.weigh(self.map(q, keys, positions), keys.v, ctx)  # B H T D
        return apply(self.out, packed(merge(y), ctx.rows))

    def map(self, q: Tensor, keys: Keys, positions: Positions) -> AttentionMap:
        return AttentionMap(q, keys.k, positions, keys.positions, self.pattern, keys.keep, self.logit_bias, self.score)

    def queries_keys(self, x: Tensor, positions: Positions, ctx: Context) -> tuple[Tensor, Keys]:
        """Queries that stand at `positions`, B H T D, and what they look at."""
        raise NotImplementedError

    def locate(self, x: Tensor, ctx: Context) -> Positions:
        """Where the queries stand; packed rows are attended in their padded view, each from position 0."""
        if ctx.rows is not None:
            return Positions.run(0, ctx.rows.longest, x.device)
        return ctx.locate(self, x)

    def queries(self, q: Tensor, positions: Positions, rows: PackedLengths | None) -> Tensor:
        return self.turn(self.q_norm(split(padded(q, rows), self.heads)), positions)

    def keys_values(
        self, k: Tensor, v: Tensor, positions: Positions, rows: PackedLengths | None
    ) -> tuple[Tensor, Tensor]:
        k, v = split(padded(k, rows), self.kv_heads), split(padded(v, rows), self.kv_heads)
        return self.turn(self.k_norm(k), positions), v

    def turn(self, x: Tensor, positions: Positions) -> Tensor:
        return x if self.rotary is None else self.rotary(x, positions.at)

    def weigh(self, amap: AttentionMap, v: Tensor, ctx: Context) -> Tensor:
        """The map times the values, recorded and edited as the context asks."""
        dropout = self.dropout if self.training else 0.0
        if not ctx.traces():
            return amap.times(v, dropout=dropout)
        v = ctx.emit(self, "values", v)
        if ctx.edits(self, "weights"):

            def edit(weights: Tensor) -> Tensor:
                weights = ctx.edited(self, "weights", weights)
                ctx.show(self, "weights", Weights(weights))
                return weights

            y = amap.times(v, dropout=dropout, edit=edit)
        else:
            ctx.show(self, "weights", amap)
            y = amap.times(v, dropout=dropout)
        return ctx.emit(self, "heads", y)


class SelfAttention(Attention):
    """Keys and values from the input itself, and from what the state has seen of it before.

    The native library attends packed rows without padding them: BERT-base in int8, 32 texts of 5 to 120 tokens,
    866 → 646 ms (AVX-512).
    """

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        y = None if ctx.rows is None else self.attend_rows(x, ctx.rows, ctx)
        return super().forward(x, ctx) if y is None else apply(self.out, y)

    def attend_rows(self, x: Tensor, rows: PackedLengths, ctx: Context) -> Tensor | None:
        """What the queries of packed rows see, 1 N (H D), by the native library; None: it cannot do this call."""
        other = ctx.traces() or ctx.state is not None or ctx.keep is not None or torch.is_grad_enabled()
        if other or not self.is_plain_dot() or (self.training and self.dropout):
            return None
        library = usable_library(x) if MIN_QUERIES <= rows.longest <= MAX_KEYS else None
        if library is None:
            return None
        q, k, v = (y[0].unflatten(-1, (-1, self.head_dim)) for y in apply_each(x, self.q, self.k, self.v))  # N H D
        assert isinstance(self.score, Dot)
        causal, scale = self.pattern == Causal(), self.score.dotted(q, k)[2]
        return attend_packed(library, q, k, v, rows.lengths, causal=causal, scale=scale).flatten(1)[None]

    def is_plain_dot(self) -> bool:
        """Whether all that happens to queries and keys is their product, over all keys or those up to the query's."""
        empty = type(self.q_norm) is type(self.k_norm) is Identity and self.rotary is None and self.logit_bias is None
        return type(self) is SelfAttention and empty and type(self.score) is Dot and self.pattern in (Full(), Causal())

    def queries_keys(self, x: Tensor, positions: Positions, ctx: Context) -> tuple[Tensor, Keys]:
        q, k, v = self.projections(x)
        k, v = self.keys_values(k, v, positions, ctx.rows)
        return self.queries(q, positions, ctx.rows), self.keys(k, v, positions, ctx)

    def projections(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, of all heads side by side."""
        return apply_each(x, self.q, self.k, self.v)

    def at(self, chosen: TokenSelection, x: Tensor, ctx: Context) -> Tensor:
        """What comes out at some tokens, 1 M C: only these ask, and what they see is all tokens."""
        positions = self.locate(x, ctx)
        k, v = apply_each(x, self.k, self.v)
        keys = self.keys(*self.keys_values(k, v, positions, ctx.rows), positions, ctx)
        at = positions.at
        stand = at.expand(len(x), *at.shape[1:]) if ctx.rows is None else ctx.rows.positions
        asking = Positions(chosen.rows.pad(chosen.of(stand)))
        q = self.queries(self.q(chosen.of(x)), asking, chosen.rows)
        return self.attended(q, keys, asking, Context(rows=chosen.rows))

    def keys(self, k: Tensor, v: Tensor, positions: Positions, ctx: Context) -> Keys:
        if ctx.state is None:
            # padding stands behind the row's last query, so only a pattern that looks ahead could see it
            padding = ctx.rows.keep if ctx.rows is not None and self.pattern.looks_ahead() else None
            return Keys(k, v, positions, both(ctx.keep, padding))
        if ctx.rows is not None:
            raise UserError("packed rows cannot be appended to a decoding state", do="pad them, and pass keep")
        seen = ctx.state.append(self, positions, k, v)
        k, v = seen.tensors
        return Keys(k, v, seen.positions, both(up_to(ctx.keep, k.shape[2]), seen.keep))


class CrossAttention(Attention):
    """Keys and values from the memory in the context, projected once for all calls that share a state.

    Rows that share a row of the memory, as the beams of a sentence do, are read as one long row.
    """

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        beams = 1 if ctx.state is None else ctx.state.beams
        if beams == 1:
            return super().forward(x, ctx)
        # where no query's place counts, the tokens of K rows may be those of one: (B K) T C → B (K T) C and back
        assert not self.is_ordered()
        together = super().forward(x.unflatten(0, (-1, beams)).flatten(1, 2), ctx)
        return together.unflatten(1, (beams, -1)).flatten(0, 1)

    @property
    def shares_memory(self) -> bool:
        """Whether rows can read one row of the memory together; parts that cannot say so, too."""
        return type(self) is CrossAttention and not self.is_ordered()

    def is_ordered(self) -> bool:
        """Whether it matters where the queries stand."""
        return self.rotary is not None or self.logit_bias is not None or self.pattern != Full()

    def queries_keys(self, x: Tensor, positions: Positions, ctx: Context) -> tuple[Tensor, Keys]:
        return self.queries(apply(self.q, x), positions, ctx.rows), self.keys(x, positions, ctx)

    def keys(self, x: Tensor, positions: Positions, ctx: Context) -> Keys:
        memory, rows = self.memory(x, ctx), ctx.memory_rows
        stand = Positions.run(0, memory.shape[1] if rows is None else rows.longest, x.device)

        def make() -> tuple[Tensor, Tensor]:
            k, v = apply_each(memory, self.k, self.v)
            return self.keys_values(k, v, stand, rows)

        k, v = make() if ctx.state is None else ctx.state.once(self, make)
        if ctx.state is not None and self.is_ordered():
            ctx.state.append(self, positions)  # the next call's queries stand after these
        return Keys(k, v, stand, both(ctx.memory_keep, None if rows is None else rows.keep))

    def memory(self, x: Tensor, ctx: Context) -> Tensor:
        if ctx.memory is None:
            raise UserError("cross-attention was given no memory", do="pass Context(memory=encoder(source))")
        memory, width = ctx.memory, self.kv_dim
        if memory.dim() != 3 or memory.shape[2] != width:
            allowed = f"B S {width}, the width this part was made for"
            raise UserError(
                f"the memory is {shape_text(memory)}",
                allowed=allowed,
                do=f"make the part with kv_dim={memory.shape[-1]}",
            )
        rows = len(ctx.rows.lengths) if ctx.rows else x.shape[0]
        sources = len(ctx.memory_rows.lengths) if ctx.memory_rows else memory.shape[0]
        if rows != sources:
            said = f"the memory has {sources} rows and the input {rows}"
            raise UserError(said, allowed="one row of memory for each row of input", do="repeat or select its rows")
        return memory


def split(x: Tensor, heads: int) -> Tensor:
    """B T (H D) → B H T D"""
    return x.view(*x.shape[:2], heads, x.shape[2] // heads).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    """B H T D → B T (H D)"""
    return x.transpose(1, 2).flatten(2)


def up_to(keep: Tensor | None, keys: int) -> Tensor | None:
    """A mask that was made for the whole of a fixed state, cut to the keys that are there."""
    return keep if keep is None or keep.shape[2] <= keys else keep[:, :, :keys]


def share(dim: int, heads: int) -> int:
    """The width of each head where `dim` is shared evenly among them."""
    if heads < 1 or dim % heads:
        fewer = min((n for n in range(1, dim + 1) if dim % n == 0), key=lambda n: abs(n - heads))
        wider = max(1, round(dim / max(heads, 1))) * max(heads, 1)
        raise UserError(
            f"heads={heads} does not divide dim={dim}",
            allowed=f"heads of {divisors(dim)}",
            do=f"try heads={fewer} or dim={wider}",
        )
    return dim // heads


def check_groups(heads: int, kv_heads: int) -> None:
    if kv_heads < 1 or heads % kv_heads:
        fewer = min((n for n in range(1, heads + 1) if heads % n == 0), key=lambda n: abs(n - kv_heads))
        said = f"kv_heads={kv_heads} does not divide heads={heads}"
        raise UserError(said, allowed=f"kv_heads of {divisors(heads)}", do=f"try kv_heads={fewer}")
