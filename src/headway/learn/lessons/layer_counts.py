"""Fully connected, convolution, attention: what N vectors of width D cost, and who sees whom.

A fully connected layer from N·D to N·D numbers has (N·D)² weights: D²N². A convolution over k neighbours has kD², and
sees only them; of one neighbour, each vector alone. Self-attention has 4D², whatever N, and connects all: its
connections are computed from the vectors themselves.

Axes:  N vectors   D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from headway.figures import HeatMap, Plot
from headway.learn.experiment import count
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable
from headway.nn.attention import UNBIASED, SelfAttention

FAST = {"vectors": 4, "dim": 4}
KERNEL = 3


class FullyConnected(nn.Module):
    """All numbers to all numbers.  B N D → B N D"""

    def __init__(self, vectors: int, dim: int):
        super().__init__()
        self.weight = nn.Linear(vectors * dim, vectors * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight(x.flatten(1)).view_as(x)


class OverNeighbours(nn.Conv1d):
    """A convolution over `kernel` vectors.  B N D → B N D"""

    def __init__(self, dim: int, kernel: int):
        super().__init__(dim, dim, kernel, padding=kernel // 2, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.mT).mT


LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "fully connected": FullyConnected,
    f"convolution, {KERNEL}": lambda n, d: OverNeighbours(d, KERNEL),
    "convolution, 1": lambda n, d: OverNeighbours(d, 1),
    "attention": lambda n, d: SelfAttention(d, 1, bias=UNBIASED),
}


def formula_count(name: str, n: int, d: int) -> int:
    known = {"fully connected": d**2 * n**2, f"convolution, {KERNEL}": KERNEL * d**2, "convolution, 1": d**2}
    return known.get(name, 4 * d**2)


def influence(layer: nn.Module, x: Tensor) -> Tensor:
    """How much each input vector counts for each output vector: the norm of that block of the Jacobian, N N."""
    jacobian: Tensor = torch.autograd.functional.jacobian(lambda y: layer(y[None])[0], x)  # pyright: ignore
    return jacobian.square().sum((1, 3)).sqrt()


def steps(vectors: int = 12, dim: int = 16, large: int = 1000, large_dim: int = 1024) -> Iterator[ExplanationStep]:
    layers = {name: make(vectors, dim) for name, make in LAYERS.items()}
    counted = {name: count(layer) for name, layer in layers.items()}
    assert counted == {name: formula_count(name, vectors, dim) for name in LAYERS}
    big = {name: formula_count(name, large, large_dim) for name in LAYERS}
    yield ExplanationStep(
        "Weights, counted in real layers and extrapolated by formula.",
        [
            f"For N = {vectors}, D = {dim} the layers are built and their parameters counted; for N = {large}, "
            f"D = {large_dim} the formulas that fit those counts are used.",
        ],
        [
            ValueTable(
                "parameters",
                ["layer", f"N = {vectors}, D = {dim}", f"N = {large}, D = {large_dim}"],
                [[name, counted[name], big[name]] for name in LAYERS],
            )
        ],
        Formula("D²N²,  kD²,  D²,  4D²", r"D^2 N^2,\quad k D^2,\quad D^2,\quad 4 D^2"),
        question=Question(
            f"How many times the weights of attention does a fully connected layer have at N = {large}, "
            f"D = {large_dim}?",
            big["fully connected"] / big["attention"],
            tolerance=0.5,
        ),
    )
    x, other = torch.randn(vectors, dim), torch.randn(vectors, dim)
    maps = {name: influence(layer, x) for name, layer in layers.items()}
    pairs = {name: int((found > 0).sum()) for name, found in maps.items()}
    names = [str(at + 1) for at in range(vectors)]
    yield ExplanationStep(
        "Who sees whom: the Jacobian of each layer.",
        [
            f"Rows are the {vectors} outputs, columns the inputs; colour is the norm of the derivative. The "
            "convolution has a band, the convolution of one vector a diagonal.",
        ],
        [
            ValueTable(
                "pairs that interact",
                ["layer", f"of {vectors**2} pairs", "outputs that the first input reaches"],
                [[name, pairs[name], int((found[:, 0] > 0).sum())] for name, found in maps.items()],
            )
        ],
        figure=Plot(
            "influence of inputs (columns) on outputs (rows)",
            [HeatMap(name, found.tolist(), names, names, "output", "input") for name, found in maps.items()],
            columns=2,
        ),
        question=Question(
            f"Of {vectors**2} pairs, how many interact in a convolution over {KERNEL} vectors?",
            pairs[f"convolution, {KERNEL}"],
        ),
    )
    change = {
        name: float((influence(layer, other) - maps[name]).norm() / maps[name].norm()) for name, layer in layers.items()
    }
    yield ExplanationStep(
        "Fixed connections, or connections made from the data.",
        [
            "How much the map of influence changes for other vectors, relative to its norm. The weights of the first "
            "three are the map; attention computes its own for each input.",
        ],
        [ValueTable("change of the map", ["layer", "relative change"], list(change.items()), ".3f")],
        question=Question(
            "Which layer connects other vectors differently?", max(change, key=lambda name: change[name]), list(LAYERS)
        ),
        conclusion=f"With {big['attention']:,} weights against {big['fully connected']:,}, attention still connects "
        f"{pairs['attention']} of {vectors**2} pairs.",
    )
