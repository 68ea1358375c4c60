"""One head against many, at equal size.

A head has one set of weights: if it must look at two places it gives each a part, and their values blur into one sum.
Several heads of D/H each cost as much as one of width D and look at several places at once. One layer of attention
must say which symbols stood two and five tokens before, both.

Axes:  B batch   T tokens   C width   H heads   V symbols
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import HeatMap, Plot
from headway.learn.experiment import count, fit, loss_chart, mean
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.nn.attention import SelfAttention
from headway.nn.bias import T5Bias
from headway.nn.embed import TokenEmbed
from headway.nn.trace import record
from headway.ops.attention_map import Readable
from headway.ops.pattern import Causal
from headway.ops.relative import t5_bucket_backward

FAST = {"heads": (1, 2), "training_steps": 3, "dim": 8}
SYMBOLS, TOKENS, NEAR, FAR = 12, 16, 2, 5


class TwoPlaces(nn.Module):
    """One layer of attention, and two readings of its output: B T → B T 2 V"""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.embed = TokenEmbed(SYMBOLS, dim)
        self.distances = T5Bias(heads, bucket=t5_bucket_backward)
        self.attention = SelfAttention(dim, heads, pattern=Causal(), logit_bias=self.distances)
        self.read = nn.Linear(dim, 2 * SYMBOLS)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read(self.attention(self.embed(tokens))).unflatten(-1, (2, SYMBOLS))


def rows(batch: int) -> tuple[Tensor, Tensor]:
    """Symbols, B T, and for the tokens from FAR on the two to be found, B T−FAR 2."""
    tokens = torch.randint(SYMBOLS, (batch, TOKENS))
    return tokens, torch.stack([tokens[:, FAR - NEAR : -NEAR], tokens[:, :-FAR]], -1)


def trained(dim: int, heads: int, training_steps: int) -> tuple[TwoPlaces, list[float]]:
    torch.manual_seed(5)
    model = TwoPlaces(dim, heads)

    def loss() -> Tensor:
        tokens, wanted = rows(64)
        return F.cross_entropy(model(tokens)[:, FAR:].flatten(0, 2), wanted.flatten())

    return model, fit(model, loss, training_steps, lr=1e-2)


@torch.no_grad()
def accuracy(model: TwoPlaces) -> float:
    """The share of tokens where both symbols are right."""
    tokens, wanted = rows(256)
    return float((model(tokens)[:, FAR:].argmax(-1) == wanted).all(-1).float().mean())


@torch.no_grad()
def last_row(model: TwoPlaces) -> Tensor:
    """The weights of the last token by head and distance, mean of 64 rows, H T."""
    with record(model, "*.weights") as trace:
        model(rows(64)[0])
    seen = trace["attention.weights"]
    assert isinstance(seen, Readable)
    return seen.full()[:, :, -1].mean(0).flip(-1)


def steps(heads: tuple[int, ...] = (1, 2, 4), training_steps: int = 400, dim: int = 32) -> Iterator[ExplanationStep]:
    found = {h: trained(dim, h, training_steps) for h in heads}
    sizes = {h: count(model.attention) - count(model.distances) for h, (model, _) in found.items()}
    yield ExplanationStep(
        "The same weights, cut into heads.",
        [
            f"Projections of one layer of width {dim}: the number of heads changes how they are used, not how many "
            "there are. Only the table of distances, 32 numbers for each head, is extra and not counted here.",
        ],
        [
            ValueTable(
                "size", ["heads", "width of a head", "weights of the layer"], [[h, dim // h, sizes[h]] for h in heads]
            )
        ],
        question=Question(
            f"How many times as many weights as one head do {heads[-1]} heads have here?", sizes[heads[-1]] / sizes[1]
        ),
    )
    right = {h: accuracy(model) for h, (model, _) in found.items()}
    tail = max(1, training_steps // 10)
    yield ExplanationStep(
        f"Say the symbols of {NEAR} and {FAR} tokens ago.",
        [
            f"{training_steps} steps; accuracy is the share of tokens of 256 new rows where both symbols are right "
            f"(a guess: {1 / SYMBOLS**2:.4f}). One run each.",
        ],
        [
            ValueTable(
                "accuracy",
                ["heads", "both right", f"loss, mean of the last {tail} steps"],
                [[h, right[h], mean(losses[-tail:])] for h, (_, losses) in found.items()],
                ".4f",
            )
        ],
        figure=Plot(
            "learning with one head and with many",
            [
                loss_chart(
                    "loss, mean of 20 steps",
                    {f"{h} heads" if h > 1 else "1 head": losses for h, (_, losses) in found.items()},
                )
            ],
        ),
        question=Question(
            "Which number of heads has the lowest accuracy?",
            str(min(heads, key=lambda h: right[h])),
            tuple(str(h) for h in heads),
        ),
    )
    maps = {h: last_row(model) for h, (model, _) in found.items()}
    near, far = (float(maps[1][0, at]) for at in (NEAR, FAR))
    yield ExplanationStep(
        "Where the heads look.",
        [
            "The last token's weights by distance, mean of 64 rows. One head divides itself; several take a place "
            "each.",
        ],
        [
            ValueTable(
                "weights by distance",
                ["heads", "head", f"{NEAR} before", f"{FAR} before"],
                [
                    [h, at + 1, float(row[NEAR]), float(row[FAR])]
                    for h, weights in maps.items()
                    for at, row in enumerate(weights)
                ],
                ".3f",
            )
        ],
        figure=Plot(
            "weights of the last token by distance",
            [
                HeatMap(
                    f"{h} heads" if h > 1 else "1 head",
                    weights.tolist(),
                    [f"head {at + 1}" for at in range(h)],
                    [str(at) for at in range(TOKENS)],
                    xlabel="tokens before",
                    limits=(0.0, 1.0),
                )
                for h, weights in maps.items()
            ],
            columns=1,
        ),
        question=Question(
            "Of the single head, what is the larger of the two weights that matter?", max(near, far), tolerance=0.15
        ),
        conclusion=f"One head: {near:.2f} and {far:.2f} on the two places, {right[1]:.3f} right; "
        f"{heads[-1]} heads: {right[heads[-1]]:.3f} right.",
    )
