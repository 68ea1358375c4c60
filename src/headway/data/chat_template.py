"""The chat template of a model folder: messages to the text that the model continues.

A template is a Jinja program that came with the weights.  It is rendered in Jinja's immutable sandbox, with the
functions and the white space that transformers gives templates, and sees nothing but the messages and special tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_files import SPECIAL_ROLES, read_chat_template, read_settings, role_token
from headway.errors import UserError

# of models that are trained here and have none: plain words, so that no token has to be added to a vocabulary
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message.role | capitalize }}:\n{{ message.content | trim }}"
    "{{ eos_token if message.role == 'assistant' }}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{{ '\n' }}{% endif %}"
)


@dataclass(frozen=True, eq=False)
class ChatTemplate:
    template: Template
    special: Mapping[str, str]  # such as bos_token

    def render(self, messages: Sequence[Mapping[str, Any]], *, answer_next: bool = True) -> str:
        """The messages as a text, behind which the assistant's answer follows where it comes next."""
        values: dict[str, Any] = {"messages": [dict(one) for one in messages], "tools": None, "documents": None}
        try:
            return self.template.render(**values, add_generation_prompt=answer_next, **self.special)
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise UserError(f"the model's chat template refuses these messages: {error!s:.300}") from error


def load_chat_template(folder: Path) -> ChatTemplate | None:
    """The chat template of a model folder; None where there is none."""
    text = read_chat_template(folder) if folder.is_dir() else None
    if text is None:
        return None
    settings = read_settings(folder)
    tokens = {f"{role}_token": token for role in SPECIAL_ROLES if (token := role_token(settings, role))}
    return ChatTemplate(compiled(text, str(folder)), tokens)


def template_of(tokenizer: Tokenizer) -> ChatTemplate:
    """The chat template of a tokenizer that has one."""
    assert tokenizer.chat_template is not None
    tokens = {f"{role}_token": token for role, token in tokenizer.roles.named().items()}
    return ChatTemplate(compiled(tokenizer.chat_template, "the tokenizer"), tokens)


def compiled(text: str, owner: str) -> Template:
    try:
        return environment().from_string(text, {"raise_exception": refuse, "strftime_now": now})
    except TemplateError as error:
        raise UserError(f"{owner}: its chat template is malformed: {error!s:.200}") from error


class GenerationBlock(Extension):
    """{% generation %} … {% endgeneration %} marks what the assistant says, for training; its text is as it stands."""

    tags: ClassVar[set[str]] = {"generation"}  # pyright: ignore[reportIncompatibleVariableOverride]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def environment() -> ImmutableSandboxedEnvironment:
    found = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, LoopControls]
    )
    found.filters["tojson"] = to_json
    return found


def now(format: str) -> str:
    return datetime.now().strftime(format)


def refuse(message: str) -> None:
    raise TemplateError(message)


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
