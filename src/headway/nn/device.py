"""Devices: where a model is, and what it is called with on the same device.

Data is read and collated on the CPU.  A batch moves where a model is about to read it: in a step of the learner, in
the loss of validation, and where a task makes the input of a prediction or a trace.  What is made inside a call is made
on the device of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

T = TypeVar("T")
CPU = torch.device("cpu")


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's weights."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return CPU if first is None else first.device


def to_device(value: T, device: torch.device) -> T:
    """A value whose tensors, at any depth of tuples, lists, mappings and dataclasses, are on a device.

    What is there already is returned as it is, without a copy.
    """
    return cast(T, moved(value, device))


def moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value if value.device == device else copied(value, device)
    if isinstance(value, Mapping):
        values = cast(Mapping[Any, Any], value)
        return rebuilt(value, values.values(), device, lambda parts: dict(zip(values, parts, strict=True)))
    if isinstance(value, tuple | list):
        make = getattr(value, "_make", type(value))  # of a named tuple
        return rebuilt(value, cast(Any, value), device, make)
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
        parts = [getattr(value, name) for name in names]
        return rebuilt(value, parts, device, lambda parts: with_fields(value, dict(zip(names, parts, strict=True))))
    return value


def rebuilt(value: Any, parts: Any, device: torch.device, make: Any) -> Any:
    """The value made of its parts on a device; itself, where all of them are there."""
    found = [(part, moved(part, device)) for part in parts]
    return value if all(before is after for before, after in found) else make([after for _, after in found])


def with_fields(value: Any, parts: dict[str, Any]) -> Any:
    """A dataclass with other fields; what it has computed of the old ones and remembers is left behind."""
    made = object.__new__(type(value))
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    return made


def copied(value: Tensor, device: torch.device) -> Tensor:
    """From pinned memory to a CUDA device, so that the copy runs beside the computation."""
    if device.type == "cuda" and value.device.type == "cpu":
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)
