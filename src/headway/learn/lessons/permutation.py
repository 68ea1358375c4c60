"""Permutation: self-attention is a function of sets.

If the inputs change places, the outputs of self-attention change places with them, and nothing else happens: F(σX) =
σF(X). A mean over the outputs is then the same for every order. Positions and a causal mask end this. A model without
positions is what a set needs: we train one to count, beside a recurrent network that reads the set in some order.

Axes:  B batch   N elements   C width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import BarChart, Plot
from headway.learn.experiment import fit, mean
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable
from headway.learn.lesson_models import block
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack
from headway.nn.embed import SinusoidalPosition
from headway.nn.head import MeanPool
from headway.nn.recurrent import RecurrentEncoder
from headway.ops.pattern import Causal

FAST = {"elements": 5, "training_steps": 3, "dim": 8}
KINDS = 4  # of elements, of which sets are made


class SetClassifier(nn.Module):
    """Mean over what a body makes of the elements, and a class: B N → B K"""

    def __init__(self, dim: int, body: nn.Module, classes: int):
        super().__init__()
        self.embed, self.body, self.pool = nn.Embedding(KINDS, dim), body, MeanPool()
        self.out = nn.Linear(dim, classes)

    def forward(self, elements: Tensor) -> Tensor:
        return self.out(self.pool(self.body(self.embed(elements))))


def train(model: nn.Module, elements: int, training_steps: int) -> None:
    """To say how many elements are of kind 0."""

    def loss() -> Tensor:
        rows = torch.randint(KINDS, (64, elements))
        return F.cross_entropy(model(rows), (rows == 0).sum(1))

    fit(model, loss, training_steps)


@torch.no_grad()
def answers(model: nn.Module, elements: int, orders: int) -> tuple[float, float]:
    """Accuracy, and the share of sets whose answer is the same in all of several orders."""
    rows = torch.randint(KINDS, (256, elements))
    said = torch.stack([model(rows[:, torch.randperm(elements)]).argmax(-1) for _ in range(orders)])
    right = (said == (rows == 0).sum(1)).float().mean()
    return float(right), float((said == said[0]).all(0).float().mean())


def steps(elements: int = 10, training_steps: int = 300, dim: int = 32) -> Iterator[ExplanationStep]:
    x, order = torch.randn(1, elements, dim), torch.randperm(elements)
    while bool((order == torch.arange(elements)).all()):
        order = torch.randperm(elements)
    plain, masked, mark = SelfAttention(dim, 2), SelfAttention(dim, 2, pattern=Causal()), SinusoidalPosition(dim)
    layers: dict[str, Callable[[Tensor], Tensor]] = {
        "self-attention": plain,
        "with positions": lambda y: plain(mark(y)),
        "with a causal mask": masked,
        "recurrent": RecurrentEncoder(dim, dim),
    }
    with torch.no_grad():
        equivariant = {name: float((f(x[:, order]) - f(x)[:, order]).abs().max()) for name, f in layers.items()}
        invariant = {name: float((f(x[:, order]).mean(1) - f(x).mean(1)).abs().max()) for name, f in layers.items()}
    exact = [name for name, value in equivariant.items() if value < 1e-5]
    yield ExplanationStep(
        "Permute the inputs: is the output permuted?",
        [f"The largest difference of F(σX) and σF(X) for {elements} random vectors; 1e-7 is rounding."],
        [ValueTable("difference from equivariance", ["layer", "F(σX) − σF(X)"], list(equivariant.items()), ".1e")],
        Formula("F(σX) = σF(X)", r"F(\sigma X) = \sigma F(X)"),
        question=Question("How many of the four layers are equivariant (difference below 1e-5)?", len(exact)),
    )
    yield ExplanationStep(
        "A mean over the outputs.",
        ["The same inputs in another order, and the mean of the outputs: invariant where the layer is equivariant."],
        [ValueTable("difference of means", ["layer", "difference"], list(invariant.items()), ".1e")],
        question=Question(
            "Which layer's mean is the same in every order?",
            min(invariant, key=lambda name: invariant[name]),
            tuple(layers),
        ),
    )
    bodies = {
        "self-attention": Stack([block(SelfAttention(dim, 2), dim) for _ in range(2)]),
        "recurrent": RecurrentEncoder(dim, dim, layers=2),
    }
    found = dict[str, tuple[float, float]]()
    for name, body in bodies.items():
        model = SetClassifier(dim, body, elements + 1)
        train(model, elements, training_steps)
        found[name] = answers(model, elements, orders=8)
    same = {name: values[1] for name, values in found.items()}
    yield ExplanationStep(
        "A set classifier: how many elements are of the first kind?",
        [
            f"Sets of {elements} elements of {KINDS} kinds, {training_steps} steps. 256 new sets, each in 8 orders: "
            "accuracy, and the share of sets that get the same answer in all orders.",
        ],
        [
            ValueTable(
                "sets",
                ["model", "accuracy", "same answer in 8 orders"],
                [[name, *values] for name, values in found.items()],
                ".3f",
            )
        ],
        figure=Plot(
            "share of sets with the same answer in 8 orders",
            [BarChart("", list(same), list(same.values()), "share")],
        ),
        question=Question(
            "Which model's answer never depends on the order?", max(same, key=lambda n: same[n]), tuple(same)
        ),
        conclusion=f"Same answer in all orders: self-attention {same['self-attention']:.3f}, recurrent "
        f"{same['recurrent']:.3f}; mean accuracy {mean([values[0] for values in found.values()]):.3f}.",
    )
