"""The suite of training in several processes: a step of a GPT by one process, and by two that share it.

The processes of a contender are started as torchrun would, with one thread each.  Process 0 reads the name of
a case for each step and writes the answer; the others take the same steps with their rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headway.bench.answers import LOSSES
from headway.bench.suite import Case, Contender, Run, Suite, Workspace
from headway.bench.training_steps import built, headway_steps
from headway.bench.training_suites import GPT, gpt_config, gpt_loss, tokens_of, write_gpt
from headway.distributed.launcher import free_port, variables_of
from headway.distributed.world import World, joined
from headway.system import die_with_parent

ROWS = (1, 2, 4)  # times the batch of `GPT`: what is exchanged in a step does not grow with its rows


def cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    return tuple(case for times in ROWS for case in GPT.cases({**sizes, "batch": times * sizes["batch"]}))


class TrainingProcesses:
    """Processes that train together, which end with this object; called, they take a step."""

    def __init__(self, parallel: str, count: int, work: Workspace):
        port, sizes = free_port(), json.dumps(dict(work.sizes))
        command = [sys.executable, "-m", __name__, str(work.folder), sizes, str(work.threads), parallel]
        pipe = subprocess.PIPE
        self.started = [
            subprocess.Popen(
                command,
                env={**os.environ, **(variables_of(rank, count, port) if count > 1 else {})},
                stdin=pipe,
                stdout=pipe,
                text=True,
                preexec_fn=die_with_parent,
            )
            for rank in range(count)
        ]
        weakref.finalize(self, end, self.started)
        self.answer()  # they are ready

    def answer(self) -> Any:
        output = self.started[0].stdout
        assert output is not None
        return json.loads(output.readline())

    def __call__(self, case: Case) -> Any:
        given = self.started[0].stdin
        assert given is not None
        given.write(f"{case.name}\n")
        given.flush()
        return self.answer()


def end(started: Sequence[subprocess.Popen[str]]) -> None:
    for process in started:
        process.communicate()


def main(folder: str, sizes: str, threads: str, parallel: str) -> None:
    """What each of the processes does."""
    work = Workspace(Path(folder), json.loads(sizes), int(threads))
    with joined() as world:
        steps = {
            case.name: partial(steps_in(world, replace(work, sizes={**work.sizes, **case.sizes}), parallel), case)
            for case in cases(work.sizes)
        }
        world.totals()
        print(json.dumps(None), flush=True)
        while name := world.told(sys.stdin.readline() if world.first else "").strip():
            print(json.dumps(steps[name]()), flush=True)


def steps_in(world: World, work: Workspace, parallel: Any) -> Run:
    """Steps of which this process computes its rows."""
    from headway.tasks.batches import PackedBatch
    from headway.tasks.causal_lm import CausalBatch

    shown, wanted = (tokens[world.rank :: world.size] for tokens in tokens_of(work))
    batch = CausalBatch(PackedBatch(shown, None), wanted.flatten())
    return headway_steps(work, built(work, gpt_config(work)), gpt_loss, [batch], world=world, parallel=parallel)


TRAIN_PROCESSES = Suite(
    "train-processes",
    f"{GPT.title}, in one process and in two",
    write_gpt,
    cases,
    (
        Contender("one process", partial(TrainingProcesses, "ddp", 1)),
        Contender("DDP, 2 processes", partial(TrainingProcesses, "ddp", 2)),
        Contender("FSDP2, 2 processes", partial(TrainingProcesses, "fsdp", 2)),
    ),
    GPT.sizes,
    GPT.tiny,
    LOSSES,
    wall_clock=True,
    notes="Each process has one thread, on a core of its own; gradients go over the loopback interface by gloo.",
)

if __name__ == "__main__":
    main(*sys.argv[1:])
