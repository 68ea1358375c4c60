"""Patches are a convolution: cut and project, or convolve with a stride, the same numbers.

A ViT cuts an image into squares and projects each to a vector. A convolution whose kernel is as large as its stride
does the same. We exchange the weights of the two, compare outputs and gradients, and train both for a few steps.

Axes:  B batch   Ch channels   H W sides   N patches   P numbers of a patch   C width
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headway.figures import HeatMap, Plot
from headway.learn.experiment import count
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable
from headway.ops.patches import patch_grid, patchify

FAST = {"side": 32, "training_steps": 2}
CHANNELS = 3


class CutAndProject(nn.Module):
    """B Ch H W → B N C, by patchify and one matrix."""

    def __init__(self, patch: int, dim: int):
        super().__init__()
        self.patch, self.project = patch, nn.Linear(CHANNELS * patch**2, dim)

    def forward(self, images: Tensor) -> Tensor:
        return self.project(patchify(images, self.patch))


class Strided(nn.Module):
    """B Ch H W → B N C, by a convolution."""

    def __init__(self, patch: int, dim: int):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, dim, patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        return self.conv(images).flatten(2).mT

    @torch.no_grad()
    def take(self, other: CutAndProject) -> None:
        """The weights of the matrix, whose columns run over rows, columns and channels of a patch."""
        columns = other.project.weight.unflatten(1, (other.patch, other.patch, CHANNELS))
        self.conv.weight.copy_(columns.permute(0, 3, 1, 2))
        assert self.conv.bias is not None
        self.conv.bias.copy_(other.project.bias)


def picture(side: int) -> Tensor:
    """Rings on a slope, 1 Ch H W."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, side), torch.linspace(-1, 1, side), indexing="ij")
    rings = torch.cos(12 * (x**2 + y**2).sqrt())
    return torch.stack((rings, x, y))[None]


def steps(side: int = 224, patch: int = 16, dim: int = 192, training_steps: int = 5) -> Iterator[ExplanationStep]:
    image = picture(side)
    rows, columns = patch_grid(image, patch)
    first = patchify(image, patch).unflatten(2, (patch, patch, CHANNELS))[0, :, :, :, 0]
    brightness = first.mean((1, 2)).reshape(rows, columns)
    yield ExplanationStep(
        "An image as a row of tokens.",
        [f"A picture of {side}×{side} pixels, cut into squares of {patch}×{patch}: {rows}×{columns} tokens."],
        [
            ValueTable(
                "tokens",
                ["image", "patch", "tokens", "numbers of a patch"],
                [[f"{side}×{side}", f"{patch}×{patch}", rows * columns, CHANNELS * patch**2]],
            )
        ],
        figure=Plot(
            "the first channel, and the mean of each patch",
            [
                HeatMap("pixels", image[0, 0].tolist(), [""] * side, [""] * side),
                HeatMap("patches", brightness.tolist(), [""] * rows, [""] * columns),
            ],
        ),
        question=Question(f"How many tokens does an image of {side}×{side} give?", rows * columns),
    )
    cut, strided = CutAndProject(patch, dim), Strided(patch, dim)
    strided.take(cut)
    with torch.no_grad():
        difference = float((cut(image) - strided(image)).abs().max())
        largest = float(cut(image).abs().max())
    yield ExplanationStep(
        "Exchange the weights: the same output.",
        [f"The matrix has {cut.project.weight.numel()} weights, the kernel as many; both a bias of {dim}."],
        [
            ValueTable(
                "both ways",
                ["", "parameters", "largest output", "largest difference"],
                [["cut and project", count(cut), largest, 0.0], ["convolution", count(strided), largest, difference]],
                ".3g",
            )
        ],
        Formula(
            "W · patch = Σ_(c, i, j) W_(c, i, j) · x_(c, sY + i, sX + j)",
            r"W p = \sum_{c,i,j} W_{cij}\, x_{c,sY+i,sX+j}",
        ),
        question=Question("How many parameters has the embedding of patches?", count(strided)),
    )
    target, gaps = torch.randn(1, rows * columns, dim), list[float]()
    optimisers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (cut, strided)]
    for _ in range(training_steps):
        for layer, optimiser in zip((cut, strided), optimisers, strict=True):
            optimiser.zero_grad()
            (layer(image) - target).square().mean().backward()
            optimiser.step()
        with torch.no_grad():
            gaps.append(float((cut(image) - strided(image)).abs().max()))
    yield ExplanationStep(
        "They stay equal in training.",
        ["Gradients are the same numbers in another order, so steps of SGD lead to the same layer."],
        [
            ValueTable(
                "difference of outputs",
                ["step", "largest difference"],
                [[at + 1, gap] for at, gap in enumerate(gaps)],
                ".1e",
            )
        ],
        question=Question(
            f"After {training_steps} steps, do the two differ by more than 0.001?",
            "yes" if gaps[-1] > 1e-3 else "no",
            ("yes", "no"),
        ),
        conclusion=f"After {training_steps} steps the outputs differ by {gaps[-1]:.1e}: rounding.",
    )
