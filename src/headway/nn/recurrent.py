"""Recurrent neural networks: RNN, LSTM and GRU cells, and recurrent encoders.

Axes:  B batch   T steps   C width of inputs   H hidden width   L layers × directions
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from headway.errors import UserError
from headway.nn.context import EMPTY, Context, packed, padded, to_front
from headway.ops.attend import shape_text
from headway.ops.mixed_precision import no_autocast

Hidden = tuple[Tensor, ...]  # (h,), and for an LSTM (h, c)
Steps = TypeVar("Steps", Tensor, PackedSequence)


class Cell(nn.Module):
    """A recurrent unit, hidden′ = step(inputs(x), hidden), with the parameters of torch's cell of the same name.

    With `context` it reads [x ; c], where c is known only step by step: step(inputs(x) + W_c c, hidden).
    """

    weight_decay = True

    layers: ClassVar[type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]]  # torch's evaluation of many steps and layers
    gates: ClassVar[int]
    parts: ClassVar[int] = 1  # of the hidden state

    def __init__(self, dim: int, hidden: int, *, context: int = 0):
        super().__init__()
        self.dim, self.hidden = dim, hidden
        rows, most = self.gates * hidden, hidden**-0.5
        self.weight_ih = nn.Parameter(torch.empty(rows, dim + context).uniform_(-most, most))
        self.weight_hh = nn.Parameter(torch.empty(rows, hidden).uniform_(-most, most))
        self.bias_ih = nn.Parameter(torch.empty(rows).uniform_(-most, most))
        self.bias_hh = nn.Parameter(torch.empty(rows).uniform_(-most, most))

    def inputs(self, x: Tensor) -> Tensor:
        """The part of all gates that needs no hidden state, … C → … (gates H)."""
        return F.linear(x, self.weight_ih[:, : self.dim], self.bias_ih)

    @property
    def context_weight(self) -> Tensor:
        """W_c, (gates H) M"""
        return self.weight_ih[:, self.dim :]

    def recurrent(self, h: Tensor) -> Tensor:
        return F.linear(h, self.weight_hh, self.bias_hh)

    def step(self, gates: Tensor, hidden: Hidden) -> Hidden:
        """B (gates H), B H each → B H each"""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{self.weight_ih.shape[1]} → {self.hidden}"


class RNNCell(Cell):
    """h′ = tanh(W x + U h)"""

    layers, gates = nn.RNN, 1

    def step(self, gates: Tensor, hidden: Hidden) -> Hidden:
        return (torch.tanh(gates + self.recurrent(hidden[0])),)


class LSTMCell(Cell):
    """c′ = σ(f) c + σ(i) tanh(g),  h′ = σ(o) tanh(c′)"""

    layers, gates, parts = nn.LSTM, 4, 2

    def step(self, gates: Tensor, hidden: Hidden) -> Hidden:
        h, c = hidden
        i, f, g, o = (gates + self.recurrent(h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRUCell(Cell):
    """h′ = (1 − z) n + z h  with  n = tanh(W x + r U h), and the gates r and z between 0 and 1"""

    layers, gates = nn.GRU, 3

    def step(self, gates: Tensor, hidden: Hidden) -> Hidden:
        (h,) = hidden
        z, n = self.gate_and_candidate(gates, h)
        return (n + z * (h - n),)

    def gate_and_candidate(self, gates: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """The update gate z and the candidate n, B H each."""
        own = self.recurrent(h)
        share = 2 * self.hidden
        r, z = (gates[..., :share] + own[..., :share]).sigmoid().chunk(2, -1)
        return z, torch.tanh(gates[..., share:] + r * own[..., share:])


class RecurrentEncoder(nn.Module):
    """h_t = cell(x_t, h_{t−1}), in several layers: B T C → B T H, zeros at padding.  A state lets it go on."""

    tokenwise = False
    shares_memory = False  # its state belongs to a row

    directions = 1

    def __init__(self, dim: int, hidden: int, *, cell: type[Cell] = GRUCell, layers: int = 1, dropout: float = 0.0):
        super().__init__()
        self.shape, self.parts = (layers * self.directions, hidden), cell.parts
        between = dropout if layers > 1 else 0.0  # torch warns of a dropout between layers where there is one
        self.rnn = cell.layers(
            dim, hidden, layers, batch_first=True, dropout=between, bidirectional=self.directions == 2
        )

    @property
    def recurrent_unit(self) -> nn.Module:
        return self.rnn

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        x = padded(x, ctx.rows)
        hidden, seen = load_hidden(self, ctx, lambda: self.start(x, ctx))
        real = real_steps(ctx, seen, x.shape[1])
        y, hidden = self.read(x, hidden) if real is None else self.read_real(x, real.expand(x.shape[:2]), hidden)
        store_hidden(self, ctx, hidden, seen + x.shape[1])
        return packed(self.outputs(y, hidden), ctx.rows)

    def start(self, x: Tensor, ctx: Context) -> Hidden:
        """The hidden state before the first token, B L H each."""
        return (x.new_zeros(x.shape[0], *self.shape),) * self.parts

    def outputs(self, y: Tensor, hidden: Hidden) -> Tensor:
        """The output at each token, from the top layer's B T H and the final hidden state, B L H each."""
        return y

    def read(self, x: Steps, hidden: Hidden) -> tuple[Steps, Hidden]:
        """All of x; the hidden state is B L H each, torch's L B H."""
        weight = next(self.rnn.parameters())
        before = tuple(h.transpose(0, 1).to(weight.dtype) for h in hidden)
        with no_autocast(weight):  # a sum over many steps, in the dtype of its weights
            y, after = self.rnn(x.to(weight.dtype), before if self.parts > 1 else before[0])
        return y, tuple(h.transpose(0, 1) for h in (after if self.parts > 1 else (after,)))

    def read_real(self, x: Tensor, real: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """What is True in `real` (B T), wherever it stands in its row."""
        order, count = to_front(real), real.sum(1)
        # torch wants a token in each row; what it makes of one in a row that has none is left out below
        lengths = count.clamp(min=1).cpu()
        tight = x.take_along_dim(order[..., None], 1)
        y, after = self.read(pack_padded_sequence(tight, lengths, batch_first=True, enforce_sorted=False), hidden)
        y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
        y = y.take_along_dim(order.argsort(1)[..., None], 1)
        return y.masked_fill(~real[..., None], 0.0), where((count > 0)[:, None, None], after, hidden)


class BidirectionalEncoder(RecurrentEncoder):
    """h_t = [→h_t ; ←h_t], the row read from both ends: B T C → B T 2H."""

    directions = 2

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        if ctx.state is not None:
            raise UserError("an encoder that reads backwards cannot be called in chunks", do="call it without a state")
        return super().forward(x, ctx)


class FinalEncoder(RecurrentEncoder):
    """The hidden state of all layers in which the row ends, told at each token: B T C → B T (L parts H)."""

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        if ctx.state is not None:
            raise UserError("an encoder that tells of the end cannot be called in chunks", do="call it without a state")
        return super().forward(x, ctx)

    def outputs(self, y: Tensor, hidden: Hidden) -> Tensor:
        return torch.cat(hidden, -1).flatten(1)[:, None].expand(-1, y.shape[1], -1)


def load_hidden(owner: nn.Module, ctx: Context, start: Callable[[], Hidden]) -> tuple[Hidden, Tensor]:
    """The hidden state to go on from, B … each, and how many tokens each row has seen, B."""

    def fresh() -> Hidden:
        hidden = start()
        return *hidden, torch.zeros(hidden[0].shape[0], dtype=torch.long, device=hidden[0].device)

    if ctx.state is not None and ctx.rows is not None:
        raise UserError("packed rows cannot be appended to a decoding state", do="pad them, and pass keep")
    *hidden, seen = fresh() if ctx.state is None else ctx.state.once(owner, fresh)
    return tuple(hidden), seen


def store_hidden(owner: nn.Module, ctx: Context, hidden: Hidden, seen: Tensor) -> None:
    if ctx.state is not None:
        ctx.state.carry(owner, *hidden, seen)


def real_steps(ctx: Context, seen: Tensor, length: int) -> Tensor | None:
    """Which of the `length` tokens after those `seen` (B) are real, B T; None: all."""
    if ctx.keep is None or ctx.state is None:
        return ctx.real(length)
    if not torch.compiler.is_compiling() and (ctx.keep.shape[1] != 1 or ctx.keep.shape[2] < int(seen.max()) + length):
        allowed = f"B 1 {int(seen.max()) + length}, True at real tokens, those of earlier calls included"
        raise UserError(f"keep is {shape_text(ctx.keep)} for {length} tokens after {int(seen.max())}", allowed=allowed)
    at = seen[:, None] + torch.arange(length, device=seen.device)
    return ctx.keep[:, 0].expand(seen.shape[0], -1).gather(1, at)


def where(these: Tensor, a: Hidden, b: Hidden) -> Hidden:
    """a where `these` is True, b elsewhere."""
    return tuple(torch.where(these, x, y) for x, y in zip(a, b, strict=True))
