"""Muon: momentum made orthogonal, for the matrices inside a model (Jordan et al. 2024).

torch has the same optimiser with its products in bf16; on a processor without bf16 these take 20 times as long as in
float32, several times as long as the forward and backward pass together.  So the products here are in the matrix's own
precision.  A test holds both to each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

COEFFICIENTS = 3.4445, -4.775, 2.0315  # of an odd polynomial that takes singular values from (0, 1] near to 1
TURNS = 5
TINY = 1e-7


class OrthogonalMomentum(torch.optim.Optimizer):
    """w ← (1 − rate · decay) · w − rate · 0.2 √max(rows, columns) · orthogonal(momentum), which looks ahead (Nesterov).

    The factor 0.2 √max(rows, columns) gives updates the size that Adam's have, so that both share one rate.
    """

    def __init__(self, params: Iterable[Any], *, lr: float, momentum: float = 0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self.turn(matrix, matrix.grad, group)

    def turn(self, matrix: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        momentum = state["momentum_buffer"].lerp_(grad, 1.0 - group["momentum"])
        change = orthogonal(grad.lerp(momentum, group["momentum"]))
        matrix.mul_(1.0 - group["lr"] * group["weight_decay"])
        matrix.add_(change, alpha=-group["lr"] * 0.2 * max(matrix.shape) ** 0.5)


def orthogonal(matrix: Tensor) -> Tensor:
    """The nearest matrix whose singular values are all about 1, by a few turns of a polynomial in it."""
    first, third, fifth = COEFFICIENTS
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide / wide.norm().clamp(min=TINY)
    for _ in range(TURNS):
        square = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(square, square, square, beta=third, alpha=fifth), wide, beta=first)
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide
