"""Loss scaling of mixed precision in fp16 (Micikevicius et al. 2018), whose smallest gradients would be 0 else.

The loss is multiplied by a scale before the backward pass, and the gradients are divided by it behind.  Where one of
them has overflowed, the step is skipped and the scale halved; after many steps without that it is doubled.  Scales are
powers of two, so that in float32 nothing changes.  torch's GradScaler has these numbers too; it reads the gradients of
one device, and not those that processes have parts of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

FIRST_SCALE, MAX_SCALE = 2.0**16, 2.0**32
GROWTH_INTERVAL = 2000  # steps in a row without an overflow


@dataclass
class LossScale:
    """The scale, and the steps in a row that have gone well with it."""

    scale: float = FIRST_SCALE
    good: int = 0

    @torch.no_grad()
    def unscale(self, grads: Iterable[Tensor]) -> None:
        for grad in grads:
            grad.mul_(1.0 / self.scale)

    def update(self, *, finite: bool) -> bool:
        """Follows a step; whether a smaller scale may make the next one finite."""
        self.good = self.good + 1 if finite else 0
        if self.good == GROWTH_INTERVAL:
            self.scale, self.good = min(2.0 * self.scale, MAX_SCALE), 0
        lowered = not finite and self.scale > 1.0
        self.scale = self.scale / 2.0 if lowered else self.scale
        return lowered

    def tensors(self) -> dict[str, Tensor]:
        """Its state, as a checkpoint holds it."""
        return {
            "scale": torch.tensor(self.scale, dtype=torch.float64, device="cpu"),
            "good": torch.tensor(self.good, device="cpu"),
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `tensors` gave."""
        self.scale, self.good = float(tensors["scale"]), int(tensors["good"])
