"""Pre-train, then fine-tune, freeze, or cut the encoder.

Labels are rare, plain text is not. An encoder is trained to fill in hidden tokens of rows without labels. Then a few
rows with labels are used in three ways: from scratch, fine-tuning everything, and a small head on the frozen encoder.
Last, the encoder is cut after each layer, to see where the useful vectors are.

Axes:  B batch   T tokens   C width
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import BarChart, CurveChart, Plot
from headway.learn.experiment import best, curve, fit
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.learn.lesson_models import block, language_model
from headway.nn.attention import SelfAttention
from headway.nn.block import Stack
from headway.nn.embed import LearnedPosition
from headway.nn.trunk import Trunk

FAST = {"pretraining_steps": 2, "training_steps": 2, "labelled": 8, "dim": 8}
SYMBOLS, TOKENS, CLASSES = 12, 10, 5
MASK = SYMBOLS


def text(batch: int) -> tuple[Tensor, Tensor]:
    """Rows that rise by a step around a circle, and the step minus 1: the label; one token of ten is wrong."""
    first, step = torch.randint(SYMBOLS, (batch, 1)), torch.randint(1, CLASSES + 1, (batch, 1))
    rows = (first + step * torch.arange(TOKENS)) % SYMBOLS
    noise = torch.rand(rows.shape) < 0.1
    return torch.where(noise, torch.randint(SYMBOLS, rows.shape), rows), step[:, 0] - 1


def encoder_of(dim: int, layers: int) -> Trunk:
    torch.manual_seed(12)
    blocks = [block(SelfAttention(dim, 2), dim) for _ in range(layers)]
    return language_model(SYMBOLS + 1, dim, blocks, LearnedPosition(TOKENS, dim))


def masked_loss(model: Trunk) -> Tensor:
    rows, _ = text(64)
    hidden = torch.rand(rows.shape) < 0.25
    return F.cross_entropy(model(rows.masked_fill(hidden, MASK))[hidden], rows[hidden])


class StepClassifier(nn.Module):
    """The first `depth` layers of an encoder, the mean of the tokens, and a class: B T → B K"""

    def __init__(self, encoder: Trunk, dim: int, depth: int):
        super().__init__()
        assert isinstance(encoder.stack, Stack)
        self.embed, self.layers = encoder.embed, nn.ModuleList(list(encoder.stack.blocks)[:depth])
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, CLASSES))

    def forward(self, rows: Tensor) -> Tensor:
        x = self.embed(rows)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def frozen(model: StepClassifier) -> StepClassifier:
    for part in (model.embed, model.layers):
        part.requires_grad_(False)
    return model


def accuracy(model: StepClassifier, seen: tuple[Tensor, Tensor], training_steps: int) -> float:
    fit(model, lambda: F.cross_entropy(model(seen[0]), seen[1]), training_steps, lr=2e-3)
    rows, steps = text(1000)
    with torch.no_grad():
        return float((model(rows).argmax(-1) == steps).float().mean())


def trainable(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def steps(
    pretraining_steps: int = 600, training_steps: int = 100, labelled: int = 60, dim: int = 32, layers: int = 3
) -> Iterator[ExplanationStep]:
    fresh = encoder_of(dim, layers)
    trained = deepcopy(fresh)
    losses = fit(trained, lambda: masked_loss(trained), pretraining_steps)
    yield ExplanationStep(
        "Pre-training without labels.",
        [
            f"{pretraining_steps} steps on rows that rise by a step of 1 to {CLASSES} around a circle of {SYMBOLS}, "
            "one token of ten wrong; a quarter of the tokens is hidden and to be filled in. No label is used.",
        ],
        [ValueTable("pre-training loss", ["first step", "last step"], [[losses[0], losses[-1]]], ".3f")],
        question=Question("By which factor did the pre-training loss fall?", losses[0] / losses[-1], tolerance=0.5),
    )
    seen = text(labelled)
    models = {
        "from scratch": StepClassifier(deepcopy(fresh), dim, layers),
        "fine-tuned": StepClassifier(deepcopy(trained), dim, layers),
        "frozen": frozen(StepClassifier(deepcopy(trained), dim, layers)),
        "frozen, random": frozen(StepClassifier(deepcopy(fresh), dim, layers)),
    }
    sizes = {name: trainable(model) for name, model in models.items()}
    right = {name: accuracy(model, seen, training_steps) for name, model in models.items()}
    yield ExplanationStep(
        f"{labelled} labels, four ways.",
        [
            f"Which step has the row? {training_steps} steps on {labelled} labelled rows, 1,000 new rows for the test; "
            f"a guess is right in {1 / CLASSES:.2f}. Frozen: only the head learns; random: on an encoder without "
            "pre-training.",
        ],
        [
            ValueTable(
                "accuracy",
                ["encoder", "parameters that learn", "accuracy"],
                [[name, sizes[name], right[name]] for name in models],
                ".3f",
            )
        ],
        figure=Plot(f"accuracy with {labelled} labels", [BarChart("", list(right), list(right.values()), "accuracy")]),
        question=Question(
            "Which is better with so few labels?",
            best({name: right[name] for name in ("from scratch", "fine-tuned")}),
            ("from scratch", "fine-tuned"),
        ),
    )
    depths = range(layers + 1)
    cut = [accuracy(frozen(StepClassifier(deepcopy(trained), dim, n)), seen, training_steps) for n in depths]
    yield ExplanationStep(
        "Cut the encoder.",
        ["The frozen encoder cut after so many layers, and a new head: what can be read off each."],
        [ValueTable("accuracy by depth", ["layers kept", "accuracy"], list(zip(depths, cut, strict=True)), ".3f")],
        figure=Plot("what a cut encoder knows", [CurveChart("", [curve("accuracy", depths, cut)], "layers kept")]),
        question=Question(
            "Are the vectors behind the embedding alone (0 layers) enough for more than 0.5?",
            "yes" if cut[0] > 0.5 else "no",
            ("yes", "no"),
        ),
        conclusion=f"From scratch {right['from scratch']:.2f}, fine-tuned {right['fine-tuned']:.2f}, frozen "
        f"{right['frozen']:.2f}; cut after 0 to {layers} layers: " + ", ".join(f"{value:.2f}" for value in cut) + ".",
    )
