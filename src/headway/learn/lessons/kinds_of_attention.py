"""Content- or location-based, soft or hard: four kinds of attention.

Weights may depend on what stands at a place (content) or on where it stands (location). Soft attention takes the mean
of all places, hard attention one of them. Two tasks need one kind each: find the pair with my key, and say what stood
three tokens before. Then the same weights are used softly, by their largest, and by sampling.

Axes:  B batch   T tokens   C width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.figures import BarChart, CurveChart, Plot
from headway.learn.experiment import curve, fit
from headway.learn.explanation import ExplanationStep, Question, ValueTable
from headway.nn.attention import SelfAttention
from headway.nn.bias import T5Bias
from headway.nn.hard_attention import ArgmaxChoice, SampledChoice
from headway.nn.trace import record
from headway.ops.attend import Dot, attend
from headway.ops.attention_map import Readable
from headway.ops.pattern import Causal
from headway.ops.relative import t5_bucket_backward

FAST = {"training_steps": 2, "dim": 8, "samples": (1, 4)}
SYMBOLS, TOKENS, BACK = 8, 8, 3
KINDS: dict[str, Callable[[int], SelfAttention]] = {
    "content": lambda dim: SelfAttention(dim, 1, pattern=Causal()),
    "location": lambda dim: SelfAttention(
        dim, 1, pattern=Causal(), score=Dot(0.0), logit_bias=T5Bias(1, bucket=t5_bucket_backward)
    ),
}


class Reader(nn.Module):
    """Tokens of a key and a value, one layer of attention, and a value: B T, B T → B T V"""

    def __init__(self, attention: SelfAttention, dim: int):
        super().__init__()
        self.key, self.value = nn.Embedding(SYMBOLS, dim), nn.Embedding(SYMBOLS + 1, dim)
        self.attention, self.out = attention, nn.Linear(dim, SYMBOLS)

    def forward(self, keys: Tensor, values: Tensor) -> Tensor:
        return self.out(self.attention(self.key(keys) + self.value(values)))


def by_content(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """The last token has a key and no value (SYMBOLS): wanted is the value that stood with that key."""
    keys = torch.rand(batch, SYMBOLS).argsort(1)[:, : TOKENS - 1]
    values, asked = torch.randint(SYMBOLS, (batch, TOKENS - 1)), torch.randint(TOKENS - 1, (batch, 1))
    keys, empty = torch.cat((keys, keys.gather(1, asked)), 1), torch.full((batch, 1), SYMBOLS)
    return keys, torch.cat((values, empty), 1), values.gather(1, asked)[:, 0]


def by_location(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Wanted is the value of three tokens before the last, whatever the keys."""
    keys, values = torch.randint(SYMBOLS, (batch, TOKENS)), torch.randint(SYMBOLS, (batch, TOKENS))
    return keys, values, values[:, -1 - BACK]


TASKS = {"find the key": by_content, f"{BACK} tokens before": by_location}


def accuracy(kind: str, task: str, dim: int, training_steps: int) -> float:
    torch.manual_seed(13)
    model, rows = Reader(KINDS[kind](dim), dim), TASKS[task]

    def loss() -> Tensor:
        keys, values, wanted = rows(64)
        return F.cross_entropy(model(keys, values)[:, -1], wanted)

    fit(model, loss, training_steps, lr=1e-2)
    with torch.no_grad():
        keys, values, wanted = rows(512)
        return float((model(keys, values)[:, -1].argmax(-1) == wanted).float().mean())


@torch.no_grad()
def weights_of(layer: SelfAttention, x: Tensor) -> Tensor:
    """T T"""
    with record(layer, "weights") as trace:
        layer(x)
    seen = trace["weights"]
    assert isinstance(seen, Readable)
    return seen.full()[0, 0]


def steps(
    training_steps: int = 400, dim: int = 32, samples: tuple[int, ...] = (1, 10, 100, 1000, 10000)
) -> Iterator[ExplanationStep]:
    right = {kind: {task: accuracy(kind, task, dim, training_steps) for task in TASKS} for kind in KINDS}
    first, second = TASKS
    yield ExplanationStep(
        "Two tasks, two kinds.",
        [
            f"One layer, one head, {training_steps} steps, accuracy on 512 new rows; a guess is right in "
            f"{1 / SYMBOLS:.3f}. The location-based layer has scores of 0 and a learned number for each distance.",
        ],
        [
            ValueTable(
                "accuracy of kinds",
                ["attention", *TASKS],
                [[kind, *values.values()] for kind, values in right.items()],
                ".3f",
            )
        ],
        figure=Plot(
            "accuracy of content- and location-based attention",
            [BarChart(task, list(KINDS), [right[kind][task] for kind in KINDS], "accuracy") for task in TASKS],
        ),
        question=Question(
            f'Which kind solves "{second}"?', max(KINDS, key=lambda kind: right[kind][second]), tuple(KINDS)
        ),
        conclusion=f"{first}: content {right['content'][first]:.2f}, location {right['location'][first]:.2f}; "
        f"{second}: content {right['content'][second]:.2f}, location {right['location'][second]:.2f}.",
    )
    x, y = torch.randn(1, TOKENS, dim), torch.randn(1, TOKENS, dim)
    moved = {
        kind: float((weights_of(layer := make(dim), x) - weights_of(layer, y)).abs().max())
        for kind, make in KINDS.items()
    }
    yield ExplanationStep(
        "Does another content change the weights?",
        ["The largest change of a weight when all tokens are replaced by others."],
        [ValueTable("change of the weights", ["attention", "largest change"], list(moved.items()), ".2e")],
        question=Question(
            "Whose weights do not depend on the content?", min(moved, key=lambda k: moved[k]), tuple(moved)
        ),
    )
    q, k, v = (torch.randn(1, 1, n, dim) for n in (1, TOKENS, TOKENS))
    soft = attend(q, k, v)
    largest = attend(q, k, v, edit=ArgmaxChoice())
    errors = list[float]()
    for count in samples:
        drawn = attend(q.expand(1, 1, count, dim), k, v, edit=SampledChoice())
        errors.append(float((drawn.mean(2) - soft[:, :, 0]).norm()))
    grads = dict[str, float]()
    for name, edit in (("soft", None), ("largest", ArgmaxChoice()), ("sampled", SampledChoice())):
        asked = q.clone().requires_grad_()
        out = attend(asked, k, v, edit=edit).sum()
        (grad,) = torch.autograd.grad(out, asked, allow_unused=True) if out.requires_grad else (None,)
        grads[name] = 0.0 if grad is None else float(grad.norm())
    yield ExplanationStep(
        "Soft and hard: the same weights, used in three ways.",
        [
            "The mean of samples approaches the soft output, as 1/√n. Choosing passes no gradient to the query: hard "
            "attention learns by other means (REINFORCE).",
        ],
        [
            ValueTable(
                "distance of the mean of samples from the soft output",
                ["samples", "distance"],
                list(zip(samples, errors, strict=True)),
                ".4f",
            ),
            ValueTable("norm of the gradient by the query", ["use", "norm"], list(grads.items()), ".4f"),
            ValueTable("largest alone", ["distance from the soft output"], [[float((largest - soft).norm())]], ".4f"),
        ],
        figure=Plot(
            "sampled attention approaches soft attention",
            [CurveChart("", [curve("distance", samples, errors)], "samples", xscale="log", yscale="log")],
        ),
        question=Question(
            "How many of the three uses pass a gradient to the query?", sum(value > 0 for value in grads.values())
        ),
    )
