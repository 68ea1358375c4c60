"""Averages of weights: the exponential moving average over steps (EMA), and the mean of several checkpoints."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from headway.errors import UserError, listed
from headway.nn.trunk import tensors_of

UPDATES = "/updates"  # no parameter's name begins so


class EMA:
    """Exponential moving average: kept ← d · kept + (1 − d) · weights after each update; tied parameters count once.

    Running statistics of batch norms are averaged too; of integers the last value is kept.  After t updates d is
    min(`decay`, (1 + t) / (10 + t)), so that the first weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float):
        if not 0.0 <= decay < 1.0:
            raise UserError(f"an average with decay={decay:g}", allowed="from 0 up to, but not, 1")
        self.decay, self.updates = decay, 0
        self.kept = {name: wide(tensor.detach()).clone() for name, tensor in tensors_of(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, tensor in tensors_of(model).items():
            if tensor.is_floating_point():
                self.kept[name].lerp_(wide(tensor), 1.0 - decay)
            else:
                self.kept[name].copy_(tensor)

    @contextmanager
    def applied(self, model: nn.Module) -> Generator[None]:
        """A context in which the model has the average as its weights; afterwards, bit for bit, its own."""
        own = {name: tensor.detach().clone() for name, tensor in tensors_of(model).items()}
        try:
            fill(model, self.kept)
            yield
        finally:
            fill(model, own)

    def tensors(self) -> dict[str, Tensor]:
        """The average by parameter name, and the number of updates."""
        return {**self.kept, UPDATES: torch.tensor(self.updates)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `tensors` gave."""
        expected = {**{name: kept.shape for name, kept in self.kept.items()}, UPDATES: torch.Size()}
        check(expected, tensors, "the average")
        for name, kept in self.kept.items():
            kept.copy_(tensors[name])
        self.updates = int(tensors[UPDATES])


def mean_tensors(several: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of the tensors of checkpoints, by name: summed in float64, in the dtype of the first."""
    if not several:
        raise UserError("the mean of no checkpoints", allowed="one or more")
    first = several[0]
    for other in several[1:]:
        check({name: tensor.shape for name, tensor in first.items()}, other, "a checkpoint to be averaged")
    return {name: mean_of([one[name] for one in several]) for name in first}


def mean_of(tensors: Sequence[Tensor]) -> Tensor:
    total = tensors[0].double().clone()
    for tensor in tensors[1:]:
        total += tensor
    return (total / len(tensors)).to(tensors[0].dtype)


@torch.no_grad()
def fill(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copies `tensors` into the parameters and buffers of a model."""
    for name, tensor in tensors_of(model).items():
        tensor.copy_(tensors[name])


def wide(tensor: Tensor) -> Tensor:
    """In float32 or wider: in bf16 the small steps of an average would be lost.  Integers stay as they are."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32)) if tensor.is_floating_point() else tensor


def check(expected: Mapping[str, torch.Size], tensors: Mapping[str, Tensor], whose: str) -> None:
    names = {**expected, **tensors}
    wrong = [n for n in names if n not in tensors or n not in expected or tensors[n].shape != expected[n]]
    if wrong:
        raise UserError(f"{whose} does not fit the model at {listed(wrong, 4)}", do="use the model that it was made of")
