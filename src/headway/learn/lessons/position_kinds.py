"""Positions: what a model without them cannot do, and how six kinds do on longer rows.

Self-attention sees a set. Order comes from vectors added to the embeddings (sinusoidal, learned), from a rotation of
queries and keys (rotary), or from numbers added to the scores (ALiBi, T5). The same small stack without a causal mask
learns to say which symbol stood three tokens before, on rows of one length, and is then tested on longer rows.

Axes:  B batch   T tokens   C width   V symbols
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import CurveChart, HeatMap, Plot
from headway.learn.experiment import best, count, curve, fit
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.learn.lesson_models import block, language_model
from headway.nn.attention import SelfAttention
from headway.ops.rotary import sinusoid
from headway.zoo.workbench import POSITIONS, Config

FAST = {"kinds": ("none", "rotary"), "length": 6, "training_steps": 3, "dim": 8}
SYMBOLS, BACK, LONGEST, HEADS = 12, 3, 4, 2


def accuracy(model: nn.Module, length: int) -> float:
    tokens = torch.randint(SYMBOLS, (64, length))
    with torch.no_grad():
        return float((model(tokens)[:, BACK:].argmax(-1) == tokens[:, :-BACK]).float().mean())


def trained(kind: str, length: int, training_steps: int, dim: int) -> nn.Module:
    torch.manual_seed(6)
    place = POSITIONS[kind](Config(context=LONGEST * length, dim=dim, heads=HEADS, sight="full"))
    mixers = [SelfAttention(dim, HEADS, rotary=place.rotary, logit_bias=place.bias) for _ in range(2)]
    model = language_model(SYMBOLS, dim, [block(mixer, dim) for mixer in mixers], place.mark)

    def loss() -> Tensor:
        tokens = torch.randint(SYMBOLS, (32, length))
        return F.cross_entropy(model(tokens)[:, BACK:].flatten(0, 1), tokens[:, :-BACK].flatten())

    fit(model, loss, training_steps, lr=5e-3)
    return model


def steps(
    kinds: tuple[str, ...] = ("none", "sinusoidal", "learned", "rotary", "alibi", "t5"),
    length: int = 16,
    training_steps: int = 400,
    dim: int = 32,
) -> Iterator[ExplanationStep]:
    waves = sinusoid(torch.arange(4 * length), dim)
    distance = torch.cdist(waves[None], waves[None])[0]
    nearest = distance.fill_diagonal_(float("inf")).amin()
    yield ExplanationStep(
        "The sinusoids: every position is another vector.",
        [
            f"{4 * length} positions of width {dim}. Fast waves on the left tell neighbours apart, slow ones on the "
            "right tell regions apart. All pairs of positions differ; the table has the smallest distance.",
        ],
        [
            ValueTable(
                "distance of two positions",
                ["smallest", "norm of each"],
                [[float(nearest), float(waves[0].norm())]],
                ".4f",
            )
        ],
        figure=Plot(
            "sinusoidal positions",
            [
                HeatMap(
                    "",
                    waves.tolist(),
                    [str(at) for at in range(len(waves))],
                    [str(at) for at in range(dim)],
                    "position",
                    "dimension",
                    signed=True,
                )
            ],
        ),
        question=Question(
            "Are there two positions with the same vector among these?",
            "yes" if float(nearest) == 0 else "no",
            ("yes", "no"),
        ),
    )
    models = {kind: trained(kind, length, training_steps, dim) for kind in kinds}
    lengths = [length, 2 * length, LONGEST * length]
    right = {kind: [accuracy(model, n) for n in lengths] for kind, model in models.items()}
    known = {kind: values[0] for kind, values in right.items()}
    yield ExplanationStep(
        f"Say what stood {BACK} tokens before, at the length of training.",
        [
            f"Two layers, no mask, {training_steps} steps on rows of {length}, one run each; a guess is right in "
            f"{1 / SYMBOLS:.3f}. Without positions the model sees a bag of symbols; ALiBi knows a distance, not its "
            "direction.",
        ],
        [
            ValueTable(
                "accuracy at the length of training",
                ["positions", "accuracy", "parameters"],
                [[kind, known[kind], count(models[kind])] for kind in kinds],
                ".3f",
            )
        ],
        question=Question(
            f"How many of the {len(kinds)} kinds are right in more than 0.9?",
            sum(value > 0.9 for value in known.values()),
        ),
    )
    longest = {kind: values[-1] for kind, values in right.items()}
    yield ExplanationStep(
        "Rows that are longer than any in training.",
        [
            "Nothing is trained again. Learned vectors of later positions were never trained; what depends on the "
            "distance alone may go on.",
        ],
        [
            ValueTable(
                "accuracy by length",
                ["positions", *(str(n) for n in lengths)],
                [[kind, *values] for kind, values in right.items()],
                ".3f",
            )
        ],
        figure=Plot(
            "accuracy on longer rows",
            [CurveChart("", [curve(kind, lengths, values) for kind, values in right.items()], "length", height=2.4)],
        ),
        question=Question(f"Which kind is best on rows of {lengths[-1]}?", best(longest), kinds),
        conclusion=f"At {lengths[-1]} tokens: "
        + ", ".join(f"{kind} {value:.2f}" for kind, value in longest.items())
        + ".",
    )
