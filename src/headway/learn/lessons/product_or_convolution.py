"""Matrix products against convolutions at equal FLOPs.

Operations are not time. A matrix product reads each number once and uses it often; a convolution of the same count of
operations moves more memory, a depthwise one most. We time three layers with the same FLOPs, and a ViT beside a
ResNet. Times are of this machine, on one image at a time.

Axes:  N pixels   C width
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headway.figures import BarChart, Plot
from headway.learn.experiment import seconds
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.zoo.build import build
from headway.zoo.cost import cost

FAST = {"side": 4, "dim": 9, "models": ("vit-nano", "resnet-nano"), "rounds": 1}


class Product(nn.Module):
    """One matrix for all pixels."""

    def __init__(self, dim: int, out: int):
        super().__init__()
        self.weight = nn.Linear(dim, out, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # B C Y X
        return self.weight(x.flatten(2).mT)


def flops_of(layer: nn.Module, pixels: int) -> int:
    """Two for each weight and pixel."""
    return 2 * pixels * sum(p.numel() for p in layer.parameters())


def image_of(name: str) -> Tensor:
    channels, side = (1, 28) if name.endswith("-nano") else (3, 224)
    return torch.randn(1, channels, side, side)


def steps(
    side: int = 28, dim: int = 126, models: tuple[str, ...] = ("vit-s16", "resnet-50"), rounds: int = 5
) -> Iterator[ExplanationStep]:
    assert dim % 9 == 0
    layers = {
        "matrix product": Product(dim, dim),
        "convolution 3×3": nn.Conv2d(dim, dim // 9, 3, padding=1, bias=False),
        "convolution 3×3, depthwise": nn.Conv2d(dim, dim * (dim // 9), 3, padding=1, groups=dim, bias=False),
    }
    x, pixels = torch.randn(1, dim, side, side), side**2
    counts = {name: flops_of(layer, pixels) for name, layer in layers.items()}
    yield ExplanationStep(
        "Three layers with the same number of operations.",
        [
            f"{side}×{side} pixels of width {dim}. A product to as many channels, a convolution of 3×3 to a ninth of "
            f"them, and a depthwise one that makes {dim // 9} channels of each.",
        ],
        [
            ValueTable(
                "operations",
                ["layer", "FLOPs", "weights"],
                [[n, counts[n], sum(p.numel() for p in layer.parameters())] for n, layer in layers.items()],
            )
        ],
        question=Question("How many different counts of FLOPs do the three layers have?", len(set(counts.values()))),
    )
    with torch.no_grad():
        times = {name: seconds(lambda layer=layer: layer(x), rounds) for name, layer in layers.items()}
    speed = {name: counts[name] / times[name] / 1e9 for name in layers}
    yield ExplanationStep(
        "Their speed.",
        [f"The fastest of {rounds} runs, {torch.get_num_threads()} threads. GFLOP/s = operations over time."],
        [
            ValueTable(
                "speed of layers", ["layer", "ms", "GFLOP/s"], [[n, 1000 * times[n], speed[n]] for n in layers], ".3f"
            )
        ],
        figure=Plot("speed at equal FLOPs", [BarChart("", list(speed), list(speed.values()), "GFLOP/s")]),
        question=Question("Which layer is fastest here?", max(speed, key=lambda name: speed[name]), tuple(layers)),
    )
    table = list[list[str | int | float]]()
    rates = dict[str, float]()
    for name in models:
        model, image = build(name).eval(), image_of(name)
        with torch.no_grad():
            took = seconds(lambda model=model, image=image: model(image), rounds)
        total = cost(name).total
        rates[name] = total.flops / took / 1e9
        table.append([name, total.parameters, total.flops / 1e9, 1000 * took, rates[name]])
    ratio = rates[models[0]] / rates[models[1]]
    yield ExplanationStep(
        "A ViT and a ResNet.",
        ["Random weights, one image, float32. FLOPs as headway cost counts them, two for each multiply-add."],
        [ValueTable("speed of models", ["model", "parameters", "GFLOPs", "ms", "GFLOP/s"], table, ".2f")],
        figure=Plot("speed of whole models", [BarChart("", list(rates), list(rates.values()), "GFLOP/s")]),
        question=Question(
            f"How many times the GFLOP/s of {models[1]} has {models[0]} here?", ratio, tolerance=0.3 * ratio
        ),
        conclusion=f"{models[0]} {rates[models[0]]:.1f}, {models[1]} {rates[models[1]]:.1f} GFLOP/s on this machine.",
    )
