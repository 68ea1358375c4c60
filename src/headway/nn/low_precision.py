"""Models with int8 weights, for inference: `quantise(model)` gives its linear layers and heads of words int8 weights.

What stays in float32: embedding tables (a head that is tied to one gets an int8 copy of its own), norms, softmax,
convolutions, biases, recurrent cells, and the small layers that a part names in `in_float32`.

Axes:  … any   C inputs   O outputs   N tokens   V vocabulary
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.native.int8_linear import Int8Panels, int8_linear
from headway.native.library import large_pages
from headway.nn.context import EMPTY, Context
from headway.nn.ffn import Activation, Hidden, Shared, activation_style
from headway.nn.head import CTCHead, LMHead, TanhLayer
from headway.ops.int8 import (
    PackedInt8,
    has_int8_kernel,
    has_small_pairs,
    int8_product,
    quantise_channels,
    quantise_rows,
    rescaled,
)

TOKENS = 64  # that meet a vocabulary at a time


class Int8Weights(nn.Module):
    """int8 `weight` (O C) with a `scale` (O) for each output channel; `bias` (O) is float32, or None."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None
    panels: Int8Panels | None  # the weights as the native library reads them
    packed: PackedInt8 | None  # as fbgemm does, where there is no such library

    def take(self, weight: Tensor, bias: Tensor | None) -> None:
        """Gets int8 weights from those in float32."""
        quantised, scale = quantise_channels(weight)
        del self.weight, self.bias  # parameters
        self.register_buffer("weight", quantised)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach())
        self.panels = self.packed = None

    def pack(self, room: Tensor) -> None:
        """Arranges the weights for the fastest kernel that is there, in `room` if that is the native library's."""
        self.panels, self.packed = Int8Panels.of(self.weight, room), None
        if self.panels is None and has_int8_kernel() and has_small_pairs(self.weight):
            self.packed = PackedInt8(self.weight, self.scale)

    def activated(self, x: Tensor, act: Activation) -> Tensor:
        """act(linear(x)); the native library does both in one call."""
        style = activation_style(act)
        if x.requires_grad or self.panels is None or style is None:
            return act(self.linear(x))
        found = int8_linear(x, self.panels, self.scale, self.bias, style)
        return act(self.linear(x)) if found is None else found

    def linear(self, x: Tensor) -> Tensor:
        """`ops.int8.int8_linear` of x and these weights, by the kernel that they are packed for: … C → … O."""
        if x.requires_grad:
            raise UserError("int8 weights have no gradient", do="use the model in fp32")
        if self.panels is not None and (found := int8_linear(x, self.panels, self.scale, self.bias)) is not None:
            return found
        q, row_scale = quantise_rows(x)
        product = int8_product(q, self.weight, self.scale) if self.packed is None else self.packed(q)
        return rescaled(product, row_scale, self.bias)

    def dequantised(self) -> Tensor:
        """The weights that the integers stand for, O C."""
        return self.weight * self.scale[:, None]


class Int8Linear(Int8Weights, nn.Linear):
    """W x + b."""

    def forward(self, input: Tensor) -> Tensor:
        return self.linear(input)


class Int8LMHead(Int8Weights, LMHead):
    """scale · x Wᵀ + b: a logit for each word, … C → … V."""

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.linear(self.multiplier(x))

    def loss(self, x: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        return self.losses(x, targets, smoothing).sum()

    def losses(self, x: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        found = x.new_empty(len(x))
        for start in range(0, len(x), TOKENS):
            chunk = slice(start, start + TOKENS)
            found[chunk] = F.cross_entropy(self(x[chunk]), targets[chunk], reduction="none", label_smoothing=smoothing)
        return found


class Int8Hidden(Hidden, Int8Linear):
    """act(W x + b)."""

    def forward(self, input: Tensor) -> Tensor:
        return self.activated(input, self.act)


class Int8TanhLayer(TanhLayer, Int8Linear):
    """tanh(W x + b)."""


class Int8CTCHead(CTCHead, Int8Linear):
    """The logarithm of each symbol's probability."""


class Int8Shared(Shared, Int8Linear):
    """W x, and zeros up to `wide`."""


# a layer of another class may use its weights in its own way, and stays in float32
INT8: dict[type[nn.Module], type[Int8Weights]] = {
    nn.Linear: Int8Linear,
    LMHead: Int8LMHead,
    Hidden: Int8Hidden,
    TanhLayer: Int8TanhLayer,
    CTCHead: Int8CTCHead,
    Shared: Int8Shared,
}


def quantise(model: nn.Module) -> None:
    """Gives a model int8 weights, in place; no part of it can learn any more."""
    kept = {part.get_submodule(name) for part in model.modules() for name in getattr(part, "in_float32", ())}
    layers = [part for part in model.modules() if type(part) in INT8 and part not in kept]
    if not layers:
        raise UserError("the model has no linear layers, and nothing else can be int8", do="use fp32")
    for layer in layers:
        weight: Any = layer.weight
        bias: Any = layer.bias
        layer.__class__ = INT8[type(layer)]
        assert isinstance(layer, Int8Weights)
        layer.take(weight, bias)
    model.requires_grad_(False)


def pack(model: nn.Module) -> None:
    """Arranges all int8 weights of a model for the kernel; call it once they are in place.

    They lie in one block of large pages, so that fewer addresses are looked up.
    """
    layers = [part for part in model.modules() if isinstance(part, Int8Weights)]
    sizes = [Int8Panels.bytes(layer.weight) for layer in layers]
    for layer, room in zip(layers, large_pages(sum(sizes)).split(sizes), strict=True):
        layer.pack(room)
