"""Architecture plus training makes the model: what it is shown decides what it can do.

An encoder without a mask could use both sides. Whether it does depends on its training: shown only examples whose
hidden token is the last, it never learns to look right. The same network is trained on hidden tokens at the end, at
the start, and anywhere, and then asked for a token at each place.

Axes:  B batch   T tokens   V words
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.figures import CurveChart, Plot
from headway.learn.experiment import curve, fit, mean
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.learn.lesson_models import block, language_model
from headway.nn.attention import SelfAttention
from headway.nn.embed import LearnedPosition
from headway.nn.trunk import Trunk

FAST = {"training_steps": 2, "dim": 8}
SYMBOLS, TOKENS = 12, 8
MASK = SYMBOLS
PLACES: dict[str, Callable[[int], Tensor]] = {
    "last": lambda batch: torch.full((batch,), TOKENS - 1),
    "first": lambda batch: torch.zeros(batch, dtype=torch.long),
    "anywhere": lambda batch: torch.randint(TOKENS, (batch,)),
}


def text(batch: int) -> Tensor:
    first, step = torch.randint(SYMBOLS, (batch, 1)), torch.randint(1, 6, (batch, 1))
    return (first + step * torch.arange(TOKENS)) % SYMBOLS


def hidden_at(model: Trunk, place: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of a hidden token in each row, and what it was."""
    rows, each = text(len(place)), torch.arange(len(place))
    shown = rows.clone()
    shown[each, place] = MASK
    return model(shown)[each, place], rows[each, place]


def trained(places: Callable[[int], Tensor], training_steps: int, dim: int) -> tuple[Trunk, list[float]]:
    torch.manual_seed(10)
    layers = [block(SelfAttention(dim, 2), dim) for _ in range(2)]
    model = language_model(SYMBOLS + 1, dim, layers, LearnedPosition(TOKENS, dim))
    return model, fit(model, lambda: F.cross_entropy(*hidden_at(model, places(64))), training_steps)


def steps(training_steps: int = 400, dim: int = 32) -> Iterator[ExplanationStep]:
    found = {name: trained(places, training_steps, dim) for name, places in PLACES.items()}
    tail = max(1, training_steps // 10)
    final = {name: mean(losses[-tail:]) for name, (_, losses) in found.items()}
    yield ExplanationStep(
        "Three trainings of one architecture.",
        [
            f"The same weights at first, no mask, {training_steps} steps; only the place of the hidden token differs. "
            "Each is good at what it is shown.",
        ],
        [ValueTable("training loss", ["hidden token", f"mean of the last {tail} steps"], list(final.items()), ".4f")],
        question=Question(
            "Which training has the hardest task, by its loss?", max(final, key=lambda name: final[name]), tuple(PLACES)
        ),
    )
    right = dict[str, list[float]]()
    with torch.no_grad():
        for name, (model, _) in found.items():
            pairs = [hidden_at(model, torch.full((256,), at)) for at in range(TOKENS)]
            right[name] = [float((logits.argmax(-1) == wanted).float().mean()) for logits, wanted in pairs]
    worst = {name: min(values) for name, values in right.items()}
    yield ExplanationStep(
        "Asked for a token at every place.",
        [f"Accuracy on 256 new rows for each place; a guess is right in {1 / SYMBOLS:.3f}."],
        [
            ValueTable(
                "accuracy by place",
                ["trained on", *(str(at + 1) for at in range(TOKENS))],
                [[name, *values] for name, values in right.items()],
                ".2f",
            )
        ],
        figure=Plot(
            "accuracy by the place of the hidden token",
            [CurveChart("", [curve(name, range(1, TOKENS + 1), v) for name, v in right.items()], "place")],
        ),
        question=Question(
            "Which training answers at every place?", max(worst, key=lambda name: worst[name]), tuple(PLACES)
        ),
    )
    lost = right["last"][-1] - right["last"][0]
    yield ExplanationStep(
        "The mask would allow it, the training did not.",
        [
            "The model trained on the last token may look to the right: nothing in it forbids that. It was never shown "
            "an example that needs it.",
        ],
        [
            ValueTable(
                "trained on the last token",
                ["asked for", "accuracy"],
                [["last", right["last"][-1]], ["first", right["last"][0]]],
                ".3f",
            )
        ],
        question=Question(
            "How much accuracy does the model trained on the last token lose at the first?", lost, tolerance=0.15
        ),
        conclusion=f"Trained on the last token: {right['last'][-1]:.2f} there, {right['last'][0]:.2f} at the first; "
        f"trained anywhere: at least {worst['anywhere']:.2f} at every place.",
    )
