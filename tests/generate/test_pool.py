"""Rows that come and go are continued as each would be alone, whoever stands beside them."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch.testing import assert_close

from headway.errors import UserError
from headway.generate.pool import BY_POSITION, DecodingPool, beginning
from headway.generate.session import DecodingSession
from tests.generate.models import MODELS, REWINDING, built
from tests.laws.subjects import VOCAB, Subject
from tests.native.decoders import needs_library

ALONE = [one for one in MODELS if one.with_memory(1).memory is None and one.name != "zoo clip text"]
ROWS, CAPACITY = 3, 14


def prompt(random: Random) -> list[int]:
    return [random.randrange(VOCAB) for _ in range(random.randint(1, 6))]


def read(subject: Subject, ids: list[int]) -> DecodingSession:
    session = DecodingSession(built(subject), [ids], CAPACITY - len(ids))
    session.prompt()
    return session


@pytest.mark.parametrize("native", [True, False], ids=["native", "torch"])
@pytest.mark.parametrize("subject", ALONE, ids=lambda one: one.name)
def test_rows_come_and_go_and_are_as_alone(subject: Subject, native: bool) -> None:
    """Each row beside a session of its own, which has read the same tokens."""
    random, pool = Random(subject.name), DecodingPool(built(subject), ROWS, CAPACITY)
    if not native:
        pool.program = None
    alone = list[DecodingSession]()
    for _ in range(24):
        if len(alone) < ROWS and random.random() < 0.5:
            session = read(subject, prompt(random))
            alone.append(session)
            pool.join(session.state, session.read)
        full = [row for row, session in enumerate(alone) if session.read == CAPACITY]
        gone = full[:1] or ([random.randrange(len(alone))] if alone and random.random() < 0.2 else [])
        for row in gone:
            pool.leave(row)
            alone[row] = alone[-1]
            alone.pop()
        if not alone or any(session.read == CAPACITY for session in alone):
            continue
        tokens = torch.tensor([random.randrange(VOCAB) for _ in alone])
        expected = [session.step(token) for session, token in zip(alone, tokens.split(1), strict=True)]
        assert_close(pool.step(tokens), torch.cat(expected), atol=5e-6, rtol=1e-5)
        assert pool.lengths == [session.read for session in alone]


@pytest.mark.parametrize("subject", ALONE, ids=lambda one: one.name)
def test_a_row_can_be_taken_out_and_goes_on(subject: Subject) -> None:
    """Other rows do not change it, nor it them."""
    pool, session = DecodingPool(built(subject), ROWS, CAPACITY), read(subject, [1, 2, 3])
    for state in (session.state, read(subject, [4]).state):
        pool.join(state, [3, 1][pool.rows])
    tokens = torch.tensor([5, 6])
    session.step(tokens[:1])
    pool.step(tokens)
    taken = beginning(pool.taken(0), 4, CAPACITY)
    pool.leave(0)
    pool.join(taken, 4)
    expected = torch.cat([read(subject, [4, 6]).step(tokens[1:]), session.step(tokens[:1])])
    assert_close(pool.step(tokens.flip(0)), expected, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize("subject", REWINDING, ids=lambda one: one.name)
def test_a_prompt_goes_on_behind_one_that_begins_alike(subject: Subject) -> None:
    if subject not in ALONE:
        pytest.skip("it reads a memory")
    session = DecodingSession(built(subject), [[1, 2, 9, 8]], 0)
    session.resume(beginning(read(subject, [1, 2, 3, 4]).state, 2, 4), 2)
    found = session.head(session.features(session.ids[:, 2:])[:, 0])
    expected = DecodingSession(built(subject), [[1, 2, 9, 8]], 0).prompt()
    assert_close(found, expected, atol=5e-6, rtol=1e-5)


def test_more_tokens_than_there_is_room_for_are_refused() -> None:
    subject = ALONE[0]
    pool = DecodingPool(built(subject), 1, 2)
    pool.join(read(subject, [1, 2]).state, 2)
    with pytest.raises(UserError, match="3 tokens do not fit a state with room for 2"):
        pool.step(torch.tensor([1]))


@needs_library
def test_a_step_of_a_pool_is_one_call_of_the_library() -> None:
    subject = next(one for one in ALONE if one.name == "zoo gpt2")
    pool = DecodingPool(built(subject), ROWS, CAPACITY)
    for ids in ([1, 2, 3], [4]):
        pool.join(read(subject, ids).state, len(ids))
    positions = torch.tensor([[3], [1]])
    assert pool.run_program(torch.tensor([5, 6]), BY_POSITION, positions) is not None
