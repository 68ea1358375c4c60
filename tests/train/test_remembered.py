"""What a task remembers from batch to batch: it travels with the run, and a step that is skipped leaves it alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from headway.training.build import learner_of
from headway.training.learner import Learner
from headway.training.plan import Plan
from tests.train.runs import data_in, planned


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plan]:
    with data_in(tmp_path_factory.mktemp("data")):
        yield planned("glimpses")


def batches_of(made: Plan, step: int) -> list[Any]:
    return made.encoded.batches(8, 2)[step]


def remembered(learner: Learner) -> tuple[float, int]:
    memory = learner.tensors()["memory"]
    return memory["value"].item(), int(memory["batches"])


@pytest.mark.slow
def test_each_batch_is_remembered_and_a_checkpoint_has_it(made: Plan) -> None:
    learner = learner_of(made)
    assert remembered(learner) == (0.0, 0)
    learner.learn(1, batches_of(made, 1))
    value, batches = remembered(learner)
    assert batches == 2
    assert value < 0
    other = learner_of(made)
    other.restore({part: {n: t.clone() for n, t in named.items()} for part, named in learner.tensors().items()})
    assert remembered(other) == (value, batches)
    updates = [one.learn(2, batches_of(made, 2)) for one in (learner, other)]
    assert updates[0] == updates[1]
    assert remembered(learner) == remembered(other) != (value, batches)


@pytest.mark.slow
def test_without_it_a_resumed_run_would_be_another(made: Plan) -> None:
    learner, forgetful = learner_of(made), learner_of(made)
    learner.learn(1, batches_of(made, 1))
    kept = {part: {n: t.clone() for n, t in named.items()} for part, named in learner.tensors().items()}
    forgetful.restore({**kept, "memory": learner_of(made).tensors()["memory"]})
    assert learner.learn(2, batches_of(made, 2)) != forgetful.learn(2, batches_of(made, 2))


@pytest.mark.slow
def test_a_step_that_is_skipped_leaves_it(made: Plan) -> None:
    learner = learner_of(made)
    learner.learn(1, batches_of(made, 1))
    before, loss = remembered(learner), learner.loss

    def broken(*given: Any) -> Any:
        found, memory = loss(*given)
        return found + math.nan, memory

    learner.loss = broken
    assert learner.learn(2, batches_of(made, 2)).skipped
    assert remembered(learner) == before
    assert torch.equal(learner.tensors()["memory"]["batches"], torch.tensor(2))
