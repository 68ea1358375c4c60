"""The models of a server: loaded when they are first asked for, and left again where memory is short.

A model that continues texts has an engine.  Every model has a queue for what is answered by `Task.predict` and the
like.  A lease keeps a model loaded; of those without one, the model that was used longest ago leaves first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Protocol

from headway.data.chat_template import ChatTemplate, load_chat_template
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError, listed, nearest
from headway.interop.weights import GGUF_SUFFIX, no_weights
from headway.loading import load
from headway.model import Model
from headway.nn.trunk import tensors_of
from headway.serve.api_errors import ApiError, busy
from headway.serve.batching import BatchQueue
from headway.serve.engine import Engine, GenerationRequest, Ticket
from headway.serve.serve_options import EngineLimits, ServeOptions
from headway.serve.token_text import TokenText
from headway.system import gibibytes
from headway.tasks.base import Task
from headway.tasks.causal_decoder import CausalDecoder

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", GGUF_SUFFIX)
PREFIX_SHARE = 8  # of the memory a prefix cache takes an eighth at most
LOADING_SECONDS = 5  # after which a client may ask again, where all memory is taken


class TextEngine(Protocol):
    """What requests need of an engine; `Engine` has it."""

    def submit(self, request: GenerationRequest) -> Ticket: ...

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    bytes: int  # of keys and values, at most

    def close(self, *, drain: bool) -> None: ...


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model with what answers its requests."""

    name: str
    model: Model
    task: Task
    decoder: CausalDecoder | None
    engine: TextEngine | None
    queue: BatchQueue
    template: ChatTemplate | None

    @property
    def tokenizer(self) -> Tokenizer:
        return self.model.vocabulary()

    @cached_property
    def token_text(self) -> TokenText:
        return TokenText(self.tokenizer)

    @cached_property
    def bytes(self) -> int:
        """Of its weights and its KV cache."""
        weights = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(self.model.model).values())
        return weights + (0 if self.engine is None else self.engine.bytes)

    def close(self, *, drain: bool) -> None:
        if self.engine is not None:
            self.engine.close(drain=drain)
        self.queue.close(drain=drain)


class ModelSlot:
    """A model folder, and its model while that is loaded."""

    def __init__(self, folder: Path):
        self.folder, self.leases, self.used = folder, 0, 0.0
        self.loaded: ServedModel | None = None
        self.created = int(folder.stat().st_mtime)
        self.bytes = weight_bytes(folder)  # of the files; of the model itself, once it has been loaded


class ModelPool:
    """The models that the command line named, by name."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        options: ServeOptions,
        make_engine: Callable[[Model, EngineLimits], TextEngine] = Engine,
    ):
        self.slots = {name: ModelSlot(folder) for name, folder in folders.items()}
        self.options, self.make_engine, self.loading = options, make_engine, asyncio.Lock()
        for name, slot in self.slots.items():
            if not slot.bytes:
                raise no_weights(slot.folder)
            if options.bytes is not None and slot.bytes > options.bytes:
                said = f"the weights of {name} have {gibibytes(slot.bytes)} where {options.memory:g} GiB are allowed"
                raise UserError(said, do="raise memory=, or leave the model out")

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncGenerator[ServedModel]:
        """A model, loaded, which stays until the end of the block."""
        served = await self.take(name)
        try:
            yield served
        finally:
            self.give_back(name)

    async def take(self, name: str) -> ServedModel:
        """A model that stays loaded until it is given back."""
        slot = self.slot(name)
        slot.leases += 1
        slot.used = monotonic()
        try:
            async with self.loading:
                return slot.loaded or await self.load(name, slot)
        except BaseException:
            slot.leases -= 1
            raise

    def slot(self, name: str) -> ModelSlot:
        slot = self.slots.get(name)
        if slot is None:
            meant = nearest(name, self.slots)
            there = f"did you mean {meant!r}?" if meant else f"there are: {listed(self.slots)}"
            said = f"there is no model {name[:100]!r} here; {there}"
            raise ApiError(404, said, param="model", code="model_not_found")
        return slot

    def give_back(self, name: str) -> None:
        slot = self.slots[name]
        slot.leases -= 1
        slot.used = monotonic()

    async def load(self, name: str, slot: ModelSlot) -> ServedModel:
        await self.make_room(slot)
        try:
            loaded = await asyncio.to_thread(self.read, name, slot.folder)
        except UserError as error:
            print(f"{name} cannot be loaded: {error}", flush=True)
            said = f"the model {name!r} cannot be loaded; the server's log says why"
            raise busy(503, said, LOADING_SECONDS, "model_unavailable") from error
        slot.bytes = loaded.bytes
        try:
            await self.make_room(slot)  # for its KV cache, too
        except ApiError:
            await asyncio.to_thread(loaded.close, drain=False)
            raise
        slot.loaded = loaded
        return loaded

    async def make_room(self, wanted: ModelSlot) -> None:
        """Lets models go that nobody uses, until one more fits."""
        limit = self.options.bytes
        while limit is not None and wanted.bytes + sum(slot.bytes for slot in self.held()) > limit:
            free = [slot for slot in self.held() if slot.leases == 0]
            if not free:
                said = "other models are in use and leave no memory for this one"
                raise busy(503, said, LOADING_SECONDS, "model_unavailable")
            oldest = min(free, key=lambda slot: slot.used)
            loaded, oldest.loaded = oldest.loaded, None
            assert loaded is not None
            await asyncio.to_thread(loaded.close, drain=True)

    def held(self) -> list[ModelSlot]:
        return [slot for slot in self.slots.values() if slot.loaded is not None]

    def read(self, name: str, folder: Path) -> ServedModel:
        model = load(folder, dtype=self.options.dtype)
        task, limits, most = model.task, self.options.limits, self.options.bytes
        if most is not None:
            limits = replace(limits, prefix_bytes=min(limits.prefix_bytes, most // PREFIX_SHARE))
        decoder = task.causal_decoder(model.model)
        engine = None if decoder is None else self.make_engine(model, limits)
        template = None if decoder is None else decoder.chat_template(load_chat_template(folder))
        made = ServedModel(name, model, task, decoder, engine, BatchQueue(name, limits.slots + limits.queue), template)
        if most is not None and made.bytes > most:
            made.close(drain=False)
            said = f"with its KV cache it takes {gibibytes(made.bytes)} where {gibibytes(most)} are allowed"
            raise UserError(said, do="raise memory=, or lower slots= or context=")
        return made

    def close(self, *, drain: bool) -> None:
        for slot in self.held():
            loaded, slot.loaded = slot.loaded, None
            assert loaded is not None
            loaded.close(drain=drain)


def weight_bytes(folder: Path) -> int:
    """The size of the files that hold weights."""
    files: Sequence[Path] = [folder] if folder.is_file() else [*folder.iterdir()] if folder.is_dir() else []
    return sum(file.stat().st_size for file in files if file.suffix in WEIGHTS and file.is_file())
