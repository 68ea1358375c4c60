"""Optimisers and learning rate schedules: each choice is a value; `Optimiser` is one interface to all optimisers.

Optimiser state is a flat dict of tensors named `parameter/slot`, such as `stack.norm.weight/exp_avg`.  A parameter that
has not been updated yet has the slot `fresh`, so that missing state cannot go unnoticed.

A learning rate schedule is a factor of the peak learning rate for each step, a pure function of its number.  Steps
count from 1, the first update.  During warm-up the factor is `step / warmup`: it is above 0 in the first step and 1 in
step `warmup`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from headway.errors import UserError, listed
from headway.interop.weights import described
from headway.training.groups import Group
from headway.training.parallel import alike, part_like, whole

FRESH = "fresh"
NEWTON_SCHULZ = 3.4445, -4.775, 2.0315  # an odd polynomial that moves singular values from (0, 1] close to 1
NEWTON_SCHULZ_STEPS = 5
MIN_NORM = 1e-7


class OptimiserChoice(Protocol):
    """An optimiser and its hyperparameters; `lr` is the peak learning rate, which a schedule scales."""

    @property
    def lr(self) -> float: ...

    def make(self, groups: Sequence[Group]) -> list[torch.optim.Optimizer]: ...


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.01

    def make(self, groups: Sequence[Group]) -> list[torch.optim.Optimizer]:
        parameters = param_groups(groups, self.lr, self.weight_decay)
        return [torch.optim.AdamW(parameters, lr=self.lr, betas=self.betas, eps=self.eps, fused=fusible(groups))]


@dataclass(frozen=True)
class Adam:
    """Adam as in Vaswani et al. 2017, whose schedule `Noam` is itself the learning rate: hence lr = 1."""

    lr: float = 1.0
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9

    def make(self, groups: Sequence[Group]) -> list[torch.optim.Optimizer]:
        parameters = param_groups(groups, self.lr, 0.0)
        return [torch.optim.Adam(parameters, lr=self.lr, betas=self.betas, eps=self.eps, fused=fusible(groups))]


@dataclass(frozen=True)
class Adafactor:
    """Second moments of a matrix from its row and column sums (Shazeer and Stern 2018): hardly any memory."""

    lr: float = 1e-2
    weight_decay: float = 0.0

    def make(self, groups: Sequence[Group]) -> list[torch.optim.Optimizer]:
        return [torch.optim.Adafactor(param_groups(groups, self.lr, self.weight_decay), lr=self.lr)]


@dataclass(frozen=True)
class Muon:
    """Orthogonalised momentum for the matrices inside layers, AdamW for all other parameters, at one learning rate."""

    lr: float = 1e-3
    momentum: float = 0.95
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.01

    def make(self, groups: Sequence[Group]) -> list[torch.optim.Optimizer]:
        hidden, rest = [g for g in groups if g.hidden], [g for g in groups if not g.hidden]
        if not hidden:
            raise UserError("Muon is for matrices inside layers, and none of this model's are trained", do="use AdamW")
        matrices = param_groups(hidden, self.lr, self.weight_decay)
        made: list[torch.optim.Optimizer] = [OrthogonalMomentum(matrices, lr=self.lr, momentum=self.momentum)]
        return made + (AdamW(self.lr, self.betas, self.eps, self.weight_decay).make(rest) if rest else [])


class OrthogonalMomentum(torch.optim.Optimizer):
    """w ← (1 − lr · decay) · w − lr · 0.2 √max(rows, columns) · orthogonal(momentum), with Nesterov momentum.

    Muon (Jordan et al. 2024).  The factor 0.2 √max(rows, columns) gives updates the size of Adam's, so that both share
    one learning rate.
    """

    # torch.optim.Muon multiplies in bf16: 1.62 s instead of 0.08 s for one 1536×384 matrix on a CPU without bf16, more
    # than the forward and backward pass together.  So the products here are in the matrix's own precision.  A test
    # compares both.

    def __init__(self, params: Iterable[Any], *, lr: float, momentum: float = 0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self.update(matrix, matrix.grad, group)

    def update(self, matrix: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        momentum = state["momentum_buffer"].lerp_(grad, 1.0 - group["momentum"])
        change = orthogonal(grad.lerp(momentum, group["momentum"]))
        matrix.mul_(1.0 - group["lr"] * group["weight_decay"])
        matrix.add_(change, alpha=-group["lr"] * 0.2 * max(matrix.shape) ** 0.5)


def orthogonal(matrix: Tensor) -> Tensor:
    """The nearest matrix whose singular values are all about 1, by Newton–Schulz iteration."""
    first, third, fifth = NEWTON_SCHULZ
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide / wide.norm().clamp(min=MIN_NORM)
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(square, square, square, beta=third, alpha=fifth), wide, beta=first)
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide


class Optimiser:
    """One or more torch optimisers over the parameter groups of a model."""

    def __init__(self, choice: OptimiserChoice, groups: Sequence[Group]):
        if choice.lr < 0.0:
            raise UserError(f"a learning rate of {choice.lr:g}", allowed="0 or more")
        self.lr = choice.lr
        self.named = {name: parameter for group in groups for name, parameter in group.parameters.items()}
        self.parts = choice.make(groups)
        self.owners = {p: part for part in self.parts for group in part.param_groups for p in group["params"]}

    @property
    def parameters(self) -> list[nn.Parameter]:
        return list(self.named.values())

    def set_lr(self, factor: float) -> float:
        """Sets the learning rate of the next step: the peak times the schedule's factor, and each group's share."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.lr * factor * group["share"]
        return self.lr * factor

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        """The optimiser state by `parameter/slot`: not copies, so the next step changes them."""
        found: dict[str, Tensor] = {}
        for name, parameter in self.named.items():
            slots = self.owners[parameter].state.get(parameter) or {FRESH: torch.zeros((), dtype=torch.uint8)}
            found |= {f"{name}/{slot}": value for slot, value in slots.items()}
        return found

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `state_tensors` gave, one parameter after the other; nothing is changed if it does not fit."""
        given: dict[str, dict[str, torch.Size]] = {name: {} for name in self.named}
        for key, (shape, _) in described(tensors).items():
            name, _, slot = key.rpartition("/")
            given.setdefault(name, {})[slot] = torch.Size(shape)
        wrong = [name or "a nameless tensor" for name, slots in given.items() if not self.fits(name, slots)]
        if wrong:
            do = "resume with the model and the optimiser that it was saved with"
            raise UserError(f"the optimiser's state does not fit at {listed(wrong, 4)}", do=do)
        for name, parameter in self.named.items():
            slots = {slot: tensors[f"{name}/{slot}"] for slot in given[name]}
            whole = {slot: t.detach().clone().to(parameter.device) for slot, t in slots.items() if slot != FRESH}
            kept = {slot: part_like(tensor, parameter) for slot, tensor in whole.items()}
            self.owners[parameter].state[parameter] = kept

    def fits(self, name: str, slots: Mapping[str, torch.Size]) -> bool:
        if name not in self.named:
            return False
        parameter = self.named[name]
        expected = slots_of(self.owners[parameter], parameter)
        return set(slots) == {FRESH} or slots == expected


@torch.no_grad()
def clip_grad_norm(parameters: Sequence[nn.Parameter], max_norm: float) -> float:
    """Scales the gradients so that their total norm is at most `max_norm`; the norm before.  0 means no clipping.

    The norm is infinite or NaN only if a gradient is; such gradients are not scaled.
    """
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = total_norm(grads)
    if not math.isfinite(norm):  # squares overflow float32 before the numbers do
        norm = total_norm([grad.double() for grad in grads])
    if 0.0 < max_norm < norm < math.inf:
        for grad in grads:
            grad.mul_(max_norm / norm)
    return norm


def total_norm(grads: Sequence[Tensor]) -> float:
    """The norm of all numbers together."""
    norms = [whole(nn.utils.get_total_norm(some)) for some in alike(grads)]
    return (norms[0] if len(norms) == 1 else nn.utils.get_total_norm(norms)).item()


def param_groups(groups: Sequence[Group], lr: float, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups as torch optimisers take them; `share` is for `Optimiser.set_lr`."""
    return [
        {
            "params": parameters,
            "lr": lr * group.share,
            "share": group.share,
            "weight_decay": weight_decay if group.decays else 0.0,
        }
        for group in groups
        for parameters in alike(group.parameters.values())
    ]


def slots_of(part: torch.optim.Optimizer, parameter: Tensor) -> dict[str, torch.Size]:
    """The state slots of a parameter, and their shapes."""
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
    """Whether torch has a fused update for these parameters."""
    parameters = [parameter for group in groups for parameter in group.parameters.values()]
    return all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)


# ---- learning rate schedules


class Schedule(Protocol):
    """The factor of the learning rate at each step."""

    def factor(self, step: int) -> float: ...


@dataclass(frozen=True)
class Constant:
    """1 after warm-up."""

    warmup: int = 0

    def __post_init__(self) -> None:
        check(self.warmup)

    def factor(self, step: int) -> float:
        return risen(step, self.warmup)


@dataclass(frozen=True)
class CosineDecay:
    """Half a cosine from 1 at the end of warm-up to `floor` at step `total` and after it."""

    warmup: int
    total: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        check(self.warmup, self.total, self.floor)

    def factor(self, step: int) -> float:
        gone = share(step, self.warmup, self.total)
        return risen(step, self.warmup) * (self.floor + (1.0 - self.floor) * (1.0 + math.cos(math.pi * gone)) / 2)


@dataclass(frozen=True)
class InverseSqrt:
    """√(warmup / step) after warm-up, without an end."""

    warmup: int

    def __post_init__(self) -> None:
        check(self.warmup)

    def factor(self, step: int) -> float:
        peak = max(self.warmup, 1)
        return risen(step, peak) * math.sqrt(peak / max(step, peak))


@dataclass(frozen=True)
class Noam:
    """scale · dim^−½ · min(step^−½, step · warmup^−1.5), Vaswani et al. 2017.

    It is itself the learning rate: that of the optimiser is 1.
    """

    dim: int
    warmup: int = 4000
    scale: float = 1.0

    def __post_init__(self) -> None:
        check(self.warmup)
        if self.dim < 1:
            raise UserError(f"a model of dim={self.dim}", allowed="1 or more")

    def factor(self, step: int) -> float:
        peak = max(self.warmup, 1)
        return self.scale * self.dim**-0.5 * min(step**-0.5, step * peak**-1.5)


@dataclass(frozen=True)
class WSD:
    """Warm-up, stable, decay: 1 until the last fraction `decay` of all steps, then linearly down to `floor`."""

    warmup: int
    total: int
    decay: float = 0.2
    floor: float = 0.0

    def __post_init__(self) -> None:
        check(self.warmup, self.total, self.floor)
        if not 0.0 <= self.decay <= 1.0:
            raise UserError(f"a decay over {self.decay:g} of all steps", allowed="a share from 0 to 1")

    def factor(self, step: int) -> float:
        start = max(self.warmup, self.total - round(self.decay * self.total))
        return risen(step, self.warmup) * (1.0 - (1.0 - self.floor) * share(step, start, self.total))


def risen(step: int, warmup: int) -> float:
    return min(1.0, step / max(warmup, 1))


def share(step: int, start: int, end: int) -> float:
    """The fraction of the way from `start` to `end`: 0 before, 1 after."""
    return min(1.0, max(0.0, (step - start) / max(end - start, 1)))


def check(warmup: int, total: int | None = None, floor: float = 0.0) -> None:
    if warmup < 0:
        raise UserError(f"a warm-up of {warmup} steps", allowed="0 or more")
    if total is not None and (total < 1 or warmup > total):
        raise UserError(f"a warm-up of {warmup} in {total} steps", allowed="a warm-up no longer than all steps")
    if not 0.0 <= floor <= 1.0:
        raise UserError(f"a floor of {floor:g}", allowed="a share of the highest rate, from 0 to 1")
