"""BERT or GPT from one stack: the mask and the objective make the difference.

The same blocks, the same sizes, the same text. With a causal mask and next-token prediction it is a GPT: it writes.
With no mask and hidden tokens to be filled in it is a BERT: it uses both sides. We train both on a small generated
language and give each the other's job.

Axes:  B batch   T tokens   V words
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.figures import BarChart, HeatMap, Plot
from headway.learn.experiment import count, fit
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.learn.lesson_models import block, language_model
from headway.nn.attention import SelfAttention
from headway.nn.embed import SinusoidalPosition
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal, Full, Pattern

FAST = {"training_steps": 2, "dim": 8}
SYMBOLS, TOKENS = 12, 16
MASK = SYMBOLS  # the word that stands for a hidden one
PATTERNS: dict[str, Pattern] = {"GPT": Causal(), "BERT": Full()}


def text(batch: int) -> Tensor:
    """Rows that rise by a step of 1 to 5, as clocks do: from two tokens on either side all others follow."""
    first, step = torch.randint(SYMBOLS, (batch, 1)), torch.randint(1, 6, (batch, 1))
    return (first + step * torch.arange(TOKENS)) % SYMBOLS


def model_of(pattern: Pattern, dim: int) -> Trunk:
    torch.manual_seed(9)
    layers = [block(SelfAttention(dim, 2, pattern=pattern), dim) for _ in range(2)]
    return language_model(SYMBOLS + 1, dim, layers, SinusoidalPosition(dim))


def next_token_loss(model: Trunk) -> Tensor:
    rows = text(32)
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def masked_loss(model: Trunk) -> Tensor:
    rows = text(32)
    hidden = torch.rand(rows.shape) < 0.3
    return F.cross_entropy(model(rows.masked_fill(hidden, MASK))[hidden], rows[hidden])


@torch.no_grad()
def continued(model: Trunk) -> float:
    """Three tokens are given, five are to be written one by one: the share of right ones."""
    rows = text(256)
    written = rows[:, :3]
    for _ in range(5):
        written = torch.cat((written, model(written)[:, -1:, :SYMBOLS].argmax(-1)), 1)
    return float((written[:, 3:] == rows[:, 3:8]).float().mean())


@torch.no_grad()
def filled(model: Trunk) -> float:
    """The first two tokens are hidden, the rest is given: the share of right ones at their places."""
    rows = text(256)
    hidden = rows.clone()
    hidden[:, :2] = MASK
    return float((model(hidden)[:, :2, :SYMBOLS].argmax(-1) == rows[:, :2]).float().mean())


def influence(model: Trunk) -> Tensor:
    """Which inputs each output depends on, by gradient, T T; 1 where it does."""
    x = model.embed(text(1)).detach().requires_grad_()
    y = model.stack(x)[0] @ torch.randn(x.shape[-1])
    return torch.stack([torch.autograd.grad(one, x, retain_graph=True)[0][0].norm(dim=-1) for one in y]).gt(0).float()


def steps(training_steps: int = 400, dim: int = 32) -> Iterator[ExplanationStep]:
    models = {name: model_of(pattern, dim) for name, pattern in PATTERNS.items()}
    seen = {name: influence(model) for name, model in models.items()}
    names = [str(at + 1) for at in range(TOKENS)]
    pairs = {name: int(found.sum()) for name, found in seen.items()}
    yield ExplanationStep(
        "One stack, two masks.",
        [
            f"Both models have {count(models['BERT'])} parameters, with the same values at first. Rows are outputs, "
            "columns the inputs that they depend on.",
        ],
        [ValueTable("pairs that count", ["model", f"of {TOKENS**2}"], list(pairs.items()))],
        figure=Plot(
            "what an output depends on",
            [HeatMap(name, found.tolist(), names, names, "output", "input") for name, found in seen.items()],
        ),
        question=Question("Of how many inputs does the first output of the GPT depend?", int(seen["GPT"][0].sum())),
    )
    losses = {
        "GPT": fit(models["GPT"], lambda: next_token_loss(models["GPT"]), training_steps),
        "BERT": fit(models["BERT"], lambda: masked_loss(models["BERT"]), training_steps),
    }
    writing = {name: continued(model) for name, model in models.items()}
    yield ExplanationStep(
        "Writing: three tokens are given, five follow.",
        [
            f"Rows rise by a step of 1 to 5 around a circle of {SYMBOLS}. {training_steps} steps each: next-token "
            "prediction for the GPT, 30 % hidden tokens for the BERT, which then is asked for the token at the end. "
            f"A guess is right in {1 / SYMBOLS:.3f}.",
        ],
        [
            ValueTable(
                "writing",
                ["model", "right", "training loss at the end"],
                [[name, writing[name], losses[name][-1]] for name in models],
                ".3f",
            )
        ],
        question=Question("Which one writes better?", max(writing, key=lambda name: writing[name]), tuple(models)),
    )
    filling = {name: filled(model) for name, model in models.items()}
    yield ExplanationStep(
        "Filling in: the first two tokens are hidden, the rest is there.",
        ["What is to be known stands on the right. A causal model cannot look there, whatever its training."],
        [ValueTable("filling", ["model", "right"], list(filling.items()), ".3f")],
        figure=Plot(
            "one stack, two jobs: share of right tokens",
            [
                BarChart(title, list(values), list(values.values()), "share")
                for title, values in (("writing on", writing), ("filling in on the left", filling))
            ],
        ),
        question=Question("Which one fills in better?", max(filling, key=lambda name: filling[name]), tuple(models)),
        conclusion=f"Writing: GPT {writing['GPT']:.2f}, BERT {writing['BERT']:.2f}. Filling in: GPT "
        f"{filling['GPT']:.2f}, BERT {filling['BERT']:.2f}.",
    )
