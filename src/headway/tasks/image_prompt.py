"""The prompt of a model that reads an image among words: a request about it, with a token for each of its patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from torch import nn

from headway.data.chat_template import template_of
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.nn.image_words import Illustrated

REQUEST = "Describe the image."  # unless another is given
FORM = "USER: {image}\n{request} ASSISTANT:"  # LLaVA 1.5's, where a folder has no chat template


@dataclass(frozen=True)
class ImagePrompt:
    """`patches` tokens `image` stand in the place of the one that the chat template, or `FORM`, has."""

    image: int
    patches: int

    @classmethod
    def of(cls, model: nn.Module, size: tuple[int, int]) -> Self | None:
        """That of a model for images of a size; None, where its texts begin with a token."""
        return cls(model.image, model.patches(size)) if isinstance(model, Illustrated) else None

    def ids(self, words: Tokenizer, request: str | None = None) -> list[int]:
        """What the model's answer to a request follows."""
        request = REQUEST if request is None else request
        found = self.marked(words, request)
        if (count := found.count(self.image)) != 1:
            said = f"the prompt has {count} tokens {words.token(self.image)!r} that stand for an image"
            raise UserError(said, allowed="1, by the chat template", do="leave it out of the request")
        at = found.index(self.image)
        return [*found[:at], *[self.image] * self.patches, *found[at + 1 :]]

    def marked(self, words: Tokenizer, request: str) -> list[int]:
        """The request as the folder's chat template has it, behind the token that texts begin with."""
        if words.chat_template is None:
            return words.encode(FORM.format(image=words.token(self.image), request=request))
        content = [{"type": "image"}, {"type": "text", "text": request}]
        text = template_of(words).render([{"role": "user", "content": content}])
        begun = words.bos is not None and text.startswith(words.token(words.bos))
        return words.marked(text) if begun else words.encode(text)
