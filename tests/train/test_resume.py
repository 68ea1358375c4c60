"""A run that is interrupted and resumed is the run that was not: bit for bit, for every family."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from headway.training.build import require
from headway.training.plan import Plan
from tests.conftest import ROOT
from tests.train.disks import same
from tests.train.runs import FAMILIES, MORE, STEPS, Trial, data_in, planned


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("data")) as folder:
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
    """The run that is interrupted at each of the cuts, and each time built anew from what lies on the disk; after
    two of them the plan is made anew, too."""
    trial = Trial(plan_of(name), folder, workers)
    for at, cut in enumerate(cuts):
        assert (trial.run(cut, resume=at > 0).step, trial.store.steps()[-1]) == (cut, cut)
    trial.made = planned(name) if len(cuts) > 1 else trial.made
    assert trial.run(resume=True).signal is None
    return trial


def check_same(one: Trial, other: Trial) -> None:
    (first, metrics), (second, other_metrics) = one.left(), other.left()
    assert metrics == other_metrics
    assert set(first.tensors) - {"memory"} == {"model", "optimiser", "average"}
    assert same(first, second)
    assert one.seen == other.seen


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "masked", "votes"])
def test_a_run_cut_twice_is_the_run_that_was_not(name: str, memory: Path) -> None:
    check_same(whole(name), interrupted(name, memory, (7, 13), workers=0))


ROWS_OF_SEVERAL_KINDS = ("two texts", "numbers", "several labels", "questions")  # tasks with columns of their own


@pytest.mark.long
@pytest.mark.parametrize("name", [*FAMILIES, *ROWS_OF_SEVERAL_KINDS])
def test_so_it_is_for_every_family_and_when_others_prepare_the_batches(name: str, memory: Path) -> None:
    check_same(whole(name), interrupted(name, memory, (7, 13), workers=2))


@pytest.mark.proof
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_so_after_every_step(name: str, workers: int, memory: Path) -> None:
    for cuts in [*((cut,) for cut in range(1, STEPS)), (7, 13)]:
        folder = memory / str(cuts)
        folder.mkdir()
        check_same(whole(name), interrupted(name, folder, cuts, workers))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "masked"])
def test_no_row_is_repeated_or_skipped(name: str) -> None:
    check_rows(whole(name))


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_no_row_of_any_family_is_repeated_or_skipped(name: str) -> None:
    check_rows(whole(name))


def check_rows(trial: Trial) -> None:
    """Every epoch that was read whole has each row once; two of them were, and the one after it was begun."""
    assert [step for step, _ in trial.seen] == list(range(1, STEPS + 1))
    places = [place for _, step in trial.seen for place in step]
    assert places[-1][0] >= 2
    order = trial.made.encoded.batches(require(trial.made.recipe.train.batch), 1).steps.order
    for epoch in range(places[-1][0] + 1):
        read = [rows for number, _, rows in places if number == epoch]
        expected = [rows.tolist() for rows in order.epoch(epoch)]
        assert read == expected if epoch < places[-1][0] else read == expected[: len(read)]
        assert set(Counter(row for rows in read for row in rows).values()) == {1}


TOLD = """
from tests.train.runs import FAMILIES, MORE, planned
for name in {**FAMILIES, **MORE}:
    print(name, planned(name).splits.digest)
"""


@pytest.mark.long
def test_another_process_finds_the_same_data(place: Path) -> None:
    """A hash of Python's own differs from process to process; what a run knows its data and its cache by must not."""
    told = "".join(f"{name} {plan_of(name).splits.digest}\n" for name in {**FAMILIES, **MORE})
    kept = {str(file) for file in (place / "cache").rglob("*") if file.is_dir()}
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    named = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    done = subprocess.run([sys.executable, "-c", TOLD], env=named, capture_output=True, text=True, check=True)
    assert done.stdout == told
    assert {str(file) for file in (place / "cache").rglob("*") if file.is_dir()} == kept
