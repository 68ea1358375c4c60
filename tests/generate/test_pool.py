"""Rows that come and go are continued as each would be alone, whoever stands beside them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.generate.pool import DecodingPool, beginning
from headway.generate.session import DecodingSession
from tests.generate.models import MODELS, REWINDING, built
from tests.laws.subjects import VOCAB, Subject
from tests.native.decoders import needs_library

ALONE = [one for one in MODELS if one.with_memory(1).memory is None and one.name != "zoo clip text"]
ROWS, CAPACITY = 3, 14


def tokens(random: Random, most: int) -> list[int]:
    return [random.randrange(VOCAB) for _ in range(random.randint(1, most))]


def empty(subject: Subject) -> DecodingSession:
    return DecodingSession(built(subject), [[0]], CAPACITY - 1)


def read(subject: Subject, ids: list[int]) -> DecodingSession:
    session = empty(subject)
    session.features(torch.tensor([ids]))
    return session


@pytest.mark.parametrize("native", [True, False], ids=["native", "torch"])
@pytest.mark.parametrize("subject", ALONE, ids=lambda one: one.name)
def test_rows_come_and_go_and_are_as_alone(subject: Subject, native: bool) -> None:
    """Each row beside a session of its own, which reads the same tokens: none, one, or a piece of a prompt."""
    random, pool = Random(subject.name), DecodingPool(built(subject), ROWS, CAPACITY)
    if not native:
        pool.program = None
    alone = list[DecodingSession]()
    for _ in range(24):
        if len(alone) < ROWS and random.random() < 0.5:
            behind = random.random() < 0.3
            alone.append(read(subject, tokens(random, 6)) if behind else empty(subject))
            pool.join((alone[-1].state, alone[-1].read) if behind else None)
        full = [row for row, session in enumerate(alone) if session.read == CAPACITY]
        gone = full[:1] or ([random.randrange(len(alone))] if alone and random.random() < 0.2 else [])
        for row in gone:
            pool.leave(row)
            alone[row] = alone[-1]
            alone.pop()
        if not alone or any(session.read == CAPACITY for session in alone):
            continue
        longest = random.choice([1, 5])
        pieces = [tokens(random, min(longest, CAPACITY - session.read)) for session in alone]
        if len(pieces) > 1 and random.random() < 0.3:
            pieces[random.randrange(len(pieces))] = []
        given = zip(alone, pieces, strict=True)
        expected = [session.head(session.features(torch.tensor([piece]))[:, 0]) for session, piece in given if piece]
        assert_close(pool.read(pieces), torch.cat(expected), atol=5e-6, rtol=1e-5)
        assert pool.lengths == [session.read for session in alone]


@pytest.mark.parametrize("subject", ALONE, ids=lambda one: one.name)
def test_a_row_can_be_taken_out_and_goes_on(subject: Subject) -> None:
    """Other rows do not change it, nor it them."""
    pool, session = DecodingPool(built(subject), ROWS, CAPACITY), read(subject, [1, 2, 3])
    for state, length in ((session.state, 3), (read(subject, [4]).state, 1)):
        pool.join((state, length))
    session.step(torch.tensor([5]))
    pool.read([[5], [6]])
    taken = beginning(pool.taken(0), 4, CAPACITY)
    pool.leave(0)
    pool.join((taken, 4))
    expected = torch.cat([read(subject, [4, 6]).step(torch.tensor([5])), session.step(torch.tensor([6]))])
    assert_close(pool.read([[5], [6]]), expected, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize("subject", REWINDING, ids=lambda one: one.name)
def test_a_prompt_goes_on_behind_one_that_begins_alike(subject: Subject) -> None:
    if subject not in ALONE:
        pytest.skip("it reads a memory")
    pool = DecodingPool(built(subject), 1, CAPACITY)
    pool.join((read(subject, [1, 2, 3, 4]).state, 2))
    expected = DecodingSession(built(subject), [[1, 2, 9, 8]], 0).prompt()
    assert_close(pool.read([[9, 8]]), expected, atol=5e-6, rtol=1e-5)


def test_more_tokens_than_there_is_room_for_are_refused() -> None:
    pool = DecodingPool(built(ALONE[0]), 1, 2)
    pool.join()
    with pytest.raises(UserError, match="3 tokens do not fit a state with room for 2"):
        pool.read([[1, 2, 3]])


@needs_library
def test_a_pass_of_a_pool_is_one_call_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next tokens and pieces of prompts together; no pieces of a model that looks ahead in its prompt."""
    subject = next(one for one in ALONE if one.name == "zoo gpt2")
    pool, read_natively, given = DecodingPool(built(subject), ROWS, CAPACITY), DecodingPool.read_natively, list[Any]()

    def noted(self: DecodingPool, rows: list[int], pieces: list[list[int]]) -> dict[int, Tensor]:
        found = read_natively(self, rows, pieces)
        given.append(list(found))
        return found

    monkeypatch.setattr(DecodingPool, "read_natively", noted)
    for ids in ([1, 2, 3], [4]):
        pool.join((read(subject, ids).state, len(ids)))
    pool.join()
    pool.read([[5], [6, 7], [8, 9, 1]])
    assert pool.program is not None
    pool.program.causal = False
    pool.read([[5], [6, 7], [8]])
    assert given == [[0, 1, 2], [0, 2]]
