"""Conversations and preferences: every layout gives the same messages, and what is none is told with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.data.kinds import DataKind
from headway.data.recognise import recognise
from headway.data.records import RecognisedData, records
from headway.data.text_lines import Problem
from headway.errors import UserError

ASKED, ANSWER = {"role": "user", "content": "Say it."}, {"role": "assistant", "content": "It."}
SYSTEM = {"role": "system", "content": "Be brief."}
LAYOUTS: dict[str, tuple[dict[str, Any], list[dict[str, str]]]] = {
    "messages": ({"messages": [SYSTEM, ASKED, ANSWER]}, [SYSTEM, ASKED, ANSWER]),
    "an empty system message": ({"messages": [{"role": "system", "content": ""}, ASKED, ANSWER]}, [ASKED, ANSWER]),
    "ShareGPT": (
        {"conversations": [{"from": "human", "value": "Say it."}, {"from": "gpt", "value": "It."}], "id": 7},
        [ASKED, ANSWER],
    ),
    "Alpaca": ({"instruction": "Say it.", "input": "", "output": "It."}, [ASKED, ANSWER]),
    "Alpaca with input": (
        {"instruction": "Add.", "input": "1 2", "output": "It."},
        [{"role": "user", "content": "Add.\n\n1 2"}, ANSWER],
    ),
    "Alpaca with system": (
        {"system": "Be brief.", "instruction": "Say it.", "response": "It."},
        [SYSTEM, ASKED, ANSWER],
    ),
    "prompt and completion": ({"prompt": "Say it.", "completion": "It."}, [ASKED, ANSWER]),
    "messages as prompt and completion": ({"prompt": [SYSTEM, ASKED], "completion": [ANSWER]}, [SYSTEM, ASKED, ANSWER]),
}
OTHER = {"role": "assistant", "content": "No."}
PREFERRED: dict[str, dict[str, Any]] = {
    "texts": {"prompt": "Say it.", "chosen": "It.", "rejected": "No."},
    "answers as messages": {"prompt": [ASKED], "chosen": [ANSWER], "rejected": [OTHER]},
    "whole conversations": {"chosen": [ASKED, ANSWER], "rejected": [ASKED, OTHER]},
    "whole conversations and their prompt": {
        "prompt": "Say it.",
        "chosen": [ASKED, ANSWER],
        "rejected": [ASKED, OTHER],
    },
}


def written(folder: Path, *rows: object) -> Path:
    file = folder / "data.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


def read(given: RecognisedData) -> list[Any]:
    return [found if isinstance(found, Problem) else found.fields for found in records(given)]


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_messages(name: str, tmp_path: Path) -> None:
    value, messages = LAYOUTS[name]
    given = recognise([written(tmp_path, value, value)])
    assert given.kind is DataKind.CONVERSATIONS
    question = "\n\n".join(one["content"] for one in messages[:-1])
    assert [(first, json.loads(rest)) for first, rest in read(given)] == [(question, messages)] * 2


@pytest.mark.parametrize("name", PREFERRED)
def test_every_layout_of_preferences(name: str, tmp_path: Path) -> None:
    given = recognise([written(tmp_path, PREFERRED[name])])
    assert given.kind is DataKind.PREFERENCES
    [(question, *both)] = read(given)
    assert question == "Say it."
    assert [json.loads(one) for one in both] == [[ASKED, ANSWER], [ASKED, OTHER]]


def test_a_question_with_its_answer_is_a_pair_unless_it_is_said_to_be_a_conversation(tmp_path: Path) -> None:
    file = written(tmp_path, *[{"question": f"Who is {n}?", "answer": f"It is {n}."} for n in range(8)])
    assert recognise([file]).kind is DataKind.PAIRS
    assert recognise([file], kind=DataKind.CONVERSATIONS).kind is DataKind.CONVERSATIONS


MALFORMED: dict[str, tuple[object, str]] = {
    "no list": ({"messages": "hello"}, "'messages' is \"hello\", not a list of messages"),
    "no object": ({"messages": ["hello"]}, 'message 1 is "hello", not an object with a role and a content'),
    "no known role": (
        {"messages": [{"role": "tool", "content": "x"}]},
        'message 1 has the role "tool", not system, user, assistant',
    ),
    "no text": ({"messages": [{"role": "user", "content": [1]}]}, "message 1 has the content [1], not a text"),
    "an empty answer": ({"messages": [ASKED, {"role": "assistant", "content": " "}]}, "message 2 (assistant) is empty"),
    "no answer": ({"messages": [ASKED]}, "there is no answer of the assistant"),
    "no question": ({"messages": [ANSWER]}, "it begins with an answer, and there is nothing that it is given to"),
    "no messages": ({"messages": None}, "no 'messages' among its keys"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_conversation_is_told_with_its_line(name: str, tmp_path: Path) -> None:
    value, said = MALFORMED[name]
    good = {"messages": [ASKED, ANSWER]}
    _, problem, _ = read(recognise([written(tmp_path, good, value, good)]))
    assert isinstance(problem, Problem)
    assert (problem.line, problem.said) == (2, said)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "'chosen' and 'rejected' are the same"),
        ({"chosen": "b", "rejected": "c"}, "there is no 'prompt' that the answers are given to"),
        (
            {"chosen": [ASKED, ANSWER], "rejected": [SYSTEM, ASKED, ANSWER]},
            "what is before the last answer differs between 'chosen' and 'rejected'",
        ),
    ],
)
def test_what_is_no_preference_is_told(value: object, said: str, tmp_path: Path) -> None:
    good = PREFERRED["texts"]
    _, problem, _ = read(recognise([written(tmp_path, good, value, good)]))
    assert isinstance(problem, Problem)
    assert problem.said == said


def test_other_data_is_not_taken_for_conversations(tmp_path: Path) -> None:
    file = written(tmp_path, *[{"text": f"this is {n}", "label": "ab"[n % 2]} for n in range(8)])
    with pytest.raises(UserError, match="holds no conversations; allowed: objects with the keys messages"):
        recognise([file], kind=DataKind.CONVERSATIONS)
    with pytest.raises(UserError, match=r"columns of conversations are fixed; leave out data\.columns"):
        recognise([written(tmp_path, LAYOUTS["Alpaca"][0])], kind=DataKind.CONVERSATIONS, columns=["output"])
    table = tmp_path / "table.tsv"
    table.write_text("a\tb\n", encoding="utf-8")
    with pytest.raises(UserError, match="holds no preferences; write them as"):
        recognise([table], kind=DataKind.PREFERENCES)
