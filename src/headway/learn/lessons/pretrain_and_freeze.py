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
SYMBOLS, TOKENS, CLASSES = 12, 10, 3
MASK = SYMBOLS


def text(batch: int) -> Tensor:
    """Rows that rise by a step of 1 to 5 around a circle."""
    first, step = torch.randint(SYMBOLS, (batch, 1)), torch.randint(1, 6, (batch, 1))
    return (first + step * torch.arange(TOKENS)) % SYMBOLS


def labelled_text(batch: int) -> tuple[Tensor, Tensor]:
    """Rows whose last symbol is hidden, and the third of the circle that it is in."""
    rows = text(batch)
    labels = rows[:, -1] * CLASSES // SYMBOLS
    rows[:, -1] = MASK
    return rows, labels


def encoder_of(dim: int, layers: int) -> Trunk:
    torch.manual_seed(12)
    blocks = [block(SelfAttention(dim, 2), dim) for _ in range(layers)]
    return language_model(SYMBOLS + 1, dim, blocks, LearnedPosition(TOKENS, dim))


def masked_loss(model: Trunk) -> Tensor:
    rows = text(64)
    hidden = torch.rand(rows.shape) < 0.25
    return F.cross_entropy(model(rows.masked_fill(hidden, MASK))[hidden], rows[hidden])


class ThirdClassifier(nn.Module):
    """The first `depth` layers of an encoder, and a class from the vector of the last token: B T → B K"""

    def __init__(self, encoder: Trunk, dim: int, depth: int):
        super().__init__()
        assert isinstance(encoder.stack, Stack)
        self.embed, self.layers = encoder.embed, nn.ModuleList(list(encoder.stack.blocks)[:depth])
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, CLASSES))

    def forward(self, rows: Tensor) -> Tensor:
        x = self.embed(rows)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, -1])


def frozen(model: ThirdClassifier) -> ThirdClassifier:
    for part in (model.embed, model.layers):
        part.requires_grad_(False)
    return model


def accuracy(model: ThirdClassifier, seen: tuple[Tensor, Tensor], training_steps: int) -> float:
    fit(model, lambda: F.cross_entropy(model(seen[0]), seen[1]), training_steps, lr=2e-3)
    rows, labels = labelled_text(1000)
    with torch.no_grad():
        return float((model(rows).argmax(-1) == labels).float().mean())


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
            f"{pretraining_steps} steps on rows that rise by a step of 1 to 5 around a circle of {SYMBOLS} symbols; a "
            "quarter of the symbols is hidden and to be filled in. No label is used.",
        ],
        [ValueTable("pre-training loss", ["first step", "last step"], [[losses[0], losses[-1]]], ".3f")],
        question=Question(
            "By which factor did the pre-training loss fall?",
            losses[0] / losses[-1],
            tolerance=0.3 * losses[0] / losses[-1],
        ),
    )
    seen = labelled_text(labelled)
    models = {
        "from scratch": ThirdClassifier(deepcopy(fresh), dim, layers),
        "fine-tuned": ThirdClassifier(deepcopy(trained), dim, layers),
        "frozen": frozen(ThirdClassifier(deepcopy(trained), dim, layers)),
        "frozen, random": frozen(ThirdClassifier(deepcopy(fresh), dim, layers)),
    }
    sizes = {name: trainable(model) for name, model in models.items()}
    right = {name: accuracy(model, seen, training_steps) for name, model in models.items()}
    yield ExplanationStep(
        f"{labelled} labels, four ways.",
        [
            f"The last symbol is hidden: in which third of the circle is it? {training_steps} steps on {labelled} "
            f"labelled rows, 1,000 new rows for the test; a guess is right in {1 / CLASSES:.2f}. Frozen: only the head "
            "learns; random: on an encoder without pre-training.",
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
    cut = [accuracy(frozen(ThirdClassifier(deepcopy(trained), dim, n)), seen, training_steps) for n in depths]
    yield ExplanationStep(
        "Cut the encoder.",
        ["The frozen encoder cut after so many layers, and a new head: what can be read off each."],
        [ValueTable("accuracy by depth", ["layers kept", "accuracy"], list(zip(depths, cut, strict=True)), ".3f")],
        figure=Plot("what a cut encoder knows", [CurveChart("", [curve("accuracy", depths, cut)], "layers kept")]),
        question=Question(
            "Are the vectors behind the embedding alone (0 layers) enough for more than 0.6?",
            "yes" if cut[0] > 0.6 else "no",
            ("yes", "no"),
        ),
        conclusion=f"From scratch {right['from scratch']:.2f}, fine-tuned {right['fine-tuned']:.2f}, frozen "
        f"{right['frozen']:.2f}; cut after 0 to {layers} layers: " + ", ".join(f"{value:.2f}" for value in cut) + ".",
    )
