"""Dropout: random values set to zero, and the others scaled up.

`F.dropout` is the definition.  On a CPU it draws a double for each value, which costs a translator a twentieth of its
training; here four values share 64 bits of the same generator, so that the share left out is a multiple of 1/65,536,
and the others are enlarged by exactly that share.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

STEPS = 2**16  # values of the 16 bits that decide


def drop(x: Tensor, share: float) -> Tensor:
    """`x` with about `share` of its values replaced by 0, in expectation unchanged."""
    if x.device.type != "cpu" or not 0.0 < share < 1.0:
        return F.dropout(x, share)
    out = min(max(round(share * STEPS), 1), STEPS - 1)
    chance = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = chance[: x.numel()].view(x.shape) >= out - STEPS // 2
    return x * (kept * torch.tensor(STEPS / (STEPS - out), dtype=x.dtype))
