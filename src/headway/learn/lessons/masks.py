"""Masks: which key a query may see, and what happens without.

A mask is a yes or no for each pair of a query and a key. Hidden scores are replaced by −∞ before the softmax, so that
the others still sum to 1. We draw four masks, look for leaks by changing tokens that must not count, and train a
next-token model with and without the causal mask on symbols that cannot be predicted.

Axes:  B batch   T queries   S keys   C width   V symbols
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.figures import HeatMap, Plot
from headway.learn.experiment import fit, loss_chart, mean
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.learn.lesson_models import block, language_model
from headway.nn.attention import SelfAttention
from headway.nn.embed import SinusoidalPosition
from headway.ops.attend import DOT, attention_weights, softmax_over
from headway.ops.pattern import Causal, Full, Pattern, Positions, Prefix, Window

FAST = {"tokens": 6, "training_steps": 3, "dim": 8}
SYMBOLS = 8
PATTERNS: dict[str, Pattern] = {
    "full": Full(),
    "causal": Causal(),
    "window": Window(1),
    "prefix": Prefix(3),
}


def kept(pattern: Pattern, tokens: int) -> Tensor:
    """T S, True where a key may be seen."""
    places = Positions.run(0, tokens).at
    found = pattern.keep(places, places)
    return torch.ones(tokens, tokens, dtype=torch.bool) if found is None else found[0]


def losses_of(pattern: Pattern, dim: int, training_steps: int, tokens: int = 16) -> list[float]:
    """Losses of predicting the next of random symbols, which nobody can."""
    torch.manual_seed(4)
    layers = [block(SelfAttention(dim, 2, pattern=pattern), dim) for _ in range(2)]
    model = language_model(SYMBOLS, dim, layers, SinusoidalPosition(dim))

    def loss() -> Tensor:
        rows = torch.randint(SYMBOLS, (32, tokens + 1))
        return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    return fit(model, loss, training_steps)


def steps(tokens: int = 8, training_steps: int = 500, dim: int = 32) -> Iterator[ExplanationStep]:
    q, k = torch.randn(1, 1, tokens, dim), torch.randn(1, 1, tokens, dim)
    masks = {name: kept(pattern, tokens) for name, pattern in PATTERNS.items()}
    weights = {
        name: attention_weights(q, k, keep=keep[None], bias=None, causal=False, score=DOT)[0, 0]
        for name, keep in masks.items()
    }
    names = [str(at + 1) for at in range(tokens)]
    visible = {name: int(keep.sum()) for name, keep in masks.items()}
    yield ExplanationStep(
        "Four masks, and the weights that they leave.",
        [
            "Rows are queries, columns keys; each row of weights sums to 1 over what it may see. The window sees one "
            "neighbour on each side, the prefix mask the first three tokens and everything before.",
        ],
        [
            ValueTable(
                "visible pairs",
                ["mask", f"of {tokens**2} pairs", "smallest sum of a row"],
                [[name, visible[name], float(weights[name].sum(-1).min())] for name in PATTERNS],
                ".6f",
            )
        ],
        figure=Plot(
            "weights under four masks",
            [HeatMap(name, found.tolist(), names, names, "query", "key") for name, found in weights.items()],
            columns=2,
        ),
        question=Question(f"How many of {tokens**2} pairs does the causal mask keep?", visible["causal"]),
    )
    scores = DOT(q, k)[0, 0]
    before = softmax_over(scores, masks["causal"])
    after = softmax_over(scores, None) * masks["causal"]
    finite = softmax_over(torch.where(masks["causal"], scores, -1e9), None)
    yield ExplanationStep(
        "Hide before the softmax, not after.",
        [
            "Weights that are set to 0 after the softmax leave rows that sum to less than 1, and hidden keys still "
            "count through the denominator. −1e9 in place of −∞ gives the same unless a row sees nothing.",
        ],
        [
            ValueTable(
                "sums of rows",
                ["query", "−∞ before", "0 after"],
                [[at + 1, float(before[at].sum()), float(after[at].sum())] for at in range(tokens)],
                ".4f",
            ),
            ValueTable(
                "−1e9 and −∞", ["largest difference of weights"], [[float((finite - before).abs().max())]], ".1e"
            ),
        ],
        question=Question(
            "To how much does the first query's row sum where its weights are hidden after the softmax?",
            float(after[0].sum()),
            tolerance=0.02,
        ),
    )
    x = torch.randn(1, tokens, dim)
    changed = x.clone()
    changed[:, -1] += 1.0
    leak = dict[str, float]()
    for name, pattern in PATTERNS.items():
        layer = SelfAttention(dim, 2, pattern=pattern)
        with torch.no_grad():
            leak[name] = float((layer(x) - layer(changed))[:, 0].abs().max())
    losses = {name: losses_of(PATTERNS[name], dim, training_steps) for name in ("full", "causal")}
    tail = max(1, training_steps // 10)
    final = {name: mean(values[-tail:]) for name, values in losses.items()}
    yield ExplanationStep(
        "A leak, and a model that cheats.",
        [
            "First the change of the first output when the last token changes. Then two models learn to predict the "
            f"next of {SYMBOLS} random symbols. Nothing can be known: the best honest loss is log {SYMBOLS} = "
            f"{log(SYMBOLS):.4f}. Without a mask the model reads the next symbol and copies it.",
        ],
        [
            ValueTable("leak", ["mask", "change of the first output"], list(leak.items()), ".2e"),
            ValueTable(
                "loss on symbols that cannot be predicted",
                ["mask", f"mean of the last {tail} steps"],
                list(final.items()),
                ".4f",
            ),
        ],
        figure=Plot(
            "predicting random symbols",
            [loss_chart("loss, mean of 20 steps", losses)],
        ),
        question=Question(
            "Which model has the smaller loss at the end?", min(final, key=lambda name: final[name]), tuple(final)
        ),
        conclusion=f"A loss of {final['full']:.3f} below {log(SYMBOLS):.3f} is a leak, not knowledge.",
    )
