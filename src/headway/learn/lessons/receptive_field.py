"""Receptive field: which pixels a unit depends on, in a CNN and in attention.

The receptive field of a unit is the set of inputs with a gradient. A 3 × 3 convolution sees one pixel around; each
layer adds one on every side. Attention sees all pixels in its first layer; attention in windows sees its window, until
windows are shifted. Gradients also show how much each pixel counts: the middle more than the edge.

Axes:  Y X pixels   C width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from headway.figures import CurveChart, HeatMap, Plot
from headway.learn.experiment import curve
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.nn.attention import SelfAttention
from headway.nn.convnet import GridConv
from headway.nn.window_attention import Windowed
from headway.ops.window import Windows

FAST = {"side": 14, "depths": (1, 2), "dim": 8}
WINDOW, KERNEL = 7, 3


class Convolved(nn.Module):
    """relu(conv(x)), B Y X C → B Y X C"""

    def __init__(self, dim: int):
        super().__init__()
        self.conv = GridConv(dim, dim, KERNEL)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).relu()


class OverPixels(nn.Module):
    """x + attention over all pixels, B Y X C → B Y X C"""

    def __init__(self, dim: int):
        super().__init__()
        self.attention = SelfAttention(dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x.flatten(1, 2)).view_as(x)


def windowed(dim: int, shift: int) -> nn.Module:
    return Windowed(SelfAttention(dim, 1), Windows(WINDOW, WINDOW, shift, shift))


def relative(found: Tensor) -> Tensor:
    """log10 of a field over its largest, NaN where it is 0."""
    return torch.where(found > 0, (found / found.max()).log10().clamp(min=-4), torch.nan)


Layer = Callable[[int, int], nn.Module]  # number of the layer, width
LAYERS: dict[str, Layer] = {
    "convolution": lambda number, dim: Convolved(dim),
    "attention": lambda number, dim: OverPixels(dim),
    "windows": lambda number, dim: windowed(dim, 0),
    "shifted windows": lambda number, dim: windowed(dim, WINDOW // 2 if number % 2 else 0),
}


def field_of(layers: Sequence[nn.Module], side: int, dim: int) -> Tensor:
    """The norm of the gradient of the middle unit by each pixel, Y X."""
    x = torch.randn(1, side, side, dim, requires_grad=True)
    y = x
    for layer in layers:
        y = layer(y)
    middle = y[0, side // 2, side // 2]
    (gradient,) = torch.autograd.grad(middle @ torch.randn(dim), x)
    return gradient[0].norm(dim=-1)


def steps(side: int = 28, depths: tuple[int, ...] = (1, 2, 4, 6), dim: int = 16) -> Iterator[ExplanationStep]:
    fields = {
        name: [field_of([make(number, dim) for number in range(depth)], side, dim) for depth in depths]
        for name, make in LAYERS.items()
    }
    seen = {name: [int((found > 0).sum()) for found in each] for name, each in fields.items()}
    yield ExplanationStep(
        "How many pixels the middle unit depends on, by depth.",
        [
            f"Of {side}×{side} = {side**2} pixels, those with a gradient that is not 0. Convolutions of "
            f"{KERNEL}×{KERNEL}: (2L + 1)² while the image is large enough. Windows of {WINDOW}×{WINDOW} never see "
            "more than themselves, unless they are shifted in every second layer.",
        ],
        [
            ValueTable(
                "pixels seen",
                ["layers", *LAYERS],
                [[depth, *(seen[name][at] for name in LAYERS)] for at, depth in enumerate(depths)],
            )
        ],
        figure=Plot(
            "pixels that the middle unit depends on",
            [CurveChart("", [curve(name, depths, values) for name, values in seen.items()], "layers", height=2.2)],
        ),
        question=Question(
            f"How many pixels does a unit behind {depths[-1]} convolutions see?", seen["convolution"][-1]
        ),
    )
    names = [""] * side
    yield ExplanationStep(
        f"The fields after {depths[-1]} layers.",
        ["log10 of the norm of the gradient, relative to the largest, at least −4; grey: no gradient. Random weights."],
        [
            ValueTable(
                "the largest and the median of pixels seen",
                ["layer", "median / largest"],
                [[name, float(each[-1][each[-1] > 0].median() / each[-1].max())] for name, each in fields.items()],
                ".3f",
            )
        ],
        figure=Plot(
            f"receptive fields after {depths[-1]} layers",
            [
                HeatMap(name, relative(each[-1]).tolist(), names, names, limits=(-4.0, 0.0))
                for name, each in fields.items()
            ],
            columns=2,
        ),
        question=Question(
            "Which of the four sees the whole image in its first layer?",
            max(seen, key=lambda name: seen[name][0]),
            tuple(LAYERS),
        ),
    )
    far = {name: next((d for d, n in zip(depths, seen[name], strict=True) if n == side**2), None) for name in LAYERS}
    ends = field_of([Convolved(dim) for _ in range(side // 2)], side, dim)
    yield ExplanationStep(
        "Deeper nets see more: how deep must a CNN be to see the image?",
        [
            f"From the middle of {side} pixels it is {side // 2} to the far edge, one a layer. Strides and pooling are "
            "the usual shortcut; attention is another.",
        ],
        [
            ValueTable(
                "layers until all is seen",
                ["layer", "of the depths tried"],
                [[name, str(depth) if depth else f"more than {depths[-1]}"] for name, depth in far.items()],
            ),
            ValueTable("a deep CNN", ["layers", "pixels seen", "of"], [[side // 2, int((ends > 0).sum()), side**2]]),
        ],
        question=Question(
            f"With {side // 2} convolutions, does the middle unit see every pixel?",
            "yes" if int((ends > 0).sum()) == side**2 else "no",
            ("yes", "no"),
        ),
        conclusion=f"Attention sees {seen['attention'][0]} pixels in one layer; {side // 2} convolutions see "
        f"{int((ends > 0).sum())}.",
    )
