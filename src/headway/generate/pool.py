"""A pool of rows that are decoded together and come and go, each with a length of its own: continuous batching.

Memory is bounded: so many rows of so many tokens.  A pass reads any number of tokens in each row: the next one of a row
that is decoded, a piece of the prompt of another.  What a row holds can be copied out, for a later prompt that begins
alike.  Where the native library can do what the model does, a pass is one call of it; else torch reads pieces of
prompts one by one, and the single tokens of all other rows together.

Axes:  B rows   H heads   S room for tokens   D width   N tokens of a pass   V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor, nn

from headway.generate.session import DecodingRows
from headway.generate.step_program import CacheRows
from headway.nn.context import EMPTY, Context
from headway.nn.state import Buffers, CachedTensors, FixedState, State, Tensors
from headway.nn.trunk import Trunk
from headway.ops.pattern import Positions

BY_POSITION = -1  # the slot of a pass whose rows have lengths of their own
NO_MEMORIES: Mapping[int, Context] = {}
NATIVE_KEYS = 512  # tokens of a row up to which pieces of prompts are the library's; torch's attention is faster then


class PooledState(FixedState):
    """A static KV cache whose rows have lengths of their own; `reading` are those that the next call reads in.

    Each of these reads one token, which stands at its place of `at`.
    """

    def __init__(self, rows: int, capacity: int):
        super().__init__(capacity)
        self.rows, self.reading, self.at = rows, [0], Positions.run(0, 1)

    def empty(self) -> State:
        return PooledState(self.rows, self.capacity)

    def each_child(self) -> list[PooledState]:
        return [child for child in self.children.values() if isinstance(child, PooledState)]

    def view(self, row: int, length: int) -> FixedState:
        """A state of one row, which has read `length` tokens and writes into this one."""
        found = FixedState(self.capacity)
        for owner, buffers in self.buffers.items():
            at = torch.arange(self.capacity, device=buffers.at.device)[None]
            known = Positions.run(0, length, at.device)
            filled = torch.tensor(length, device=at.device)
            found.buffers[owner] = Buffers(at, tuple(x[row : row + 1] for x in buffers.tensors), filled, known, True)
        if length:  # what is carried begins anew
            for owner, kept in self.kept.items():
                found.carry(owner, *(x[row : row + 1] for x in kept))
        found.children = {
            key: child.view(row, length) for key, child in self.children.items() if isinstance(child, PooledState)
        }
        return found

    def put(self, row: int, state: FixedState, length: int) -> None:
        """Copies the first `length` tokens of a state of one row into a row, where they do not lie there already."""
        for owner, buffers in state.buffers.items():
            if owner not in self.buffers:
                room = self.room(buffers.tensors, [(x.shape[1], self.capacity, x.shape[3]) for x in buffers.tensors])
                self.buffers[owner] = replace(buffers, stored=room)
            for pool, x in zip(self.buffers[owner].tensors, buffers.tensors, strict=True):
                if pool[row].data_ptr() != x.data_ptr():
                    pool[row, :, :length] = x[0, :, :length]
        for owner, kept in state.kept.items():
            if owner not in self.kept:
                self.carried.add(owner)
                self.kept[owner] = self.room(kept, [x.shape[1:] for x in kept])
            for pool, x in zip(self.kept[owner], kept, strict=True):
                pool[row] = x[0]
        for key, child in state.children.items():
            assert isinstance(child, FixedState)
            ours = self.child(key)
            assert isinstance(ours, PooledState)
            ours.put(row, child, length)

    def room(self, like: Tensors, shapes: Sequence[Sequence[int]]) -> Tensors:
        """Room for what each row has of an owner."""
        return tuple(x.new_zeros(self.rows, *shape) for x, shape in zip(like, shapes, strict=True))

    def move(self, row: int, to: int) -> None:
        for tensors in (*(buffers.tensors for buffers in self.buffers.values()), *self.kept.values()):
            for x in tensors:
                x[to] = x[row]
        for child in self.each_child():
            child.move(row, to)

    def read_in(self, rows: list[int], at: Positions) -> None:
        self.reading, self.at = rows, at
        for child in self.each_child():
            child.read_in(rows, at)

    def next_positions(self, owner: nn.Module, length: int, device: torch.device) -> Positions:
        """Lengths are the pool's to count, whatever an owner has appended."""
        return self.at

    def of_reading(self, x: Tensor) -> Tensor:
        """The rows that are read in: a view where they are the first."""
        count = len(self.reading)
        return x[:count] if self.reading == list(range(count)) else x[self.reading]

    def append(self, owner: nn.Module, positions: Positions, *new: Tensor) -> CachedTensors:
        """Writes one token a row; keys behind it, which are left of an earlier request, are masked."""
        at, tensors = positions.at[:, 0], self.buffers[owner].tensors if new else ()  # B
        rows, last = torch.tensor(self.reading, device=at.device), int(at.max()) + 1
        for buffer, x in zip(tensors, new, strict=True):
            buffer[rows, :, at] = x[:, :, 0]
        keep = torch.arange(last, device=at.device) <= at[:, None]
        found = tuple(self.of_reading(x.narrow(2, 0, last)) for x in tensors)
        return CachedTensors(Positions.run(0, last, at.device), found, keep[:, None])

    def once(self, owner: nn.Module, make: object) -> Tensors:
        return tuple(map(self.of_reading, self.kept[owner]))

    def carry(self, owner: nn.Module, *tensors: Tensor) -> None:
        for pool, x in zip(self.kept[owner], tensors, strict=True):
            pool[self.reading] = x

    def extend_each(self, each: object, positions: Positions) -> None:
        """Lengths are the pool's to count."""


class DecodingPool(DecodingRows):
    """Rows of any lengths, of which each may leave, and others join, between two passes."""

    state: PooledState

    def __init__(self, model: Trunk, rows: int, capacity: int):
        super().__init__(model, PooledState(rows, capacity), 0, EMPTY)
        self.lengths: list[int] = []  # tokens of each row, in the order of the rows

    def join(self, begun: tuple[FixedState, int] | None = None) -> None:
        """Takes a row behind the others, empty or with the first so many tokens that a state of one row has read."""
        if begun is not None:
            self.state.put(self.rows, *begun)
        self.lengths.append(0 if begun is None else begun[1])
        self.rows += 1

    def leave(self, row: int) -> None:
        """Frees a row; the last row takes its place."""
        last = self.lengths.pop()
        self.rows -= 1
        if row < self.rows:
            self.state.move(self.rows, row)
            self.lengths[row] = last

    def taken(self, row: int) -> FixedState:
        return beginning(self.state, self.lengths[row], self.lengths[row], row)

    @torch.no_grad()
    def read(self, pieces: Sequence[Sequence[int]], memories: Mapping[int, Context] = NO_MEMORIES) -> Tensor:
        """Reads a piece of each row's tokens, which may be none: the logits after the pieces that are some, B V.

        Some rows read a memory, each its own, of any length: the patches of images among the words of a prompt.
        """
        lengths = [length + len(piece) for length, piece in zip(self.lengths, pieces, strict=True)]
        self.state.check_room(max(lengths))
        rows = [row for row, piece in enumerate(pieces) if piece]
        causal = self.program is not None and self.program.causal
        plain = [row for row in rows if row not in memories]
        short = [row for row in plain if len(pieces[row]) == 1 or (causal and lengths[row] <= NATIVE_KEYS)]
        found = self.read_natively(short, pieces)
        single = [row for row in plain if len(pieces[row]) == 1 and row not in found and self.lengths[row]]
        if single:
            logits = self.step(single, [pieces[row][0] for row in single])
            found |= zip(single, logits, strict=True)
        found |= {row: self.read_alone(row, pieces[row], memories.get(row, EMPTY)) for row in rows if row not in found}
        self.lengths = lengths
        return torch.stack([found[row] for row in rows])

    def read_natively(self, rows: list[int], pieces: Sequence[Sequence[int]]) -> dict[int, Tensor]:
        """The logits of these rows by one call of the library; none where that is for torch."""
        if not rows:
            return {}
        tokens = [token for row in rows for token in pieces[row]]
        owners = [row for row in rows for _ in pieces[row]]
        positions = [at for row in rows for at in range(self.lengths[row], self.lengths[row] + len(pieces[row]))]
        ends = [end - 1 for end in accumulate(len(pieces[row]) for row in rows)]
        ids, at, *place = (torch.tensor(x, device=self.device) for x in (tokens, positions, owners, ends))
        logits = self.run_program(ids, BY_POSITION, at[:, None], CacheRows(*place))
        return {} if logits is None else dict(zip(rows, logits, strict=True))

    def step(self, rows: list[int], tokens: list[int]) -> Tensor:
        """The logits after one more token in some rows by torch, B V."""
        lengths = torch.tensor([[self.lengths[row]] for row in rows], device=self.device)  # B 1
        self.state.read_in(rows, Positions(lengths))
        inputs = torch.tensor(tokens, device=self.device)[:, None]
        return self.head(self.model.features(inputs, self.ctx)[:, 0])

    def read_alone(self, row: int, piece: Sequence[int], memory: Context) -> Tensor:
        """The logits after more tokens in one row by torch, V."""
        state = self.state.view(row, self.lengths[row])
        features = self.model.features(torch.tensor([piece], device=self.device), replace(memory, state=state))
        self.state.put(row, state, self.lengths[row] + len(piece))
        return self.head(features[:, -1])[0]


def beginning(state: FixedState, length: int, capacity: int, row: int = 0) -> FixedState:
    """A copy of the first `length` tokens of a row of a state, with room for more."""
    copied, one = FixedState(capacity), slice(row, row + 1)
    for owner, buffers in state.buffers.items():
        copied.append(owner, Positions.run(0, length), *(x[one, :, :length] for x in buffers.tensors))
    for owner, kept in state.kept.items():
        copied.carry(owner, *(x[one].clone() for x in kept))
    for key, child in state.children.items():
        assert isinstance(child, FixedState)
        copied.children[key] = beginning(child, length, capacity, row)
    return copied
