"""What may be done to a head to see what it is for: switch it off, make it look everywhere alike, leave it alone.

Each is a frozen value; called with a head's number it gives an edit of attention weights for `record(…, edit=…)`.

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
    """The head looks at nothing: it gives zeros."""

    def __call__(self, head: int) -> Edit:
        def edit(weights: Tensor) -> Tensor:
            return torch.where(chosen(weights, head), 0.0, weights)

        return edit


@dataclass(frozen=True)
class Uniform:
    """The head looks alike at all keys that it looked at at all: a key of weight zero stays hidden."""

    def __call__(self, head: int) -> Edit:
        def edit(weights: Tensor) -> Tensor:
            seen = (weights > 0).to(weights.dtype)
            return torch.where(chosen(weights, head), seen / seen.sum(-1, keepdim=True).clamp(min=1), weights)

        return edit


@dataclass(frozen=True)
class Only:
    """All other heads of the site look at nothing."""

    def __call__(self, head: int) -> Edit:
        def edit(weights: Tensor) -> Tensor:
            return torch.where(chosen(weights, head), weights, 0.0)

        return edit


How = Off | Uniform | Only


def chosen(weights: Tensor, head: int) -> Tensor:
    """True at the head, 1 H 1 1."""
    return (torch.arange(weights.shape[1], device=weights.device) == head)[None, :, None, None]
