"""Edits of one attention head, for ablation: switch it off, make it uniform, or switch all others off.

Each is a frozen value; called with a head's number it returns an edit of attention weights for `record(…, edit=…)`.

Axes:  B batch   H heads   T queries   S keys
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Edit = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Off:
    """The head attends to nothing: its output is zero."""

    def __call__(self, head: int) -> Edit:
        def edit(weights: Tensor) -> Tensor:
            return torch.where(chosen(weights, head), 0.0, weights)

        return edit


@dataclass(frozen=True)
class Uniform:
    """The head attends uniformly to all keys with a weight above zero; masked keys stay masked."""

    def __call__(self, head: int) -> Edit:
        def edit(weights: Tensor) -> Tensor:
            seen = (weights > 0).to(weights.dtype)
            return torch.where(chosen(weights, head), seen / seen.sum(-1, keepdim=True).clamp(min=1), weights)

        return edit


@dataclass(frozen=True)
class Only:
    """All other heads of the site attend to nothing."""

    def __call__(self, head: int) -> Edit:
        def edit(weights: Tensor) -> Tensor:
            return torch.where(chosen(weights, head), weights, 0.0)

        return edit


EditKind = Off | Uniform | Only
HEAD_EDITS: dict[str, EditKind] = {"off": Off(), "uniform": Uniform(), "only": Only()}


def chosen(weights: Tensor, head: int) -> Tensor:
    """True at the head, 1 H 1 1."""
    return (torch.arange(weights.shape[1], device=weights.device) == head)[None, :, None, None]
