"""Laws that every task keeps with every architecture that can learn it.

Axes:  N tokens   C width   V vocabulary
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from headway.data.order import random_for
from headway.errors import UserError
from headway.nn.head import AuxHeads, LMHead, MLMHead, Pooler, WordHead, word_head
from headway.tasks import batches
from headway.tasks.batches import PackedBatch, TokenPrediction, cut, ids
from tests.conftest import CASES
from tests.tasks.learners import LEARNINGS, TASKS, Learning, plain_loss, tensors

every = pytest.mark.parametrize("learning", LEARNINGS, ids=str)
lengths = st.lists(st.integers(2, 20), min_size=1, max_size=5)
few = settings(max_examples=max(5, CASES // 10))


@pytest.mark.slow
@every
@few
@given(lengths=lengths, key=st.integers(0, 99))
def test_a_batch_has_the_loss_of_its_rows(learning: Learning, lengths: list[int], key: int) -> None:
    task, model, rows = learning.task, learning.model, learning.rows(lengths)
    batch = task.collate(rows, random_for(key))
    draw = random_for(key)
    alone = [task.collate([row], draw) for row in rows]
    assert_close(task.loss(model, batch), torch.stack([task.loss(model, one) for one in alone]).sum())
    assert batch.targets == sum(one.targets for one in alone)
    assert batch.tokens == sum(one.tokens for one in alone)


@pytest.mark.slow
@every
@few
@given(lengths=lengths, key=st.integers(0, 99))
def test_packed_is_padded(learning: Learning, lengths: list[int], key: int) -> None:
    task, model = learning.task, learning.model
    batch = task.collate(learning.rows(lengths), random_for(key))
    assert_close(task.loss(model, batch), plain_loss(task, model, batch))
    measured = task.without_augmentation()
    assert getattr(measured, "label_smoothing", 0.0) == 0.0
    assert_close(measured.loss(model, batch), plain_loss(measured, model, batch))


@every
def test_gradients_are_those_of_the_plain_loss(learning: Learning) -> None:
    task, model = learning.task, learning.model
    batch = task.collate(learning.rows([3, 9, 5]), random_for(1))
    parameters = list(model.parameters())
    ours, plain = (
        torch.autograd.grad(loss, parameters, materialize_grads=True)
        for loss in (task.loss(model, batch), plain_loss(task, model, batch))
    )
    for one, other in zip(ours, plain, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("name", TASKS)
def test_smoothing_changes_the_loss_and_not_what_is_measured(name: str) -> None:
    learning = next(one for one in LEARNINGS if one.name == name)
    batch = learning.task.collate(learning.rows([4, 7]), random_for(2))
    loss, measured = (
        task.loss(learning.model, batch) for task in (learning.task, learning.task.without_augmentation())
    )
    assert (loss != measured) == (getattr(learning.task, "label_smoothing", 0.0) > 0)


@pytest.mark.parametrize("name", TASKS)
@few
@given(lengths=lengths, key=st.integers(0, 99))
def test_equal_keys_give_equal_batches_anywhere(name: str, lengths: list[int], key: int) -> None:
    learning = next(one for one in LEARNINGS if one.name == name)
    task, rows = learning.task, learning.rows(lengths)
    kept = [tuple(column.copy() for column in row) for row in rows]
    batch = task.collate(rows, random_for(key))
    sent: Any = pickle.loads(pickle.dumps(task))
    for other in (task.collate(rows, random_for(key)), sent.collate(rows, random_for(key)), carried(batch)):
        assert len(tensors(other)) == len(tensors(batch)) > 1
        for one, two in zip(tensors(batch), tensors(other), strict=True):
            assert torch.equal(one, two)
    assert all(np.array_equal(a, b) for row, was in zip(rows, kept, strict=True) for a, b in zip(row, was, strict=True))


def carried(batch: Any) -> Any:
    return pickle.loads(pickle.dumps(batch))


@pytest.mark.parametrize("name", ["masked", "spans"])
def test_other_keys_give_other_batches(name: str) -> None:
    learning = next(one for one in LEARNINGS if one.name == name)
    rows = learning.rows([20, 20])
    found = {str([t.tolist() for t in tensors(learning.task.collate(rows, random_for(key)))]) for key in range(20)}
    assert len(found) == 20


def test_rows_of_one_length_need_no_packing() -> None:
    equal, ragged = (PackedBatch.of([np.arange(n) for n in lengths]) for lengths in ((3, 3), (3, 2)))
    assert (equal.ids.tolist(), equal.rows) == ([[0, 1, 2], [0, 1, 2]], None)
    assert ragged.ids.tolist() == [[0, 1, 2, 0, 1]]
    assert ragged.rows is not None
    assert ragged.rows.lengths == (3, 2)
    assert ragged.context.rows is ragged.rows


def test_ids_are_joined_and_cut_before_their_end() -> None:
    assert ids(7, [], [1, 2], np.array([3])).tolist() == [7, 1, 2, 3]
    assert [cut([1, 2, 3, 9], longest) for longest in (1, 2, 3, 4, 5)] == [
        [9],
        [1, 9],
        [1, 2, 9],
        [1, 2, 3, 9],
        [1, 2, 3, 9],
    ]


# ---- heads of words

C, V = 6, 11
HEADS: dict[str, WordHead] = {
    "lm": LMHead(C, V),
    "lm scaled": LMHead(C, V, bias=True, scale=C**-0.5),
    "mlm": MLMHead(C, V, width=4),
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("few", [0, 10**9])  # in chunks, or all logits at once
def test_the_loss_of_a_head_is_that_of_its_logits(
    name: str, smoothing: float, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.ops.cross_entropy.FEW", few)
    monkeypatch.setattr("headway.ops.cross_entropy.BUFFER", 30)
    head = HEADS[name].double()
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(7, C, dtype=torch.float64, requires_grad=True)
    wanted = torch.randint(0, V, (7,))
    plain = F.cross_entropy(head(x), wanted, reduction="sum", label_smoothing=smoothing)
    loss = head.loss(x, wanted, smoothing)
    assert_close(loss, plain)
    (ours,), (theirs,) = torch.autograd.grad(loss, x), torch.autograd.grad(plain, x)
    assert_close(ours, theirs)
    assert_close(head.losses(x, wanted), F.cross_entropy(head(x), wanted, reduction="none").detach())


def test_what_is_said_is_right_where_the_likeliest_word_is(monkeypatch: pytest.MonkeyPatch) -> None:
    head, x, wanted = HEADS["lm"].double(), torch.randn(50, C, dtype=torch.float64), torch.randint(0, V, (50,))
    right = head(x).argmax(-1) == wanted
    for logits in (1, 3 * V, 10**6):
        monkeypatch.setattr(batches, "MAX_LOGITS", logits)
        assert torch.equal(TokenPrediction(head, x, wanted).right(), right)
    assert 0 < int(right.sum()) < 50
    assert TokenPrediction(head, x[:0], wanted[:0]).right().shape == (0,)


def test_a_head_of_words_is_found_beside_others() -> None:
    head = LMHead(C, V)
    assert word_head(AuxHeads(head, pooler=Pooler(C))) is head
    with pytest.raises(UserError, match="says no words"):
        word_head(Pooler(C))
