"""A model as a decoder that continues prompts: what completions, conversations and an engine need of it.

A prompt is tokens; of a model that reads images among words also images, whose patches are its memory.

Axes:  N images   Ch channels   H height   W width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from headway.errors import UserError
from headway.nn.context import EMPTY, Context

if TYPE_CHECKING:
    from torch import Tensor

    from headway.data.chat_template import ChatTemplate
    from headway.data.tokenizer import Tokenizer
    from headway.generate.decoding import Job
    from headway.nn.trunk import Trunk
    from headway.tasks.generation import GenerationOptions
    from headway.tasks.results import ContinuesText

Part = dict[str, Any]  # {"type": "text", "text": a text}, or {"type": "image", "image": pixels, Ch H W}
Messages = Sequence[Mapping[str, Any]]  # each with a role, and a content that is a text or a list of parts


@dataclass(frozen=True, eq=False)
class PromptImages:
    """The images of a prompt, N Ch H W, and `key`, by which a prefix cache knows the prompt.

    The key has the prompt's tokens and, in the place of each patch, a negative number that its image has.
    """

    pixels: Tensor
    key: tuple[int, ...]

    def stand_behind(self, length: int) -> bool:
        """Whether patches follow so many tokens of the prompt."""
        return any(one < 0 for one in self.key[length:])


class ChatPrompt(NamedTuple):
    """What an answer follows."""

    ids: list[int]
    images: PromptImages | None = None


@dataclass(frozen=True, eq=False)
class CausalDecoder(ABC):
    """A trunk that continues prompts."""

    reads_images: ClassVar[bool]

    trunk: Trunk

    @abstractmethod
    def chat_template(self, found: ChatTemplate | None) -> ChatTemplate | None:
        """How messages are written, by what the model's folder has; None: the model holds no conversations."""

    @abstractmethod
    def chat_prompt(self, words: Tokenizer, template: ChatTemplate, messages: Messages) -> ChatPrompt:
        """What the assistant's answer follows."""

    @abstractmethod
    def pixels(self, stored: str) -> Tensor:
        """The image at a spelled location, as the model reads it, Ch H W."""

    @abstractmethod
    def memory(self, images: PromptImages) -> Context:
        """The images of one prompt, encoded."""

    @abstractmethod
    def continuation(self, prompts: list[list[int]], options: GenerationOptions) -> Job:
        """The continuation of prompts without images, to be decoded."""

    def job(self, prompts: list[list[int]], options: GenerationOptions, memory: Context = EMPTY) -> Job:
        """The continuation of prompts, each with its row of the memory."""
        return replace(self.continuation(prompts, options), memory=memory)


@dataclass(frozen=True, eq=False)
class TextDecoder(CausalDecoder):
    """The trunk of a task that continues texts."""

    reads_images: ClassVar[bool] = False

    task: ContinuesText

    def chat_template(self, found: ChatTemplate | None) -> ChatTemplate | None:
        return found

    def chat_prompt(self, words: Tokenizer, template: ChatTemplate, messages: Messages) -> ChatPrompt:
        plain = [{**one, "content": "".join(map(text_of, content_parts(one)))} for one in messages]
        return ChatPrompt(words.marked(template.render(plain)))

    def pixels(self, stored: str) -> Tensor:
        raise no_images()

    def memory(self, images: PromptImages) -> Context:
        raise no_images()

    def continuation(self, prompts: list[list[int]], options: GenerationOptions) -> Job:
        return self.task.job(self.trunk, prompts, options)


def content_parts(message: Mapping[str, Any]) -> list[Part]:
    """The content of a message as parts."""
    content: str | list[Part] = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def text_of(part: Part) -> str:
    if part["type"] != "text":
        raise no_images()
    return part["text"]


def no_images() -> UserError:
    return UserError("the model reads texts and no images", do="leave the images out")
