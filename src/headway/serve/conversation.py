"""A conversation with a model: what was said is kept, and written as the model's chat template wants it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headway.data.chat_template import ChatTemplate
from headway.errors import UserError
from headway.generate.session import context_of
from headway.model import Model
from headway.nn.context import EMPTY, Context
from headway.tasks.causal_decoder import CausalDecoder, ChatPrompt, Part, PromptImages
from headway.tasks.generation import GenerationOptions, streamed, token_limit

Message = dict[str, Any]


@dataclass
class Conversation:
    """Messages to and from a model that continues texts; the oldest are left out where the context is full."""

    model: Model
    template: ChatTemplate
    system: str | None = None
    said: list[Message] = field(default_factory=list[Message])
    left_out: int = 0  # messages at the beginning that the last prompt did not hold
    shown: list[Part] = field(default_factory=list[Part])  # images of the next message
    encoded: tuple[tuple[int, ...], Context] = ((), EMPTY)  # those of the last prompt, by their numbers

    @cached_property
    def decoder(self) -> CausalDecoder:
        return self.model.causal_decoder()

    def show(self, file: str) -> None:
        """Puts an image into the next message."""
        self.shown.append({"type": "image", "image": self.decoder.pixels(self.model.task.locate(file))})

    def ask(self, text: str, options: GenerationOptions) -> Generator[str, None, str]:
        """What the model answers, piece by piece as it is written; in the end why it stopped.

        What was written of an answer that is left early belongs to the conversation, too; a message that is refused
        does not.
        """
        before, shown = [*self.said], self.shown
        self.said.append({"role": "user", "content": [*shown, {"type": "text", "text": text}] if shown else text})
        self.shown = []
        try:
            prompt = self.prompt(context_of(self.decoder.trunk), token_limit({}, options))
        except UserError:
            self.said, self.shown = before, shown
            raise
        job, written = self.decoder.job([prompt.ids], options, self.memory(prompt.images)), list[str]()
        pieces = streamed(job, self.model.vocabulary().stream(prompt.ids), options)
        try:
            while True:
                written.append(next(pieces))
                yield written[-1]
        except StopIteration as end:
            return end.value.reason
        finally:
            self.said.append({"role": "assistant", "content": "".join(written).strip()})

    def prompt(self, context: int | None, answer: int) -> ChatPrompt:
        """The latest messages that leave room for an answer; the system's message always stays."""
        head = [] if self.system is None else [{"role": "system", "content": self.system}]
        words = self.model.vocabulary()
        for first in range(0, len(self.said), 2):
            found = self.decoder.chat_prompt(words, self.template, [*head, *self.said[first:]])
            if context is None or len(found.ids) + min(answer, context // 2) <= context:
                self.left_out = first
                return found
        raise UserError(f"the message is longer than the model's context of {context} tokens", do="shorten it")

    def memory(self, images: PromptImages | None) -> Context:
        """The images of a prompt, encoded once for all messages that follow."""
        numbers = () if images is None else tuple(one for one in images.key if one < 0)
        if images is not None and numbers != self.encoded[0]:
            self.encoded = numbers, self.decoder.memory(images)
        return EMPTY if images is None else self.encoded[1]
