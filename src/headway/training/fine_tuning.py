"""What a run takes over from the model that it goes on from (`--from`): all of it, or its encoder under a new head.

Tensors are taken over by name and shape; what remains new is said.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headway.errors import UserError, listed
from headway.model import Model
from headway.nn.trunk import tensors_of
from headway.tasks.base import Task
from headway.zoo.encoders import EncoderPart, encoder_config

OUT = "head.out."  # what says the classes


def reused_part(start: Model, task: type[Task]) -> EncoderPart:
    """What of a model can learn a task: the whole, or its encoder."""
    able = task.architectures
    for part in (EncoderPart(start.config), encoder_config(start.config)):
        if part.architecture in able:
            return part
    words = f"{task.kind}, {task.objective}" if task.objective else task.kind
    raise UserError(
        f"model.from: a model of {start.architecture} cannot learn this task ({words})", allowed=listed(able)
    )


class ReusedWeights(NamedTuple):
    """Tensors of a model by the new one's names, how many the model has in all, and the parts that are new."""

    tensors: Mapping[str, Tensor]
    total: int
    new: list[str]


def reused_weights(model: nn.Module, start: Model, part: EncoderPart, task: Task) -> ReusedWeights:
    """What a new model takes over; its classes too, where they are the same ones."""
    old = tensors_of(start.model)
    names = task.extra_config().get("id2label")
    same = part.architecture == start.architecture and names in (None, start.extra_config.get("id2label"))
    mine = {name.removeprefix(part.prefix): tensor for name, tensor in old.items() if name.startswith(part.prefix)}
    wanted = {name: tensor.shape for name, tensor in tensors_of(model).items()}
    fit = {
        name: tensor
        for name, tensor in mine.items()
        if wanted.get(name) == tensor.shape and (same or not name.startswith(OUT))
    }
    return ReusedWeights(fit, len(old), parts_of([name for name in wanted if name not in fit], fit))


def take_over(model: nn.Module, found: ReusedWeights) -> None:
    """Copies what is taken over; all else keeps its own."""
    own = tensors_of(model)
    with torch.no_grad():
        for name, tensor in found.tensors.items():
            own[name].copy_(tensor)


def parts_of(names: Collection[str], others: Collection[str]) -> list[str]:
    """The largest parts that hold nothing but these names."""
    found: dict[str, None] = {}
    for name in names:
        words = name.split(".")
        paths = (".".join(words[:end]) for end in range(1, len(words) + 1))
        found[next(path for path in paths if path == name or not any(o.startswith(f"{path}.") for o in others))] = None
    return list(found)


def describe_reuse(found: ReusedWeights, folder: str) -> str:
    new = f"; new: {listed(found.new, 4)}" if found.new else ""
    return f"{len(found.tensors)} of {found.total} tensors of {folder}{new}"
