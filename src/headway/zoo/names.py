"""Choices that a config names, since files hold words and not objects."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F

from headway.errors import UserError, listed, nearest
from headway.nn.ffn import Activation

ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


def activation(name: str) -> Activation:
    if name not in ACTIVATIONS:
        raise UserError(
            f"no activation {name!r}", allowed=listed(ACTIVATIONS), meant=nearest(name, ACTIVATIONS)
        )
    return ACTIVATIONS[name]
