"""A pool of rows that are decoded together and come and go, each with a length of its own: continuous batching.

Memory is bounded: so many rows of so many tokens.  A prompt is read by a session of its own, whose KV cache is copied
into a row of the pool; what a row holds can be copied out again, for a later prompt that begins alike.

Axes:  B rows   H heads   S room for tokens   D width   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from headway.generate.session import DecodingRows
from headway.nn.context import EMPTY
from headway.nn.state import Buffers, CachedTensors, FixedState, State, Tensors
from headway.nn.trunk import Trunk
from headway.ops.pattern import Positions

BY_POSITION = -1  # the slot of a step whose rows have lengths of their own


class PooledState(FixedState):
    """A static KV cache of which the first `active` rows are in use; a token is written where its position says."""

    def __init__(self, rows: int, capacity: int):
        super().__init__(capacity)
        self.rows, self.active = rows, 0
        self.pools: dict[nn.Module, Tensors] = {}  # of all rows; `buffers` and `kept` show those that are in use

    def empty(self) -> State:
        return PooledState(self.rows, self.capacity)

    def each_child(self) -> list[PooledState]:
        return [child for child in self.children.values() if isinstance(child, PooledState)]

    def put(self, row: int, state: FixedState) -> None:
        """Copies a state of one row into a row."""
        for owner, buffers in state.buffers.items():
            filled = tuple(x.narrow(2, 0, len(buffers.positions())) for x in buffers.tensors)
            room = [(x.shape[1], self.capacity, x.shape[3]) for x in filled]
            for pool, x in zip(self.pool(owner, filled, room), filled, strict=True):
                pool[row].narrow(1, 0, x.shape[2]).copy_(x[0])
        for owner, kept in state.kept.items():
            self.carried.add(owner)
            for pool, x in zip(self.pool(owner, kept, [x.shape[1:] for x in kept]), kept, strict=True):
                pool[row] = x[0]
        for key, child in state.children.items():
            assert isinstance(child, FixedState)
            ours = self.child(key)
            assert isinstance(ours, PooledState)
            ours.put(row, child)

    def pool(self, owner: nn.Module, like: Tensors, shapes: Sequence[Sequence[int]]) -> Tensors:
        """Room for what an owner has of a row, made when it is first needed."""
        if owner not in self.pools:
            self.pools[owner] = tuple(x.new_zeros(self.rows, *shape) for x, shape in zip(like, shapes, strict=True))
        return self.pools[owner]

    def move(self, row: int, to: int) -> None:
        for tensors in self.pools.values():
            for x in tensors:
                x[to] = x[row]
        for child in self.each_child():
            child.move(row, to)

    def use(self, active: int) -> None:
        """The first `active` rows are in use from now on."""
        self.active = active
        for owner, tensors in self.pools.items():
            rows = tuple(x[:active] for x in tensors)
            if owner in self.carried:
                self.kept[owner] = rows
            else:
                unread = torch.empty(1, 0, device="cpu")  # a pool counts lengths by itself
                self.buffers[owner] = Buffers(unread, rows, torch.zeros(()), Positions.run(0, 0), True)
        for child in self.each_child():
            child.use(active)

    def append(self, owner: nn.Module, positions: Positions, *new: Tensor) -> CachedTensors:
        """Writes one token a row; keys behind it, which are left of an earlier request, are masked."""
        at, tensors = positions.at[:, 0], self.buffers[owner].tensors if new else ()  # B
        rows, last = torch.arange(len(at), device=at.device), int(at.max()) + 1
        for buffer, x in zip(tensors, new, strict=True):
            buffer[rows, :, at] = x[:, :, 0]
        keep = torch.arange(last, device=at.device) <= at[:, None]
        return CachedTensors(
            Positions.run(0, last, at.device), tuple(x.narrow(2, 0, last) for x in tensors), keep[:, None]
        )

    def carry(self, owner: nn.Module, *tensors: Tensor) -> None:
        for pool, x in zip(self.kept[owner], tensors, strict=True):
            pool.copy_(x)

    def extend_each(self, each: object, positions: Positions) -> None:
        """Lengths are the pool's to count."""


class DecodingPool(DecodingRows):
    """Rows of any lengths, of which each may leave, and others join, between two steps."""

    state: PooledState

    def __init__(self, model: Trunk, rows: int, capacity: int):
        super().__init__(model, PooledState(rows, capacity), 0, EMPTY)
        self.lengths: list[int] = []  # tokens of each row, in the order of the rows

    def join(self, state: FixedState, length: int) -> None:
        """Takes what a session of one row has read as the last row."""
        self.state.put(self.rows, state)
        self.lengths.append(length)
        self.resize()

    def leave(self, row: int) -> None:
        """Frees a row; the last row takes its place."""
        last = self.lengths.pop()
        if row < len(self.lengths):
            self.state.move(len(self.lengths), row)
            self.lengths[row] = last
        self.resize()

    def resize(self) -> None:
        self.rows = len(self.lengths)
        self.state.use(self.rows)

    def taken(self, row: int) -> FixedState:
        return beginning(self.state, self.lengths[row], self.lengths[row], row)

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Tensor:
        """The logits after one more token in each row: B → B V."""
        self.state.check_room(max(self.lengths) + 1)
        positions = torch.tensor(self.lengths, device=self.device)[:, None]  # B 1
        logits = self.run_program(tokens, BY_POSITION, positions)
        if logits is None:
            logits = self.head(self.model.features(tokens[:, None], replace(self.ctx, positions=positions))[:, 0])
        self.lengths = [length + 1 for length in self.lengths]
        return logits


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
