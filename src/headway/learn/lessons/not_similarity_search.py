"""Attention is not a similarity search.

It is often told as "find the most similar vectors". Without W_q and W_k it is that, and every token finds itself:
nothing is as similar to x as x. With them the score x_i W_q W_kᵀ x_jᵀ is no similarity: it is not symmetric, and a
head can learn to look at what is least alike. A counter-example: a head that must find the successor of each symbol.

Axes:  N vectors   D width
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import CurveChart, HeatMap, Plot
from headway.learn.experiment import curve, fit, mean
from headway.learn.explanation import ExplanationStep, Formula, Question, ValueTable
from headway.ops.attend import DOT, attention_weights

FAST = {"symbols": 5, "training_steps": 3, "widths": (4, 16)}


def weights_of(q: Tensor, k: Tensor) -> Tensor:
    """N N"""
    return attention_weights(q[None, None], k[None, None], keep=None, bias=None, causal=False, score=DOT)[0, 0]


def steps(
    symbols: int = 10, dim: int = 32, training_steps: int = 300, widths: tuple[int, ...] = (4, 16, 64, 256, 1024)
) -> Iterator[ExplanationStep]:
    own = {"without W_q, W_k": list[float](), "with random W_q, W_k": list[float]()}
    for width in widths:
        x = torch.randn(symbols, width)
        wq, wk = torch.randn(width, width) / width**0.5, torch.randn(width, width) / width**0.5
        own["without W_q, W_k"].append(float(weights_of(x, x).diagonal().mean()))
        own["with random W_q, W_k"].append(float(weights_of(x @ wq, x @ wk).diagonal().mean()))
    yield ExplanationStep(
        "Without W_q and W_k every token finds itself.",
        [
            f"{symbols} random vectors, scaled dot products: the mean weight that a token gives itself; "
            f"{1 / symbols:.3f} would be uniform. x · x / √D grows as √D, x · y / √D does not.",
        ],
        [
            ValueTable(
                "weight on itself",
                ["D", *own],
                [[d, *(values[at] for values in own.values())] for at, d in enumerate(widths)],
                ".4f",
            )
        ],
        figure=Plot(
            "mean weight of a token on itself",
            [CurveChart("", [curve(name, widths, values) for name, values in own.items()], "D", xscale="log")],
        ),
        question=Question(
            f"What is the mean weight on itself without W_q, W_k at D = {widths[-1]}?",
            own["without W_q, W_k"][-1],
            tolerance=0.1,
        ),
    )
    x = torch.randn(symbols, dim)
    query, key = nn.Linear(dim, dim, False), nn.Linear(dim, dim, False)
    wanted = torch.arange(symbols).roll(-1)  # each symbol's successor, the last one's is the first

    def loss() -> Tensor:
        return F.nll_loss(weights_of(query(x), key(x)).clamp(min=1e-30).log(), wanted)

    fit(nn.ModuleList([query, key]), loss, training_steps, lr=1e-2)
    with torch.no_grad():
        learned, plain = weights_of(query(x), key(x)), weights_of(x, x)
        scores = query(x) @ key(x).mT
    found = {
        "similarity (x · x)": float((plain.argmax(-1) == wanted).float().mean()),
        "learned W_q, W_k": float((learned.argmax(-1) == wanted).float().mean()),
    }
    names = [chr(65 + at % 26) for at in range(symbols)]
    yield ExplanationStep(
        "A counter-example: look at your successor.",
        [
            f"{symbols} random vectors, each to find the next one. Similarity can only find the vector itself; W_q and "
            f"W_k learn it in {training_steps} steps.",
        ],
        [ValueTable("successor found", ["score", "share of queries"], list(found.items()), ".3f")],
        Formula("score_ij = x_i W_q W_kᵀ x_jᵀ", r"s_{ij} = x_i W_q W_k^\top x_j^\top"),
        figure=Plot(
            "who looks at whom",
            [
                HeatMap(title, found_weights.tolist(), names, names, "query", "key", limits=(0.0, 1.0))
                for title, found_weights in (("similarity", plain), ("learned", learned))
            ],
        ),
        question=Question(
            "Of all queries, which share does similarity send to the successor?",
            found["similarity (x · x)"],
            tolerance=0.05,
        ),
    )
    cosine = F.cosine_similarity(x[:, None], x[None], -1)
    rank = [int((cosine[at] > cosine[at, int(learned[at].argmax())]).sum()) + 1 for at in range(symbols)]
    skew = float((scores - scores.mT).norm() / scores.norm())
    yield ExplanationStep(
        "Not symmetric, not nearest.",
        [
            "A similarity is symmetric: s_ij = s_ji. And the vector that gets most weight is seldom the most similar "
            "one: its rank by cosine, 1 being the vector itself.",
        ],
        [
            ValueTable("asymmetry", ["score", "|S − Sᵀ| / |S|"], [["similarity", 0.0], ["learned", skew]], ".3f"),
            ValueTable(
                "rank by cosine of what is looked at",
                ["symbol", "rank"],
                [[name, at] for name, at in zip(names, rank, strict=True)],
            ),
        ],
        question=Question(
            "Is the learned score symmetric (difference below 1 %)?", "yes" if skew < 0.01 else "no", ("yes", "no")
        ),
        conclusion=f"Learned: successor found in {found['learned W_q, W_k']:.2f}, mean rank by similarity "
        f"{mean([float(r) for r in rank]):.1f} of {symbols}, asymmetry {skew:.2f}.",
    )
