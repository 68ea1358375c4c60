"""Checkpoints that several processes write together, where none of them has the whole.

Each process writes whole tensors, about as many bytes as the others, into a safetensors file of its own for each part;
an index tells which file has which tensor, as Hugging Face's do.  So a checkpoint does not know of the layout, and any
layout reads it.

Process 0 makes the hidden folder, all write and flush their files in a thread beside the training, and when all have
said so, process 0 writes the indexes, the state and, last, the manifest, and gives the folder its name (`store.py`):
what a crash leaves at any time is what it leaves of a checkpoint of one process.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from headway.distributed.world import World
from headway.errors import UserError
from headway.training.learner import Learner
from headway.training.manifest import FileDigest
from headway.training.store import Parts, Snapshot, Store, index_files, shard_files, state_file


@dataclass
class PendingShards:
    """A checkpoint that all processes are writing: its hidden folder, and this process's files of it."""

    snapshot: Snapshot
    protect: Collection[int]
    folder: Path
    files: Future[dict[str, FileDigest]]


@dataclass
class ShardedSaver:
    """Saves to a store in all processes of a world, which call everything here together."""

    store: Store
    world: World
    pending: PendingShards | None = None
    open: ExitStack = field(default_factory=ExitStack)  # of process 0, which holds the lock of the store meanwhile
    writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "checkpoints"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.writer.shutdown()
        self.open.__exit__(*error)

    def tensors(self, learner: Learner) -> Parts:
        return learner.own_tensors()

    def save(self, snapshot: Snapshot, protect: Collection[int]) -> None:
        """Begins to write this process's tensors of a checkpoint, once the one before it is there."""
        assert self.pending is None
        name = self.open.enter_context(self.store.writing(snapshot.step)).name if self.world.first else ""
        folder = self.store.folder / self.world.told(name)
        if not folder.is_dir():
            said = f"process {self.world.rank} does not see {self.store.folder}, where all processes write"
            raise UserError(said, do="give out= a folder on a disk of all nodes, or train.parallel=ddp")
        self.world.totals()  # one that sees nothing has said so before another one writes
        contents = shard_files(snapshot.tensors, self.world.rank, self.world.size)
        files = self.writer.submit(self.store.write_files, folder, contents)
        self.pending = PendingShards(snapshot, protect, folder, files)

    def written(self, *, wait: bool) -> list[int]:
        """The steps whose checkpoint has been written since the last question; raises what a writer has failed of."""
        if self.pending is None:
            return []
        one = self.pending
        if wait:
            one.files.exception()
        if self.world.totals(one.files.done())[0] < self.world.size:
            return []
        self.pending = None
        mine = {name: asdict(digest) for name, digest in one.files.result().items()}
        names = {part: {name: x.nbytes for name, x in own.items()} for part, own in one.snapshot.tensors.items()}
        told = [json.loads(text) for text in self.world.gathered(json.dumps([mine, names]))]
        if self.world.first:
            files = {name: FileDigest(**digest) for found, _ in told for name, digest in found.items()}
            contents = {**index_files([names for _, names in told]), **state_file(one.snapshot)}
            with self.open:
                files |= self.store.write_files(one.folder, contents)
                self.store.complete(one.folder, one.snapshot.step, files, one.protect)
        self.world.totals()  # nobody goes on before it is there
        return [one.snapshot.step]
