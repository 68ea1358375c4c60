"""`headway chat`: answers line by line, with what was said before where the model has a chat template."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from headway.cli import chat_command
from headway.cli.main import main
from headway.data.chat_template import ChatTemplate, load_chat_template
from headway.errors import UserError
from headway.loading import load
from headway.serve.conversation import Conversation
from headway.tasks.generation import GenerationOptions
from tests.serve.test_engine import gpt

pytestmark = pytest.mark.slow


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def template_of(folder: Path) -> ChatTemplate:
    found = load_chat_template(folder)
    assert found is not None
    return found


def test_each_line_is_answered_as_run_answers_it(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("causal", "pairs", "labels", "masked"):
        texts = ["the [MASK] sat", "a [MASK] ran"] if name == "masked" else ["the cat", "a dog"]
        typed(monkeypatch, "\n\n".join(texts) + "\n")
        options = ["--max-new-tokens", "5"] if name in ("causal", "pairs") else []
        assert main(["chat", str(folders[name]), *options]) == 0
        model = load(folders[name])
        how = {"max_new_tokens": 5} if options else {}
        assert capsys.readouterr().out == "".join(model.predict(text, **how).to_text() + "\n" for text in texts)


def test_what_was_said_is_given_to_the_model(folders: dict[str, Path]) -> None:
    model, options = gpt(), GenerationOptions(max_new_tokens=2)
    template = template_of(folders["chat"])
    talk = Conversation(model, template, "be")
    first = "".join(talk.ask("a", options))
    second = "".join(talk.ask("on", options))
    before = [{"role": "system", "content": "be"}, {"role": "user", "content": "a"}]
    for answer, messages in (
        (first, before),
        (second, [*before, {"role": "assistant", "content": first.strip()}, {"role": "user", "content": "on"}]),
    ):
        rendered = template.render(messages)
        expected = "".join(list(model.stream(rendered, options))[1:])
        assert answer == expected
    assert [one["role"] for one in talk.said] == ["user", "assistant"] * 2


def test_the_oldest_messages_are_left_out_where_the_context_is_full(folders: dict[str, Path]) -> None:
    model, options = load(folders["chat"]), GenerationOptions(max_new_tokens=2)
    talk, left = Conversation(model, template_of(folders["chat"])), list[int]()
    for _ in range(4):
        "".join(talk.ask("a", options))
        left.append(talk.left_out)
    assert left[0] == 0
    assert left == sorted(left)
    assert left[-1] > 0
    with pytest.raises(UserError, match="longer than the model's context of 16 tokens"):
        list(talk.ask("a dog " * 9, options))
    assert talk.said[-1]["role"] == "assistant"  # as if it had not been said


def test_an_answer_that_is_interrupted_belongs_to_the_conversation(folders: dict[str, Path]) -> None:
    talk = Conversation(load(folders["chat"]), template_of(folders["chat"]))
    pieces = talk.ask("a", GenerationOptions(max_new_tokens=6))
    begun = [next(pieces), next(pieces)]
    pieces.close()
    assert talk.said[-1] == {"role": "assistant", "content": "".join(begun).strip()}


def test_ctrl_c_ends_an_answer_and_the_next_line_is_read(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say, answers = chat_command.say, iter([True, False])

    def interrupted(pieces: object) -> None:
        if next(answers):
            raise KeyboardInterrupt
        say(pieces)  # type: ignore[arg-type]

    monkeypatch.setattr(chat_command, "say", interrupted)
    typed(monkeypatch, "the cat\na dog\n")
    assert main(["chat", str(folders["labels"])]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == " …"
    assert second == load(folders["labels"]).predict("a dog").to_text()


def test_a_line_that_cannot_be_answered_does_not_end_it(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "no mask here\nthe [MASK]\n")
    assert main(["chat", str(folders["masked"])]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines()[1].startswith("error: ")
    assert told.out == load(folders["masked"]).predict("the [MASK]").to_text() + "\n"


def test_a_system_message_needs_a_template(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", str(folders["causal"]), "--system", "be kind"]) == 2
    assert "has no chat template to put --system into; leave it out" in capsys.readouterr().err
