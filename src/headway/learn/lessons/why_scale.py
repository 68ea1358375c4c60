"""Why attention scores are divided by √D.

A dot product of D random terms grows as √D. Unscaled, the softmax of wide queries and keys puts nearly all weight on
one key before anything is learned, and a saturated softmax passes hardly any gradient. We measure both, and then train
the same lookup with and without the scale: queries are noisy copies of 16 vectors and must find the vector they are
from.

Axes:  N queries   C width
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headway.figures import CurveChart, Plot
from headway.learn.experiment import curve, fit, loss_chart, mean
from headway.learn.explain_scaling import saturation
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable
from headway.ops.attend import Dot, attend

FAST = {"widths": (4, 16), "training_steps": 4, "dim": 16}
SCORES = {"scaled": Dot(), "unscaled": Dot(1.0)}
KEYS = 16


def lookup(score: Dot, dim: int, training_steps: int, queries: int = 64) -> list[float]:
    """Losses of a lookup that is learned: the squared distance of what is read from what should be."""
    torch.manual_seed(1)
    table, values = torch.randn(KEYS, dim), torch.eye(KEYS)
    query, key = nn.Linear(dim, dim, False), nn.Linear(dim, dim, False)
    for layer in (query, key):
        nn.init.normal_(layer.weight, std=dim**-0.5)  # so that queries and keys have variance 1

    def loss() -> Tensor:
        wanted = torch.randint(KEYS, (queries,))
        asked = query(table[wanted] + 0.5 * torch.randn(queries, dim))
        read = attend(asked[None, None], key(table)[None, None], values[None, None], score=score)[0, 0]
        return (read - values[wanted]).square().sum(1).mean()

    return fit(nn.ModuleList([query, key]), loss, training_steps, lr=1e-3)


def steps(
    widths: tuple[int, ...] = (4, 16, 64, 256, 1024, 4096), training_steps: int = 300, dim: int = 256
) -> Iterator[ExplanationStep]:
    found = {width: {name: saturation(score, width, KEYS, 0) for name, score in SCORES.items()} for width in widths}
    first, last = widths[0], widths[-1]
    yield ExplanationStep(
        "Scores grow with the width.",
        [f"Standard deviation of q · k, for random queries and {KEYS} keys. In theory it is √D, without the scale."],
        [
            ValueTable(
                "standard deviation of scores",
                ["D", *SCORES, "√D"],
                [[width, *(found[width][name].deviation for name in SCORES), width**0.5] for width in widths],
                ".4f",
            )
        ],
        Formula("Var(q · k) = D", r"\operatorname{Var}(q \cdot k) = D"),
        question=Question(
            f"By which factor do unscaled scores grow from D = {first} to D = {last}?",
            found[last]["unscaled"].deviation / found[first]["unscaled"].deviation,
            tolerance=0.25 * (last / first) ** 0.5,
        ),
    )
    yield ExplanationStep(
        "The softmax saturates, and its gradient vanishes.",
        [f"Mean of the largest of {KEYS} weights, and the norm of the matrix of ∂a_i / ∂e_j."],
        [
            ValueTable(
                name,
                ["D", *SCORES],
                [[width, *(getattr(found[width][score], what) for score in SCORES)] for width in widths],
                ".4f",
            )
            for what, name in (("largest", "largest weight"), ("gradient", "norm of the gradient of softmax"))
        ],
        figure=Plot(
            "saturation by width",
            [
                CurveChart(
                    title,
                    [curve(name, widths, [getattr(found[width][name], what) for width in widths]) for name in SCORES],
                    "D",
                    xscale="log",
                    yscale=scale,
                )
                for what, title, scale in (
                    ("largest", "largest weight", "linear"),
                    ("gradient", "norm of the gradient of softmax", "log"),
                )
            ],
        ),
        question=Question(
            f"Which scores have the larger gradient at D = {last}?",
            max(SCORES, key=lambda name: found[last][name].gradient),
            tuple(SCORES),
        ),
    )
    losses = {name: lookup(score, dim, training_steps) for name, score in SCORES.items()}
    tail = max(1, training_steps // 10)
    final = {name: mean(values[-tail:]) for name, values in losses.items()}
    yield ExplanationStep(
        "The same lookup, learned with and without the scale.",
        [
            f"{training_steps} steps of AdamW with D = {dim}, the same data and the same weights at first. Values are "
            "one-hot; the loss is the squared distance of the value that is read from the right one: 0 if all weight "
            f"is on the right key, {1 - 1 / KEYS:.3f} for equal weights, 2 if all is on a wrong one.",
        ],
        [
            ValueTable(
                "loss of the lookup",
                ["scores", "first step", f"mean of the last {tail}"],
                [[name, values[0], final[name]] for name, values in losses.items()],
                ".4f",
            )
        ],
        figure=Plot(
            "a lookup learned with and without the scale",
            [loss_chart("loss, mean of 20 steps", losses)],
        ),
        question=Question(
            "Which scores end with the smaller loss?",
            min(SCORES, key=lambda name: final[name]),
            tuple(SCORES),
        ),
        conclusion=f"Before training the loss is {losses['unscaled'][0]:.3g} unscaled and {losses['scaled'][0]:.3g} "
        f"scaled; at the end {final['unscaled']:.3g} and {final['scaled']:.3g}.",
    )
