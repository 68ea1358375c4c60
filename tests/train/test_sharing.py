"""Processes that share an evaluation have its numbers to the bit, and each of them computes its part alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path
from threading import Barrier, Thread, get_ident
from typing import Any

import pytest
import torch

from headway.distributed.sharing import TURNS, shared, sharing
from headway.distributed.world import World
from headway.tasks.results import EvalResult
from headway.training.build import evaluator_of
from headway.training.run import FINAL_ANSWERS
from tests.train.runs import FAMILIES, MORE, data_in, planned


class ThreadWorld(World):
    """One of several threads that stand for processes."""

    def __init__(self, rank: int, texts: list[str], meet: Barrier):
        self.rank, self.size, self.texts, self.meet = rank, len(texts), texts, meet

    def gathered(self, text: str) -> list[str]:
        self.texts[self.rank] = text
        self.meet.wait(60)
        found = list(self.texts)
        self.meet.wait(60)
        return found

    def told(self, text: str = "") -> str:
        return self.gathered(text)[0]

    def totals(self, *numbers: float) -> list[float]:
        each = [json.loads(text) for text in self.gathered(json.dumps(numbers))]
        return [sum(one) for one in zip(*each, strict=True)]


def by_all(count: int, function: Callable[[int], Any]) -> list[Any]:
    """What a function of the rank gives in each of so many threads, which share it."""

    def sharer(world: World) -> Any:
        with sharing(world):
            return function(world.rank)

    return in_worlds(count, sharer)


def in_worlds(count: int, function: Callable[[World], Any]) -> list[Any]:
    """What a function of the world gives in each of so many threads, or the error that it raises."""
    texts, meet, found = [""] * count, Barrier(count), dict[int, Any]()

    def work(rank: int) -> None:
        try:
            found[rank] = function(ThreadWorld(rank, texts, meet))
        except Exception as error:
            found[rank] = error
            meet.abort()

    threads = [Thread(target=copy_context().run, args=(work, rank)) for rank in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return [found[rank] for rank in range(count)]


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("sharing")) as folder:
        yield folder


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("items", [0, 1, 2, 5, TURNS * 2, TURNS * 3 + 1])
def test_each_item_is_computed_once_and_comes_in_order(count: int, items: int) -> None:
    done: list[list[int]] = [[] for _ in range(count)]

    def all_of(rank: int) -> list[tuple[int, Any]]:
        def work(item: int) -> list[Any]:
            done[rank].append(item)
            return [item / 3, f"ü{item}", float("inf"), torch.tensor([item / 7], dtype=torch.float32)]

        return list(shared(work, range(items)))

    found = by_all(count, all_of)
    assert sorted(item for some in done for item in some) == list(range(items))
    assert all(len(some) <= -(-items // count) for some in done)
    for one in found:
        assert [item for item, _ in one] == list(range(items))
        for item, (third, text, endless, numbers) in one:
            assert (third, text, endless) == (item / 3, f"ü{item}", float("inf"))
            assert torch.equal(torch.as_tensor(numbers), torch.tensor([item / 7]))


def test_a_process_alone_computes_what_is_asked_for() -> None:
    done = list[int]()
    found = shared(done.append, range(10**9))
    assert next(found) == (0, None)
    assert next(found) == (1, None)
    assert done == [0, 1]


def test_what_is_shared_shares_nothing_itself() -> None:
    found = by_all(2, lambda rank: [one for _, one in shared(lambda n: [m for m, _ in shared(str, range(n))], (3, 2))])
    assert found == [[[0, 1, 2], [0, 1]]] * 2


@pytest.mark.parametrize("family", {**FAMILIES, **MORE})
def test_a_shared_evaluation_is_that_of_one_process(family: str) -> None:
    """To the bit; and together the processes call the parts of the model as often as one alone."""
    made = planned(family)
    model, calls = made.build().eval(), Counter[int]()
    for part in model.modules():
        part.register_forward_hook(lambda *_: calls.update([get_ident()]))

    def evaluate(rank: int = 0) -> EvalResult:
        evaluator = evaluator_of(made, FINAL_ANSWERS)
        assert evaluator is not None
        return evaluator(model)

    expected, alone = evaluate(), calls.total()
    calls.clear()
    for found in by_all(2, evaluate):
        assert found.values == expected.values
        assert found.samples == expected.samples
        assert (found.notes, found.extra, found.scores) == (expected.notes, expected.extra, expected.scores)
    assert calls.total() == alone
