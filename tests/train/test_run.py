"""The run around the steps: what is logged, evaluated, saved and chosen, and how it ends.

The model is a single weight, so that a run of many steps takes no time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headway.data.order import Buckets, Steps
from headway.errors import UserError
from headway.training.dataset import Batches
from headway.training.groups import groups
from headway.training.interruption import Interruption
from headway.training.learner import EMA, Learner
from headway.training.loop import Run, RunLimits
from headway.training.metrics_log import MetricsLog
from headway.training.optimiser import AdamW, Constant, Optimiser
from headway.training.store import Store
from tests.train.disks import same
from tests.train.models import Evaluation
from tests.train.runs import Silent

PACE = RunLimits(steps=30, log_every=4, evaluate_every=5, checkpoint_every=7)


@dataclass(frozen=True)
class Numbers:
    """A batch: what the weight should be near to."""

    wanted: Tensor

    @property
    def targets(self) -> int:
        return len(self.wanted)

    @property
    def tokens(self) -> int:
        return len(self.wanted)


class Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5]))


class Told(Silent):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.best: list[tuple[int, bool]] = []
        self.saves: list[int] = []

    def on_evaluate(self, step: int, found: Any, best: bool) -> None:
        self.best.append((step, best))

    def on_save(self, step: int) -> None:
        self.saves.append(step)

    def on_message(self, sentence: str) -> None:
        self.sentences.append(sentence)


@dataclass
class Bench:
    """Makes runs in a folder.  `faults` are the steps whose loss is not a number; `score` is that of each step."""

    folder: Path
    pace: RunLimits = PACE
    faults: frozenset[int] = frozenset()
    score: Callable[[int], float] | None = None
    told: Told = field(default_factory=Told)

    def made(self, *, average: bool = False) -> Run:
        model = Weight()
        optimiser = Optimiser(AdamW(0.1), groups(model))
        kept = EMA(model, 0.9) if average else None
        learner = Learner(model, self.loss, optimiser, Constant(), seed=1, average=kept)
        store, journal = Store(self.folder / "checkpoints", keep=2), MetricsLog(self.folder)
        self.run = Run(
            learner, self.batches, self.pace, store, journal, [self.told], self.examine if self.score else None
        )
        return self.run

    def batches(self, first: int, last: int) -> Iterator[list[Numbers]]:
        return ([Numbers(torch.tensor([step / 10, 1.0]))] for step in range(first, last))

    def loss(self, model: Weight, batch: Numbers) -> Tensor:
        step = self.run.state.step + 1
        return (model.weight - batch.wanted).square().sum() * (math.nan if step in self.faults else 1.0)

    def examine(self, model: nn.Module) -> Any:
        assert self.score is not None
        value = self.score(self.run.state.step)
        return Evaluation({"loss": 1.0, "points": value}, value)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]


class At(Interruption):
    """Somebody who asks to end after some step."""

    def __init__(self, run: Run, step: int):
        self.run, self.step = run, step
        super().__init__()

    @property
    def asked(self) -> int | None:  # type: ignore[override]
        return 15 if self.run.state.step >= self.step else None

    @asked.setter
    def asked(self, value: int | None) -> None: ...


# Lines and checkpoints.


@pytest.mark.slow
def test_metrics_tell_every_step_once(memory: Path) -> None:
    bench = Bench(memory)
    end = bench.made().run(Interruption())
    assert (end.step, end.signal, end.found) == (30, None, None)
    assert [line["step"] for line in bench.lines()] == [4, 8, 12, 16, 20, 24, 28, 30]
    assert sum(line["targets"] for line in bench.lines()) == 60
    assert bench.told.saves == [7, 14, 21, 28, 30]
    assert bench.run.store.steps() == [28, 30]


def test_the_best_stay_and_are_chosen(memory: Path) -> None:
    bench = Bench(memory, score=lambda step: -abs(step - 10))
    end = bench.made().run(Interruption())
    assert end.chosen == "those of step 10"
    assert bench.run.store.steps() == [10, 28, 30]
    assert bench.lines()[-1] == {"step": 30, "chosen": [10], "valid": {"loss": 1.0, "points": -20.0}, "score": -20.0}
    weights = bench.run.store.load(10).tensors["model"]["weight"]
    assert torch.equal(bench.run.learner.model.get_parameter("weight"), weights)
    assert bench.told.best == [(5, True), (10, True), (15, False), (20, False), (25, False), (30, False)]


@pytest.mark.slow
def test_the_mean_of_the_best_is_chosen_where_it_is_better(memory: Path) -> None:
    pace = RunLimits(30, 10, 5, 7, best=1, average=3)
    bench = Bench(memory, pace, score=lambda step: -abs(step - 10))
    means: list[Tensor] = []

    def examine(model: nn.Module) -> Any:
        if bench.run.state.step < 30 or bench.told.best[-1][0] < 30:
            return bench.examine(model)
        means.append(model.get_parameter("weight").detach().clone())
        return Evaluation({"points": len(means)}, len(means))

    run = bench.made()
    run.evaluator = examine
    assert run.run(Interruption()).chosen == "the mean of those of steps 5, 10, 15"
    kept = [run.store.load(step).tensors["model"]["weight"].double() for step in (5, 10, 15)]
    expected = (sum(kept) / 3).float()
    assert torch.equal(means[1], expected)
    assert torch.equal(run.learner.model.get_parameter("weight"), expected)


@pytest.mark.parametrize(("lowest", "chosen"), [(0.54, [20]), (0.55, [0]), (0.6, [0])])
def test_counted_weights_stay_until_the_loss_falls_by_more_than_its_standard_error(
    memory: Path, lowest: float, chosen: list[int]
) -> None:
    """From 0.6 ± 0.05, also where it is interrupted; a better main score alone changes nothing."""

    def examine(model: nn.Module) -> Any:
        loss = {0: 0.6, 10: 0.56, 20: lowest}.get(bench.run.state.step, 0.58)
        return Evaluation({"loss": loss, "points": 1 - loss}, 1 - loss, loss=loss)

    bench = Bench(memory)
    for cut in (12, None):
        run = bench.made()
        run.evaluator, run.counted_error = examine, lambda _: 0.05
        if cut is None:
            run.resume()
        end = run.run(Interruption() if cut is None else At(run, cut))
    assert bench.lines()[-1]["chosen"] == chosen
    assert end.counted == (chosen == [0])
    weights = run.store.load(chosen[0]).tensors["model"]["weight"]
    assert torch.equal(run.learner.model.get_parameter("weight"), weights)


def test_of_equals_the_latest_is_chosen_but_none_of_them_is_better(memory: Path) -> None:
    bench = Bench(memory, RunLimits(30, 10, 5, 100, patience=3), score=lambda step: 0.0)
    end = bench.made().run(Interruption())
    assert (end.step, end.chosen) == (20, "those of step 20")  # evaluated at 5, and three times no better
    assert bench.told.best == [(5, True), (10, False), (15, False), (20, False)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_never_the_best(memory: Path, value: float) -> None:
    bench = Bench(memory, score=lambda step: value if step in (5, 20) else -float(step))
    end = bench.made().run(Interruption())
    assert end.chosen == "those of step 10"
    line = next(line for line in bench.lines() if "valid" in line)
    of = {"count": 0, "things": "pairs", "intervals": {}}
    assert line == {"step": 5, "valid": {"loss": 1.0, "points": None}, "score": None, **of}


def test_where_no_score_is_a_number_the_last_weights_are_taken(memory: Path) -> None:
    bench = Bench(memory, score=lambda step: math.nan)
    assert bench.made().run(Interruption()).chosen == "those of step 30"


@pytest.mark.slow
def test_a_best_checkpoint_that_has_rotted_is_told_and_passed_over(memory: Path) -> None:
    bench = Bench(memory, RunLimits(30, 10, 5, 7, best=2), score=lambda step: -abs(step - 10.1))
    run = bench.made()
    run.run(At(run, 29))
    with (run.store.folder_of(10) / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x55")
    run = bench.made()
    assert run.resume() == ["resumed at step 29"]
    assert run.run(Interruption()).chosen == "those of step 15"
    assert [sentence for sentence in bench.told.sentences if "step 10" in sentence and "not whole" in sentence]


class Drawn:
    """A task whose batch is its rows and what was drawn for them."""

    def collate(self, rows: Sequence[Any], random: np.random.Generator) -> tuple[list[Any], float]:
        return list(rows), random.random()


class Same:
    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[Any]:
        return [int(number) for number in numbers]


def test_every_batch_of_every_epoch_draws_its_own_and_always_the_same() -> None:
    def made(seed: int) -> list[tuple[list[Any], float]]:
        order = Buckets(np.ones(12, dtype=np.int64), tokens=4, seed=1)
        return [one for step in Batches(Drawn(), Same(), Steps(order, 2), seed).between(1, 10) for one in step]

    drawn = [number for _, number in made(1)]
    assert len(set(drawn)) == 18  # three batches in each of six epochs
    assert made(1) == made(1)
    assert not set(drawn) & {number for _, number in made(2)}
    assert sorted(row for rows, _ in made(1)[:3] for row in rows) == list(range(12))


# Being interrupted.


def test_an_interrupted_run_is_saved_once_where_it_stands(memory: Path) -> None:
    bench = Bench(memory)
    run = bench.made()
    assert run.run(At(run, 9)).signal == 15
    assert bench.told.saves == [7, 9]
    run = bench.made()
    run.resume()
    assert (run.state.step, run.run(At(run, 9)).step) == (9, 9)
    assert bench.told.saves == [7, 9]  # nothing has changed since
    run = bench.made()
    run.resume()
    assert run.run(At(run, 14)).step == 14
    assert bench.told.saves == [7, 9, 14]  # not twice


@pytest.mark.slow
def test_who_interrupts_before_the_first_step_loses_nothing(memory: Path) -> None:
    bench = Bench(memory)
    run = bench.made()
    assert run.run(At(run, 0)).step == 0
    run = bench.made()
    assert run.resume() == ["resumed at step 0"]
    assert run.run(Interruption()).step == 30


@pytest.mark.slow
def test_an_interruption_in_the_last_step_comes_too_late(memory: Path) -> None:
    run = Bench(memory).made()
    assert run.run(At(run, 30)).signal is None


@pytest.mark.slow
@pytest.mark.parametrize(("every", "cuts"), [(5, range(2, 25, 3)), (100, (9, 10, 24))])
def test_a_run_that_stops_early_stops_there_too_when_it_was_cut(memory: Path, every: int, cuts: Iterable[int]) -> None:
    """Patience, ranking, averages and sums between lines go on where they were."""
    pace = RunLimits(30, 4, 5, every, patience=3, best=2, average=2)

    def bench(name: str) -> Bench:
        (memory / name).mkdir()
        return Bench(memory / name, pace, frozenset({6, 13}), lambda step: -abs(step - 9))

    straight = bench("straight")
    end = straight.made(average=True).run(Interruption())
    assert end.step == 25
    again = straight.made(average=True)
    again.resume()  # at step 25 or before it: also there it is known that nothing is to come
    assert again.run(Interruption()) == end
    for cut in cuts:
        other = bench(f"cut-{cut}")
        run = other.made(average=True)
        run.run(At(run, cut))
        run = other.made(average=True)
        run.resume()
        assert run.run(Interruption()) == end
        assert (other.folder / "metrics.jsonl").read_bytes() == (straight.folder / "metrics.jsonl").read_bytes()
        assert torch.equal(
            run.learner.model.get_parameter("weight"), straight.run.learner.model.get_parameter("weight")
        )


@pytest.mark.slow
def test_a_run_without_a_checkpoint_starts_from_the_beginning_and_says_so(memory: Path) -> None:
    straight, killed = Bench(memory / "straight"), Bench(memory / "killed")
    for bench in (straight, killed):
        bench.folder.mkdir()
    straight.made().run(Interruption())
    (killed.folder / "metrics.jsonl").write_text('{"step": 4, "loss": 1.0}\n{"step": 8, "lo')  # killed before step 7
    (killed.folder / "times.jsonl").write_text('{"step": 4, "seconds": 1.0}\n{"st')
    run = killed.made()
    assert run.resume() == ["no checkpoint was written yet, so the run starts from the beginning"]
    run.run(Interruption())
    assert (killed.folder / "metrics.jsonl").read_bytes() == (straight.folder / "metrics.jsonl").read_bytes()
    run.metrics_log.append_time(step=30, seconds=2.0)
    assert run.metrics_log.total("seconds") == 3.0


@pytest.mark.slow
def test_lines_behind_the_checkpoint_are_forgotten(memory: Path) -> None:
    straight, killed = Bench(memory / "straight"), Bench(memory / "killed")
    for bench in (straight, killed):
        bench.folder.mkdir()
    straight.made().run(Interruption())
    run = killed.made()
    run.run(At(run, 15))
    run.metrics_log.append(step=16, loss=0.0)
    with run.metrics_log.metrics.open("a") as file:
        file.write('{"half a li')
    run = killed.made()
    run.resume()
    run.run(Interruption())
    assert (killed.folder / "metrics.jsonl").read_bytes() == (straight.folder / "metrics.jsonl").read_bytes()
    assert same(straight.run.store.load(30), run.store.load(30))


def test_metrics_that_somebody_removed_are_told_and_not_made_up(memory: Path) -> None:
    bench = Bench(memory)
    run = bench.made()
    run.run(At(run, 15))
    run.metrics_log.metrics.unlink()
    run = bench.made()
    said = run.resume()
    assert "has lost" in said[0]
    run.run(Interruption())
    assert [line["step"] for line in bench.lines()] == [16, 20, 24, 28, 30]


# Steps that are not finite.


def test_a_bad_step_now_and_then_is_survived_and_counted(memory: Path) -> None:
    bench = Bench(memory, faults=frozenset({2, 5, 6, 9, 10}))
    assert bench.made().run(Interruption()).step == 30
    assert [line.get("skipped", 0) for line in bench.lines()] == [1, 2, 2, 0, 0, 0, 0, 0]
    assert [line["targets"] for line in bench.lines()] == [6, 4, 4, 8, 8, 8, 8, 4]


def test_a_line_of_bad_steps_alone_has_no_loss(memory: Path) -> None:
    bench = Bench(memory, RunLimits(4, 1, 10, 10), frozenset({2, 3}))
    bench.made().run(Interruption())
    assert [line["loss"] is None for line in bench.lines()] == [False, True, True, False]
    assert [line["norm"] is None for line in bench.lines()] == [False, True, True, False]


def test_three_bad_steps_in_a_row_end_the_run(memory: Path) -> None:
    bench = Bench(memory, faults=frozenset({3, 9, 10, 11}))
    with pytest.raises(UserError, match=r"not finite in 3 steps in a row, the last of them 11; start anew"):
        bench.made().run(Interruption())
    assert bench.lines()[-1]["step"] == 11
    assert sum(line.get("skipped", 0) for line in bench.lines()) == 4
    assert bench.run.store.steps() == [7]  # what was good is still there


def test_bad_steps_in_a_row_are_counted_across_an_interruption(memory: Path) -> None:
    bench = Bench(memory, faults=frozenset({9, 10, 11}))
    run = bench.made()
    run.run(At(run, 10))
    run = bench.made()
    run.resume()
    with pytest.raises(UserError, match="the last of them 11"):
        run.run(Interruption())
