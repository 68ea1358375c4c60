"""What a run takes over from the model that it goes on from (`--from`): all of it, or its encoder under a new head.

A model that was trained without classes holds an encoder that can have some: the table says which config that encoder
has, and below which name it stands.  Tensors are taken over by name and shape; what remains new is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headway.checkpoint import Loaded
from headway.errors import UserError, listed
from headway.nn.model import tensors_of
from headway.tasks.task import Task
from headway.zoo import clip_image, mae
from headway.zoo.build import architecture_of, config_of

OUT = "head.out."  # what says the classes


class Encoder(NamedTuple):
    """A model, or the part of one whose names begin with `prefix`, that has a config of its own."""

    config: Any
    prefix: str = ""

    @property
    def architecture(self) -> str:
        return architecture_of(self.config)


ENCODERS: dict[str, Callable[[Any], Encoder]] = {
    "mae": lambda c: Encoder(mae.encoder_config(c), "encoder."),
    "simmim": lambda c: Encoder(as_base(c.encoder), "encoder."),
    "simclr": lambda c: Encoder(config_of(c.encoder, image=c.image, channels=c.channels)),
    "clip": lambda c: Encoder(clip_image.tower_config(c), "image."),
    "image_text": lambda c: Encoder(config_of(c.encoder, image=c.image, channels=3), "image."),
}


def reused(start: Loaded, able: Sequence[str], task: str) -> Encoder:
    """What of a model can learn a task, as architectures that are `able` to do: the whole, or its encoder."""
    for part in (Encoder(start.config), encoder_of(start)):
        if part.architecture in able:
            return part
    raise UserError(f"--from: a model of {start.architecture} cannot learn this task ({task})", allowed=listed(able))


def encoder_of(start: Loaded) -> Encoder:
    """The encoder that a model was trained to make; the model itself, where it is one."""
    known = ENCODERS.get(start.architecture)
    return Encoder(start.config) if known is None else known(start.config)


def as_base(config: Any) -> Any:
    """The config of an encoder that stands in another's, as its own architecture has it."""
    return type(config).__bases__[0](**{field.name: getattr(config, field.name) for field in fields(config)})


class Taken(NamedTuple):
    """Tensors of a model by the new one's names, how many the model has in all, and the parts that are new."""

    tensors: Mapping[str, Tensor]
    total: int
    new: list[str]


def taken(model: nn.Module, start: Loaded, part: Encoder, task: Task) -> Taken:
    """What a new model takes over; its classes too, where they are the same ones."""
    old = tensors_of(start.model)
    names = task.kept().get("id2label")
    same = part.architecture == start.architecture and names in (None, start.kept.get("id2label"))
    mine = {name.removeprefix(part.prefix): tensor for name, tensor in old.items() if name.startswith(part.prefix)}
    wanted = {name: tensor.shape for name, tensor in tensors_of(model).items()}
    fit = {
        name: tensor
        for name, tensor in mine.items()
        if wanted.get(name) == tensor.shape and (same or not name.startswith(OUT))
    }
    return Taken(fit, len(old), parts_of([name for name in wanted if name not in fit], fit))


def take_over(model: nn.Module, found: Taken) -> None:
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


def told(found: Taken, folder: str) -> str:
    new = f"; new: {listed(found.new, 4)}" if found.new else ""
    return f"{len(found.tensors)} of {found.total} tensors of {folder}{new}"
