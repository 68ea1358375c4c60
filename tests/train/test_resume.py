"""A run that is interrupted and resumed is the run that was not: bit for bit, for every family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from headway.app.plan import Plan
from tests.train.disks import same
from tests.train.runs import FAMILIES, STEPS, Trial, planned, write_data

CUTS = [(7,), (10,), (13,), (7, 13)]


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HEADWAY_CACHE", str(folder / "cache"))
        yield folder
    plan_of.cache_clear()
    whole.cache_clear()


@cache
def plan_of(name: str) -> Plan:
    return planned(name)


@cache
def whole(name: str, workers: int = 0) -> Trial:
    """The run that nobody interrupts."""
    trial = Trial(plan_of(name), Path(f"{name}-{workers}"), workers)
    trial.folder.mkdir()
    assert trial.run().step == STEPS
    return trial


def interrupted(name: str, folder: Path, cuts: tuple[int, ...], workers: int) -> Trial:
    """The run that is interrupted at each of the cuts, and each time built anew from what lies on the disk."""
    trial = Trial(planned(name), folder, workers)
    for at, cut in enumerate(cuts):
        assert (trial.run(cut, resume=at > 0).step, trial.store.steps()[-1]) == (cut, cut)
        trial.made = planned(name)
    assert trial.run(resume=True).signal is None
    return trial


def check_same(one: Trial, other: Trial) -> None:
    (first, metrics), (second, other_metrics) = one.left(), other.left()
    assert metrics == other_metrics
    assert set(first.tensors) == {"model", "optimiser", "average"}
    assert same(first, second)
    assert one.seen == other.seen


@pytest.mark.parametrize("name", FAMILIES)
def test_a_run_cut_twice_is_the_run_that_was_not(name: str, memory: Path) -> None:
    check_same(whole(name), interrupted(name, memory, (7, 13), workers=0))


@pytest.mark.slow
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_so_wherever_it_is_cut_and_whoever_prepares(name: str, cuts: tuple[int, ...], memory: Path) -> None:
    check_same(whole(name), interrupted(name, memory, cuts, workers=2))


@pytest.mark.parametrize("name", FAMILIES)
def test_no_row_is_repeated_or_skipped(name: str) -> None:
    trial = whole(name)
    assert [step for step, _ in trial.seen] == list(range(1, STEPS + 1))
    places = [place for _, step in trial.seen for place in step]
    epochs = {epoch: [place for place in places if place[0] == epoch] for epoch, _, _ in places}
    assert len(epochs) >= 3  # so two ends of an epoch were passed
    order = trial.made.prepared.batches(some_batch(trial), 1).steps.order
    for epoch, read in epochs.items():
        expected = [rows.tolist() for rows in order.epoch(epoch)]
        if epoch < max(epochs):
            assert [rows for _, _, rows in read] == expected
            assert set(Counter(row for rows in expected for row in rows).values()) == {1}
        else:
            assert [rows for _, _, rows in read] == expected[: len(read)]


def some_batch(trial: Trial) -> int:
    assert trial.made.recipe.train.batch is not None
    return trial.made.recipe.train.batch
