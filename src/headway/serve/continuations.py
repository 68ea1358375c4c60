"""The choices of one request while an engine writes them, and the JSON that OpenAI's clients read of them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from secrets import token_hex
from time import monotonic, time
from typing import Any, ClassVar

from headway.errors import UserError
from headway.generate.request import Reason
from headway.generate.sampling import RandomSampler
from headway.serve.api_errors import ApiError, bad_request, busy, print_bug, timed_out
from headway.serve.engine import GenerationRequest, Overloaded, Ticket, TokenEvent
from headway.serve.served_models import TextEngine
from headway.serve.streaming import DONE, event
from headway.serve.token_text import TokenText

FINISH = {Reason.TOKEN: "stop", Reason.STRING: "stop", Reason.LENGTH: "length", Reason.CONTEXT: "length"}
SEEDS = 2**64  # that a generator takes


@dataclass
class WrittenChoice:
    """One answer as far as it is written; `before` is a text that is given back in front of it."""

    ticket: Ticket
    before: str = ""
    events: list[TokenEvent] = field(default_factory=list[TokenEvent])
    characters: int = 0  # that were sent

    @property
    def text(self) -> str:
        return self.before + "".join(one.text for one in self.events)

    @property
    def finish(self) -> str:
        reason = self.events[-1].reason
        assert reason is not None
        return FINISH[reason]


class AnswerFormat(ABC):
    """How a choice is written down; `logprobs` says whether log-probabilities were asked for."""

    prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(self, tokens: TokenText, *, logprobs: bool):
        self.tokens, self.logprobs = tokens, logprobs

    @abstractmethod
    def whole(self, choice: WrittenChoice) -> dict[str, Any]:
        """A finished choice."""

    @abstractmethod
    def opening(self, choice: WrittenChoice) -> dict[str, Any] | None:
        """What is sent before the first token, if anything."""

    @abstractmethod
    def piece(self, choice: WrittenChoice, new: TokenEvent) -> dict[str, Any]:
        """What is sent with a token."""

    @abstractmethod
    def ending(self, choice: WrittenChoice) -> dict[str, Any]:
        """What is sent behind the last token."""


class TextFormat(AnswerFormat):
    prefix, whole_object, chunk_object = "cmpl", "text_completion", "text_completion"

    def whole(self, choice: WrittenChoice) -> dict[str, Any]:
        found = self.tokens.text_logprobs(choice.events, len(choice.before)) if self.logprobs else None
        return {"text": choice.text, "logprobs": found, "finish_reason": choice.finish}

    def opening(self, choice: WrittenChoice) -> dict[str, Any] | None:
        choice.characters = len(choice.before)
        return {"text": choice.before, "logprobs": None, "finish_reason": None} if choice.before else None

    def piece(self, choice: WrittenChoice, new: TokenEvent) -> dict[str, Any]:
        found = self.tokens.text_logprobs([new], choice.characters) if self.logprobs else None
        choice.characters += len(new.text)
        return {"text": new.text, "logprobs": found, "finish_reason": None}

    def ending(self, choice: WrittenChoice) -> dict[str, Any]:
        return {"text": "", "logprobs": None, "finish_reason": choice.finish}


class ChatFormat(AnswerFormat):
    prefix, whole_object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def whole(self, choice: WrittenChoice) -> dict[str, Any]:
        found = self.tokens.chat_logprobs(choice.events) if self.logprobs else None
        message = {"role": "assistant", "content": choice.text, "refusal": None}
        return {"message": message, "logprobs": found, "finish_reason": choice.finish}

    def opening(self, choice: WrittenChoice) -> dict[str, Any] | None:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def piece(self, choice: WrittenChoice, new: TokenEvent) -> dict[str, Any]:
        found = self.tokens.chat_logprobs([new]) if self.logprobs else None
        return {"delta": {"content": new.text}, "logprobs": found, "finish_reason": None}

    def ending(self, choice: WrittenChoice) -> dict[str, Any]:
        return {"delta": {}, "logprobs": None, "finish_reason": choice.finish}


class Continuation:
    """The choices of one request: `prompts`, each continued `copies` times, with seeds that follow one another."""

    def __init__(
        self, model: str, prompts: Sequence[GenerationRequest], copies: int, format: AnswerFormat, timeout: float
    ):
        self.model, self.prompts, self.copies, self.format = model, prompts, copies, format
        self.timeout, self.deadline = timeout, monotonic() + timeout
        self.choices = list[WrittenChoice]()
        self.id, self.created = f"{format.prefix}-{token_hex(12)}", int(time())

    def submit(self, engine: TextEngine, echoes: Sequence[str]) -> None:
        """Hands all choices to the engine; it takes all of them, or the request is refused."""
        for prompt, echo in zip(self.prompts, echoes, strict=True):
            for copy in range(self.copies):
                try:
                    self.choices.append(WrittenChoice(engine.submit(reseeded(prompt, copy)), echo))
                except Overloaded as error:
                    said = "all slots are taken and the queue is full; try again later"
                    raise busy(429, said, error.retry_after, "overloaded") from None
                except UserError as error:
                    raise bad_request(error, "prompt", "context_length_exceeded") from None

    def cancel(self) -> None:
        for choice in self.choices:
            choice.ticket.cancel()

    async def tokens(self) -> AsyncGenerator[tuple[int, TokenEvent]]:
        """The new tokens of all choices as they come, with the index of the choice."""
        arrived = asyncio.Queue[tuple[int, TokenEvent] | Exception]()

        async def forward(index: int, ticket: Ticket) -> None:
            try:
                async for one in ticket.events():
                    arrived.put_nowait((index, one))
            except Exception as error:
                arrived.put_nowait(error)

        pumps = [asyncio.create_task(forward(at, choice.ticket)) for at, choice in enumerate(self.choices)]
        try:
            left = len(pumps)
            while left:
                async with asyncio.timeout(max(0.0, self.deadline - monotonic())):
                    found = await arrived.get()
                if isinstance(found, Exception):
                    raise failed(found) from found
                index, new = found
                self.choices[index].events.append(new)
                left -= new.reason is not None
                yield index, new
        except TimeoutError:
            raise timed_out(self.timeout) from None
        finally:
            self.cancel()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def whole(self) -> dict[str, Any]:
        async with aclosing(self.tokens()) as tokens:
            async for _ in tokens:
                pass
        found = [{"index": at, **self.format.whole(choice)} for at, choice in enumerate(self.choices)]
        return {**self.head(self.format.whole_object), "choices": found, "usage": self.usage()}

    async def stream(self, *, usage: bool) -> AsyncGenerator[bytes]:
        """The events of the answer; an error after the first of them is an event too."""
        none = {"usage": None} if usage else {}

        def chunk(index: int, part: dict[str, Any]) -> bytes:
            choices = [{"index": index, **part}]
            return event({**self.head(self.format.chunk_object), "choices": choices, **none})

        try:
            for index, choice in enumerate(self.choices):
                if opening := self.format.opening(choice):
                    yield chunk(index, opening)
            async with aclosing(self.tokens()) as tokens:
                async for index, new in tokens:
                    if new.text or self.format.logprobs:
                        yield chunk(index, self.format.piece(self.choices[index], new))
                    if new.reason is not None:
                        yield chunk(index, self.format.ending(self.choices[index]))
        except ApiError as error:
            yield event(error.to_dict())
            return
        if usage:
            yield event({**self.head(self.format.chunk_object), "choices": [], "usage": self.usage()})
        yield DONE

    def head(self, object: str) -> dict[str, Any]:
        return {"id": self.id, "object": object, "created": self.created, "model": self.model}

    @property
    def prompt_tokens(self) -> int:
        return sum(len(prompt.prompt) for prompt in self.prompts)

    @property
    def new_tokens(self) -> int:
        return sum(len(choice.events) for choice in self.choices)

    def usage(self) -> dict[str, Any]:
        cached = sum(choice.ticket.cached_tokens for choice in self.choices[:: self.copies])
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.new_tokens,
            "total_tokens": self.prompt_tokens + self.new_tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


def reseeded(request: GenerationRequest, copy: int) -> GenerationRequest:
    """The request of a further choice: it draws other random numbers."""
    sampler = request.options.decoding
    if copy == 0 or not isinstance(sampler, RandomSampler):
        return request
    other = replace(sampler, seed=(sampler.seed + copy) % SEEDS)
    return replace(request, options=replace(request.options, decoding=other))


def failed(error: Exception) -> ApiError:
    """What a client is told where the engine could not go on."""
    if not isinstance(error, UserError):
        print_bug(error)
    said = str(error) if isinstance(error, UserError) else "the server's log says why"
    return busy(503, f"the model failed: {said}", 1, "engine_failed")
