"""The bottleneck: one vector for a whole sentence, measured by its length.

A recurrent encoder–decoder without attention hands the source on as one vector of fixed size. With attention the
decoder reads all encoder states anew at each step. Both learn to reverse sequences of random symbols, of short and
long ones alike, and are then tested at each length.

Axes:  B batch   S source   T target   V symbols
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.figures import CurveChart, HeatMap, Plot
from headway.learn.experiment import count, curve, fit, mean
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.nn.trace import record
from headway.nn.trunk import EncoderDecoder
from headway.zoo.rnn import Config, build

FAST = {"longest": 4, "training_steps": 2, "hidden": 8}
START, SYMBOLS = 0, 12
KINDS = {"one vector": "fixed", "attention": "additive"}


def model_of(score: str, hidden: int) -> EncoderDecoder:
    torch.manual_seed(3)
    return build(Config(vocab=SYMBOLS, dim=hidden // 2, hidden=hidden, score=score, align=hidden, readout=hidden))


def rows(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Sources, and the same reversed."""
    source = torch.randint(1, SYMBOLS, (batch, length))
    return source, source.flip(1)


def shifted(target: Tensor) -> Tensor:
    """What the decoder reads: START and the target without its last symbol."""
    return F.pad(target[:, :-1], (1, 0), value=START)


def train(model: EncoderDecoder, longest: int, training_steps: int) -> list[float]:
    """Rows of a random length from 1 to the longest."""

    def loss() -> Tensor:
        source, target = rows(32, int(torch.randint(1, longest + 1, ())))
        return F.cross_entropy(model(source, shifted(target)).flatten(0, 1), target.flatten())

    return fit(model, loss, training_steps, lr=4e-3)


@torch.no_grad()
def accuracy(model: EncoderDecoder, length: int) -> float:
    """The share of right symbols, each read behind the right ones before it."""
    source, target = rows(128, length)
    return float((model(source, shifted(target)).argmax(-1) == target).float().mean())


def steps(longest: int = 20, training_steps: int = 500, hidden: int = 64) -> Iterator[ExplanationStep]:
    models = {name: model_of(score, hidden) for name, score in KINDS.items()}
    losses = {name: train(model, longest, training_steps) for name, model in models.items()}
    tail = max(1, training_steps // 10)
    yield ExplanationStep(
        "Two models, trained alike.",
        [
            f"Bidirectional GRUs of width {hidden}; {training_steps} steps on sequences of 1 to {longest} of "
            f"{SYMBOLS - 1} symbols, to be reversed. The context is the encoder's two last states, or attention.",
        ],
        [
            ValueTable(
                "training",
                ["context", "parameters", "numbers handed on", f"loss, mean of the last {tail} steps"],
                [
                    [name, count(model), "2H" if name == "one vector" else "2H · S", mean(losses[name][-tail:])]
                    for name, model in models.items()
                ],
                ".4f",
            )
        ],
        question=Question(
            "Which model ends with the smaller training loss?",
            min(losses, key=lambda name: mean(losses[name][-tail:])),
            tuple(KINDS),
        ),
    )
    lengths = sorted({1, 2, *range(longest // 4, longest + 1, max(1, longest // 4))})
    right = {name: [accuracy(model, length) for length in lengths] for name, model in models.items()}
    gap = [a - b for a, b in zip(right["attention"], right["one vector"], strict=True)]
    yield ExplanationStep(
        "Accuracy by length.",
        ["The share of right symbols in 128 new sequences of each length. Look at the right end of the curves."],
        [
            ValueTable(
                "accuracy",
                ["length", *KINDS, "difference"],
                [[length, *(right[name][at] for name in KINDS), gap[at]] for at, length in enumerate(lengths)],
                ".3f",
            )
        ],
        figure=Plot(
            "share of right symbols by length of the source",
            [CurveChart("", [curve(name, lengths, values) for name, values in right.items()], "length")],
        ),
        question=Question(f"By how much does attention lead at length {lengths[-1]}?", gap[-1], tolerance=0.15),
        conclusion=f"From length {lengths[0]} to {lengths[-1]}: one vector {right['one vector'][0]:.3f} → "
        f"{right['one vector'][-1]:.3f}, attention {right['attention'][0]:.3f} → {right['attention'][-1]:.3f}.",
    )
    source, target = rows(1, longest // 2)
    with torch.no_grad(), record(models["attention"], "*.weights") as trace:
        models["attention"](source, shifted(target))
    (site,) = trace.values
    weights = trace.joined(site).full()[0, 0].detach()
    across = mean([float(weights[at, -1 - at]) for at in range(len(weights))])
    symbols = [chr(64 + int(token)) for token in source[0]]
    yield ExplanationStep(
        "What the decoder looks at.",
        [
            "Attention of one new sequence: rows are the symbols written, columns those read. To reverse, the decoder "
            "has to walk backwards: nobody told it so. Weights may sit beside the symbol, whose encoder states know "
            "it.",
        ],
        [ValueTable("weight on the reversed place", ["mean", "if uniform"], [[across, 1 / len(weights)]], ".3f")],
        figure=Plot(
            "attention of the decoder",
            [HeatMap("", weights.tolist(), symbols[::-1], symbols, "written", "read")],
        ),
        question=Question(
            "On average, is the weight on the symbol to be copied more or less than a uniform one?",
            "more" if across > 1 / len(weights) else "less",
            ("more", "less"),
        ),
    )
