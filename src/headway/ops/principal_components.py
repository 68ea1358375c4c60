"""Principal components: the directions in which vectors vary most.

Axes:  N vectors   C width   K components
"""

from __future__ import annotations

import torch
from torch import Tensor


def principal_directions(around: Tensor, count: int) -> Tensor:
    """The first `count` principal directions of centred vectors (N C), the largest variance first: C K.

    Each has length 1 and points to where its largest coordinate is positive, since a direction has no sign of its own.
    There are no more than vectors or coordinates.  The smaller of the two Gram matrices is decomposed.
    """
    rows, width = around.shape
    if width <= rows:
        found = torch.linalg.eigh(around.mT @ around).eigenvectors.flip(-1)[:, :count]
    else:
        values, vectors = torch.linalg.eigh(around @ around.mT)
        kept = (values > values[-1].clamp(min=0) * torch.finfo(values.dtype).eps * rows).flip(-1)[:count]
        found = around.mT @ vectors.flip(-1)[:, :count][:, kept]
        found = found / found.norm(dim=0)
    largest = found.gather(0, found.abs().argmax(0, keepdim=True))
    return found * torch.where(largest < 0, -1.0, 1.0)
