"""A conversation with a model: what was said is kept, and written as the model's chat template wants it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from headway.data.chat_template import ChatTemplate
from headway.errors import UserError
from headway.generate.session import context_of
from headway.model import Model
from headway.nn.trunk import Trunk
from headway.tasks.generation import GenerationOptions, streamed, token_limit
from headway.tasks.results import ContinuesText

Message = dict[str, str]


@dataclass
class Conversation:
    """Messages to and from a model that continues texts; the oldest are left out where the context is full."""

    model: Model
    template: ChatTemplate
    system: str | None = None
    said: list[Message] = field(default_factory=list[Message])
    left_out: int = 0  # messages at the beginning that the last prompt did not hold

    def ask(self, text: str, options: GenerationOptions) -> Generator[str, None, str]:
        """What the model answers, piece by piece as it is written; in the end why it stopped.

        What was written of an answer that is left early belongs to the conversation, too.
        """
        task, trunk, tokenizer = self.model.task, self.model.model, self.model.vocabulary()
        if not isinstance(task, ContinuesText) or not isinstance(trunk, Trunk):
            raise UserError(f"the model {task.does}", allowed="a model that continues texts")
        self.said.append({"role": "user", "content": text})
        prompt = self.prompt(context_of(trunk), token_limit({}, options))
        job, written = task.job(trunk, [prompt], options), list[str]()
        pieces = streamed(job, tokenizer.stream(prompt), options)
        try:
            while True:
                written.append(next(pieces))
                yield written[-1]
        except StopIteration as end:
            return end.value.reason
        finally:
            self.said.append({"role": "assistant", "content": "".join(written).strip()})

    def prompt(self, context: int | None, answer: int) -> list[int]:
        """The tokens of the latest messages that leave room for an answer; the system's message always stays."""
        head = [] if self.system is None else [{"role": "system", "content": self.system}]
        for first in range(0, len(self.said), 2):
            ids = self.model.vocabulary().marked(self.template.render([*head, *self.said[first:]]))
            if context is None or len(ids) + min(answer, context // 2) <= context:
                self.left_out = first
                return ids
        self.said.pop()
        raise UserError(f"the message is longer than the model's context of {context} tokens", do="shorten it")
