"""Checkpoints that a thread writes while the training goes on: the same files in the same order, with the same promise.

A save copies the tensors and returns; the thread writes the copy as `Store.save` does, so that a crash at any time
leaves what it leaves there.  One save is under way at a time: the next waits for it, and so does the end of a run.
What the writer fails of is raised by the next question for it.  Where the memory does not suffice for a copy, the
tensors themselves are written before the training goes on.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Protocol, Self

from headway.distributed.world import ALONE, World
from headway.system import memory_limit, resident_memory
from headway.training.learner import Learner
from headway.training.store import Parts, Snapshot, Store


class Saver(Protocol):
    """What writes the checkpoints of a run; all its processes call everything together."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: Any) -> None: ...

    def tensors(self, learner: Learner) -> Parts:
        """What this process is to write, or may have to."""
        ...

    def save(self, snapshot: Snapshot, protect: Collection[int]) -> None:
        """Begins to write a checkpoint, once the one before it is there."""
        ...

    def written(self, *, wait: bool) -> list[int]:
        """The steps whose checkpoint has been written since the last question; raises what the writer has failed of."""
        ...


@dataclass
class BackgroundSaver:
    """Saves to a store; at the end of its `with` block nothing is under way any more."""

    store: Store
    world: World = ALONE
    pending: dict[int, Future[Path]] = field(default_factory=dict[int, Future[Path]])  # by step, one at most
    writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "checkpoints"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.shutdown()

    def tensors(self, learner: Learner) -> Parts:
        return learner.tensors()

    def save(self, snapshot: Snapshot, protect: Collection[int]) -> None:
        """Begins to write a checkpoint, once the one before it is there; of several processes, the first does."""
        assert not self.pending
        if not self.world.first:
            return
        fits = resident_memory() + bytes_in(snapshot.tensors) < (memory_limit() or inf)
        taken = replace(snapshot, tensors=copied(snapshot.tensors)) if fits else snapshot
        self.pending[snapshot.step] = self.writer.submit(self.store.save, taken, protect)
        if not fits:
            self.pending[snapshot.step].exception()  # raised like that of any other, by `written`

    def written(self, *, wait: bool) -> list[int]:
        """The steps whose checkpoint has been written since the last question; raises what the writer has failed of."""
        done = [step for step, one in self.pending.items() if wait or one.done()]
        for step in done:
            self.pending.pop(step).result()
        return done


def copied(tensors: Parts) -> Parts:
    """Copies in the memory of this process, which no further step changes."""
    return {
        part: {name: tensor.detach().to("cpu", copy=True) for name, tensor in kept.items()}
        for part, kept in tensors.items()
    }


def bytes_in(tensors: Parts) -> int:
    return sum(tensor.nbytes for kept in tensors.values() for tensor in kept.values())
