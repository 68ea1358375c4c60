"""How a defect is planted: a function of the library is replaced in memory while a law is tried."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch

from headway.nn.attention import Keys
from headway.ops.pattern import Positions

Plant = Callable[[Callable[..., Any]], Callable[..., Any]]  # from the right function to a wrong one


@dataclass(frozen=True)
class Mutant:
    law: str  # file::test
    defect: str
    where: str  # module:attribute
    plant: Plant

    @contextmanager
    def planted(self) -> Iterator[None]:
        module, _, path = self.where.partition(":")
        *owners, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for part in owners:
            owner = getattr(owner, part)
        with patch.object(owner, name, self.plant(getattr(owner, name))):
            yield


def change(**options: Any) -> Plant:
    """The same function, some of its keyword arguments overruled."""
    return lambda right: lambda *given, **named: right(*given, **{**named, **options})


def result(wrong: Callable[[Any], Any]) -> Plant:
    """The same function, its result spoiled."""
    return lambda right: lambda *given, **named: wrong(right(*given, **named))


def instead(wrong: Callable[..., Any]) -> Plant:
    return lambda right: wrong


def leaking_gradient(right: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, x: torch.Tensor, *given: Any) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        return right(self, x, *given) + (mean - mean.detach())

    return forward


def one_too_early(right: Callable[..., Any]) -> Callable[..., Any]:
    def times(self: Any, v: torch.Tensor, **named: Any) -> torch.Tensor:
        q_pos = Positions(self.q_pos.at + 1)
        return right(replace(self, q_pos=q_pos), v, **named)

    return times


def sideways(axis: int) -> Plant:
    """Lets every output feel the mean over an axis of all outputs."""
    return result(lambda y: y + 0.01 * y.mean(axis, keepdim=True) if isinstance(y, torch.Tensor) else y)


def shuffled_state(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, rows: right(self, torch.zeros_like(rows))


def unpadded_keys(right: Callable[..., Any]) -> Callable[..., Any]:
    def keys(self: Any, *given: Any) -> Keys:
        return right(self, *given)._replace(keep=None)

    return keys
