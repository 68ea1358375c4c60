"""Devices: where a model is, and what it is called with on the same device.

Data is read and collated on the CPU.  A batch moves where a model is about to read it: in a step of the learner, in
the loss of validation, and where a task makes the input of a prediction or a trace.  What is made inside a call is made
on the device of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    parts = parts_of(value)
    found = {name: moved(part, device) for name, part in parts.items()}
    if all(part is found[name] for name, part in parts.items()):
        return value
    if isinstance(value, Mapping):
        return found
    if isinstance(value, tuple | list):
        make: Callable[[Any], Any] = getattr(cast(Any, value), "_make", type(cast(Any, value)))  # of a named tuple
        return make(found.values())
    return with_fields(value, found)


def parts_of(value: Any) -> Mapping[Any, Any]:
    """What a value is made of, by key, index or field; nothing, where it is no container."""
    if isinstance(value, Mapping):
        return cast(Mapping[Any, Any], value)
    if isinstance(value, tuple | list):
        return dict(enumerate(cast(Sequence[Any], value)))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return {}


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
