"""Prompts of a model that reads images among words: requests and conversations, with a token for each patch.

Axes:  N images   S patches of an image   C width
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from headway.data.chat_template import ChatTemplate, template_of
from headway.data.order import random_for
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.decoding import Job
from headway.nn.context import Context
from headway.nn.image_words import Illustrated
from headway.nn.trunk import device_of
from headway.tasks.batches import to_device
from headway.tasks.causal_decoder import CausalDecoder, ChatPrompt, Messages, Part, PromptImages, content_parts
from headway.tasks.generation import GenerationOptions, continuation_job
from headway.tasks.inputs import ImageInput

REQUEST = "Describe the image."  # unless another is given
# LLaVA 1.5's, where a folder has no chat template
TEMPLATE = (
    "{% for message in messages %}{{ '' if message.role == 'system' else message.role | upper ~ ': ' }}"
    "{% for part in message.content if part.type == 'image' %}{{ image_token }}{{ '\n' }}{% endfor %}"
    "{% for part in message.content if part.type == 'text' %}{{ part.text }}{{ ' ' }}{% endfor %}"
    "{% endfor %}{{ 'ASSISTANT:' if add_generation_prompt }}"
)
NUMBER_BYTES = 7  # of an image's number, which fits 64 bits with its sign
SECRET = token_bytes(16)  # so that nobody can make two images with the same number


@dataclass(frozen=True)
class ImagePrompt:
    """`patches` tokens `image` stand in the place of each one that the chat template, or `TEMPLATE`, writes."""

    image: int
    patches: int

    @classmethod
    def of(cls, model: nn.Module, size: tuple[int, int]) -> Self | None:
        """That of a model for images of a size; None, where its texts begin with a token."""
        return cls(model.image, model.patches(size)) if isinstance(model, Illustrated) else None

    def ids(self, words: Tokenizer, request: str | None = None) -> list[int]:
        """What the model's answer to a request about an image follows."""
        content = [{"type": "image"}, {"type": "text", "text": REQUEST if request is None else request}]
        template = None if words.chat_template is None else template_of(words)
        return self.chat_ids(words, self.template(words, template), [{"role": "user", "content": content}])

    def template(self, words: Tokenizer, found: ChatTemplate | None) -> ChatTemplate:
        """That of a folder, which may name the image token, or the usual one."""
        found = found or template_of(replace(words, chat_template=TEMPLATE))
        return replace(found, special={"image_token": words.token(self.image), **found.special})

    def chat_ids(self, words: Tokenizer, template: ChatTemplate, messages: Messages) -> list[int]:
        """A conversation, behind the token that texts begin with."""
        text = template.render(messages)
        begun = words.bos is not None and text.startswith(words.token(words.bos))
        row = words.marked(text) if begun else words.encode(text)
        images = sum(part["type"] == "image" for one in messages for part in one["content"])
        if (count := row.count(self.image)) != images:
            said = f"the prompt has {count} tokens {words.token(self.image)!r} that stand for an image"
            raise UserError(said, allowed=f"{images}, by the chat template", do="leave it out of the texts")
        return [id for one in row for id in [one] * (self.patches if one == self.image else 1)]


@dataclass(frozen=True, eq=False)
class IllustratedDecoder(CausalDecoder):
    """The trunk of a model that reads images among words; `settings` are what its config says of its tokens."""

    reads_images: ClassVar[bool] = True

    model: Illustrated
    prompt: ImagePrompt
    input: ImageInput
    tokenizer: Tokenizer
    settings: Mapping[str, Any]

    def chat_template(self, found: ChatTemplate | None) -> ChatTemplate | None:
        return self.prompt.template(self.tokenizer, found)

    def chat_prompt(self, words: Tokenizer, template: ChatTemplate, messages: Messages) -> ChatPrompt:
        each = [{**one, "content": content_parts(one)} for one in messages]
        images: list[Tensor] = [part["image"] for one in each for part in one["content"] if part["type"] == "image"]
        ids = self.prompt.chat_ids(words, template, [{**one, "content": bare(one["content"])} for one in each])
        if not images:
            return ChatPrompt(ids)
        numbers: Iterator[int] = (number for image in images for number in [number_of(image)] * self.prompt.patches)
        key = tuple(next(numbers) if id == self.prompt.image else id for id in ids)
        return ChatPrompt(ids, PromptImages(torch.stack(images), key))

    def pixels(self, stored: str) -> Tensor:
        return self.input.load(stored, random_for("unused"))

    @torch.inference_mode()
    def memory(self, images: PromptImages) -> Context:
        """All patches in one row: several images follow each other."""
        found = self.model.remember(*to_device(self.input.collate([*images.pixels]), device_of(self.model)))
        assert found.memory is not None
        return replace(found, memory=found.memory.flatten(0, 1)[None])

    def continuation(self, prompts: list[list[int]], options: GenerationOptions) -> Job:
        return continuation_job(self.trunk, prompts, self.tokenizer, self.settings, options)


def bare(content: list[Part]) -> list[Part]:
    """Parts as a template reads them, which has no use for pixels."""
    return [{"type": "image"} if part["type"] == "image" else part for part in content]


def number_of(image: Tensor) -> int:
    """A negative number by which an image is known in this process."""
    digest = blake2b(image.cpu().numpy().tobytes(), digest_size=NUMBER_BYTES, key=SECRET).digest()
    return -1 - int.from_bytes(digest)
