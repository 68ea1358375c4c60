"""What the processes of a run agree on before it: one plan, and what each of them computes of every step.

Process 0 makes the choices and tells the others its recipe; each reads its own copy of the data, and hashes of it and
the recipes are compared.  The number of processes is not part of the recipe: a run may be resumed by more or fewer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from headway import __version__
from headway.data.order import WHOLE, StepShare
from headway.data.shards import digest
from headway.distributed.world import World
from headway.errors import UserError
from headway.system import keep_memory, usable_cores
from headway.tasks.batches import StatefulLoss
from headway.training.build import require
from headway.training.parallel import DDP, ProcessLayout, layout_of
from headway.training.plan import OwnParts, Plan, plan
from headway.training.recipe_sources import RECIPE, RecipeLayers, begun_with, to_yaml
from headway.training.resuming import data_hashes
from headway.zoo.tensor_parallel import check_plan

SHARDABLE = ("adamw", "adam")  # optimisers that see each number of a parameter by itself


def check_asked(layers: RecipeLayers, world: World) -> None:
    """Refuses a process that was asked for something else than process 0, whose recipe it would follow."""
    world.check_same({name: str(layers.value(name)) for layer in layers.layers for name in layer})


def followed(own: OwnParts, world: World) -> tuple[Plan, bool]:
    """The plan of process 0 with this process's own copy of the data, and whether the run is resumed."""
    told = json.loads(world.told())
    keep_memory()
    with TemporaryDirectory(prefix="headway-") as scratch:
        file = Path(scratch) / RECIPE
        file.write_text(told["recipe"], encoding="utf-8")
        made = plan(begun_with(file), own=own)
    return in_world(made, world), told["resume"]


def lead(made: Plan, world: World, *, resume: bool) -> None:
    """Tells the others the recipe, where process 0 calls it; all compare what their plans were made of."""
    recipe = to_yaml(made.recipe)
    if world.first:
        world.told(json.dumps({"recipe": recipe, "resume": resume}))
    hashes = data_hashes(made)
    world.check_same({
        "the version of headway": __version__,
        "the recipe": recipe,
        "the data": digest((), *hashes["files"].values(), hashes["records"]),
        "the tokenizer": hashes["words"],
    })  # fmt: skip


def in_world(made: Plan, world: World) -> Plan:
    """The plan with what this process computes of it, and its threads, of which it has no more than its part."""
    threads = made.recipe.train.threads or 1
    torch.set_num_threads(threads if world.size == 1 else min(threads, max(1, usable_cores() // world.local_size)))
    return replace(made, share=share_of(made, world))


def share_of(made: Plan, world: World) -> StepShare:
    """What one of several processes computes of each step; refused where a batch cannot be shared.

    Where the batches of a step can be dealt out evenly, each process reads whole ones, and the step is that of a single
    process in every number that is drawn; else each reads its part of the rows of every batch.
    """
    train, task = made.recipe.train, made.task
    layout = checked_layout(made, world.size)
    if layout == ProcessLayout():
        return WHOLE
    processes = f"{world.size} processes"
    if isinstance(task, StatefulLoss) and task.memory(made.shape()) is not None:
        said = f"{made.architecture} remembers from batch to batch, which {processes} cannot do"
        raise UserError(said, do="train it in one process")
    if layout.splits_parameters and (train.optimiser not in SHARDABLE or train.ema_decay):
        what = f"train.optimiser {train.optimiser}" if train.optimiser not in SHARDABLE else "train.ema_decay"
        raise UserError(f"{layout.name} has no {what}", do=f"leave it out, or train by {DDP} alone")
    split = train.grad_accumulation % layout.data != 0
    if split and task.compares_rows:
        said = f"the loss of {task.name} compares the rows of a batch, which {processes} would split"
        raise UserError(said, do=f"give train.grad_accumulation={layout.data}, and a smaller train.batch")
    sizes = [len(rows) for rows in made.encoded.batches(require(train.batch), 1).steps.batches(0)]
    if split and sum(sizes) < layout.data * len(sizes):
        said = f"{layout.data} processes would share batches of {sum(sizes) / len(sizes):.1f} rows"
        raise UserError(said, do="give a larger train.batch, or fewer processes")
    return StepShare(world.rank // layout.tensor, layout.data, split)


def checked_layout(made: Plan, processes: int) -> ProcessLayout:
    """The layout of a run in so many processes; refused where they, or the model, cannot be shared out by it."""
    train, tensor = made.recipe.train, made.recipe.train.tensor_parallel
    if processes % tensor:
        said = f"train.tensor_parallel={tensor} does not divide the number of processes, {processes}"
        raise UserError(said, do=f"start a multiple of {tensor} by --processes or torchrun")
    data = processes // tensor
    if train.replicas > 1 and (train.parallel == DDP or data % train.replicas):
        said = f"train.replicas={train.replicas} with train.parallel={train.parallel} and data in {data} shares"
        raise UserError(said, allowed=f"train.parallel=fsdp and a divisor of {data}")
    if tensor > 1 and made.recipe.model.lora is not None:
        raise UserError(
            "train.tensor_parallel does not split low-rank parts",
            do="leave model.lora out, or give train.parallel=fsdp",
        )
    if tensor > 1:
        check_plan(made.shape(), made.architecture, tensor)
    return layout_of(train, processes)
