"""Conversations and preferences in objects: lines of JSON, a list in .json, rows of Parquet.

Published data has several layouts.  All become messages, each with a role (system, user or assistant) and a text:

messages                   [{"role": "user", "content": "…"}, …]
conversations              [{"from": "human", "value": "…"}, …]
instruction, output        with an `input` or without; and a `system` text
prompt, completion         texts, or lists of messages
chosen, rejected           two answers to a `prompt`; or two whole conversations with the same beginning

A record of a conversation has two fields: what the first answer is given to, and the messages as JSON.  One of
preferences has three: that, and the conversation with the chosen and with the rejected answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.data.kinds import DIALOGUE, DataKind
from headway.data.records import DataQuery, FileSource, RecognisedData, Record
from headway.data.table import JsonLines, read_objects, row_count, shortened
from headway.data.table_preview import sample_objects
from headway.data.text_lines import OBJECT_SUFFIXES, Flaw, Problem, suffix_of
from headway.errors import UserError, counted, listed

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
ROLES = {
    **dict.fromkeys(("system", "developer"), SYSTEM),
    **dict.fromkeys(("user", "human", "prompter"), USER),
    **dict.fromkeys(("assistant", "gpt", "bot", "model", "chatgpt", "bing", "bard"), ASSISTANT),
}
ROLE_KEYS, TEXT_KEYS = ("role", "from"), ("content", "value", "text")
SYSTEM_KEYS = ("system", "system_prompt")

Message = dict[str, str]


class MalformedError(Exception):
    """Why an object is no conversation, for a sentence."""


@dataclass(frozen=True)
class DialogueLayout:
    """The keys that an object of a layout has, and how its messages are read: one conversation, or two to compare.

    Where `asked`, the keys alone do not show that conversations are meant: they are read so when the task is named.
    """

    kind: DataKind
    keys: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], tuple[list[Message], ...]]
    asked: bool = False

    def fits(self, value: Mapping[str, Any]) -> bool:
        return all(value.get(key) is not None for key in self.keys)


def listed_messages(key: str) -> Callable[[Mapping[str, Any]], tuple[list[Message], ...]]:
    return lambda value: (messages_of(value[key], key),)


def answered(question: str, answer: str) -> Callable[[Mapping[str, Any]], tuple[list[Message], ...]]:
    """A question with its answer."""

    def read(value: Mapping[str, Any]) -> tuple[list[Message], ...]:
        return ([*asked_messages(value, question), *said(value[answer], answer, ASSISTANT)],)

    return read


def compared(value: Mapping[str, Any]) -> tuple[list[Message], ...]:
    """Two answers to a prompt, or two conversations that begin alike."""
    question = next((key for key in ("prompt", "question", "instruction") if value.get(key)), None)
    before = [] if question is None else asked_messages(value, question)
    found = [said(value[key], key, ASSISTANT) for key in ("chosen", "rejected")]
    both = [one if one[: len(before)] == before else [*before, *one] for one in found]
    if any(len(one) < 2 for one in both):
        raise MalformedError("there is no 'prompt' that the answers are given to")
    if both[0][:-1] != both[1][:-1]:
        raise MalformedError("what is before the last answer differs between 'chosen' and 'rejected'")
    if both[0] == both[1]:
        raise MalformedError("'chosen' and 'rejected' are the same")
    return tuple(both)


LAYOUTS = (
    DialogueLayout(DataKind.PREFERENCES, ("chosen", "rejected"), compared),
    DialogueLayout(DataKind.CONVERSATIONS, ("messages",), listed_messages("messages")),
    DialogueLayout(DataKind.CONVERSATIONS, ("conversations",), listed_messages("conversations")),
    DialogueLayout(DataKind.CONVERSATIONS, ("conversation",), listed_messages("conversation")),
    DialogueLayout(DataKind.CONVERSATIONS, ("instruction", "output"), answered("instruction", "output")),
    DialogueLayout(DataKind.CONVERSATIONS, ("instruction", "response"), answered("instruction", "response")),
    DialogueLayout(DataKind.CONVERSATIONS, ("prompt", "completion"), answered("prompt", "completion")),
    DialogueLayout(DataKind.CONVERSATIONS, ("prompt", "response"), answered("prompt", "response"), asked=True),
    DialogueLayout(DataKind.CONVERSATIONS, ("question", "answer"), answered("question", "answer"), asked=True),
)


def asked_messages(value: Mapping[str, Any], key: str) -> list[Message]:
    """What an answer is given to: a system text, and the question with its input."""
    system = next((value[name] for name in SYSTEM_KEYS if value.get(name)), None)
    asked = said(value[key], key, USER)
    if key == "instruction" and value.get("input"):
        asked = said(f"{value[key]}\n\n{value['input']}", key, USER)
    return [*([] if system is None else said(system, "system", SYSTEM)), *asked]


def said(value: Any, key: str, role: str) -> list[Message]:
    """A text as one message of a role, or messages as they are."""
    if isinstance(value, list):
        return messages_of(value, key)
    if not isinstance(value, str):
        raise MalformedError(f"{key!r} is {shortened(value)}, not a text or a list of messages")
    return [{"role": role, "content": value}]


def messages_of(value: Any, key: str) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise MalformedError(f"{key!r} is {shortened(value)}, not a list of messages")
    found = [message_of(one, number) for number, one in enumerate(value, 1)]
    return [one for one in found if one["role"] != SYSTEM or one["content"].strip()]


def message_of(value: Any, number: int) -> Message:
    if not isinstance(value, dict):
        raise MalformedError(f"message {number} is {shortened(value)}, not an object with a role and a content")
    role, text = (next((value[key] for key in keys if key in value), None) for keys in (ROLE_KEYS, TEXT_KEYS))
    if not isinstance(role, str) or role.casefold() not in ROLES:
        raise MalformedError(
            f"message {number} has the role {shortened(role)}, not {listed(dict.fromkeys(ROLES.values()))}"
        )
    if not isinstance(text, str):
        raise MalformedError(f"message {number} has the content {shortened(text)}, not a text")
    return {"role": ROLES[role.casefold()], "content": text}


def checked_messages(messages: Sequence[Message]) -> None:
    """Refuses a conversation without an answer, or with an empty message."""
    empty = next((number for number, one in enumerate(messages, 1) if not one["content"].strip()), None)
    if empty is not None:
        raise MalformedError(f"message {empty} ({messages[empty - 1]['role']}) is empty")
    first = next((at for at, one in enumerate(messages) if one["role"] == ASSISTANT), None)
    if first is None:
        raise MalformedError("there is no answer of the assistant")
    if first == 0:
        raise MalformedError("it begins with an answer, and there is nothing that it is given to")


def conversation_fields(found: Sequence[list[Message]]) -> tuple[str, ...]:
    """The fields of a record: what the first answer is given to, and each conversation as JSON."""
    first = next(at for at, one in enumerate(found[0]) if one["role"] == ASSISTANT)
    question = "\n\n".join(one["content"] for one in found[0][:first])
    return (question, *(json.dumps(one, ensure_ascii=False) for one in found))


@dataclass(frozen=True)
class Conversations(FileSource):
    """The objects of a file, in one layout."""

    layout: DialogueLayout

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.layout.keys

    def column(self, name: str) -> JsonLines:
        return JsonLines(self.file, (name,))

    def read(self) -> Iterator[Record | Problem]:
        for found in read_objects(self.file):
            if isinstance(found, Problem):
                yield found
                continue
            line, value = found
            missing = next((key for key in self.layout.keys if value.get(key) is None), None)
            if missing is not None:
                yield Problem(self.file, line, Flaw.KEY, f"no {missing!r} among its keys")
                continue
            try:
                conversations = self.layout.read(value)
                for one in conversations:
                    checked_messages(one)
            except MalformedError as error:
                yield Problem(self.file, line, Flaw.VALUE, str(error))
            else:
                yield Record(conversation_fields(conversations), self.file, line)

    def field_name(self, field: int) -> str:
        return "the question" if field == 0 else repr(self.layout.keys[min(field, len(self.layout.keys)) - 1])


def recognise_conversations(query: DataQuery, files: Sequence[Path]) -> RecognisedData | None:
    """Conversations or preferences, where the keys of the first file's objects are those of a layout."""
    if query.columns or not all(suffix_of(file) in OBJECT_SUFFIXES for file in files):
        return not_objects(query, files)
    objects = sample_objects(query, files[0])
    known = (one for one in LAYOUTS if query.kind is one.kind or (query.kind is None and not one.asked))
    layout = next((one for one in known if 2 * sum(map(one.fits, objects)) > len(objects)), None)
    if layout is None:
        return None if query.kind not in DIALOGUE else refused(query, files[0])
    count = sum(row_count(file) for file in files)
    noun = "conversation" if layout.kind is DataKind.CONVERSATIONS else "preference"
    description = f"{listed(map(str, query.paths), 3)}: {counted(count, noun)} ({listed(layout.keys)})"
    return RecognisedData(layout.kind, tuple(Conversations(file, layout) for file in files), description)


def not_objects(query: DataQuery, files: Sequence[Path]) -> None:
    if query.kind in DIALOGUE:
        said = f"{files[0]} holds no {query.kind.value}" if not query.columns else "columns of conversations are fixed"
        do = "leave out data.columns" if query.columns else f"write them as {listed(OBJECT_SUFFIXES)}"
        raise UserError(said, do=do)


def refused(query: DataQuery, file: Path) -> RecognisedData:
    assert query.kind is not None
    layouts = listed((" and ".join(one.keys) for one in LAYOUTS if one.kind is query.kind), 10)
    raise UserError(f"{file} holds no {query.kind.value}", allowed=f"objects with the keys {layouts}")
