"""The context of a call: what a sublayer is given beside its input.

A `Context` holds the mask, positions, memory, decoding state (KV cache) and trace.  A batch may travel packed: the
tokens of all rows concatenated without padding, 1 N …, with their `PackedLengths` in the context.  Norms, projections,
feed-forward layers and heads are token-wise and work on packed tokens.  Parts that mix tokens (attention, convolution,
recurrence, pooling) take the padded view, B T …, and pack their result again.

Axes:  B batch   T queries, or the longest row   S keys   C width   N tokens of all packed rows   M chosen tokens
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.state import State
from headway.nn.trace import Seen, Trace, ambient
from headway.ops.attend import shape_text
from headway.ops.pattern import Positions, both


@dataclass(frozen=True, eq=False)
class Context:
    """Frozen: a sublayer reads it, and makes a changed one for its children with `replace`."""

    keep: Tensor | None = None  # B T S  bool, an axis may be 1: True where a key may be seen, cached keys included
    positions: Tensor | None = None  # B|1 T  where the inputs stand; None: in order, after what `state` has seen
    memory: Tensor | None = None  # B S C  what cross-attention reads
    memory_keep: Tensor | None = None  # B T S
    state: State | None = None  # what was seen in earlier calls
    trace: Trace | None = None  # what to record or replace
    rows: PackedLengths | None = None  # the inputs are packed, 1 N C
    memory_rows: PackedLengths | None = None  # the memory is packed

    def locate(self, owner: nn.Module, x: Tensor) -> Positions:
        """Where the tokens of `x` (B T …) stand for this owner."""
        if self.positions is not None:
            return Positions(self.positions)
        if self.rows is not None:
            return Positions(self.rows.positions)
        if self.state is not None:
            return self.state.next_positions(owner, x.shape[1], x.device)
        return Positions.run(0, x.shape[1], x.device)

    def real(self, length: int) -> Tensor | None:
        """Which of the `length` tokens of the padded view are not padding, B|1 T; None: all."""
        keep = both(self.keep, None if self.rows is None else self.rows.keep)
        if keep is None:
            return None
        if keep.shape[1:] != (1, length):
            said, allowed = f"keep is {shape_text(keep)} for {length} tokens", f"B 1 {length}, True at real tokens"
            do = "this part sees all real tokens: what each query may see is for attention alone"
            raise UserError(said, allowed=allowed, do=do)
        return keep[:, 0]

    def emit(self, site: nn.Module, what: str, value: Tensor) -> Tensor:
        """Shows a value to whoever records this site, and returns it or what an edit puts in its place."""
        if not self.traces():
            return value
        value = self.edited(site, what, value)
        self.show(site, what, value)
        return value

    def show(self, site: nn.Module, what: str, value: Seen) -> None:
        for trace in self.traces():
            if (site, what) in trace.names:
                trace.show((site, what), value)

    def edits(self, site: nn.Module, what: str) -> bool:
        """Whether somebody will replace this site's value."""
        return any((site, what) in trace.edits for trace in self.traces())

    def edited(self, site: nn.Module, what: str, value: Tensor) -> Tensor:
        for trace in self.traces():
            if (site, what) in trace.edits:
                before, value = value, trace.edits[site, what](value)
                if value.shape != before.shape:
                    name = trace.names[site, what]
                    raise UserError(
                        f"the edit of {name!r} returned {tuple(value.shape)}",
                        allowed=f"the shape {tuple(before.shape)}",
                    )
        return value

    def traces(self) -> list[Trace]:
        # compiled code cannot read a context variable; there a trace reaches it in the context
        around = None if torch.compiler.is_compiling() else ambient()
        return [trace for trace in (self.trace, around) if trace is not None]


EMPTY = Context()


@dataclass(frozen=True, eq=False)
class PackedLengths:
    """Where the rows of a packed batch begin and end."""

    lengths: tuple[int, ...]
    slots: Tensor  # N      index of each token in the flattened padded view, B·T
    keep: Tensor  # B 1 T  True at tokens, False at padding

    @staticmethod
    def of(lengths: list[int] | tuple[int, ...] | Tensor, device: torch.device | None = None) -> PackedLengths:
        counts = torch.as_tensor(lengths, device=device)
        if counts.dim() != 1 or counts.numel() == 0 or int(counts.min()) < 1:
            raise UserError(f"rows of lengths {counts.tolist()}", allowed="one or more lengths of 1 or more")
        here = torch.arange(int(counts.max()), device=counts.device) < counts[:, None]  # B T
        return PackedLengths(tuple(counts.tolist()), here.flatten().nonzero()[:, 0], here[:, None])

    @property
    def longest(self) -> int:
        return self.keep.shape[2]

    @property
    def positions(self) -> Tensor:
        """The position of each token in its row, 1 N."""
        return (self.slots % self.longest)[None]

    @property
    def owners(self) -> Tensor:
        """The row of each token, N."""
        return self.slots // self.longest

    def pack(self, x: Tensor) -> Tensor:
        """B T … → 1 N …"""
        return x.flatten(0, 1).index_select(0, self.slots)[None]

    def pad(self, x: Tensor) -> Tensor:
        """1 N … → B T …, zeros at padding"""
        if x.shape[:2] != (1, len(self.slots)):
            raise UserError(
                f"an input of {x.shape[0]}×{x.shape[1]} tokens for {len(self.lengths)} packed rows",
                allowed=f"1×{len(self.slots)}, the tokens of all rows one after the other",
                do="pack it with rows.pack(x)",
            )
        padded = x.new_zeros(len(self.lengths) * self.longest, *x.shape[2:]).index_copy(0, self.slots, x[0])
        return padded.unflatten(0, (len(self.lengths), self.longest))


@dataclass(frozen=True, eq=False)
class TokenSelection:
    """Some tokens of every row of a batch."""

    index: Tensor  # M      among all tokens, one row after the other
    rows: PackedLengths  # of the M tokens, packed

    @staticmethod
    def among(index: Tensor, owners: Tensor) -> TokenSelection | None:
        """The tokens at `index`, ascending, of those whose rows are `owners`; None: there is none of some row."""
        counts = torch.bincount(owners[index], minlength=int(owners[-1]) + 1)
        return TokenSelection(index, PackedLengths.of(counts)) if int(counts.min()) else None

    def of(self, x: Tensor) -> Tensor:
        """B T … or packed 1 N … → packed 1 M …"""
        return x.flatten(0, 1).index_select(0, self.index)[None]


def owners_of(x: Tensor, rows: PackedLengths | None) -> Tensor:
    """The row of each token of B T … or packed 1 N …, one row after the other."""
    if rows is not None:
        return rows.owners
    return torch.arange(x.shape[0], device=x.device).repeat_interleave(x.shape[1])


def padded(x: Tensor, rows: PackedLengths | None) -> Tensor:
    """The padded view of an input that may be packed."""
    return x if rows is None else rows.pad(x)


def packed(x: Tensor, rows: PackedLengths | None) -> Tensor:
    """The way back from `padded`."""
    return x if rows is None else rows.pack(x)


def to_front(real: Tensor) -> Tensor:
    """The order, B T, in which the real tokens of each row come first."""
    length = real.shape[1]  # keys that all differ, since torch exports no stable sort
    return torch.where(real, 0, length).add(torch.arange(length, device=real.device)).argsort(dim=1)
