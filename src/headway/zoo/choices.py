"""Choices that a config names, since files hold words and not objects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TypeVar

import torch.nn.functional as F

from headway.errors import UserError, listed, nearest
from headway.nn.ffn import Activation, quick_gelu
from headway.nn.recurrent import Cell, GRUCell, LSTMCell, RNNCell

T = TypeVar("T")

ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "quick_gelu": quick_gelu,
    "relu": F.relu,
    "silu": F.silu,
}
CELLS: dict[str, type[Cell]] = {"gru": GRUCell, "lstm": LSTMCell, "rnn": RNNCell}


def activation(name: str) -> Activation:
    return named("activation", name, ACTIVATIONS)


def cell(name: str) -> type[Cell]:
    return named("recurrent cell", name, CELLS)


def named(kind: str, name: str, table: Mapping[str, T]) -> T:
    """What `name` means in a table of choices."""
    if name not in table:
        raise UserError(f"no {kind} {name!r}", allowed=listed(table, most=20), meant=nearest(name, table))
    return table[name]
