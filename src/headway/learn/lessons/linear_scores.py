"""A literally linear score function gives every query the same weights.

A score function f_att(s, h) is sometimes called a linear layer of the concatenated query and key. If it were exactly
that, the score would be a sum of a part that depends on the query and a part that depends on the key. The softmax over
keys cancels the first: all queries look at the same keys. One nonlinearity (an MLP, as in additive attention) or a
product of query and key (dot product) is what makes attention depend on the query.

Axes:  T queries   S keys   D width
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import HeatMap, Plot
from headway.learn.experiment import fit, mean
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable
from headway.nn.learned_score import AdditiveScore
from headway.ops.attend import DOT, Score, attention_weights

FAST = {"keys": 4, "training_steps": 3}


class LinearScore(nn.Module):
    """w · [q ; k] + b: linear in the concatenation."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Linear(2 * dim, 1)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        pairs = torch.cat(torch.broadcast_tensors(q[:, :, :, None], k[:, :, None]), -1)  # B H T S 2D
        return self.weight(pairs)[..., 0]


def weights_of(score: Score, q: Tensor, k: Tensor) -> Tensor:
    """T S"""
    return attention_weights(q[None, None], k[None, None], keep=None, bias=None, causal=False, score=score)[0, 0]


def disagreement(weights: Tensor) -> float:
    """The largest difference of a weight between two queries."""
    return float((weights.amax(0) - weights.amin(0)).max())


def accuracy(score: nn.Module, parts: list[nn.Module], table: Tensor, training_steps: int) -> float:
    """How often the right key has the largest weight, after learning to find it."""
    query, key = parts

    def found(wanted: Tensor) -> Tensor:
        return weights_of(score, query(table[wanted]), key(table))

    def loss() -> Tensor:
        wanted = torch.randint(len(table), (64,))
        return F.nll_loss(found(wanted).clamp(min=1e-30).log(), wanted)

    fit(nn.ModuleList([score, query, key]), loss, training_steps, lr=1e-2)
    wanted = torch.arange(len(table))
    return mean([float(x) for x in found(wanted).argmax(-1) == wanted])


def steps(keys: int = 8, dim: int = 16, training_steps: int = 300) -> Iterator[ExplanationStep]:
    q, k = torch.randn(keys, dim), torch.randn(keys, dim)
    scores: dict[str, nn.Module | Score] = {
        "linear": LinearScore(dim),
        "MLP": AdditiveScore(dim),
        "dot product": DOT,
    }
    with torch.no_grad():
        maps = {name: weights_of(score, q, k) for name, score in scores.items()}
    spread = {name: disagreement(weights) for name, weights in maps.items()}
    names = [str(at + 1) for at in range(keys)]
    yield ExplanationStep(
        "Three score functions on the same random queries and keys.",
        [
            f"{keys} queries (rows), {keys} keys (columns). Look at the rows: with a linear score they are equal. The "
            "table has the largest difference of one key's weight between any two queries.",
        ],
        [ValueTable("difference between queries", ["score", "largest difference"], list(spread.items()), ".2e")],
        Formula(
            "softmax_j(w_q · q_i + w_k · k_j) = softmax_j(w_k · k_j)",
            r"\operatorname{softmax}_j(w_q \cdot q_i + w_k \cdot k_j) = \operatorname{softmax}_j(w_k \cdot k_j)",
        ),
        figure=Plot(
            "weights of three score functions",
            [HeatMap(name, weights.tolist(), names, names, "query", "key") for name, weights in maps.items()],
        ),
        question=Question(
            "Which score function gives all queries the same weights?",
            min(spread, key=lambda name: spread[name]),
            list(scores),
        ),
    )
    moved = q.clone()
    moved[0] += 3.0
    with torch.no_grad():
        change = {
            name: float((weights_of(score, moved, k)[0] - maps[name][0]).abs().max()) for name, score in scores.items()
        }
    yield ExplanationStep(
        "Move a query: do its weights move?",
        ["3 is added to every number of the first query; the table has the largest change of its weights."],
        [ValueTable("change of weights", ["score", "largest change"], list(change.items()), ".2e")],
        question=Question(
            "How many of the three score functions answer to the query (by more than 0.001)?",
            sum(value > 1e-3 for value in change.values()),
        ),
    )
    table, tried = torch.randn(keys, dim), {"linear": LinearScore(dim), "MLP": AdditiveScore(dim)}
    exact = {
        name: accuracy(score, [nn.Linear(dim, dim), nn.Linear(dim, dim)], table, training_steps)
        for name, score in tried.items()
    }
    yield ExplanationStep(
        "Can it learn to look something up?",
        [
            f"Each of {keys} vectors asks for itself; {training_steps} steps of training with the linear score and "
            f"with the MLP. One key for all queries is right for one of {keys}: {1 / keys:.3f}.",
        ],
        [ValueTable("right key found", ["score", "share of queries"], list(exact.items()), ".3f")],
        question=Question(
            f"Of the {keys} queries, how many does the linear score answer rightly?", round(exact["linear"] * keys)
        ),
        conclusion=f"Linear {exact['linear']:.3f}, MLP {exact['MLP']:.3f}: it is the nonlinearity that attends.",
    )
