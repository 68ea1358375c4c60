"""Decoding state: what a model has seen so far, kept outside it, a slot for each module that owns some.

Keys and values of attention, the hidden vector of a recurrent cell and the count of a position embedding are all
slots.  Rows are batch rows, so that beams reorder everything at once; the last tokens can be taken back.

Axes:  B batch   H heads   T new tokens   S all tokens so far   D width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.ops.positions import Positions

Tensors = tuple[Tensor, ...]


class Seen(NamedTuple):
    """All that an owner has appended: where it stands, what it is, and which of it is there (None: all)."""

    positions: Positions
    tensors: Tensors  # B H S D each
    keep: Tensor | None = None  # 1 1 S

    def moved(self, rows: Tensor) -> Seen:
        return Seen(moved(self.positions, rows), tuple(x[rows] for x in self.tensors))

    def cut(self, length: int) -> Seen:
        return Seen(self.positions.cut(0, length), tuple(x[:, :, :length] for x in self.tensors))


class State:
    """A state that grows with what is appended."""

    def __init__(self) -> None:
        self.seen: dict[nn.Module, Seen] = {}
        self.kept: dict[nn.Module, Tensors] = {}
        self.recurrent = False  # whether something was carried
        self.children: dict[int, State] = {}

    def next_positions(self, owner: nn.Module, length: int, device: torch.device) -> Positions:
        """Where `length` new tokens stand for this owner: right after what it has seen."""
        before = self.seen[owner].positions if owner in self.seen else Positions.run(0, 0, device)
        return before.following(length)

    def append(self, owner: nn.Module, positions: Positions, *new: Tensor) -> Seen:
        """Adds tokens at `positions`, each tensor B H T D, and returns all that this owner has appended."""
        if owner in self.seen:
            old = self.seen[owner]
            new = tuple(torch.cat(pair, 2) for pair in zip(old.tensors, new, strict=True))
            positions = old.positions.then(positions)
        self.seen[owner] = Seen(positions, new)
        return self.seen[owner]

    def once(self, owner: nn.Module, make: Callable[[], Tensors]) -> Tensors:
        """What `make` gave on the first call: the keys and values of a memory that stays the same."""
        if owner not in self.kept:
            self.kept[owner] = make()
        return self.kept[owner]

    def carry(self, owner: nn.Module, *tensors: Tensor) -> None:
        """Replaces what `once` will give this owner, each tensor B …: a recurrent cell's hidden vector."""
        self.kept[owner], self.recurrent = tensors, True

    def child(self, key: int) -> State:
        """The state of one pass through parts that are used several times, as shared layers are."""
        if key not in self.children:
            self.children[key] = self.empty()
        return self.children[key]

    def empty(self) -> State:
        return State()

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was; a row may be taken several times, as beams do."""
        self.seen = {owner: seen.moved(rows) for owner, seen in self.seen.items()}
        self.kept = {owner: tuple(x[rows] for x in kept) for owner, kept in self.kept.items()}
        for child in self.children.values():
            child.reorder(rows)

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens, as if the others had never been appended."""
        if length < 0:
            raise UserError(f"truncate({length})", allowed="a number of tokens, 0 or more")
        if self.recurrent:
            raise UserError("a recurrent state cannot be set back", do="begin a new state, and decode without a draft")
        self.seen = {owner: seen.cut(length) for owner, seen in self.seen.items()}
        for child in self.children.values():
            child.truncate(length)


@dataclass
class Buffers:
    """Room for a fixed number of tokens, and what of it is filled."""

    at: Tensor  # B|1 S
    tensors: Tensors  # B H S D
    filled: Tensor  # ()      a tensor, so that a compiled step need not be compiled again at each length
    known: Positions  # where the tokens stand that were appended outside compiled code

    def positions(self) -> Positions:
        """Where all tokens so far stand; what compiled code appended is known only as data."""
        filled = int(self.filled)
        return self.known if len(self.known) == filled else Positions(self.at[:, :filled])

    def moved(self, rows: Tensor) -> Buffers:
        at = moved(Positions(self.at), rows).at
        return Buffers(at, tuple(x[rows] for x in self.tensors), self.filled, moved(self.known, rows))

    def cut(self, length: int) -> None:
        self.known = self.positions().cut(0, length)
        self.filled.fill_(len(self.known))


class FixedState(State):
    """A state in buffers of fixed capacity: nothing is copied as it grows, and a compiled step keeps its shapes."""

    def __init__(self, capacity: int):
        super().__init__()
        if capacity < 1:
            raise UserError(f"FixedState(capacity={capacity}) has room for nothing", allowed="a capacity of 1 or more")
        self.capacity = capacity
        self.buffers: dict[nn.Module, Buffers] = {}

    def empty(self) -> State:
        return FixedState(self.capacity)

    def next_positions(self, owner: nn.Module, length: int, device: torch.device) -> Positions:
        if owner not in self.buffers:
            return Positions.run(0, length, device)
        buffers = self.buffers[owner]
        if torch.compiler.is_compiling():
            last = buffers.at.index_select(1, (buffers.filled - 1)[None])
            return Positions(last + 1 + torch.arange(length, device=device))
        return buffers.positions().following(length)

    def append(self, owner: nn.Module, positions: Positions, *new: Tensor) -> Seen:
        if owner not in self.buffers:
            self.buffers[owner] = self.allocate(positions, new)
        fill = self.fill_whole if torch.compiler.is_compiling() else self.fill
        return fill(self.buffers[owner], positions, new)

    def fill(self, buffers: Buffers, positions: Positions, new: Tensors) -> Seen:
        """Writes behind what is filled and returns just that."""
        known = buffers.positions().then(positions)
        first, last = int(buffers.filled), len(known)
        if last > self.capacity:
            do = f"make it FixedState({last}) or larger"
            raise UserError(f"{last} tokens do not fit a state with room for {self.capacity}", do=do)
        if buffers.at.shape[0] < positions.at.shape[0]:
            buffers.at = buffers.at.repeat(positions.at.shape[0], 1)
        buffers.at[:, first:last] = positions.at
        for buffer, x in zip(buffers.tensors, new, strict=True):
            buffer.narrow(2, first, last - first).copy_(x)
        buffers.filled.fill_(last)
        buffers.known = known
        return Seen(known, tuple(buffer[:, :, :last] for buffer in buffers.tensors))

    def fill_whole(self, buffers: Buffers, positions: Positions, new: Tensors) -> Seen:
        """The same in shapes that never change: the whole buffers, and a mask of what is filled."""
        slots = buffers.filled + torch.arange(len(positions), device=buffers.at.device)
        buffers.at.index_copy_(1, slots, positions.at.expand(buffers.at.shape[0], -1))
        for buffer, x in zip(buffers.tensors, new, strict=True):
            buffer.index_copy_(2, slots, x)
        buffers.filled.add_(len(positions))
        filled = torch.arange(self.capacity, device=buffers.at.device) < buffers.filled
        return Seen(Positions(buffers.at), buffers.tensors, filled[None, None])

    def allocate(self, positions: Positions, new: Tensors) -> Buffers:
        at = positions.at.new_zeros(positions.at.shape[0], self.capacity)
        tensors = tuple(x.new_zeros(*x.shape[:2], self.capacity, x.shape[3]) for x in new)
        return Buffers(at, tensors, at.new_zeros(()), Positions.run(0, 0, at.device))

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        self.buffers = {owner: buffers.moved(rows) for owner, buffers in self.buffers.items()}

    def truncate(self, length: int) -> None:
        super().truncate(length)
        for buffers in self.buffers.values():
            buffers.cut(length)


def moved(positions: Positions, rows: Tensor) -> Positions:
    """Positions of reordered rows; those that all rows share stay as they are."""
    return positions if positions.at.shape[0] == 1 else Positions(positions.at[rows])
