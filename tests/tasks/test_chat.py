"""Chat and preferences: which tokens are learned, and the losses by their formulas."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.chat_template import PLAIN_TEMPLATE
from headway.data.order import random_for
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.tasks.chat import ChatLM, Dialogue
from headway.tasks.preferences import PreferenceLM
from headway.zoo import gpt2
from tests.tasks.learners import words

ASKED, ANSWER = {"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat on"}
AGAIN, MORE = {"role": "user", "content": "a dog"}, {"role": "assistant", "content": "ran"}
TALK = [ASKED, ANSWER, AGAIN, MORE]
MARKED = (
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
FORGETFUL = (  # earlier answers are written without the token that ends them
    "{% for m in messages %}{{ m.content }}{{ eos_token if m.role == 'assistant' and loop.last }}{{ ' ' }}{% endfor %}"
)
UNLIKE = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}?{% endif %}"


def talking(template: str = PLAIN_TEMPLATE, task: type[Dialogue] = ChatLM, **more: Any) -> Any:
    return task(replace(words(), chat_template=template, literal=False), **more)


def model_for(tokenizer: Tokenizer) -> nn.Module:
    torch.manual_seed(1)
    still: dict[str, Any] = {"dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0}
    config = gpt2.Config(vocab=tokenizer.vocab, context=128, dim=16, layers=2, heads=4, **still)
    return gpt2.build(config).double().eval()


def learned(task: Dialogue, talk: list[dict[str, str]]) -> str:
    row, answered = task.marked_row(talk)
    return "".join(task.tokenizer.token(id) for id, own in zip(row, answered, strict=True) if own)


def test_answers_and_what_ends_them_are_learned() -> None:
    task = talking()
    eos = task.tokenizer.roles.eos
    assert learned(task, TALK) == f"sat on{eos}ran{eos}"
    assert learned(task, [*TALK, AGAIN]) == f"sat on{eos}ran{eos}"  # what nobody answers is not read
    assert task.ends == [task.tokenizer.eos]


def test_where_a_template_writes_earlier_answers_otherwise_the_last_is_learned() -> None:
    task = talking(FORGETFUL)
    assert learned(task, TALK) == f"ran{task.tokenizer.roles.eos}"
    with pytest.raises(UserError, match="the chat template writes an answer differently from how it asks for one"):
        talking(UNLIKE).marked_row(TALK)


@pytest.mark.slow
def test_learned_tokens_are_those_that_transformers_marks(tmp_path: Any) -> None:
    from transformers import AutoTokenizer

    task = talking(MARKED)
    task.tokenizer.save(tmp_path)
    theirs: Any = AutoTokenizer.from_pretrained(str(tmp_path))
    found = theirs.apply_chat_template(TALK, return_dict=True, return_assistant_tokens_mask=True)
    row, answered = task.marked_row(TALK)
    ours = found["input_ids"][: len(row)], [bool(one) for one in found["assistant_masks"][: len(row)]]
    assert ours == (row, answered)
    assert not any(found["assistant_masks"][len(row) :])


def test_a_long_conversation_loses_its_end() -> None:
    row, marks = talking(max_length=20).encoded(json.dumps(TALK))
    assert len(row) == len(marks) == 20


def batch_of(task: Any, *fields: tuple[str, ...]) -> Any:
    rows = [tuple(torch.tensor(part).numpy() for part in row) for row in task.encode(fields)]
    return task.collate(rows, random_for("test"))


def log_probability(model: nn.Module, row: list[int], marks: list[int]) -> Tensor:
    """Of the marked tokens, from all logits."""
    logits = model(torch.tensor([row[:-1]]))[0].log_softmax(-1)
    wanted = torch.tensor(row[1:])
    return (logits.gather(1, wanted[:, None])[:, 0] * torch.tensor(marks[1:])).sum()


def test_the_loss_is_of_answers_alone_whatever_is_read_with_them() -> None:
    task = talking()
    model, other = model_for(task.tokenizer), [ASKED, MORE]
    texts = [json.dumps(TALK), json.dumps(other)]
    batch = batch_of(task, *(("", text) for text in texts))
    plain = -sum(log_probability(model, *task.encoded(text)) for text in texts)
    torch.testing.assert_close(task.loss(model, batch), plain, rtol=1e-12, atol=0.0)
    assert batch.targets == sum(sum(task.encoded(text)[1]) for text in texts)


def preferences() -> list[tuple[str, str, str]]:
    return [
        ("a", json.dumps([ASKED, ANSWER]), json.dumps([ASKED, MORE])),
        ("b", json.dumps([*TALK[:3], MORE]), json.dumps([*TALK[:3], ANSWER])),
    ]


def test_the_loss_of_preferences_is_that_of_the_paper_and_so_is_its_gradient() -> None:
    task = talking(task=PreferenceLM, beta=0.3)
    model, first = model_for(task.tokenizer), model_for(task.tokenizer)
    memory = task.memory(first)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    batch = batch_of(task, *preferences())
    loss, after = task.loss_after(model, batch, memory)
    assert after is memory
    plain = torch.zeros((), dtype=torch.float64)
    for _, *both in preferences():
        now, before = ([log_probability(one, *task.last_answer(text)) for text in both] for one in (model, first))
        margin = (now[0] - before[0].detach()) - (now[1] - before[1].detach())
        plain = plain - F.logsigmoid(task.beta * margin)
    torch.testing.assert_close(loss, plain, rtol=1e-10, atol=0.0)
    ours, theirs = (torch.autograd.grad(one, list(model.parameters())) for one in (loss, plain))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-12)


def test_nothing_is_preferred_before_the_first_step() -> None:
    task = talking(task=PreferenceLM)
    model = model_for(task.tokenizer).train()
    loss, _ = task.loss_after(model, batch_of(task, *preferences()), task.memory(model))
    assert loss.item() == pytest.approx(2 * log(2), rel=1e-12)
    assert model.training


def test_only_the_last_answer_is_compared() -> None:
    task = talking(task=PreferenceLM)
    row, marks = task.last_answer(json.dumps(TALK))
    assert "".join(task.tokenizer.token(id) for id, own in zip(row, marks, strict=True) if own) == (
        f"ran{task.tokenizer.roles.eos}"
    )
    short = talking(task=PreferenceLM, max_length=6)
    row, marks = short.last_answer(json.dumps(TALK))
    assert (len(row), sum(marks)) == (6, 4)
