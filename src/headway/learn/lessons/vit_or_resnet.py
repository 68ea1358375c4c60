"""ViT against ResNet over data sizes: inductive bias and examples.

A convolution is told that neighbours matter and that a shape is the same everywhere. A ViT must learn both from data.
On few images the ResNet is ahead; with more the gap closes. Images are generated: one of four shapes, anywhere, with
noise.

Axes:  B batch   Y X pixels
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import CurveChart, HeatMap, Plot
from headway.learn.experiment import count, curve, fit
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.zoo import resnet, vit

FAST = {"amounts": (8, 16), "training_steps": 2, "tested": 16}
SIDE, CLASSES, SHAPE = 16, 4, 7
MODELS: dict[str, Callable[[], nn.Module]] = {
    "ViT": lambda: vit.build(
        vit.Config(image=SIDE, channels=1, patch=4, classes=CLASSES, dim=32, layers=3, heads=4, hidden=64, pool="mean")
    ),
    "ResNet": lambda: resnet.build(
        resnet.Config(SIDE, 1, 16, stem="small", block="basic", layers=(1, 1), widths=(16, 32), classes=CLASSES)
    ),
}


def shapes() -> Tensor:
    """A cross, a square, a diagonal cross and a disc, CLASSES SHAPE SHAPE."""
    at = torch.arange(SHAPE) - SHAPE // 2
    y, x = torch.meshgrid(at, at, indexing="ij")
    edge = torch.maximum(y.abs(), x.abs()) == SHAPE // 2
    return torch.stack(((x == 0) | (y == 0), edge, x.abs() == y.abs(), x**2 + y**2 <= 9)).float()


def images(amount: int) -> tuple[Tensor, Tensor]:
    """B 1 SIDE SIDE, and classes."""
    kinds, drawn = torch.randint(CLASSES, (amount,)), 0.6 * torch.randn(amount, 1, SIDE, SIDE)
    places, forms = torch.randint(SIDE - SHAPE + 1, (amount, 2)), shapes()
    for row, (y, x) in enumerate(places.tolist()):
        drawn[row, 0, y : y + SHAPE, x : x + SHAPE] += forms[kinds[row]]
    return drawn, kinds


def accuracy(name: str, seen: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], training_steps: int) -> float:
    torch.manual_seed(11)
    model, (pictures, kinds) = MODELS[name](), seen

    def loss() -> Tensor:
        picked = torch.randint(len(pictures), (min(64, len(pictures)),))
        return F.cross_entropy(model(pictures[picked]), kinds[picked])

    fit(model.train(), loss, training_steps, lr=2e-3)
    with torch.no_grad():
        return float((model.eval()(test[0]).argmax(-1) == test[1]).float().mean())


def steps(
    amounts: tuple[int, ...] = (64, 512, 4096), training_steps: int = 300, tested: int = 512
) -> Iterator[ExplanationStep]:
    sizes = {name: count(make()) for name, make in MODELS.items()}
    pictures, kinds = images(64)
    shown = [pictures[int((kinds == kind).nonzero()[0, 0]), 0] for kind in range(CLASSES) if (kinds == kind).any()]
    names = [""] * SIDE
    yield ExplanationStep(
        "The task: which shape is it?",
        [
            f"{SIDE}×{SIDE} pixels; a cross, a square, a diagonal cross or a disc, anywhere, with noise of deviation "
            "0.6."
        ],
        [ValueTable("models", ["model", "parameters"], list(sizes.items()))],
        figure=Plot("an image of each class", [HeatMap("", one.tolist(), names, names) for one in shown], columns=4),
        question=Question("Which model has more parameters?", max(sizes, key=lambda name: sizes[name]), tuple(sizes)),
    )
    data, test = images(amounts[-1]), images(tested)
    right = {
        name: [accuracy(name, (data[0][:n], data[1][:n]), test, training_steps) for n in amounts] for name in MODELS
    }
    few = {name: values[0] for name, values in right.items()}
    yield ExplanationStep(
        "Accuracy by the number of training images.",
        [
            f"{training_steps} steps each, of at most 64 images; {tested} test images, the same for all; a guess is "
            f"right in {1 / CLASSES:.2f}. One run each, no augmentation.",
        ],
        [
            ValueTable(
                "accuracy by data",
                ["images", *MODELS, "ResNet − ViT"],
                [
                    [n, *(right[m][at] for m in MODELS), right["ResNet"][at] - right["ViT"][at]]
                    for at, n in enumerate(amounts)
                ],
                ".3f",
            )
        ],
        figure=Plot(
            "accuracy by data",
            [CurveChart("", [curve(name, amounts, v) for name, v in right.items()], "training images", xscale="log")],
        ),
        question=Question(
            f"Which model is better with {amounts[0]} images?", max(few, key=lambda name: few[name]), tuple(MODELS)
        ),
    )
    gain = {name: values[-1] - values[0] for name, values in right.items()}
    yield ExplanationStep(
        "Who gains more from data?",
        [f"Accuracy with {amounts[-1]} images minus accuracy with {amounts[0]}."],
        [ValueTable("gain", ["model", "gain"], list(gain.items()), ".3f")],
        question=Question("How much accuracy does the ViT gain?", gain["ViT"], tolerance=0.1),
        conclusion=f"From {amounts[0]} to {amounts[-1]} images: ViT {right['ViT'][0]:.2f} → "
        f"{right['ViT'][-1]:.2f}, ResNet {right['ResNet'][0]:.2f} → {right['ResNet'][-1]:.2f}.",
    )
