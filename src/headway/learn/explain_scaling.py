"""The topic `scaling`: without 1/√D, scores grow with the width, softmax saturates and its gradient vanishes.

Axes:  T queries   S keys   D width
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log2
from typing import NamedTuple

import torch
from torch import Tensor

from headway.figures import Curve, CurveChart, Plot, Point
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable
from headway.learn.topic_inputs import TopicInputs
from headway.ops.attend import Dot, softmax_over

QUERIES = 64
SCORES = {"unscaled": Dot(1.0), "scaled": Dot()}


class Saturation(NamedTuple):
    """Means over all queries of a width."""

    deviation: float  # of the scores
    largest: float  # weight of a row
    gradient: float  # of the weights by the scores: Frobenius norm of the Jacobian


def steps(inputs: TopicInputs) -> Iterator[ExplanationStep]:
    keys, seed = inputs.count("n", 8, 2, 512), inputs.count("seed", 0, 0)
    longest = inputs.count("dim", 4096, 4, 1 << 16)
    widths = [4**power for power in range(1, 9) if 4**power < longest] + [longest]
    found = {width: {name: saturation(score, width, keys, seed) for name, score in SCORES.items()} for width in widths}
    yield growth(found)
    yield ExplanationStep(
        "Softmax saturates: the largest weight goes to 1.",
        [f"The mean of the largest of {keys} weights; even ones would be {1 / keys:.4g}."],
        [table("largest weight", found, "largest")],
        Formula("a = softmax(e)", r"a = \operatorname{softmax}(e)"),
        figure=Plot(
            "largest weight and gradient of softmax by width", [chart(found, "largest"), chart(found, "gradient")]
        ),
        question=Question(
            "What happens to the largest weight of unscaled scores as the width grows?",
            "it goes to 1",
            ("it goes to 0", "it stays", "it goes to 1"),
        ),
    )
    first, last = found[widths[0]]["unscaled"].gradient, found[widths[-1]]["unscaled"].gradient
    yield ExplanationStep(
        "The gradient vanishes: a saturated softmax hardly answers to its scores.",
        [
            "The norm of the matrix of ∂a_i / ∂e_j, by automatic differentiation. Where one weight is 1 and the others "
            "are 0, all of it is 0, and nothing is learned about the scores.",
        ],
        [table("norm of the gradient", found, "gradient")],
        Formula("∂a_i / ∂e_j = a_i (δ_ij − a_j)", r"\frac{\partial a_i}{\partial e_j} = a_i (\delta_{ij} - a_j)"),
        conclusion=f"Unscaled, the gradient goes from {first:.3g} at D = {widths[0]} to {last:.3g} at "
        f"D = {widths[-1]}; scaled, it is {found[widths[-1]]['scaled'].gradient:.3g}.",
    )


def growth(found: dict[int, dict[str, Saturation]]) -> ExplanationStep:
    constant = [[width, float(Dot(1.0)(ones(width), ones(width)).sqrt())] for width in found]
    return ExplanationStep(
        "Scores grow: a dot product of D random terms has a standard deviation of √D.",
        [
            f"Queries and keys have entries of mean 0 and variance 1; {QUERIES} queries for each width. A vector of D "
            "equal entries shows the same: its norm is √D times an entry.",
        ],
        [
            table("standard deviation of scores", found, "deviation"),
            ValueTable("norm of a vector of D ones", ["D", "norm"], constant),
        ],
        Formula(
            "q · k = Σ_d q_d k_d,  Var(q · k) = D",
            r"q \cdot k = \sum_d q_d k_d,\quad \operatorname{Var}(q \cdot k) = D",
        ),
        question=Question("What is the standard deviation of unscaled scores at D = 64, about?", 8.0, tolerance=1.0),
    )


def ones(width: int) -> Tensor:
    return torch.ones(1, 1, 1, width, dtype=torch.float64)


def saturation(score: Dot, width: int, keys: int, seed: int) -> Saturation:
    """Random queries and keys of a width; the same numbers whatever the score."""
    random = torch.Generator().manual_seed(seed)
    q = torch.randn(1, 1, QUERIES, width, generator=random)
    k = torch.randn(1, 1, keys, width, generator=random)
    scores = score(q, k).double().requires_grad_()  # 1 1 T S
    weights = softmax_over(scores, None)
    squares = 0.0
    for column in range(keys):
        (gradient,) = torch.autograd.grad(weights[..., column].sum(), scores, retain_graph=True)
        squares = squares + gradient.square().sum(-1)
    norms = torch.as_tensor(squares).sqrt()
    scores, weights = scores.detach(), weights.detach()
    return Saturation(float(scores.std()), float(weights.amax(-1).mean()), float(norms.mean()))


def table(name: str, found: dict[int, dict[str, Saturation]], what: str) -> ValueTable:
    rows = [[width, *(getattr(one[kind], what) for kind in SCORES)] for width, one in found.items()]
    return ValueTable(name, ["D", *SCORES], rows, ".4f")


def chart(found: dict[int, dict[str, Saturation]], what: str) -> CurveChart:
    title = {"largest": "largest weight", "gradient": "norm of the gradient"}[what]
    curves = [
        Curve(f"{title}, {kind}", [Point(log2(width), getattr(one[kind], what)) for width, one in found.items()])
        for kind in SCORES
    ]
    return CurveChart("", curves, "log2 D")
