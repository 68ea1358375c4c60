"""Devices: where a model is, and what it is called with on the same device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

T = TypeVar("T")
CPU = torch.device("cpu")


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's parameters."""
    first = next(model.parameters(), None)
    return CPU if first is None else first.device


def to_device(value: T, device: torch.device) -> T:
    """A value whose tensors, at any depth of tuples, lists, mappings and dataclasses, are on a device."""
    if isinstance(value, Tensor):
        return cast(T, value if value.device == device else value.to(device, non_blocking=True))
    if isinstance(value, Mapping):
        return cast(Any, type(value))({key: to_device(one, device) for key, one in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return cast(Any, type(value))(*(to_device(one, device) for one in value))
    if isinstance(value, tuple | list):
        return cast(Any, type(value))(to_device(one, device) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return moved_fields(value, device)
    return value


def moved_fields(value: Any, device: torch.device) -> Any:
    """A copy of a dataclass; what it has computed and remembered of its tensors is left behind."""
    copy = object.__new__(type(value))
    for field in fields(value):
        object.__setattr__(copy, field.name, to_device(getattr(value, field.name), device))
    return copy
