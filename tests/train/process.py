"""What one of several processes does for `test_processes.py`, as `python -m tests.train.process WHAT FOLDER`."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headway.data.order import WHOLE
from headway.distributed import world as rendezvous
from headway.distributed.world import ALONE, World, joined
from headway.errors import UserError
from headway.training.build import batches_of, learner_of
from headway.training.parallel import whole
from headway.training.plan import Plan
from headway.training.processes import share_of
from tests.train.disks import same_tensors
from tests.train.runs import planned

STEPS = 3
STEADY = {"train.ema_decay": "0", "train.dtype": "fp32", "train.eps": "1e-4"}  # Adam makes steps of noise around 0
SPLIT = {"train.dropout": "0", "train.grad_accumulation": "1"}  # dropout draws other numbers for other rows
DEALT = {"train.grad_accumulation": "4"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "uneven lengths": ("transformer", {**SPLIT, "model.attention_dropout": "0"}),
    "a stream": ("gpt2", {**SPLIT, "train.grad_accumulation": "3"}),
    "experts": ("mixtral", {**SPLIT, "train.dropout": "None", "model.attention_dropout": "0"}),
    "labels": ("classes", SPLIT),
    "dropout": ("transformer", DEALT),
    "masks": ("masked", DEALT),
    "experts, dealt": ("mixtral", DEALT),
    "batch norm": ("resnet", DEALT | {"data.augment": "crop,flip"}),
    "contrastive": ("clip", DEALT | {"train.batch": "6"}),
    "fsdp": ("transformer", {**SPLIT, "model.attention_dropout": "0", "train.parallel": "fsdp"}),
    "fsdp, dealt": ("llama", DEALT | {"train.parallel": "fsdp"}),
    "fsdp, experts": ("mixtral", DEALT | {"train.parallel": "fsdp"}),
}

FEW = ("a stream", "dropout", "fsdp")  # for more processes than two


def in_case(name: str, world: World) -> Plan:
    family, more = CASES[name]
    made = planned(family, **more, **STEADY)
    return replace(made, share=share_of(made, world))


def steps_of(name: str, world: World = ALONE) -> list[list[float]]:
    """Of each step the loss of a target, targets, tokens, the gradient's norm, and a sum of the weights after it."""
    made = in_case(name, world)
    learner, found = learner_of(made, world), list[list[float]]()
    for number, batches in enumerate(batches_of(made)(1, 1 + STEPS), 1):
        step = learner.learn(number, batches)
        weights = sum(whole(one).double().abs().sum().item() for one in learner.model.parameters())
        found.append([step.loss / step.targets, step.targets, step.tokens, step.norm, weights])
    return found


def layouts(world: World) -> list[Any]:
    """Whether each layout that restores a checkpoint gives the same, and the norm of the next step's gradient."""
    made = in_case("uneven lengths", world)
    sharded = in_case("fsdp", world)
    first = learner_of(made, world)
    first.learn(1, next(batches_of(made)(1, 2)))
    tensors, same, norms = first.tensors(), list[bool](), list[float]()
    for plan, where in ((replace(made, share=WHOLE), ALONE), (sharded, world), (made, world)):
        learner = learner_of(plan, where)
        learner.restore(tensors)
        found = {part: {name: one.clone() for name, one in kept.items()} for part, kept in learner.tensors().items()}
        same.append(all(same_tensors(found[part], tensors[part]) for part in tensors))
        [batches] = batches_of(plan)(2, 3)
        norms.append(learner.learn(2, batches).norm)
        tensors = found
    return [same, *norms]


def refusals(world: World) -> list[str]:
    """What is said of runs that several processes cannot share."""
    said = list[str]()
    for family, more in (("clip", {"train.batch": "6"}), ("classes", {"train.batch": "1"})):
        try:
            share_of(planned(family, **{"train.grad_accumulation": "1", **more}), world)
        except UserError as error:
            said.append(str(error))
    return said


def compare(folder: Path) -> None:
    """All cases, by each process into a file of its own."""
    with joined() as world:
        both = world.size == 2
        found = {name: steps_of(name, world) for name in CASES if both or name in FEW}
        world.check_same({"the same": "everywhere"})
        told: dict[str, Any] = {"steps": found, "total": world.totals(1.0, world.rank)}
        more = {"layouts": layouts(world), "refusals": refusals(world)} if both else {}
        (folder / f"{world.rank} of {world.size}.json").write_text(json.dumps(told | more))


def differ(folder: Path) -> None:
    """A process with other data."""
    with joined() as world:
        world.check_same({"the recipe": "", "the data": str(world.rank)})


def stop(folder: Path) -> None:
    """The process of a number does not answer any more."""
    rendezvous.MISSED, rendezvous.STORE_BEATS = 3, 3
    with joined() as world:
        world.totals(1.0)
        if world.rank == int(folder.name):
            os.kill(os.getpid(), signal.SIGSTOP)
        world.totals(1.0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        {"compare": compare, "differ": differ, "stop": stop}[sys.argv[1]](Path(sys.argv[2]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.code)
