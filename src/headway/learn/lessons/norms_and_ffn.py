"""LayerNorm or RMSNorm, MLP or SwiGLU, at equal size and equal training.

RMSNorm leaves the mean alone and divides by the root mean square only. SwiGLU with a hidden width of 8D/3 has as many
weights as the MLP with 4D. Four small language models, one for each pair of choices, learn the same generated text for
the same number of steps, with three seeds: the spread of seeds tells which differences mean something.

Axes:  B batch   T tokens   C width
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import Drawing, Plot
from headway.learn.experiment import count, fit, mean
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.nn.ffn import FFN, GatedFFN
from headway.nn.trunk import Trunk
from headway.zoo.workbench import Config, build

FAST = {"training_steps": 2, "dim": 12, "seeds": (0, 1)}
SYMBOLS, TOKENS = 16, 24
NORMS, FFNS = ("layer", "rms"), ("relu", "swiglu")


def text(batch: int) -> Tensor:
    """Rows of a rule of second order: each symbol is the sum of two earlier ones, and now and then a random one."""
    rows = torch.randint(SYMBOLS, (batch, TOKENS))
    random, noise = rows.clone(), torch.rand(batch, TOKENS) < 0.1
    for at in range(3, TOKENS):
        rows[:, at] = torch.where(noise[:, at], random[:, at], (rows[:, at - 1] + rows[:, at - 3]) % SYMBOLS)
    return rows


def loss_of(model: Trunk, batch: int) -> Tensor:
    rows = text(batch)
    return F.cross_entropy(model(rows[:, :-1])[:, 2:].flatten(0, 1), rows[:, 3:].flatten())


def trained(norm: str, ffn: str, dim: int, training_steps: int, seed: int) -> tuple[Trunk, float]:
    torch.manual_seed(seed)
    model = build(Config(SYMBOLS, TOKENS, dim, layers=2, heads=2, norm=norm, ffn=ffn, positions="rotary"))
    fit(model, lambda: loss_of(model, 32), training_steps, lr=5e-3)
    torch.manual_seed(99)
    with torch.no_grad():
        return model, float(loss_of(model, 256))


def steps(training_steps: int = 200, dim: int = 36, seeds: tuple[int, ...] = (0, 1, 2)) -> Iterator[ExplanationStep]:
    x = torch.randn(64, dim) + 1.0
    layer, rms = nn.LayerNorm(dim)(x).detach(), nn.RMSNorm(dim)(x).detach()
    yield ExplanationStep(
        "What the norms keep.",
        [f"{len(x)} random vectors of width {dim} with mean 1: mean and root mean square after each norm."],
        [
            ValueTable(
                "after the norm",
                ["norm", "mean", "root mean square"],
                [
                    [name, float(y.mean()), float(y.square().mean().sqrt())]
                    for name, y in (("layer", layer), ("rms", rms))
                ],
                ".4f",
            )
        ],
        question=Question(
            "Which norm leaves a mean other than 0?",
            "rms" if abs(float(rms.mean())) > abs(float(layer.mean())) else "layer",
            NORMS,
        ),
    )
    mlp, gated = FFN(dim, bias=False), GatedFFN(dim, round(8 * dim / 3), bias=False)
    yield ExplanationStep(
        "Equal size: 8D² weights each.",
        [f"D = {dim}: the MLP has two matrices of D × 4D, SwiGLU three of D × 8D/3."],
        [
            ValueTable(
                "weights",
                ["layer", "hidden width", "weights", "8D²"],
                [["MLP", 4 * dim, count(mlp), 8 * dim**2], ["SwiGLU", round(8 * dim / 3), count(gated), 8 * dim**2]],
            )
        ],
        question=Question("How many weights has SwiGLU here?", count(gated)),
    )
    found = {
        f"{norm} + {ffn}": [trained(norm, ffn, dim, training_steps, seed) for seed in seeds]
        for norm in NORMS
        for ffn in FFNS
    }
    losses = {name: [loss for _, loss in runs] for name, runs in found.items()}
    means = {name: mean(values) for name, values in losses.items()}
    ranked = sorted(means, key=lambda name: means[name])
    spread = max(max(values) - min(values) for values in losses.values())

    def paint(axes):  # pyright: ignore
        for at, values in enumerate(losses.values()):
            axes.plot(values, [at] * len(values), "o", alpha=0.7)
        axes.set_yticks(range(len(losses)), list(losses))
        axes.set_xlabel("loss on new text")
        axes.margins(y=0.2)
        axes.grid(axis="x", linewidth=0.5)

    yield ExplanationStep(
        "Four models, equal budget.",
        [
            f"{training_steps} steps each; the loss of {256} new rows. Each symbol is the sum of two earlier ones, one "
            f"of ten is random. A difference below the spread of seeds (at most {spread:.4f} here) says nothing.",
        ],
        [
            ValueTable(
                "loss on new text",
                ["model", "parameters", "mean", "smallest", "largest"],
                [[n, count(found[n][0][0]), means[n], min(v), max(v)] for n, v in losses.items()],
                ".4f",
            )
        ],
        figure=Plot(f"loss with {len(seeds)} seeds each", [Drawing("", paint, width=4.5, height=1.8)]),
        question=Question("Which model has the smallest mean loss?", ranked[0], tuple(losses)),
        conclusion=f"Best {ranked[0]} {means[ranked[0]]:.4f}, worst {ranked[-1]} {means[ranked[-1]]:.4f}; seeds "
        f"differ by up to {spread:.4f}.",
    )
