"""Optimisers: choices as values, one face for what they make, and its state as tensors named after parameters.

A state tensor is called `parameter/slot`, such as `stack.norm.weight/exp_avg`, whatever order they have.  A parameter
that has not been updated yet has the slot `fresh`, so that nothing can be missing unnoticed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from headway.errors import UserError, listed
from headway.train.groups import Group
from headway.train.muon import OrthogonalMomentum

FRESH = "fresh"


class Choice(Protocol):
    """An optimiser and its numbers; `rate` is the highest, which a schedule lowers."""

    @property
    def rate(self) -> float: ...

    def make(self, groups: Sequence[Group]) -> list[torch.optim.Optimizer]: ...


@dataclass(frozen=True)
class AdamW:
    """Adam whose weights shrink by rate · decay in each step (Loshchilov and Hutter 2017)."""

    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    decay: float = 0.01

    def make(self, groups: Sequence[Group]) -> list[torch.optim.Optimizer]:
        settings = settings_of(groups, self.rate, self.decay)
        return [torch.optim.AdamW(settings, lr=self.rate, betas=self.betas, eps=self.eps, fused=fusible(groups))]


@dataclass(frozen=True)
class Adam:
    """Adam with the numbers of Vaswani et al. 2017, whose schedule, `Paper`, is itself the rate: hence the 1."""

    rate: float = 1.0
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9

    def make(self, groups: Sequence[Group]) -> list[torch.optim.Optimizer]:
        settings = settings_of(groups, self.rate, 0.0)
        return [torch.optim.Adam(settings, lr=self.rate, betas=self.betas, eps=self.eps, fused=fusible(groups))]


@dataclass(frozen=True)
class Adafactor:
    """Second moments of a matrix from its rows and columns alone (Shazeer and Stern 2018): hardly any memory."""

    rate: float = 1e-2
    decay: float = 0.0

    def make(self, groups: Sequence[Group]) -> list[torch.optim.Optimizer]:
        return [torch.optim.Adafactor(settings_of(groups, self.rate, self.decay), lr=self.rate)]


@dataclass(frozen=True)
class Muon:
    """Orthogonal momentum for the matrices inside layers, AdamW for all the rest, at one rate."""

    rate: float = 1e-3
    momentum: float = 0.95
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    decay: float = 0.01

    def make(self, groups: Sequence[Group]) -> list[torch.optim.Optimizer]:
        hidden, rest = [g for g in groups if g.hidden], [g for g in groups if not g.hidden]
        if not hidden:
            raise UserError("Muon is for matrices inside layers, and none of this model's are trained", do="use AdamW")
        matrices = settings_of(hidden, self.rate, self.decay)
        made: list[torch.optim.Optimizer] = [OrthogonalMomentum(matrices, lr=self.rate, momentum=self.momentum)]
        return made + (AdamW(self.rate, self.betas, self.eps, self.decay).make(rest) if rest else [])


class Optimiser:
    """What a choice makes of a model's groups of parameters: one or more of torch's optimisers behind one face."""

    def __init__(self, choice: Choice, groups: Sequence[Group]):
        if choice.rate < 0.0:
            raise UserError(f"a learning rate of {choice.rate:g}", allowed="0 or more")
        self.rate = choice.rate
        self.named = {name: parameter for group in groups for name, parameter in group.parameters.items()}
        self.parts = choice.make(groups)
        self.owners = {p: part for part in self.parts for group in part.param_groups for p in group["params"]}

    @property
    def parameters(self) -> list[nn.Parameter]:
        return list(self.named.values())

    def set_rate(self, factor: float) -> float:
        """The rate of the next step: each group's share of the highest rate, times a schedule's factor."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.rate * factor * group["share"]
        return self.rate * factor

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        """All that the optimiser remembers, by `parameter/slot`: not copies, so the next step changes them."""
        found: dict[str, Tensor] = {}
        for name, parameter in self.named.items():
            slots = self.owners[parameter].state.get(parameter) or {FRESH: torch.zeros((), dtype=torch.uint8)}
            found |= {f"{name}/{slot}": value for slot, value in slots.items()}
        return found

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes up what `state_tensors` gave, to go on as if nothing had happened; nothing changes where it misfits."""
        given: dict[str, dict[str, Tensor]] = {name: {} for name in self.named}
        for key, tensor in tensors.items():
            name, _, slot = key.rpartition("/")
            given.setdefault(name, {})[slot] = tensor
        wrong = [name or "a nameless tensor" for name, slots in given.items() if not self.fits(name, slots)]
        if wrong:
            do = "resume with the model and the optimiser that it was saved with"
            raise UserError(f"the optimiser's state does not fit at {listed(wrong, 4)}", do=do)
        for name, parameter in self.named.items():
            kept = {slot: t.detach().clone().to(parameter.device) for slot, t in given[name].items() if slot != FRESH}
            self.owners[parameter].state[parameter] = kept

    def fits(self, name: str, slots: Mapping[str, Tensor]) -> bool:
        if name not in self.named:
            return False
        parameter = self.named[name]
        expected = slots_of(self.owners[parameter], parameter)
        return set(slots) == {FRESH} or {slot: tensor.shape for slot, tensor in slots.items()} == expected


def clip(parameters: Sequence[nn.Parameter], most: float) -> float:
    """Shortens the gradients, taken as one vector, to the length `most`; how long they were.  0 sets no limit.

    Gradients that are not finite stay as they are, and their norm says so.
    """
    norm = finite_norm(parameters)
    if 0.0 < most < norm < math.inf:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(most / norm)
    return norm


@torch.no_grad()
def finite_norm(parameters: Iterable[nn.Parameter]) -> float:
    """The length of all gradients as one vector: infinite or not a number exactly where one of them is."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads).item()
    # squares of large numbers leave float32 before the numbers do
    return norm if math.isfinite(norm) else torch.nn.utils.get_total_norm([grad.double() for grad in grads]).item()


def settings_of(groups: Sequence[Group], rate: float, decay: float) -> list[dict[str, Any]]:
    """Groups as torch's optimisers take them; `share` is for `Optimiser.set_rate`."""
    return [
        {
            "params": list(group.parameters.values()),
            "lr": rate * group.share,
            "share": group.share,
            "weight_decay": decay if group.decays else 0.0,
        }
        for group in groups
    ]


def slots_of(part: torch.optim.Optimizer, parameter: Tensor) -> dict[str, torch.Size]:
    """What an optimiser remembers of a parameter, and in which shape."""
    shape, one = parameter.shape, torch.Size()
    match part:
        case OrthogonalMomentum():
            return {"momentum_buffer": shape}
        case torch.optim.Adafactor() if parameter.dim() > 1:
            rows, columns = torch.Size([*shape[:-1], 1]), torch.Size([*shape[:-2], 1, shape[-1]])
            return {"step": one, "row_var": rows, "col_var": columns}
        case torch.optim.Adafactor():
            return {"step": one, "variance": shape}
        case _:
            return {"step": one, "exp_avg": shape, "exp_avg_sq": shape}


def fusible(groups: Sequence[Group]) -> bool:
    """Whether torch can update these parameters in one pass over them."""
    parameters = [parameter for group in groups for parameter in group.parameters.values()]
    return all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)
