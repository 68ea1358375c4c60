"""An engine with the interface of the server's own, which decodes one request at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from threading import Condition, Event, Thread

import torch

from headway.errors import UserError
from headway.generate.sampling import Sampler
from headway.model import Model
from headway.serve.engine import EngineLimits, GenerationRequest, Overloaded, Ticket, TokenEvent
from headway.tasks.results import ContinuesText


class QueuedTicket(Ticket):
    def __init__(self, request: GenerationRequest):
        self.request, self.cancelled = request, Event()
        self.loop, self.arrived = asyncio.get_running_loop(), asyncio.Queue[TokenEvent | Exception]()

    async def events(self) -> AsyncIterator[TokenEvent]:
        while True:
            found = await self.arrived.get()
            if isinstance(found, Exception):
                raise found
            yield found
            if found.reason is not None:
                return

    def cancel(self) -> None:
        self.cancelled.set()

    def put(self, found: TokenEvent | Exception) -> None:
        self.loop.call_soon_threadsafe(self.arrived.put_nowait, found)


class StandInEngine:
    def __init__(self, model: Model, limits: EngineLimits):
        self.model, self.limits, self.tickets, self.changed = model, limits, deque[QueuedTicket](), Condition()
        self.running, self.ending = 0, False
        self.gate = Event()  # cleared, nothing is decoded: for tests of queues
        self.gate.set()
        self.thread = Thread(target=self.work, daemon=True)
        self.thread.start()

    @property
    def context(self) -> int:
        return min(self.limits.context or 4096, getattr(self.model.config, "context", None) or 4096)

    @property
    def waiting(self) -> int:
        return len(self.tickets)

    def submit(self, request: GenerationRequest) -> Ticket:
        if len(request.prompt) > self.context:
            raise UserError(f"a prompt of {len(request.prompt)} tokens", allowed=f"{self.context} or fewer")
        with self.changed:
            if len(self.tickets) + self.running >= self.limits.slots + self.limits.queue:
                raise Overloaded(2)
            self.tickets.append(ticket := QueuedTicket(request))
            self.changed.notify()
        return ticket

    def close(self, *, drain: bool) -> None:
        with self.changed:
            self.ending = True
            if not drain:
                self.tickets.clear()
            self.changed.notify()
        self.gate.set()
        self.thread.join()

    def work(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.tickets or self.ending)
                if not self.tickets:
                    return
                ticket, self.running = self.tickets.popleft(), 1
            try:
                self.decode(ticket)
            except Exception as error:
                ticket.put(error)
            finally:
                self.running = 0

    @torch.inference_mode()
    def decode(self, ticket: QueuedTicket) -> None:
        request, task = ticket.request, self.model.task
        assert isinstance(task, ContinuesText)
        assert isinstance(request.options.decoding, Sampler)
        prompt = list(request.prompt)
        room = self.context - len(prompt) + 1
        options = replace(request.options, max_new_tokens=min(request.options.max_new_tokens or room, room))
        job = replace(task.job(self.model.model, [prompt], options), reread=None)
        stream, held, ids = self.model.vocabulary().stream(prompt), "", job.rows()[0][0]
        for [step] in job.stream(request.options.decoding):
            while not self.gate.wait(0.01):
                if ticket.cancelled.is_set():
                    return
            if ticket.cancelled.is_set():
                return
            held += "" if step.token in job.stop.tokens else stream.push(step.token)
            sure = job.stop.certain(held)
            if step.reason is not None:
                held += stream.end()
                sure = job.stop.found(held) if job.stop.found(held) is not None else len(held)
            ticket.put(TokenEvent(step.token, step.logprob, self.top(ids, request), held[:sure], step.reason))
            held, ids = held[sure:], [*ids, step.token]

    def top(self, ids: list[int], request: GenerationRequest) -> tuple[tuple[int, float], ...]:
        if not request.top_logprobs:
            return ()
        found = self.model.model(torch.tensor([ids]))[0, -1].log_softmax(-1).topk(request.top_logprobs)
        return tuple(zip(found.indices.tolist(), found.values.tolist(), strict=True))
