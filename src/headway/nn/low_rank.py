"""LoRA: linear layers that learn by a low-rank part beside their own weight, which stays as it is (Hu et al., 2021).

    y = W x + b + scale · B A drop(x)        A: rank × C, drawn at random;  B: O × rank, zero at first

DoRA (Liu et al., 2024) learns the length m of each row of that sum besides, which is at first that of the row of W:

    y = m ⊙ V x / ‖V‖ + b        V = W + scale · B A;  ‖V‖: the length of each row, through which no gradient goes

So a new layer computes what the old one did, to the bit, and `merge` makes the part one with the weight: the layer is
then one of torch's again, and as fast.

Axes:  … any   C inputs   O outputs
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.trunk import tensors_of
from headway.ops.linear import linear
from headway.ops.mixed_precision import no_autocast


class LoRALinear(nn.Linear):
    """W x + b + scale · B A drop(x), with gradients for A and B alone."""

    lora_a: nn.Parameter  # rank C
    lora_b: nn.Parameter  # O rank
    scale: float
    drop: nn.Dropout

    def forward(self, input: Tensor) -> Tensor:
        low = F.linear(F.linear(self.drop(input), self.lora_a), self.lora_b)
        return linear(input, self.weight, self.bias) + self.scale * low

    def merged(self) -> Tensor:
        """The weight and the low-rank part as one, O C."""
        return self.weight + self.scale * (self.lora_b @ self.lora_a)


class DoRALinear(LoRALinear):
    """m ⊙ V x / ‖V‖ + b, with gradients for A, B and m alone.

    As in PEFT only what is added to W x + b is dropped out: (m / ‖V‖ − 1) ⊙ W drop(x) + scale · m / ‖V‖ ⊙ B A drop(x).
    """

    lora_magnitude: nn.Parameter  # O

    def forward(self, input: Tensor) -> Tensor:
        share = self.lora_magnitude / self.lengths()
        whole, seen = linear(input, self.weight, self.bias), self.drop(input)
        low = self.scale * F.linear(F.linear(seen, self.lora_a), self.lora_b)
        if self.training and self.drop.p:
            seen_whole = linear(seen, self.weight, None)
        else:
            seen_whole = whole if self.bias is None else whole - self.bias  # pyright: ignore[reportUnnecessaryComparison]
        return whole + ((share - 1.0) * seen_whole + share * low).to(whole.dtype)

    @torch.no_grad()
    def lengths(self) -> Tensor:
        """‖V‖, O, in the precision of the weights also where products are in another."""
        with no_autocast(self.weight):
            return row_lengths(super().merged())

    def merged(self) -> Tensor:
        return with_lengths(super().merged(), self.lora_magnitude)


def row_lengths(weight: Tensor) -> Tensor:
    """The length of each row, O C → O; that of zeros is so small that nothing is divided by 0."""
    return torch.linalg.vector_norm(weight, dim=1).clamp(min=torch.finfo(weight.dtype).tiny)


def with_lengths(weight: Tensor, lengths: Tensor) -> Tensor:
    """The rows of a weight with other lengths, O C, O → O C."""
    return (lengths / row_lengths(weight))[:, None] * weight


def adapt(layer: nn.Linear, rank: int, scale: float, dropout: float = 0.0) -> LoRALinear:
    """Gives a linear layer a low-rank part, in place, and freezes what it has."""
    layer.__class__ = LoRALinear
    assert isinstance(layer, LoRALinear)
    layer.requires_grad_(False)
    layer.lora_a = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))
    layer.lora_b = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
    layer.scale, layer.drop = scale, nn.Dropout(dropout)
    nn.init.kaiming_uniform_(layer.lora_a, a=math.sqrt(5))  # as a linear layer's own weight
    return layer


def decompose(layer: LoRALinear) -> DoRALinear:
    """Lets a layer with a low-rank part learn the lengths of rows, too, in place; it computes what it did."""
    layer.__class__ = DoRALinear
    assert isinstance(layer, DoRALinear)
    layer.lora_magnitude = nn.Parameter(row_lengths(LoRALinear.merged(layer)).detach())
    return layer


@torch.no_grad()
def merge(model: nn.Module) -> None:
    """Makes the low-rank parts of a model one with its weights, in place: it computes the same, without them."""
    for layer in adapted(model).values():
        layer.weight.copy_(layer.merged())
        for name in ("lora_a", "lora_b", "lora_magnitude", "drop", "scale"):
            if hasattr(layer, name):
                delattr(layer, name)
        setattr(layer, "__class__", nn.Linear)  # noqa: B010  to a type checker it stays what it was


def adapted(model: nn.Module) -> dict[str, LoRALinear]:
    """The layers of a model that have a low-rank part."""
    return {name: part for name, part in model.named_modules() if isinstance(part, LoRALinear)}


def learned_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What a training of this model changes: where it has low-rank parts what is not frozen, and else everything."""
    found = tensors_of(model)
    return {name: x for name, x in found.items() if x.requires_grad} if adapted(model) else found
