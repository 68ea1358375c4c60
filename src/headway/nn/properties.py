"""Properties that a part declares about its class, and tables that declare them for torch's own modules.

`tokenwise`: its output at a token depends on its input at that token alone.  Declared by every part that stands in a
`Residual`, as its body or in a slot, and by the norm of a `Stack`.

`weight_decay`: its matrices shrink under weight decay.  Declared by every part that holds parameters of two or more
dimensions.  Decay pulls towards zero, which means nothing for a value that is only added or multiplied: biases, norms.

A part's nearest class that says anything decides.  A module that says nothing, such as one of a user's own, is taken to
mix tokens and to decay; a test asserts that no part of an architecture says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

NORMALISATIONS = (nn.GroupNorm, nn.modules.batchnorm._NormBase)  # pyright: ignore[reportPrivateUsage]
TOKENWISE: dict[type[nn.Module], bool] = {
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.LayerNorm, nn.RMSNorm, nn.Linear, nn.ReLU), True),
    **dict.fromkeys((*NORMALISATIONS, nn.MaxPool2d, nn.Sequential), False),
}
WEIGHT_DECAY: dict[type[nn.Module], bool] = {
    **dict.fromkeys((nn.LayerNorm, nn.RMSNorm, *NORMALISATIONS), False),
    **dict.fromkeys((nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.RNNBase), True),
}


def tokenwise(part: nn.Module) -> bool | None:
    return declared(type(part), "tokenwise", TOKENWISE)


def weight_decay(part: nn.Module) -> bool | None:
    return declared(type(part), "weight_decay", WEIGHT_DECAY)


def declared(kind: type, name: str, table: Mapping[type[nn.Module], bool]) -> bool | None:
    """What the nearest class says in its own body or in the table; None: none of them says anything."""
    for base in kind.__mro__:
        if name in vars(base):
            return vars(base)[name]
        if base in table:
            return table[base]
    return None
