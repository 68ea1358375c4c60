"""Feed-forward layers (MLPs), plain and gated, applied to each token.

Axes:  … any   C width   F hidden width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.block import Dropout, Identity
from headway.nn.context import EMPTY, Context
from headway.nn.fused_linear import apply, has_hooks

Activation = Callable[[Tensor], Tensor]


class FFN(nn.Module):
    """down(act(up(x))), 4 · dim wide inside unless told; a third layer is down(act(middle(act(up(x)))))."""

    tokenwise = True

    def __init__(
        self,
        dim: int,
        hidden: int | None = None,
        *,
        act: Activation = F.gelu,
        layers: int = 2,
        bias: bool = True,
        dropout: float = 0.0,
        out_dim: int | None = None,
    ):
        super().__init__()
        if layers not in (2, 3):
            raise UserError(f"FFN(layers={layers})", allowed="2 or 3 layers", do="stack several FFNs to go deeper")
        hidden = ffn_width(dim, hidden)
        self.act = act
        self.up = nn.Linear(dim, hidden, bias)
        self.middle = Hidden(hidden, act, bias) if layers == 3 else Identity()
        self.down = nn.Linear(hidden, out_dim or dim, bias)
        self.drop = Dropout(dropout)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return apply(self.down, self.middle(self.drop(self.first(x))))

    def first(self, x: Tensor) -> Tensor:
        return activated(self.up, self.act, x)


class GatedFFN(FFN):
    """down(act(gate(x)) · up(x)): SwiGLU with act=silu, GEGLU with gelu, the plain GLU with sigmoid.

    With hidden = 8/3 · dim it has as many weights as a plain FFN with 4 · dim.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        act: Activation = F.silu,
        layers: int = 2,
        bias: bool = True,
        dropout: float = 0.0,
        out_dim: int | None = None,
    ):
        super().__init__(dim, hidden, act=act, layers=layers, bias=bias, dropout=dropout, out_dim=out_dim)
        self.gate = nn.Linear(dim, hidden, bias)

    def first(self, x: Tensor) -> Tensor:
        return activated(self.gate, self.act, x) * apply(self.up, x)


class ClampedGatedFFN(GatedFFN):
    """down((up(x) held within ±limit, + 1) · g σ(1.702 g)), g = gate(x) held below `limit`: GPT-OSS's expert."""

    def __init__(self, dim: int, hidden: int, *, limit: float):
        super().__init__(dim, hidden, act=quick_gelu)
        self.limit = limit

    def first(self, x: Tensor) -> Tensor:
        gate, up = apply(self.gate, x), apply(self.up, x)
        return self.act(gate.clamp(max=self.limit)) * (up.clamp(-self.limit, self.limit) + 1)


class ResponseNorm(nn.Module):
    """x + weight · x · ‖x‖ / mean‖x‖ + bias, ‖x‖ being a channel's norm over the grid, B Y X F → B Y X F.

    Woo et al. 2023: channels compete, so that none is a copy of another.  It adds nothing at first.
    """

    tokenwise = False

    def __init__(self, dim: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True)  # B 1 1 F
        relative = length / (length.mean(-1, keepdim=True) + 1e-6)
        return x + self.weight * (x * relative) + self.bias


class ResponseNormFFN(FFN):
    """down(norm(act(up(x)))) of a grid, with a `ResponseNorm` inside (ConvNeXt V2)."""

    tokenwise = False

    def __init__(self, dim: int, hidden: int | None = None, *, act: Activation = F.gelu):
        super().__init__(dim, hidden, act=act)
        self.middle = ResponseNorm(ffn_width(dim, hidden))


def ffn_width(dim: int, hidden: int | None) -> int:
    """The hidden width of a plain layer: 4 · dim unless given."""
    return 4 * dim if hidden is None else hidden


def quick_gelu(x: Tensor) -> Tensor:
    """x σ(1.702 x), near to GELU: CLIP's."""
    return x * (1.702 * x).sigmoid()


# by their numbers in the native library
STYLES: dict[Activation, int] = {F.relu: 0, F.gelu: 1, quick_gelu: 3, F.silu: 4, torch.sigmoid: 5, F.sigmoid: 5}
GELU_TANH = 2


def activation_style(act: Activation) -> int | None:
    """The number of an activation in the native library; None: it has no such."""
    if isinstance(act, partial) and act.func is F.gelu and act.keywords == {"approximate": "tanh"} and not act.args:
        return GELU_TANH
    return STYLES.get(act)


def activated(layer: nn.Module, act: Activation, x: Tensor) -> Tensor:
    """act(layer(x)), in one call where a layer can do both (`Int8Weights`)."""
    both = getattr(layer, "activated", None)
    return act(apply(layer, x)) if both is None or has_hooks(layer) else both(x, act)


class Hidden(nn.Linear):
    """act(W x + b), as wide as its input."""

    def __init__(self, dim: int, act: Activation, bias: bool):
        super().__init__(dim, dim, bias)
        self.act = act

    def forward(self, input: Tensor) -> Tensor:
        return self.act(super().forward(input))


class Shared(nn.Linear):
    """W x, and zeros up to `wide`."""

    def __init__(self, dim: int, wide: int):
        super().__init__(dim, dim, bias=False)
        self.more = wide - dim

    def forward(self, input: Tensor) -> Tensor:
        x = super().forward(input)
        return F.pad(x, (0, self.more)) if self.more else x
