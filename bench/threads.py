"""How threads wait for one another: training steps a second by wait policy of libgomp, two threads, in turn.

`python bench/threads.py [SECONDS [ROUNDS]]` prints a table, for no other and for one other busy process.
Each policy is a process of its own; a turn is so many seconds of wall time, in which the others wait.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

POLICIES: dict[str, dict[str, str]] = {
    "as it is": {},
    "PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    "spin 0": {"GOMP_SPINCOUNT": "0"},
    "spin 1,000": {"GOMP_SPINCOUNT": "1000"},
    "spin 10,000": {"GOMP_SPINCOUNT": "10000"},
}
WORKS = {  # size, and the length of rows
    "gpt-nano": ({"vocab": 65, "dim": 48, "layers": 3, "heads": 3}, 128),
    "4 layers of 256": ({"vocab": 8000, "dim": 256, "layers": 4, "heads": 4}, 128),
    "6 layers of 384": ({"vocab": 65, "dim": 384, "layers": 6, "heads": 6}, 256),
    "dates": None,
}
THREADS, ROWS = 2, 8
BUSY = "while True: pass"


def main(seconds: float = 3.0, rounds: int = 3) -> None:
    print("| work | other process | " + " | ".join(POLICIES) + " | load |")
    print("| --- | --- |" + " ---: |" * (len(POLICIES) + 1))
    for work in WORKS:
        trainers = {name: Trainer(work, policy) for name, policy in POLICIES.items()}
        for busy in (False, True):
            speeds: dict[str, list[float]] = {name: [] for name in POLICIES}
            loads = list[float]()
            for _ in range(rounds):
                for name, trainer in trainers.items():
                    speeds[name].append(turn(trainer, seconds, busy))
                    loads.append(os.getloadavg()[0])
            cells = [f"{median(found):.2f} ({min(found):.2f}–{max(found):.2f})" for found in speeds.values()]
            told = " | ".join([work, "busy" if busy else "none", *cells, f"{min(loads):.0f}–{max(loads):.0f}"])
            print(f"| {told} |", flush=True)
        for trainer in trainers.values():
            trainer.end()


def turn(trainer: Trainer, seconds: float, busy: bool) -> float:
    """Steps a second of one turn, beside a busy process or not."""
    other = subprocess.Popen([sys.executable, "-c", BUSY]) if busy else None
    try:
        return trainer.turn(seconds)
    finally:
        if other is not None:
            other.kill()
            other.wait()


class Trainer:
    """A process that trains when it is told to."""

    def __init__(self, work: str, policy: dict[str, str]):
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--train", work],
            env={**plain, **policy},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.answer()

    def answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def turn(self, seconds: float) -> float:
        assert self.process.stdin
        print(seconds, file=self.process.stdin, flush=True)
        return float(self.answer())

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def train(work: str) -> None:
    """Reads seconds from standard input, trains for so long, and prints steps a second."""
    step = step_of(work)
    step()
    step()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, count, started = float(line), 0, time.perf_counter()
        while (spent := time.perf_counter() - started) < seconds:
            step()
            count += 1
        print(count / spent, flush=True)


def step_of(work: str) -> Callable[[], object]:
    """A training step: decoders on rows of text, and the demo's on its dates."""
    import torch

    from bench.steps import causal_loss, learner_of, step_on
    from headway.system import keep_memory
    from headway.tasks.batches import PackedBatch
    from headway.tasks.causal_lm import CausalBatch
    from headway.zoo import gpt2

    keep_memory()
    torch.set_num_threads(THREADS)
    if (decoder := WORKS[work]) is None:
        return demo_step()
    sizes, length = decoder
    config = gpt2.Config(**sizes, context=length, dropout=0.0, attention_dropout=0.0)
    ids = torch.randint(0, 65, (ROWS, length + 1))
    batch = CausalBatch(PackedBatch(ids[:, :-1].contiguous(), None), ids[:, 1:].flatten())
    return step_on(learner_of(gpt2.build(config), causal_loss), batch)


def demo_step() -> Callable[[], object]:
    from itertools import count
    from tempfile import TemporaryDirectory

    from headway.training.build import batches_of, learner_of
    from headway.training.plan import plan
    from headway.training.recipe_sources import read_layers

    with TemporaryDirectory() as folder:
        asked = {"data.path": ("dates",), "train.threads": str(THREADS), "out": f"{folder}/run"}
        made = plan(read_layers(asked, environ={}), Path(folder))
        learner, steps = learner_of(made), list(batches_of(made)(1, 40))
    numbers = count(1)
    return lambda: learner.learn(number := next(numbers), steps[number % len(steps)])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2])
    else:
        main(*map(float, sys.argv[1:2]), *map(int, sys.argv[2:3]))
