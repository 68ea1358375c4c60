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

from headway.distributed import world as rendezvous
from headway.distributed.sharing import sharing
from headway.distributed.world import ALONE, World, joined
from headway.errors import UserError
from headway.training.build import batches_of, evaluator_of, learner_of
from headway.training.learner import Learner
from headway.training.parallel import whole
from headway.training.plan import Plan
from headway.training.processes import share_of
from headway.training.saving import BackgroundSaver
from headway.training.sharded import ShardedSaver
from headway.training.store import Snapshot, Store
from tests.train.disks import same_tensors
from tests.train.runs import planned

STEPS = 3
STEADY = {"train.ema_decay": "0", "train.dtype": "fp32", "train.eps": "1e-4"}  # Adam makes steps of noise around 0
SPLIT = {"train.dropout": "0", "train.grad_accumulation": "1"}  # dropout draws other numbers for other rows
TENSOR = {"train.tensor_parallel": "2"}
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
    "a teacher": ("gpt2", {**SPLIT, "train.teacher": "gpt2-teacher"}),
    "fsdp, a teacher": (
        "masked",
        DEALT | {"train.teacher": "masked-teacher", "train.parallel": "fsdp", "train.dropout": "0"},
    ),
}

FOUR_HEADS = {"model.heads": "4"}
GROUPED = {**FOUR_HEADS, "model.kv_heads": "2", "model.hidden": "24", "model.attention_dropout": "0"}
TENSOR_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "tensor, GPT": ("gpt2", SPLIT | FOUR_HEADS | TENSOR),
    "tensor, Llama": ("llama", DEALT | GROUPED | TENSOR),
    "tensor, BERT": ("masked", DEALT | TENSOR | {"train.dropout": "0", "train.recompute": "true"}),
    "tensor, encoder and decoder": ("transformer", DEALT | TENSOR | {"model.attention_dropout": "0"}),
    "tensor, learned biases": ("t5", SPLIT | TENSOR | {"model.layers": "2"}),
    "tensor, norms of heads": ("llama", DEALT | GROUPED | TENSOR | {"model.qk_norm": "heads"}),
    "tensor, slopes": ("gpt2", {**SPLIT, **TENSOR, "model.preset": "bloom-560m"}),
    "fsdp, learned biases": ("t5", SPLIT | {"train.parallel": "fsdp", "model.layers": "2"}),
    "tensor, experts": ("mixtral", DEALT | GROUPED | TENSOR),
}
FOUR_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "tensor 4": ("gpt2", SPLIT | FOUR_HEADS | {"train.tensor_parallel": "4"}),
    "ddp × tensor": ("llama", DEALT | GROUPED | TENSOR),
    "fsdp × tensor": ("transformer", {**SPLIT, **TENSOR, "model.attention_dropout": "0", "train.parallel": "fsdp"}),
    "fsdp × tensor, dealt": ("masked", DEALT | TENSOR | {"train.dropout": "0", "train.parallel": "fsdp"}),
    "hsdp": ("llama", DEALT | GROUPED | {"train.parallel": "fsdp", "train.replicas": "2"}),
}
FEW = ("a stream", "dropout", "fsdp")
LAYOUT = ("train.parallel", "train.replicas", "train.tensor_parallel")


def cases(processes: int) -> dict[str, tuple[str, dict[str, Any]]]:
    return CASES | TENSOR_CASES if processes == 2 else {name: CASES[name] for name in FEW} | FOUR_CASES


def write_teachers() -> None:
    """The models that others learn from, in the current folder."""
    for name in ("gpt2", "masked"):
        made = planned(name, seed="7")
        made.as_model(made.build()).save(f"{name}-teacher")


def in_case(name: str, world: World) -> Plan:
    family, more = (CASES | TENSOR_CASES | FOUR_CASES)[name]
    shared = {key: value for key, value in more.items() if world.size > 1 or key not in LAYOUT}
    made = planned(family, **shared, **STEADY)
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


LAYOUTS: dict[int, list[dict[str, str]]] = {
    2: [TENSOR, {}, {"train.parallel": "fsdp"}],
    4: [TENSOR | {"train.parallel": "fsdp"}, {"train.parallel": "fsdp", "train.replicas": "2"}, TENSOR],
}
UNEVEN = {**SPLIT, "model.attention_dropout": "0", "model.hidden": "14"}  # which 2 × 2 processes do not share evenly
FURTHER = 10  # steps
EVALUATED = ("transformer", "gpt2", "classes", "conformer", "clip")


def layouts(world: World) -> list[Any]:
    """Whether each layout that restores a checkpoint has it bit for bit, and what its further steps are.

    Behind them the files of the last checkpoint that all processes have written.
    """
    tensors, same, found = dict[str, Any](), list[bool](), list[list[float]]()
    store, files = Store(Path(f"layouts of {world.size}")), list[str]()
    for step, (layout, where) in enumerate([*((layout, world) for layout in LAYOUTS[world.size]), ({}, ALONE)]):
        made = planned("transformer", **UNEVEN, **layout, **STEADY)
        made = replace(made, share=share_of(made, where))
        learner = learner_of(made, where)
        if tensors:
            read = store.load(step - 1).tensors if where.first else {}
            learner.restore(read)
            same.append(all(same_tensors(own, tensors[part]) for part, own in learner.tensors().items()))
        else:
            learner.learn(1, next(batches_of(made)(1, 2)))
        tensors = {part: {name: one.clone() for name, one in own.items()} for part, own in learner.tensors().items()}
        if where is world:
            files = saved(learner, store, step, world) or files
        steps = [learner.learn(at, read) for at, read in enumerate(batches_of(made)(2, 2 + FURTHER), 2)]
        found.append([number for step in steps for number in (step.loss / step.targets, step.norm)])
    return [same, *found, files]


def saved(learner: Learner, store: Store, step: int, world: World) -> list[str]:
    """Writes a checkpoint as the run of a layout does; its files, where all processes write it."""
    sharded = learner.engine.splits_parameters
    with ShardedSaver(store, world) if sharded else BackgroundSaver(store, world) as saver:
        saver.save(Snapshot(step, saver.tensors(learner), {}), ())
        assert saver.written(wait=True) == ([step] if sharded or world.first else [])
    world.totals()
    return sorted(one.name for one in store.folder_of(step).iterdir()) if sharded else []


def evaluations(world: World) -> dict[str, Any]:
    """The scores of some models by all processes together."""
    found = dict[str, Any]()
    for family in EVALUATED:
        made = planned(family)
        evaluator = evaluator_of(made)
        assert evaluator is not None
        with sharing(world):
            result = evaluator(made.build().eval())
        found[family] = [dict(result.values), [list(one) for one in result.samples]]
    return found


def refusals(world: World) -> list[str]:
    """What is said of runs that several processes cannot share."""
    said = list[str]()
    given = [("clip", {"train.batch": "6"}), ("classes", {"train.batch": "1"}), ("rnn", TENSOR), ("llama", TENSOR)]
    given += [("transformer", {"train.tensor_parallel": "4"}), ("transformer", TENSOR | {"train.ema_decay": "0.9"})]
    given += [("transformer", {"train.replicas": "2"})]
    for family, more in given:
        try:
            share_of(planned(family, **{"train.grad_accumulation": "1", "train.ema_decay": "0", **more}), world)
        except UserError as error:
            said.append(str(error))
    return said


def compare(folder: Path) -> None:
    """All cases, by each process into a file of its own."""
    with joined() as world:
        both = world.size == 2
        found = {name: steps_of(name, world) for name in cases(world.size)}
        world.check_same({"the same": "everywhere"})
        told: dict[str, Any] = {"steps": found, "total": world.totals(1.0, world.rank)}
        more = {"layouts": layouts(world), "evaluations": evaluations(world)}
        more |= {"refusals": refusals(world)} if both else {}
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
