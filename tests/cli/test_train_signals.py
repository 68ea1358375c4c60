"""Real processes that are interrupted and killed: what is resumed ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.training.interruption import TOGETHER
from headway.training.learner import Learner, StepResult
from tests.cli.command import TINY, Child, Done, Place, lines_of, made_place, until
from tests.conftest import ROOT

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
RUN = [
    *("train", "pairs.tsv", *TINY, "--train.steps", "40", "--train.checkpoint-every", "3", "--train.log-every", "1"),
    *("--train.evaluate-every", "20", "--train.accumulate", "2", "--train.ema", "0.9"),
]
LEFT = ["model.safetensors", "metrics.jsonl", "config.json", "tokenizer.json"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """With one run in it, `straight`, that nobody interrupted."""
    place = made_place(tmp_path_factory.mktemp("place"))
    assert place(*RUN, "--out", "straight").code == 0
    return place


def left(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in LEFT]


def check_resumed(place: Place, name: str) -> Done:
    done = place("train", "--out", name, "--resume")
    assert (done.code, done.err) == (0, "")
    assert left(place.folder / name) == left(place.folder / "straight")
    return done


@pytest.mark.long
@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, 2), (signal.SIGTERM, 0)])
def test_a_signal_saves_and_says_how_to_go_on(place: Place, number: signal.Signals, workers: int) -> None:
    name = f"asked-{number}-{workers}"
    child = place.start(*RUN, "--out", name, "--train.workers", str(workers), before=hold_at(name, 5))
    until((place.folder / f"{name} waits").exists, child)
    child.kill_all(number)
    (place.folder / f"{name} goes on").touch()
    done = child.wait()
    assert (done.code, done.err) == (CODES[number], "")
    told = done.out.splitlines()
    assert told[-1] == f"  headway train --out {name} --resume"
    assert told[-3].startswith("interrupted at step ")
    step = int(told[-3].split()[3].rstrip(","))
    assert (place.folder / name / "checkpoints" / f"step-{step:07}").is_dir()
    assert f"resumed at step {step}" in check_resumed(place, name).out


@pytest.mark.long
def test_a_second_signal_leaves_at_once(place: Place) -> None:
    """Even from a step that never ends."""
    child = place.start(*RUN, "--out", "hung", before=hold_at("hung", 5))
    until((place.folder / "hung waits").exists, child)
    child.kill(signal.SIGTERM)
    time.sleep(3 * TOGETHER)
    assert child.running()
    while child.running():  # signals that a busy process sees at once count as one
        child.kill(signal.SIGINT)
        time.sleep(2 * TOGETHER)
    assert child.wait().code == 130
    assert "resumed at step 3" in check_resumed(place, "hung").out


def hold_at(name: str, step: int, pace: float = 0.0) -> Callable[[], None]:
    """A run that says by a file that it has come to a step, and waits there for another; steps take `pace` seconds."""

    def plant() -> None:
        learn, waits, goes_on = Learner.learn, Path(f"{name} waits"), Path(f"{name} goes on")
        waits.unlink(missing_ok=True)
        goes_on.unlink(missing_ok=True)

        def held(self: Learner, at: int, batches: Sequence[Any]) -> StepResult:
            if (Path(name) / "recipe.yaml").exists():  # not while it is timed before
                time.sleep(pace)
                if at == step:
                    waits.touch()
                while at == step and not goes_on.exists():
                    time.sleep(0.002)
            return learn(self, at, batches)

        Learner.learn = held  # type: ignore[method-assign]

    return plant


@pytest.mark.long
def test_two_processes_do_not_train_in_one_folder(place: Place) -> None:
    child = place.start(*RUN, "--out", "shared", "--train.workers", "2", before=hold_at("shared", 5))
    until((place.folder / "shared waits").exists, child)
    assert (
        "another process is training in shared; wait until it ends"
        in place("train", "--out", "shared", "--resume").said
    )
    child.kill(signal.SIGKILL)
    child.wait()
    check_resumed(place, "shared")  # though its workers may still live


@pytest.mark.long
def test_a_worker_that_dies_is_told_and_costs_nothing(place: Place) -> None:
    child = place.start(*RUN, "--out", "worked", "--train.workers", "2", before=hold_at("worked", 5))
    until((place.folder / "worked waits").exists, child)
    workers = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    os.kill(int(workers[-1]), signal.SIGKILL)
    said = child.wait().said
    assert "a process that prepared batches was ended" in said
    assert "headway train --out worked --resume --train.workers 0" in said
    done = place("train", "--out", "worked", "--resume", "--train.workers", "0")
    assert (done.code, done.err) == (0, "")
    assert left(place.folder / "worked") == left(place.folder / "straight")


def struck(child: Child, metrics: Path, steps: int) -> None:
    """Waits for a child that has begun or resumed to do so many steps."""
    before = lines_of(metrics)
    until(lambda: lines_of(metrics) not in (0, before), child)  # the lines behind the last checkpoint are cut off
    before = lines_of(metrics)
    until(lambda: lines_of(metrics) >= before + steps, child)


def killed(place: Place, times: int, seed: int) -> None:
    """Starts a run and kills it: while it reads its data, trains, evaluates or saves."""
    draw, name = random.Random(seed), f"killed-{seed}"
    for count in range(times):
        again = ["train", "--resume"] if count else RUN
        child = place.start(*again, "--out", name, before=hold_at(name, 38, 0.02))
        if count != 1:
            struck(child, place.folder / name / "metrics.jsonl", draw.randint(0, 5))
        time.sleep(draw.uniform(0, 0.02 if count != 1 else 0.2))
        child.kill(signal.SIGKILL)
        assert child.wait().code == -9
    check_resumed(place, name)


@pytest.mark.long
def test_killed_twice_it_ends_the_same(place: Place) -> None:
    killed(place, 2, seed=1)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(2, 7))
def test_killed_twenty_times_it_ends_the_same(place: Place, seed: int) -> None:
    killed(place, 4, seed)


@pytest.mark.proof
def test_asked_ten_times_to_end_it_saves_each_time(place: Place) -> None:
    draw, name = random.Random(0), "preempted"
    for count in range(10):
        again = ["train", "--resume"] if count else RUN
        child = place.start(*again, "--out", name, before=hold_at(name, 38, 0.02))
        struck(child, place.folder / name / "metrics.jsonl", draw.randint(0, 1))
        time.sleep(draw.uniform(0, 0.01))
        child.kill(signal.SIGTERM)
        (place.folder / f"{name} goes on").touch()
        done = child.wait()
        assert (done.code, done.err) == (143, "")
        assert done.out.splitlines()[-1] == f"  headway train --out {name} --resume"
    check_resumed(place, name)


FROM_THE_SHELL = """
import runpy
from tests.cli.test_train_signals import hold_at
hold_at("shell", 5)()
runpy.run_module("headway", run_name="__main__")
"""


@pytest.mark.long
def test_so_it_is_for_a_process_that_a_shell_starts(place: Place) -> None:
    """Nothing forked: Python, torch and headway from the beginning, stopped by Ctrl-C."""
    cache = str(place.folder.parent / "home" / ".cache" / "headway")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    with (place.folder.parent / "shell.told").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", FROM_THE_SHELL, *RUN, "--out", "shell"],
            cwd=place.folder,
            stdout=out,
            stderr=out,
            env={**kept, "OMP_NUM_THREADS": "1", "HEADWAY_CACHE": cache, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
        try:
            while not (place.folder / "shell waits").exists():
                assert process.poll() is None
                time.sleep(0.002)
            process.send_signal(signal.SIGINT)
            (place.folder / "shell goes on").touch()
            assert process.wait() == 130
        finally:
            process.kill()
    told = (place.folder.parent / "shell.told").read_text(encoding="utf-8")
    assert told.endswith("\n\n  headway train --out shell --resume\n")
    check_resumed(place, "shell")
