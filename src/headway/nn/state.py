"""Decoding state: the KV cache of attention and the hidden states of recurrent cells, kept outside of the model.

Each module that needs one owns a slot: keys and values, a hidden vector, the position of an embedding.  Rows are batch
rows, so that beam search reorders everything at once; the last tokens can be truncated.

Axes:  B batch   H heads   T new tokens   S all tokens so far   D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.ops.pattern import Positions

Tensors = tuple[Tensor, ...]


class CachedTensors(NamedTuple):
    """All that an owner has appended: positions, tensors, and a mask of the filled slots (None: all)."""

    positions: Positions
    tensors: Tensors  # B H S D each
    keep: Tensor | None = None  # 1 1 S

    def reorder(self, rows: Tensor) -> CachedTensors:
        return CachedTensors(reorder_positions(self.positions, rows), tuple(x[rows] for x in self.tensors))

    def cut(self, length: int) -> CachedTensors:
        return CachedTensors(self.positions.cut(0, length), tuple(x[:, :, :length] for x in self.tensors))


class State:
    """A KV cache that grows by concatenation, and other state by owner."""

    def __init__(self) -> None:
        self.seen: dict[nn.Module, CachedTensors] = {}
        self.kept: dict[nn.Module, Tensors] = {}
        self.carried: set[nn.Module] = set()  # owners whose kept tensors change from call to call
        self.children: dict[int, State] = {}
        self.beams = 1  # rows that share a row of the memory

    def next_positions(self, owner: nn.Module, length: int, device: torch.device) -> Positions:
        """The positions of `length` new tokens for this owner: right after those in its cache."""
        before = self.seen[owner].positions if owner in self.seen else Positions.run(0, 0, device)
        return before.following(length)

    def append(self, owner: nn.Module, positions: Positions, *new: Tensor) -> CachedTensors:
        """Adds tokens at `positions`, each tensor B H T D, and returns all that this owner has appended."""
        if owner in self.seen:
            old = self.seen[owner]
            new = tuple(torch.cat(pair, 2) for pair in zip(old.tensors, new, strict=True))
            positions = old.positions.then(positions)
        self.seen[owner] = CachedTensors(positions, new)
        return self.seen[owner]

    def once(self, owner: nn.Module, make: Callable[[], Tensors]) -> Tensors:
        """What `make` gave on the first call: the keys and values of a memory that stays the same."""
        if owner not in self.kept:
            self.kept[owner] = make()
        return self.kept[owner]

    def carry(self, owner: nn.Module, *tensors: Tensor) -> None:
        """Replaces what `once` will give this owner, each tensor B …: a recurrent cell's hidden vector."""
        self.kept[owner] = tensors
        self.carried.add(owner)

    def child(self, key: int) -> State:
        """The state of one pass through parts that are used several times, as shared layers are."""
        if key not in self.children:
            self.children[key] = self.empty()
            self.children[key].beams = self.beams
        return self.children[key]

    def empty(self) -> State:
        return State()

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Row i becomes what row rows[i] was; a row may be taken several times, as beams do.

        With `sources` what a memory gave is not copied for the rows but shared: these of its rows go on, each for as
        many rows, one after the other.
        """
        self.beams = 1 if sources is None else len(rows) // len(sources)
        self.seen = {owner: seen.reorder(rows) for owner, seen in self.seen.items()}
        for owner, kept in self.kept.items():
            chosen = rows if sources is None or owner in self.carried else sources
            self.kept[owner] = kept if is_identity(chosen, len(kept[0])) else tuple(x[chosen] for x in kept)
        for child in self.children.values():
            child.reorder(rows, sources)

    def truncate(self, length: int) -> None:
        """Drops all but the first `length` tokens from the cache."""
        if length < 0:
            raise UserError(f"truncate({length})", allowed="a number of tokens, 0 or more")
        if self.carried:
            raise UserError("a recurrent state cannot be set back", do="begin a new state, and decode without a draft")
        self.seen = {owner: seen.cut(length) for owner, seen in self.seen.items()}
        for child in self.children.values():
            child.truncate(length)


@dataclass
class Buffers:
    """Room for a fixed number of tokens, and what of it is filled."""

    at: Tensor  # B|1 S
    stored: Tensors  # B H S D; with origins of any number of rows
    filled: Tensor  # ()      a tensor, so that a compiled step need not be compiled again at each length
    known: Positions  # where the tokens stand that were appended outside compiled code
    in_order: bool  # `at` counts on to its end from where it begins, so that a run need not be written into it
    stale: bool = False  # compiled code has appended what is not `known`
    origins: Tensor | None = None  # B S, int32  the row of `stored` in which each token of a row stands; None: its own

    @property
    def tensors(self) -> Tensors:
        """All tokens of each row in its own, B H S D."""
        if self.origins is not None:
            self.stored = tuple(gather_rows(x, self.origins, int(self.filled)) for x in self.stored)
            self.origins = None
        return self.stored

    def positions(self) -> Positions:
        """Where all tokens so far stand; what compiled code appended is known only as data."""
        if self.stale:
            self.known, self.in_order = Positions(self.at[:, : int(self.filled)]), False
            self.stale = False
        return self.known

    def stand(self, known: Positions, new: Positions) -> None:
        """`known` is where all tokens stand now, of which `new` are the last."""
        self.in_order = self.in_order and known.start is not None
        if not self.in_order:
            if self.at.shape[0] < new.rows:
                self.at = self.at.repeat(new.rows, 1)
            self.at[:, len(known) - len(new) : len(known)] = new.at
        self.filled.fill_(len(known))
        self.known = known

    def reorder(self, rows: Tensor) -> Buffers:
        """The same of other rows; room that is not filled is not copied."""
        tensors = tuple(reorder_buffer(x, rows, len(self.positions())) for x in self.tensors)
        return replace(self.redirect(rows, None), stored=tensors)

    def redirect(self, rows: Tensor, origins: Tensor | None) -> Buffers:
        """The same of other rows, whose tokens stay where they are stored."""
        at = self.at if self.at.shape[0] == 1 else self.at[rows]
        known = reorder_positions(self.positions(), rows)
        return Buffers(at, self.stored, self.filled, known, self.in_order, origins=origins)

    def cut(self, length: int) -> None:
        self.stored = self.tensors  # new tokens stand in their own rows
        self.known = self.positions().cut(0, length)
        self.filled.fill_(len(self.known))


class FixedState(State):
    """A static KV cache: buffers of fixed capacity, so that nothing is copied and a compiled step keeps its shapes."""

    def __init__(self, capacity: int):
        super().__init__()
        if capacity < 1:
            raise UserError(f"FixedState(capacity={capacity}) has room for nothing", allowed="a capacity of 1 or more")
        self.capacity = capacity
        self.buffers: dict[nn.Module, Buffers] = {}

    def empty(self) -> State:
        return FixedState(self.capacity)

    def once(self, owner: nn.Module, make: Callable[[], Tensors]) -> Tensors:
        """The same, dense, as each step reads all of it."""
        return super().once(owner, lambda: tuple(x.contiguous() for x in make()))

    def next_positions(self, owner: nn.Module, length: int, device: torch.device) -> Positions:
        if owner not in self.buffers:
            return Positions.run(0, length, device)
        buffers = self.buffers[owner]
        if torch.compiler.is_compiling():
            last = buffers.at.index_select(1, (buffers.filled - 1)[None])
            return Positions(last + 1 + torch.arange(length, device=device))
        return buffers.positions().following(length)

    def append(self, owner: nn.Module, positions: Positions, *new: Tensor) -> CachedTensors:
        if owner not in self.buffers:
            self.buffers[owner] = self.allocate(positions, new)
        fill = self.fill_whole if torch.compiler.is_compiling() else self.fill
        return fill(self.buffers[owner], positions, new)

    def fill(self, buffers: Buffers, positions: Positions, new: Tensors) -> CachedTensors:
        """Writes behind what is filled and returns just that."""
        first = len(buffers.positions())
        known = self.extend(buffers, positions)
        last = len(known)
        for buffer, x in zip(buffers.tensors, new, strict=True):
            buffer.narrow(2, first, last - first).copy_(x)
        return CachedTensors(known, tuple(buffer.narrow(2, 0, last) for buffer in buffers.tensors))

    def extend(self, buffers: Buffers, positions: Positions) -> Positions:
        """Counts tokens at `positions` as filled, whoever writes them, and returns where all stand now."""
        known = buffers.positions().then(positions)
        self.check_room(len(known))
        buffers.stand(known, positions)
        return known

    def check_room(self, length: int) -> None:
        if length > self.capacity:
            do = f"make it FixedState({length}) or larger"
            raise UserError(f"{length} tokens do not fit a state with room for {self.capacity}", do=do)

    def extend_each(self, each: Iterable[Buffers], positions: Positions) -> None:
        """The same for several owners; what follows positions that they share is made once: a token has many owners."""
        before = known = None
        for buffers in each:
            stood = buffers.positions()
            if before is None or known is None or not before.stands_like(stood):
                before, known = stood, self.extend(buffers, positions)
            else:
                buffers.stand(known, positions)

    def fill_whole(self, buffers: Buffers, positions: Positions, new: Tensors) -> CachedTensors:
        """The same in shapes that never change: the whole buffers, and a mask of what is filled."""
        slots = buffers.filled + torch.arange(len(positions), device=buffers.at.device)
        buffers.at.index_copy_(1, slots, positions.at.expand(buffers.at.shape[0], -1))
        for buffer, x in zip(buffers.tensors, new, strict=True):
            buffer.index_copy_(2, slots, x)
        buffers.filled.add_(len(positions))
        buffers.stale = True
        filled = torch.arange(self.capacity, device=buffers.at.device) < buffers.filled
        return CachedTensors(Positions(buffers.at), buffers.tensors, filled[None, None])

    def allocate(self, positions: Positions, new: Tensors) -> Buffers:
        start, device = positions.start, positions.device
        run = torch.arange(start or 0, (start or 0) + self.capacity, device=device).repeat(positions.rows, 1)
        tensors = tuple(x.new_zeros(*x.shape[:2], self.capacity, x.shape[3]) for x in new)
        filled = torch.zeros((), dtype=run.dtype, device=device)
        return Buffers(run, tensors, filled, Positions.run(0, 0, device), in_order=start is not None)

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None:
        super().reorder(rows, sources)
        self.buffers = {owner: buffers.reorder(rows) for owner, buffers in self.buffers.items()}

    def redirect(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """As `reorder`, but tokens are not copied where they have room: each row knows in which row they stand.

        For those who read tokens by `Buffers.origins`; whoever asks for `Buffers.tensors` has them gathered.  Beams of
        64 rows of Marian: 69 of 460 ms are not spent.
        """
        each = list(self.buffers.values())
        if not each or any(len(rows) > len(x) for buffers in each for x in buffers.stored):
            self.reorder(rows, sources)
            return
        super().reorder(rows, sources)
        made = dict[tuple[int, int], Tensor]()  # owners share what they have in common
        for owner, buffers in self.buffers.items():
            key = (id(buffers.origins), length := len(buffers.positions()))
            if key not in made:
                made[key] = redirected(buffers.origins, rows, length, self.capacity)
            self.buffers[owner] = buffers.redirect(rows, made[key])

    def truncate(self, length: int) -> None:
        super().truncate(length)
        for buffers in self.buffers.values():
            buffers.cut(length)


def reorder_positions(positions: Positions, rows: Tensor) -> Positions:
    """Positions of reordered rows; those that all rows share are unchanged."""
    return positions if positions.rows == 1 else Positions(positions.at[rows])


def is_identity(rows: Tensor, count: int) -> bool:
    """Whether these are all of `count` rows in their order."""
    return len(rows) == count and rows.tolist() == list(range(count))


def redirected(origins: Tensor | None, rows: Tensor, filled: int, capacity: int) -> Tensor:
    """Where the tokens of reordered rows stand, of which `filled` are there, and others will stand in their own."""
    own = torch.arange(len(rows), dtype=torch.int32, device=rows.device)[:, None].repeat(1, capacity)
    own[:, :filled] = rows[:, None] if origins is None else origins[rows, :filled]
    return own


def gather_rows(x: Tensor, origins: Tensor, filled: int) -> Tensor:
    """The tokens of each row, whose first `filled` are used, in its own row: … H S D by B S → B H S D."""
    room = x.new_zeros(len(origins), *x.shape[1:])
    found = x.transpose(1, 2)[origins[:, :filled].long(), torch.arange(filled, device=x.device)]  # B S H D
    room.narrow(2, 0, filled).copy_(found.transpose(1, 2))
    return room


def reorder_buffer(x: Tensor, rows: Tensor, filled: int) -> Tensor:
    """A copy of these rows of a buffer, B H S D, whose first `filled` of S are used; recorded maps keep the old one."""
    room = x.new_zeros(len(rows), *x.shape[1:])  # compiled code multiplies by all of it
    torch.index_select(x.narrow(2, 0, filled), 0, rows, out=room.narrow(2, 0, filled))
    return room
