"""From a GRU to attention: five rungs, each a layer that is trained.

A gated recurrent unit is a weighted sum of candidates whose weights are products of gates, so old candidates fade.
Free the weights (a softmax over scores), free the candidates from the state, separate keys from values, take several
heads: the last rung is masked self-attention. Each rung learns the same recall task, at a short and at a long
distance.

Axes:  B batch   T steps   C width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import CurveChart, Plot
from headway.learn.experiment import best, count, curve, fit, longest_chain
from headway.learn.explain_gru import GatedRun, unrolled_weights
from headway.learn.explain_gru import run as run_cell
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable
from headway.nn.attention import SelfAttention
from headway.nn.recurrent import GRUCell, RecurrentEncoder
from headway.ops.attend import attend
from headway.ops.pattern import Causal

FAST = {"distances": (1, 4), "training_steps": 2, "dim": 8}
PAIRS, KEYS = 4, 8


class FreeWeights(nn.Module):
    """Rung 2: Σ α_i h̃_i over the states so far, α by a softmax of their scores with the input.  B T C → B T C"""

    def __init__(self, dim: int):
        super().__init__()
        self.reader = RecurrentEncoder(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        states = self.reader(x)[:, None]
        return attend(x[:, None], states, states, causal=True)[:, 0]


class FreeCandidates(nn.Module):
    """Rung 3: Σ α_i f(x_i), f of each input alone.  B T C → B T C"""

    def __init__(self, dim: int):
        super().__init__()
        self.candidate = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        candidates = torch.tanh(self.candidate(x))[:, None]
        return attend(x[:, None], candidates, candidates, causal=True)[:, 0]


RUNGS: dict[str, Callable[[int], nn.Module]] = {
    "1 GRU": lambda dim: RecurrentEncoder(dim, dim),
    "2 free weights": FreeWeights,
    "3 free candidates": FreeCandidates,
    "4 keys and values": lambda dim: SelfAttention(dim, 1, pattern=Causal()),
    "5 many heads": lambda dim: SelfAttention(dim, 4, pattern=Causal()),
}


class Recall(nn.Module):
    """Embeddings of pairs (key and value in one token), a rung, and the value that belongs to the last key."""

    def __init__(self, rung: nn.Module, dim: int):
        super().__init__()
        self.key, self.value = nn.Embedding(KEYS + 1, dim), nn.Embedding(KEYS + 1, dim)
        self.rung, self.out = rung, nn.Linear(dim, KEYS)

    def forward(self, keys: Tensor, values: Tensor) -> Tensor:
        x = self.key(keys) + self.value(values)
        return self.out((x + self.rung(x))[:, -1])


def rows(batch: int, distance: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs, then empty tokens up to the distance, then a key alone; and the value that belongs to it."""
    keys = torch.rand(batch, KEYS).argsort(1)[:, :PAIRS]
    values = torch.randint(KEYS, (batch, PAIRS))
    asked = torch.randint(PAIRS, (batch, 1))
    empty = torch.full((batch, distance), KEYS)
    question = keys.gather(1, asked)
    tokens = torch.cat((keys, empty, question), 1)
    return tokens, torch.cat((values, empty, torch.full_like(question, KEYS)), 1), values.gather(1, asked)[:, 0]


def accuracy(name: str, dim: int, distance: int, training_steps: int) -> float:
    torch.manual_seed(7)
    model = Recall(RUNGS[name](dim), dim)

    def loss() -> Tensor:
        keys, values, wanted = rows(64, distance)
        return F.cross_entropy(model(keys, values), wanted)

    fit(model, loss, training_steps, lr=1e-2)
    with torch.no_grad():
        keys, values, wanted = rows(512, distance)
        return float((model(keys, values).argmax(-1) == wanted).float().mean())


def steps(
    distances: tuple[int, ...] = (1, 8, 32), training_steps: int = 400, dim: int = 32
) -> Iterator[ExplanationStep]:
    cell, x = GRUCell(dim, dim), torch.randn(max(distances), dim)
    with torch.no_grad():
        found: GatedRun = run_cell(cell, x)
    weights = unrolled_weights(found.u)
    error = float(((weights * found.candidates).sum(0) - found.h[-1]).abs().max())
    share = weights.mean(1)
    half = int((share > share[-1] / 100).sum())
    yield ExplanationStep(
        "Rung 1: a GRU is a weighted sum of candidates, and its weights fade.",
        [
            f"A random GRU of width {dim}, {len(x)} steps: the mean weight of each candidate in the last state. The "
            f"sum over candidates gives the state to within {error:.0e}.",
        ],
        [ValueTable("steps that count", ["steps", "with more than 1 % of the last one's weight"], [[len(x), half]])],
        Formula(
            "h_t = Σ_i (Π_(j>i) u_j) ⊙ (1 − u_i) ⊙ h̃_i",
            r"h_t = \sum_i \Big(\prod_{j>i} u_j\Big) \odot (1 - u_i) \odot \tilde h_i",
        ),
        figure=Plot(
            "weight of each candidate in the last state of a random GRU",
            [CurveChart("", [curve("mean weight", range(1, len(x) + 1), share.tolist())], "step", yscale="log")],
        ),
        question=Question(
            f"Of {len(x)} steps, how many have more than 1 % of the last one's weight?", half, tolerance=1
        ),
    )
    chains = {
        name: [longest_chain(make(dim)(torch.randn(1, n, dim))) for n in (16, 32)] for name, make in RUNGS.items()
    }
    growing = [name for name, (short, long) in chains.items() if long > short]
    yield ExplanationStep(
        "The rungs, and how many operations follow one another.",
        ["The longest chain of operations for 16 and 32 steps: it no longer grows once candidates are free."],
        [
            ValueTable(
                "rungs",
                ["rung", "chain, 16 steps", "chain, 32 steps", "parameters"],
                [[name, *chains[name], count(make(dim))] for name, make in RUNGS.items()],
            )
        ],
        question=Question("On how many rungs does the chain grow with the length?", len(growing)),
    )
    right = {name: [accuracy(name, dim, n, training_steps) for n in distances] for name in RUNGS}
    last = {name: values[-1] for name, values in right.items()}
    yield ExplanationStep(
        "Each rung learns to recall.",
        [
            f"{PAIRS} pairs of a key and a value, then empty tokens, then a key: which value belonged to it? Accuracy "
            f"on 512 new rows after {training_steps} steps, by the number of empty tokens; a guess is right in "
            f"{1 / KEYS:.3f}, one of the values shown in about {1 / PAIRS:.2f}. One run each.",
        ],
        [
            ValueTable(
                "recall",
                ["rung", *(f"{n} empty" for n in distances)],
                [[name, *values] for name, values in right.items()],
                ".3f",
            )
        ],
        figure=Plot(
            "recall by distance",
            [
                CurveChart(
                    "", [curve(name, distances, values) for name, values in right.items()], "empty tokens", height=2.4
                )
            ],
        ),
        question=Question(
            f"Which of rungs 1 and 5 is better with {distances[-1]} empty tokens?",
            best({name: last[name] for name in ("1 GRU", "5 many heads")}),
            ("1 GRU", "5 many heads"),
        ),
        conclusion=f"With {distances[-1]} empty tokens: "
        + ", ".join(f"rung {name} {value:.2f}" for name, value in last.items())
        + ".",
    )
