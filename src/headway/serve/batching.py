"""Dynamic batching: requests that wait for the same model with the same options are answered by one call.

One thread for each model, a bounded queue, and no more inputs in a call than `MAX_TOGETHER`.  Rows are packed rather
than padded, and each draws its own random numbers, so an answer does not depend on its batch.  Where a batch fails,
each of its requests is answered alone: what is wrong with one is not told to another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import ceil
from threading import Condition, Event, Thread
from time import monotonic
from typing import Any

from starlette.types import Receive

from headway.errors import UserError
from headway.generate.request import Interrupt, InterruptedCall
from headway.serve.api_errors import bad_request, busy, timed_out
from headway.serve.engine import Overloaded
from headway.serve.streaming import while_connected

MAX_TOGETHER = 32  # inputs of one call, unless a single request has more
Answer = Callable[[list[str], Interrupt], Sequence[Any]]


def nothing() -> None:
    """Where a request leaves nothing behind, or nobody has to be told."""


@dataclass(frozen=True, eq=False)
class QueuedCall:
    """A request: `answer` gives a result for each of its inputs, and of those of others of its `group`.

    `release` is called once the inputs are not needed any more.  `left` is set once nobody waits for the results: what
    is written for nobody ends before its next step.
    """

    inputs: Sequence[str]
    answer: Answer
    group: Hashable | None = None  # None: never with others
    release: Callable[[], None] = nothing
    future: Future[list[Any]] = field(default_factory=Future[list[Any]])
    left: Event = field(default_factory=Event)


class BatchQueue:
    """The requests of one model, answered in a thread of their own, the oldest first."""

    def __init__(self, name: str, limit: int):
        self.limit, self.calls, self.changed = limit, deque[QueuedCall](), Condition()
        self.ending, self.running, self.seconds = False, 0, 1.0
        self.thread = Thread(target=self.work, name=f"predict {name}", daemon=True)
        self.thread.start()

    def submit(self, call: QueuedCall) -> asyncio.Future[list[Any]]:
        """The results to come; `Overloaded` where the queue is full.  Cancelled, a request that waits is left out."""
        with self.changed:
            if self.ending or len(self.calls) >= self.limit:
                call.release()
                raise Overloaded(min(60, ceil(self.seconds * (len(self.calls) + 1))))
            self.calls.append(call)
            self.changed.notify()
        return asyncio.wrap_future(call.future)

    def leave_out(self, call: QueuedCall) -> None:
        """Makes the room of a request free for others, whether it still waits or is being answered."""
        call.left.set()
        with self.changed:
            waited = call in self.calls
            if waited:
                self.calls.remove(call)
        if waited:
            call.release()

    @property
    def waiting(self) -> int:
        return len(self.calls)

    def close(self, *, drain: bool) -> None:
        """Ends the thread: after all that waits (`drain`), or after the call that is running."""
        with self.changed:
            self.ending = True
            left = [] if drain else [*self.calls]
            if not drain:
                self.calls.clear()
            self.changed.notify()
        for call in left:
            call.future.cancel()
            call.release()
        self.thread.join()

    def work(self) -> None:
        while batch := self.next_batch():
            start = monotonic()
            answer_together(batch)
            self.seconds = 0.5 * (self.seconds + monotonic() - start)
            self.running = 0

    def next_batch(self) -> list[QueuedCall]:
        """The oldest request and those that can be answered with it; none where the queue has ended."""
        with self.changed:
            self.changed.wait_for(lambda: self.calls or self.ending)
            if not self.calls:
                return []
            batch = [self.calls.popleft()]
            room = MAX_TOGETHER - len(batch[0].inputs)
            if batch[0].group is not None:
                for call in [one for one in self.calls if one.group == batch[0].group]:
                    if len(call.inputs) <= room:
                        room -= len(call.inputs)
                        batch.append(call)
                        self.calls.remove(call)
            self.running = len(batch)
            return batch


async def answered(receive: Receive, queue: BatchQueue, call: QueuedCall, timeout: float) -> list[Any]:
    """What a queue answers to a request, which is left out where its client leaves or its time is over."""
    try:
        waiting = queue.submit(call)
    except Overloaded as error:
        raise busy(429, "the queue is full; try again later", error.retry_after, "overloaded") from None

    async def wait() -> list[Any]:
        async with asyncio.timeout(timeout):
            return await waiting

    try:
        return await while_connected(receive, wait())
    except TimeoutError:
        raise timed_out(timeout) from None
    except UserError as error:
        raise bad_request(error) from None
    finally:
        queue.leave_out(call)


def answer_together(batch: Sequence[QueuedCall]) -> None:
    """Answers the requests of a batch that somebody still waits for."""
    wanted = [call for call in batch if call.future.set_running_or_notify_cancel()]
    for call in batch:
        if call not in wanted:
            call.release()
    if wanted:
        give_answers(wanted)


def give_answers(calls: Sequence[QueuedCall]) -> None:
    """Inputs are released before an answer is given: whoever has it finds nothing left behind."""

    def interrupt() -> None:
        if all(call.left.is_set() for call in calls):
            raise InterruptedCall

    inputs = [one for call in calls for one in call.inputs]
    try:
        found = list(calls[0].answer(inputs, interrupt))
        assert len(found) == len(inputs) or len(calls) == 1
    except BaseException as error:
        if len(calls) == 1:
            calls[0].release()
            calls[0].future.set_exception(error)
        else:
            for call in calls:
                give_answers([call])
        return
    for call in calls:
        call.release()
    for call in calls[:-1]:
        call.future.set_result(found[: len(call.inputs)])
        found = found[len(call.inputs) :]
    calls[-1].future.set_result(found)
