"""LoRA: linear layers that learn by a low-rank part beside their own weight, which stays as it is (Hu et al., 2021).

    y = W x + b + scale · B A drop(x)        A: rank × C, drawn at random;  B: O × rank, zero at first

So a new layer computes what the old one did, to the bit, and `merge` adds the part to the weight: the layer is then one
of torch's again, and as fast.

Axes:  … any   C inputs   O outputs
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.trunk import tensors_of
from headway.ops.linear import linear


class LoRALinear(nn.Linear):
    """W x + b + scale · B A drop(x), with gradients for A and B alone."""

    lora_a: nn.Parameter  # rank C
    lora_b: nn.Parameter  # O rank
    scale: float
    drop: nn.Dropout

    def forward(self, input: Tensor) -> Tensor:
        low = F.linear(F.linear(self.drop(input), self.lora_a), self.lora_b)
        return linear(input, self.weight, self.bias) + self.scale * low

    def product(self) -> Tensor:
        """What the low-rank part adds to the weight, O C."""
        return self.scale * (self.lora_b @ self.lora_a)


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


@torch.no_grad()
def merge(model: nn.Module) -> None:
    """Adds the low-rank parts of a model to its weights, in place: it computes the same, without them."""
    for layer in adapted(model).values():
        layer.weight += layer.product()
        del layer.lora_a, layer.lora_b, layer.drop, layer.scale
        setattr(layer, "__class__", nn.Linear)  # noqa: B010  to a type checker it stays what it was


def adapted(model: nn.Module) -> dict[str, LoRALinear]:
    """The layers of a model that have a low-rank part."""
    return {name: part for name, part in model.named_modules() if isinstance(part, LoRALinear)}


def learned_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What a training of this model changes: where it has low-rank parts what is not frozen, and else everything."""
    found = tensors_of(model)
    return {name: x for name, x in found.items() if x.requires_grad} if adapted(model) else found
