"""Superposition: more features than dimensions.

A model with two hidden dimensions has five features to pass on. Dense features: it keeps the two most important ones
and drops the rest. Sparse features hardly ever meet, and the model packs more of them into the same plane, as pairs
that oppose each other and as pentagons, at the price of some interference.

Axes:  F features   M hidden dimensions
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.figures import CurveChart, Drawing, Plot
from headway.inspect.toy_models import superposition
from headway.learn.experiment import curve
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable

FAST = {"training_steps": 20, "sparsities": (0.0, 0.9)}


def steps(
    features: int = 5,
    hidden: int = 2,
    sparsities: tuple[float, ...] = (0.0, 0.7, 0.9, 0.99),
    training_steps: int = 2000,
) -> Iterator[ExplanationStep]:
    found = superposition(features, hidden, sparsities, steps=training_steps).models
    first, last = found[0], found[-1]
    yield ExplanationStep(
        "How many features are represented, by sparsity.",
        [
            f"{features} features through {hidden} dimensions, {training_steps} steps of training, the best of several "
            "restarts. A feature counts as represented if its direction is longer than 0.5.",
        ],
        [
            ValueTable(
                "represented features",
                ["sparsity", "represented", "dimensions for each", "loss"],
                [[f"{one.sparsity:g}", one.count, one.dimensions_per_feature, one.loss] for one in found],
                ".4f",
            )
        ],
        Formula("x′ = relu(W Wᵀ x + b)", r"x' = \operatorname{relu}(W W^\top x + b)"),
        figure=Plot(
            "directions of the features in the hidden plane",
            [
                Drawing(f"sparsity {one.sparsity:g}: {one.count} of {features}", one.draw_directions, 1.9, 1.9)
                for one in found
            ],
            columns=4,
        ),
        question=Question(f"How many of {features} features are represented when all are dense?", first.count),
    )
    order = sorted(range(features), key=lambda at: -float(first.norms[at]))
    yield ExplanationStep(
        "Dense: the most important ones win.",
        ["Length of each feature's direction. Feature 0 matters most, each next one a tenth less."],
        [
            ValueTable(
                "lengths",
                ["sparsity", *(f"feature {at}" for at in range(features))],
                [[f"{one.sparsity:g}", *one.norms.tolist()] for one in (first, last)],
                ".2f",
            )
        ],
        question=Question("Which dense feature has the longest direction?", float(order[0])),
    )
    interference = [float(one.interference.mean()) for one in found]
    yield ExplanationStep(
        "The price: interference.",
        [
            "How much of the other features is read along the direction of one, mean of the features. It costs only "
            "when two features are present at once, which sparse ones seldom are.",
        ],
        [
            ValueTable(
                "interference",
                ["sparsity", "mean interference"],
                [[f"{one.sparsity:g}", value] for one, value in zip(found, interference, strict=True)],
                ".3f",
            )
        ],
        figure=Plot(
            "features and interference by sparsity",
            [
                CurveChart("", [curve("represented", sparsities, [one.count for one in found])], "sparsity"),
                CurveChart("", [curve("interference", sparsities, interference)], "sparsity"),
            ],
        ),
        question=Question(
            f"Which sparsity represents the most features: {', '.join(f'{s:g}' for s in sparsities)}?",
            f"{max(found, key=lambda one: (one.count, one.sparsity)).sparsity:g}",
            tuple(f"{s:g}" for s in sparsities),
        ),
        conclusion=f"Sparsity {first.sparsity:g}: {first.count} features; {last.sparsity:g}: {last.count}.",
    )
