"""Continuous batching: many requests decoded by one model, which join and leave between steps.

One thread owns the model.  A pass of it reads one more token in each row that is decoded, and pieces of the prompts of
others, oldest first (chunked prefill).  Before a pass it frees the rows of requests that have ended or were cancelled,
and gives free rows to those that wait.  Rows are computed apart, and each request has its own generator: an answer does
not depend on who else is served.  The images of a prompt are encoded when it gets a row.

Keys and values of finished requests are kept as long as they fit; a prompt that begins like one of them is read from
where they part (prefix cache).
"""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Condition, Thread
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.errors import UserError
from headway.generate.decoding import choose_tokens
from headway.generate.pool import DecodingPool
from headway.generate.request import Reason, Request
from headway.generate.sampling import Sampler, largest
from headway.generate.session import context_of
from headway.model import Model
from headway.nn.context import Context
from headway.nn.state import FixedState
from headway.serve.serve_options import EngineLimits
from headway.tasks.causal_decoder import PromptImages
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions, StreamedText

CONTEXT = 4096  # tokens of a row, where the model has no limit of its own
MAX_PREFIXES = 256  # each is compared with every new prompt, 6 µs, while all rows wait
WORTH_WAITING = 32  # tokens that a prompt shares with one that is being read, above which it waits for them


class Overloaded(Exception):  # noqa: N818
    """All slots are taken and the queue is full; `retry_after` is in seconds."""

    def __init__(self, retry_after: int):
        super().__init__("all slots are taken and the queue is full")
        self.retry_after = retry_after


class TokenEvent(NamedTuple):
    """A new token; `text` is what can be shown with it, which may be nothing yet."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # the likeliest tokens with their log-probabilities, as many as asked for
    text: str
    reason: Reason | None  # why it is the last; None: it goes on


@dataclass(frozen=True)
class GenerationRequest:
    """A prompt to continue by a sampler; without `options.max_new_tokens` until the context is full."""

    prompt: tuple[int, ...]
    options: GenerationOptions = GREEDY_OPTIONS
    top_logprobs: int = 0
    images: PromptImages | None = None


class Ticket:
    """A request that an engine has taken.  In an event loop read `events()`, elsewhere the ticket itself."""

    def __init__(
        self,
        request: Request,
        text: StreamedText,
        top_logprobs: int,
        leave: Callable[[Ticket], None],
        images: PromptImages | None,
    ):
        self.request, self.text, self.top_logprobs, self.leave = request, text, top_logprobs, leave
        self.images = images
        self.key = request.prompt if images is None else list(images.key)  # by which the prompt is known
        self.memory: Context | None = None  # the encoded images, where some of the prompt is still to be read
        self.cached_tokens = 0  # of the prompt, which were read for an earlier request
        self.number = 0  # in the order in which the engine has given rows
        self.cancelled = self.failed = False
        try:
            self.loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
            self.arrived: asyncio.Queue[TokenEvent | Exception] = asyncio.Queue()
        except RuntimeError:
            self.loop = None
            self.delivered = queue.SimpleQueue[TokenEvent | Exception]()

    async def events(self) -> AsyncIterator[TokenEvent]:
        """The tokens as they come; it raises what the engine has failed with."""
        while True:
            event = checked(await self.arrived.get())
            yield event
            if event.reason is not None:
                return

    def __iter__(self) -> Iterator[TokenEvent]:
        while True:
            event = checked(self.delivered.get())
            yield event
            if event.reason is not None:
                return

    def deliver(self, event: TokenEvent | Exception) -> None:
        if self.loop is None:
            self.delivered.put(event)
            return
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self.loop.call_soon_threadsafe(self.arrived.put_nowait, event)

    def cancel(self) -> None:
        """Frees the row before the next step; nothing follows.  From any thread, any number of times."""
        self.cancelled = True
        self.leave(self)

    def choose(self, logits: Tensor, logprobs: Tensor) -> None:
        """Chooses the next token by the logits after the last one, 1 V, and delivers it, or what went wrong."""
        try:
            [step] = choose_tokens([self.request], logits, logprobs)
            piece = self.text.push(step.token) + ("" if step.reason is None else self.text.end())
            top = tuple[tuple[int, float], ...]()
            if self.top_logprobs:
                values, ids = largest(logprobs, self.top_logprobs)
                top = tuple(zip(ids[0].tolist(), values[0].tolist(), strict=True))
            self.deliver(TokenEvent(step.token, step.logprob, top, piece, step.reason))
        except Exception as error:  # of this request alone
            self.fail(error)

    def fail(self, error: Exception) -> None:
        self.cancelled = self.failed = True
        self.deliver(error)

    @property
    def ended(self) -> bool:
        return self.cancelled or self.request.reason is not None


def checked(event: TokenEvent | Exception) -> TokenEvent:
    if isinstance(event, Exception):
        raise event
    return event


class PrefixCache:
    """Keys and values of token sequences that were read, the latest used last, up to a number and so many bytes."""

    def __init__(self, most: int):
        self.most, self.size = most, 0
        self.entries = dict[tuple[int, ...], tuple[FixedState, int]]()

    def add(self, tokens: tuple[int, ...], state: FixedState) -> None:
        size = bytes_of(state)
        if size > self.most:
            return
        for known in [one for one in self.entries if one == tokens[: len(one)] and can_be_cut(state)]:
            self.drop(known)  # a beginning of these
        self.drop(tokens)
        while self.size + size > self.most or len(self.entries) >= MAX_PREFIXES:
            self.drop(next(iter(self.entries)))
        self.entries[tokens], self.size = (state, size), self.size + size

    def drop(self, tokens: tuple[int, ...]) -> None:
        _, size = self.entries.pop(tokens, (None, 0))
        self.size -= size

    def longest(self, prompt: list[int]) -> tuple[FixedState, int] | None:
        """A state that has read a beginning of a prompt, and how much of it; a last token is always read anew."""
        found = max(((self.shared(known, prompt), known) for known in self.entries), default=(0, ()))
        length, known = found
        if length == 0:
            return None
        self.entries[known] = self.entries.pop(known)
        return self.entries[known][0], length

    def shared(self, known: tuple[int, ...], prompt: list[int]) -> int:
        """How many tokens a prompt can take from a known sequence; a recurrent state only as a whole."""
        length = alike(known, prompt)
        return length if length == len(known) or can_be_cut(self.entries[known][0]) else 0


def alike(known: Sequence[int], prompt: list[int]) -> int:
    """With how many tokens both begin, without the last of the prompt."""
    most = min(len(known), len(prompt) - 1)
    differ = np.flatnonzero(np.array(known[:most]) != np.array(prompt[:most]))
    return int(differ[0]) if len(differ) else most


def can_be_cut(state: FixedState) -> bool:
    return not state.carried and all(not child.carried for child in state.children.values())


def bytes_of(state: FixedState) -> int:
    tensors = [x for buffers in state.buffers.values() for x in buffers.tensors]
    tensors += [x for kept in state.kept.values() for x in kept]
    own = sum(x.numel() * x.element_size() for x in tensors)
    return own + sum(bytes_of(child) for child in state.children.values() if isinstance(child, FixedState))


class Engine:
    """One model that continues texts, in a thread of its own."""

    def __init__(self, model: Model, limits: EngineLimits):
        self.decoder, self.tokenizer, self.limits = model.causal_decoder(), model.vocabulary(), limits
        trunk = self.decoder.trunk
        rooms = [room for room in (limits.context, context_of(trunk)) if room is not None]
        self.context = min(rooms, default=CONTEXT)
        self.pool, self.prefixes = DecodingPool(trunk, limits.slots, self.context), PrefixCache(limits.prefix_bytes)
        self.bytes = self.allocate()
        self.waits, self.rows = deque[Ticket](), list[Ticket]()  # rows: in the order of the pool's
        self.admitted = 0
        self.changed, self.closing, self.draining = Condition(), False, False
        self.thread = Thread(target=self.work, name="headway engine", daemon=True)
        self.thread.start()

    @torch.inference_mode()
    def allocate(self) -> int:
        """Makes the KV cache of all rows; gives the bytes of these and of prefixes."""
        self.pool.join()
        self.pool.read([[0]])
        self.pool.leave(0)
        return bytes_of(self.pool.state) + self.limits.prefix_bytes

    def submit(self, request: GenerationRequest) -> Ticket:
        """Takes a request; refuses it as `Overloaded`, or by a `UserError` where the context has no room for it."""
        if not isinstance(request.options.decoding, Sampler):
            raise UserError("a beam search", allowed="greedy decoding or sampling")
        most = request.options.max_new_tokens or self.context
        job = self.decoder.job([list(request.prompt)], replace(request.options, max_new_tokens=most))
        [(prompt, room)] = replace(job, reread=None, context=self.context).rows()
        row = Request(0, prompt, request.options.decoding, job.stop, room, job.rules)
        text = StreamedText(job.stop, self.tokenizer.stream(prompt))
        ticket = Ticket(row, text, request.top_logprobs, self.leave_out, request.images)
        with self.changed:
            if self.closing or self.draining:
                raise Overloaded(1)
            if len(self.waits) + len(self.rows) >= self.limits.slots + self.limits.queue:
                raise Overloaded(1 + len(self.waits) // self.limits.slots)
            self.waits.append(ticket)
            self.changed.notify_all()
        return ticket

    @property
    def running(self) -> int:
        """Requests that have a row."""
        return len(self.rows)

    @property
    def waiting(self) -> int:
        return len(self.waits)

    def leave_out(self, ticket: Ticket) -> None:
        """Makes the room of a request free for others, where it still waits."""
        with self.changed:
            if ticket in self.waits:
                self.waits.remove(ticket)
            self.changed.notify_all()

    def close(self, *, drain: bool) -> None:
        """Ends the thread: after all that was taken, or at once, which ends every request with an error."""
        with self.changed:
            self.draining, self.closing = True, self.closing or not drain
            self.changed.notify_all()
        self.thread.join()

    def work(self) -> None:
        with torch.inference_mode():
            while self.wait():
                self.sweep()
                self.admit()
                self.read()
        closed = RuntimeError("the engine was closed")
        for ticket in (*self.rows, *self.waits):
            ticket.deliver(closed)

    def wait(self) -> bool:
        """Waits until there is something to do; False: the engine ends."""
        with self.changed:
            while not (self.closing or self.rows or self.waits):
                if self.draining:
                    return False
                self.changed.wait()
            return not self.closing

    def sweep(self) -> None:
        """Frees the rows of requests that have ended."""
        for row in reversed(range(len(self.rows))):
            if (ticket := self.rows[row]).ended:
                self.keep(row, ticket)
                self.pool.leave(row)
                last = self.rows.pop()
                if row < len(self.rows):
                    self.rows[row] = last

    def keep(self, row: int, ticket: Ticket) -> None:
        """Keeps what a row has read, for prompts that begin like it."""
        length = self.pool.lengths[row]
        if length and self.prefixes.most and not ticket.failed:
            self.prefixes.add(tuple([*ticket.key, *ticket.request.tokens][:length]), self.pool.taken(row))

    def admit(self) -> None:
        """Gives free rows to the requests that have waited longest, behind what is known of their prompts."""
        while ticket := self.next_waiting():
            self.admitted += 1
            ticket.number = self.admitted
            try:
                begun = self.prefixes.longest(ticket.key)
                ticket.cached_tokens = 0 if begun is None else begun[1]
                # all rows wait: an image of LLaVA 1.5 7B takes a tenth of the multiplications of 256 tokens of a prompt
                if ticket.images is not None and ticket.images.stand_behind(ticket.cached_tokens):
                    ticket.memory = self.decoder.memory(ticket.images)
                self.pool.join(begun)
            except Exception as error:  # of this request alone
                self.pool.join()
                ticket.fail(error)

    def next_waiting(self) -> Ticket | None:
        with self.changed:
            for ticket in self.waits if len(self.rows) < self.limits.slots else ():
                if not self.is_being_read(ticket.key):
                    self.waits.remove(ticket)
                    self.rows.append(ticket)
                    return ticket
        return None

    def is_being_read(self, prompt: list[int]) -> bool:
        """Whether more of a prompt will soon be known: another that begins like it is being read."""
        if not self.prefixes.most or not can_be_cut(self.pool.state):
            return False
        reading = [ticket for ticket in self.rows if not ticket.request.tokens]
        return any(alike(one.key, prompt) >= one.cached_tokens + WORTH_WAITING for one in reading)

    def pieces(self) -> list[list[int]]:
        """What a pass reads in each row: the newest token, or of prompts as many together as a chunk has."""
        left, found = self.limits.chunk, [list[int]() for _ in self.rows]
        going = [row for row, ticket in enumerate(self.rows) if not ticket.ended]
        for row in sorted(going, key=lambda row: self.rows[row].number):
            request, read = self.rows[row].request, self.pool.lengths[row]
            if request.tokens:
                found[row] = request.tokens[-1:]
            else:
                found[row] = request.prompt[read : read + left]
                left -= len(found[row])
        return found

    def read(self) -> None:
        """A pass: those whose prompt is read choose a token."""
        pieces = self.pieces()
        rows = [row for row, piece in enumerate(pieces) if piece]
        if not rows:
            return
        images = {row: ticket.memory for row, ticket in enumerate(self.rows) if ticket.memory is not None}
        try:
            logits = self.pool.read(pieces, images)
            logprobs = logits.log_softmax(-1)
        except Exception as error:
            for row in rows:
                self.rows[row].fail(error)
            return
        for row, *given in zip(rows, logits.split(1), logprobs.split(1), strict=True):
            ticket, length = self.rows[row], self.pool.lengths[row]
            if length == len(ticket.request.prompt):
                self.keep(row, ticket)
            if length >= len(ticket.request.prompt):
                ticket.memory = None
                ticket.choose(*given)
