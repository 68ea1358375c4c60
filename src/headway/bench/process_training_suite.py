"""The suite of training in several processes: a step of a GPT by one process, and by two that share it.

Each process has one thread.  A contender of two processes is process 0 of them; it starts the other one, which takes
the same steps with its half of the rows until its parent ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headway.bench.answers import LOSSES
from headway.bench.suite import Case, Contender, Run, Suite, Workspace
from headway.bench.training_steps import built, headway_steps
from headway.bench.training_suites import GPT, gpt_config, gpt_loss, tokens_of, write_gpt
from headway.distributed.launcher import free_port, variables_of
from headway.distributed.world import World, joined
from headway.system import die_with_parent

NEXT = "next"  # step


def steps_in(world: World, work: Workspace, engine: str | None) -> Run:
    """Steps of which this process computes its rows."""
    from headway.tasks.batches import PackedBatch
    from headway.tasks.causal_lm import CausalBatch

    shown, wanted = (tokens[world.rank :: world.size] for tokens in tokens_of(work))
    batch = CausalBatch(PackedBatch(shown, None), wanted.flatten())
    return headway_steps(work, built(work, gpt_config(work)), gpt_loss, [batch], world=world, engine=engine)


def processes(engine: str, count: int = 2) -> Callable[[Workspace], Run]:
    """Process 0 of so many, which starts the others."""

    def prepare(work: Workspace) -> Run:
        port, open_world = free_port(), ExitStack()
        arguments = [str(work.folder), json.dumps(dict(work.sizes)), str(work.threads), engine]
        for rank in range(1, count):
            command = [sys.executable, "-m", __name__, *arguments]
            variables = {**os.environ, **variables_of(rank, count, port)}
            subprocess.Popen(command, env=variables, preexec_fn=die_with_parent)
        os.environ.update(variables_of(0, count, port))
        world = open_world.enter_context(joined())
        steps = steps_in(world, work, engine)

        def run(case: Case) -> Any:
            world.told(NEXT)
            return steps(case)

        return run

    return prepare


def one_process(work: Workspace) -> Run:
    return steps_in(World(), work, None)


def main(folder: str, sizes: str, threads: str, engine: str) -> None:
    """What the other processes do."""
    work = Workspace(Path(folder), json.loads(sizes), int(threads))
    [case] = GPT.cases(work.sizes)
    with joined() as world:
        steps = steps_in(world, work, engine)
        while world.told() == NEXT:
            steps(case)


TRAIN_PROCESSES = Suite(
    "train-processes",
    f"{GPT.title}, in one process and in two",
    write_gpt,
    GPT.cases,
    (
        Contender("one process", one_process),
        Contender("DDP, 2 processes", processes("ddp")),
        Contender("FSDP2, 2 processes", processes("fsdp")),
    ),
    GPT.sizes,
    GPT.tiny,
    LOSSES,
    wall_clock=True,
    notes="Each process has one thread, on a core of its own; gradients go over the loopback interface by gloo.",
)

if __name__ == "__main__":
    main(*sys.argv[1:])
