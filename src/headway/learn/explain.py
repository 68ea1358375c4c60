"""Formulas worked through step by step, with numbers that the library itself computes."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headway.errors import UserError, listed, nearest

EMBEDDINGS = {"flying": [0, 1, 1, 1, 1, 0], "arrows": [1, 1, 0, -1, -1, 1]}
QKV = "   Q       K       V"
TOPICS = ("attention",)

Matrix = list[list[float]]


def explain(topic: str) -> AttentionExercise:
    """The worked exercise of a topic, computed by `attend`: one head, and parts of X as queries, keys and values."""
    check(topic)
    import torch

    from headway.ops.attend import DOT, attend

    x = torch.tensor(list(EMBEDDINGS.values()), dtype=torch.float64)
    q, k, v = x[None, None].split(2, -1)  # 1 1 T D
    seen: list[torch.Tensor] = []
    output = attend(q, k, v, edit=lambda weights: seen.append(weights) or weights)
    matrices = (part.reshape(len(x), -1).tolist() for part in (x, q, k, v, DOT(q, k), seen[0], output))
    return AttentionExercise("attention(Q, K, V) = softmax(Q Kᵀ / √d) V", list(EMBEDDINGS), *matrices)


def source_of(topic: str) -> str:
    """file:line of the code of a topic's formula; the file relative to the working directory where it lies below it."""
    check(topic)
    from headway.ops.attend import attend

    file, here = Path(inspect.getsourcefile(attend) or "").resolve(), Path.cwd()
    short = file.relative_to(here) if file.is_relative_to(here) else file
    return f"{short}:{inspect.getsourcelines(attend)[1]}"


def check(topic: str) -> None:
    if topic not in TOPICS:
        raise UserError(f"no topic {topic!r} to explain", allowed=listed(TOPICS), meant=nearest(topic, TOPICS))


@dataclass(frozen=True)
class AttentionExercise:
    """Row i of each matrix belongs to word i; scores and weights have a column for each word that is looked at."""

    formula: str
    words: list[str]
    X: Matrix
    Q: Matrix
    K: Matrix
    V: Matrix
    scores: Matrix
    weights: Matrix
    output: Matrix

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self) -> str:
        words = "".join(f"{word:>11}" for word in self.words)
        projected = [[*q, *k, *v] for q, k, v in zip(self.Q, self.K, self.V, strict=True)]
        steps = [
            "X: each word is a row of numbers." + self.table(self.X, "4.0f"),
            "Q, K, V: dimensions 1–2 are the query, 3–4 the key, 5–6 the value." + self.table(projected, "4.0f", QKV),
            "scores = Q Kᵀ / √2: how well the row's query meets the column's key."
            + self.table(self.scores, heads=words),
            "weights = softmax(scores): each row sums to 1." + self.table(self.weights, heads=words),
            "output = weights V: each row mixes the values." + self.table(self.output),
        ]
        numbered = (f"{n}. {step}" for n, step in enumerate(steps, 1))
        return "\n\n".join([self.formula, *numbered, f"So {self.mixture(0)}."])

    def table(self, rows: Matrix, form: str = "11.6f", heads: str = "") -> str:
        """An aligned line for each word, below the heads of the columns if there are any."""
        lines = [f"{word:8}" + "".join(f"{x:{form}}" for x in row) for word, row in zip(self.words, rows, strict=True)]
        return "".join(f"\n   {line}" for line in ([f"{'':8}{heads}", *lines] if heads else lines))

    def mixture(self, i: int) -> str:
        parts = " + ".join(f"{w:.6f} · {shown(v, '.0f')}" for w, v in zip(self.weights[i], self.V, strict=True))
        return f"{self.words[i]} becomes {parts} = {shown(self.output[i], '.6f')}"


def shown(numbers: list[float], form: str) -> str:
    return f"[{', '.join(f'{x:{form}}' for x in numbers)}]"
