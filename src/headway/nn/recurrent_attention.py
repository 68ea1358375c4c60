"""Recurrent decoders with attention (Bahdanau et al. 2015, Luong et al. 2015): a cell attends to a memory each step.

What does not depend on the step is computed for all steps at once: the keys of the memory, and the gates' part from
the inputs.  Only attend → update stays in the loop.

Axes:  B batch   T steps   S memory   C width of inputs   M width of memory   H hidden width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.attention import CrossAttention, Keys, merge
from headway.nn.context import EMPTY, Context, packed, padded
from headway.nn.head import FirstToken, LastToken, MeanPool, Pool
from headway.nn.learned_score import AdditiveScore, BilinearScore
from headway.nn.recurrent import Cell, GRUCell, Hidden, RecurrentEncoder, load_hidden, real_steps, store_hidden, where
from headway.ops.attend import Dot, Edit, Score
from headway.ops.attention_map import AttentionMap, Weights
from headway.ops.pattern import Positions


class Alignment(CrossAttention):
    """softmax(score(q(s), k(memory))) memory: one head, whose values are the memory itself.  B T H → B T M"""

    def __init__(self, memory_dim: int, *, q: nn.Module, k: nn.Module, score: Score):
        super().__init__(memory_dim, 1, score=score)
        self.q, self.k, self.v, self.out = q, k, nn.Identity(), nn.Identity()

    @classmethod
    def additive(cls, hidden: int, memory_dim: int, width: int) -> Alignment:
        """v · tanh(W s + U h), Bahdanau's."""
        q, k = nn.Linear(hidden, width, bias=False), nn.Linear(memory_dim, width, bias=False)
        return cls(memory_dim, q=q, k=k, score=AdditiveScore(width))

    @classmethod
    def dot(cls, hidden: int, memory_dim: int) -> Alignment:
        """s · h, Luong's; W s · h where their widths differ."""
        q = nn.Identity() if hidden == memory_dim else nn.Linear(hidden, memory_dim, bias=False)
        return cls(memory_dim, q=q, k=nn.Identity(), score=Dot(scale=1.0))

    @classmethod
    def bilinear(cls, hidden: int, memory_dim: int) -> Alignment:
        """s W h, Luong's general score."""
        return cls(memory_dim, q=nn.Identity(), k=nn.Identity(), score=BilinearScore(hidden, memory_dim))

    def reader(self, x: Tensor, ctx: Context) -> StepwiseAttention:
        """This attention for a loop over the tokens of x, whose queries come one after the other."""
        keys = self.keys(x, Positions.run(0, x.shape[1], x.device), ctx)
        return StepwiseAttention(self, keys._replace(v=ctx.emit(self, "values", keys.v)), ctx)


class StepwiseAttention:
    """Attention whose queries come one by one; recorded as one map in the end."""

    def __init__(self, site: Alignment, keys: Keys, ctx: Context):
        self.site, self.keys, self.ctx = site, keys, ctx
        self.inputs: list[Tensor] = []  # B H
        self.queries: list[Tensor] = []  # B 1 1 D
        self.weights: list[Tensor] = []  # B 1 1 S, where somebody edits them
        self.contexts: list[Tensor] = []  # B 1 1 M

    def at(self, s: Tensor) -> Tensor:
        """What the next query sees: B H → B M"""
        if self.ctx.edits(self.site, "input"):
            s = self.ctx.edited(self.site, "input", s[:, None])[:, 0]
        self.inputs.append(s)
        self.queries.append(self.site.q_norm(self.site.q(s))[:, None, None])
        dropout = self.site.dropout if self.site.training else 0.0
        context = self.map(self.queries[-1]).times(self.keys.v, dropout=dropout, edit=self.edit())
        self.contexts.append(self.ctx.edited(self.site, "heads", context))
        return merge(self.contexts[-1])[:, 0]

    def edit(self) -> Edit | None:
        """What makes other weights of the map's, where somebody edits them."""
        return self.edited if self.ctx.edits(self.site, "weights") else None

    def edited(self, weights: Tensor) -> Tensor:
        self.weights.append(self.ctx.edited(self.site, "weights", weights))
        return self.weights[-1]

    def show(self) -> None:
        if not self.ctx.traces():
            return
        self.ctx.show(self.site, "input", torch.stack(self.inputs, 1))  # B T H
        lazy = self.map(torch.cat(self.queries, 2))
        self.ctx.show(self.site, "weights", Weights(torch.cat(self.weights, 2)) if self.weights else lazy)
        self.ctx.show(self.site, "heads", torch.cat(self.contexts, 2))

    def map(self, q: Tensor) -> AttentionMap:
        site, keys, positions = self.site, self.keys, Positions.run(0, q.shape[2], q.device)
        return AttentionMap(q, keys.k, positions, keys.positions, site.pattern, keys.keep, score=site.score)


class FixedContext(nn.Module):
    """The same summary of the memory at every step: the RNN encoder–decoder's one context vector."""

    def __init__(self, pool: nn.Module | None = None):
        super().__init__()
        self.pool = pool or LastToken()

    def reader(self, x: Tensor, ctx: Context) -> ConstantContext:
        def make() -> Hidden:
            return (pool_memory(self.pool, ctx),)

        return ConstantContext(*(make() if ctx.state is None else ctx.state.once(self, make)))


@dataclass(frozen=True, eq=False)
class ConstantContext:
    context: Tensor  # B M

    def at(self, s: Tensor) -> Tensor:
        return self.context

    def show(self) -> None:
        """Nothing: no weights were used."""


class ContextReader(Protocol):
    """The context vectors of a loop over tokens, query by query."""

    def at(self, s: Tensor) -> Tensor:
        """What the next query sees, B M."""
        ...

    def show(self) -> None:
        """Tells whoever records what was seen by all of them."""
        ...


class MemoryReader(Protocol):
    """The attention, or fixed summary, by which a recurrent decoder reads its memory."""

    def reader(self, x: Tensor, ctx: Context) -> ContextReader: ...


Query = Callable[[Tensor, Tensor], Tensor]  # of s_{t−1} and y_{t−1}


def state_alone(s: Tensor, y: Tensor) -> Tensor:
    return s


def state_and_input(s: Tensor, y: Tensor) -> Tensor:
    """The previous output feeds the score too: the attention is then made for queries of H + C."""
    return torch.cat([s, y], -1)


class RecurrentDecoder(nn.Module):
    """c_t = attention(s_{t−1});  s_t = cell([y_{t−1} ; c_t], s_{t−1});  out_t = readout(s_t, c_t, y_{t−1})

    B T C, the embedded previous outputs → B T and the readout's width, H + M unless given.  s_0 = tanh(W pool(memory)),
    where `pool_dim` is the width of what the pool gives, M unless told: RNNsearch has pool=FirstBackward(), M / 2.
    """

    shares_memory = False  # its state belongs to a row

    def __init__(
        self,
        dim: int,
        hidden: int,
        memory_dim: int,
        *,
        attention: MemoryReader,
        cell: type[Cell] = GRUCell,
        query: Query = state_alone,
        pool: nn.Module | None = None,
        pool_dim: int | None = None,
        readout: nn.Module | None = None,
    ):
        super().__init__()
        self.attention, self.query = attention, query
        self.cell = cell(dim, hidden, context=memory_dim)
        self.pool, self.readout = pool or MeanPool(), readout or StateAndContext()
        self.first = nn.Linear(memory_dim if pool_dim is None else pool_dim, cell.parts * hidden)

    @property
    def recurrent_unit(self) -> nn.Module:
        return self.cell

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        reader = self.attention.reader(x, ctx)
        hidden, seen = load_hidden(self, ctx, lambda: self.start(ctx))
        inputs, gates = padded(x, ctx.rows), padded(self.cell.inputs(x), ctx.rows)  # B T C, B T (gates H)
        real = real_steps(ctx, seen, inputs.shape[1])
        states: list[Tensor] = []
        contexts: list[Tensor] = []
        weight = self.cell.context_weight  # cut out once, since every cut has a gradient of its full size
        for t, (y, gate) in enumerate(zip(inputs.unbind(1), gates.unbind(1), strict=True)):
            context = reader.at(self.query(hidden[0], y))
            after = self.cell.step(gate + F.linear(context, weight), hidden)
            hidden = after if real is None else where(real[:, t, None], after, hidden)
            states.append(hidden[0])
            contexts.append(context)
        reader.show()
        store_hidden(self, ctx, hidden, seen + inputs.shape[1])
        return self.readout(packed(torch.stack(states, 1), ctx.rows), packed(torch.stack(contexts, 1), ctx.rows), x)

    def start(self, ctx: Context) -> Hidden:
        first = self.first(pool_memory(self.pool, ctx)).tanh()
        return first.to(self.cell.weight_hh.dtype).chunk(self.cell.parts, -1)  # float32 in mixed precision, as its sums


class ContinuingDecoder(RecurrentEncoder):
    """s_t = cell(y_{t−1}, s_{t−1}), where s_0 is the state in which the source ended: nothing else is known of it.

    B T C → B T H.  Its memory is a `FinalEncoder`'s, B S (L parts H).
    """

    def start(self, x: Tensor, ctx: Context) -> Hidden:
        end, (layers, hidden) = pool_memory(LastToken(), ctx), self.shape  # B (L parts H)
        if end.shape[1] != layers * self.parts * hidden:
            allowed = f"B S {layers * self.parts * hidden}, the hidden state of all layers"
            raise UserError(f"the memory is {end.shape[1]} wide", allowed=allowed, do="encode with a FinalEncoder")
        return end.unflatten(1, (layers, -1)).chunk(self.parts, -1)


class StateAndContext(nn.Module):
    """[s ; c], for a head to read"""

    def forward(self, s: Tensor, c: Tensor, y: Tensor) -> Tensor:
        return torch.cat([s, c], -1)


class Maxout(nn.Module):
    """The larger of each pair in U s + C c + V y: RNNsearch's readout.  … H, … M, … C → … width"""

    def __init__(self, dim: int, hidden: int, memory_dim: int, width: int):
        super().__init__()
        self.state = nn.Linear(hidden, 2 * width)
        self.context = nn.Linear(memory_dim, 2 * width, bias=False)
        self.input = nn.Linear(dim, 2 * width, bias=False)

    def forward(self, s: Tensor, c: Tensor, y: Tensor) -> Tensor:
        return (self.state(s) + self.context(c) + self.input(y)).unflatten(-1, (-1, 2)).amax(-1)


class FirstBackward(FirstToken):
    """←h_1: where the backward half of a bidirectional memory ends, having read the whole row.  B S M → B M/2"""

    def pooled(self, x: Tensor, real: Tensor) -> Tensor:
        return super().pooled(x[..., x.shape[-1] // 2 :], real)


class BothEnds(Pool):
    """[→h_S ; ←h_1]: the halves of a bidirectional memory where each has read the whole row.  B S M → B M"""

    def pooled(self, x: Tensor, real: Tensor) -> Tensor:
        there, back = x.chunk(2, -1)
        return torch.cat([LastToken().pooled(there, real), FirstToken().pooled(back, real)], -1)


def pool_memory(pool: nn.Module, ctx: Context) -> Tensor:
    """What `pool` makes of the memory, B M."""
    if ctx.memory is None:
        raise UserError("a recurrent decoder was given no memory", do="pass Context(memory=encoder(source))")
    return pool(ctx.memory, Context(keep=ctx.memory_keep, rows=ctx.memory_rows, trace=ctx.trace))
