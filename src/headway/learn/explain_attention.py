"""The topic `attention`: a worked exercise, and the operator built up from one query to many heads.

Axes:  T queries   S data vectors   C width of the input   D width of queries and keys   E width of values   H heads
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from headway.errors import UserError
from headway.learn.explanation import ExplanationStep, Formula, Matrix, Question
from headway.learn.topic_inputs import TopicInputs, shape
from headway.nn.attention import merge, split
from headway.nn.learned_score import AdditiveScore
from headway.ops.attend import Dot, Score, attend, divisors
from headway.ops.pattern import Causal, Positions

EMBEDDINGS = {"flying": [0, 1, 1, 1, 1, 0], "arrows": [1, 1, 0, -1, -1, 1]}


def steps(inputs: TopicInputs) -> Iterator[ExplanationStep]:
    case = AttentionCase(inputs)
    yield from exercise(case)
    yield from build_up(case)


class AttentionCase:
    """The input, its projections and choices, checked to fit one another."""

    def __init__(self, inputs: TopicInputs):
        given = inputs.matrix("x")
        self.is_default = given is None and not any(inputs[name] for name in ("wq", "wk", "wv"))
        self.words = list(EMBEDDINGS) if given is None else [f"x{at}" for at in range(1, len(given) + 1)]
        rows = list(EMBEDDINGS.values()) if given is None else given
        self.x = tensor(rows)
        self.w = {name: projection(inputs, name, self.x, exercise=given is None) for name in ("wq", "wk", "wv")}
        self.q, self.k, self.v = (self.x @ w for w in self.w.values())
        if self.q.shape[1] != self.k.shape[1]:
            said = f"wq= is {shape(self.w['wq'].tolist())} and wk= is {shape(self.w['wk'].tolist())}"
            raise UserError(said, allowed="as many columns in both: a query is compared with a key")
        self.heads = inputs.count("heads", 1)
        self.score = Dot() if inputs.is_scaled else Dot(1.0)
        self.mask = inputs.mask
        for name, part in (("wq", self.q), ("wv", self.v)):
            if part.shape[1] % self.heads:
                said = f"heads={self.heads} for {part.shape[1]} columns of {name}="
                raise UserError(said, allowed=f"heads of {divisors(part.shape[1])}")

    @cached_property
    def keep(self) -> Tensor | None:
        """1 T S, or None where nothing is hidden."""
        return None if self.mask is None else read_mask(self.mask, len(self.x))

    def divisor(self) -> str:
        return "" if self.score.scale else f" / √{self.q.shape[1] // self.heads}"

    def divisor_latex(self) -> str:
        return "" if self.score.scale else rf" / \sqrt{{{self.q.shape[1] // self.heads}}}"


def projection(inputs: TopicInputs, name: str, x: Tensor, exercise: bool) -> Tensor:
    """A matrix of the options; else, of the exercise, that which picks two of the six numbers, or the identity."""
    given = inputs.matrix(name)
    if given is None:
        picked = ("wq", "wk", "wv").index(name)
        whole = torch.eye(x.shape[1], dtype=x.dtype)
        return whole[:, 2 * picked : 2 * picked + 2] if exercise else whole
    if len(given) != x.shape[1]:
        said = f"{name}= is {shape(given)} and x= is {x.shape[0]}×{x.shape[1]}"
        raise UserError(said, allowed=f"a matrix of {x.shape[1]} rows, as many as x= has columns")
    return tensor(given)


def read_mask(mask: str, rows: int) -> Tensor:
    """1 T S, True where a key may be seen."""
    if mask == "causal":
        at = Positions.run(0, rows)
        return Causal().keep(at.at, at.at)
    if not any(sign.isdigit() for sign in mask):
        raise UserError(f"mask={mask}", allowed="causal, or a matrix of 0 and 1")
    given = TopicInputs(mask=mask).matrix("mask") or []
    if (len(given), len(given[0])) != (rows, rows):
        raise UserError(f"mask= is {shape(given)}", allowed=f"{rows}×{rows}, a row and a column for each row of x=")
    if any(entry not in (0, 1) for row in given for entry in row):
        raise UserError(f"mask={mask}", allowed="causal, or a matrix of 0 and 1")
    return tensor(given).bool()[None]


@dataclass(frozen=True)
class Attended:
    """What one call of `attend` computes, H T S and H T E."""

    scores: Tensor
    weights: Tensor
    heads: Tensor

    @property
    def output(self) -> Tensor:
        """T (H E)"""
        return merge(self.heads[None])[0]


def attended(q: Tensor, k: Tensor, v: Tensor, score: Score, heads: int = 1, keep: Tensor | None = None) -> Attended:
    """`attend` on T D, S D and S E, with what it computes on the way."""
    q, k, v = (split(part[None], heads) for part in (q, k, v))
    seen: list[Tensor] = []
    output = attend(q, k, v, keep=keep, score=score, edit=lambda weights: seen.append(weights) or weights)
    scores = score(q, k)
    hidden = scores if keep is None else scores.masked_fill(~keep[:, None], float("-inf"))
    return Attended(hidden[0], seen[0][0], output[0])


# ---- the exercise: X, Q K V, scores, weights, output


def exercise(case: AttentionCase) -> Iterator[ExplanationStep]:
    words, found = case.words, attended(case.q, case.k, case.v, case.score, case.heads, case.keep)
    projected = torch.cat((case.q, case.k, case.v), 1)
    columns = [
        name if at == 0 else ""
        for name, part in zip("QKV", (case.q, case.k, case.v), strict=True)
        for at in range(part.shape[1])
    ]
    row = "each word is a row of numbers" if case.is_default else "each row is a vector"
    how = (
        "dimensions 1–2 are the query, 3–4 the key, 5–6 the value"
        if case.is_default
        else "X W_Q, X W_K and X W_V, a query, a key and a value for each row"
    )
    yield ExplanationStep(f"X: {row}.", values=[Matrix("X", case.x.tolist(), words)])
    yield ExplanationStep(f"Q, K, V: {how}.", values=[Matrix("Q, K, V", projected.tolist(), words, columns)])
    yield ExplanationStep(
        f"scores = Q Kᵀ{case.divisor()}: how well the row's query meets the column's key.",
        values=per_head("scores", found.scores, words, words),
        question=Question(
            f"What is the score of the query of {words[0]} and the key of {words[-1]}?", float(found.scores[0, 0, -1])
        )
        if bool(found.scores[0, 0, -1].isfinite())
        else None,
    )
    hidden = "" if case.keep is None else ", where hidden keys have the score −∞"
    yield ExplanationStep(
        f"weights = softmax(scores){hidden}: each row sums to 1.",
        values=per_head("weights", found.weights, words, words),
        question=Question(f"Which weight does {words[0]} give to itself?", float(found.weights[0, 0, 0])),
    )
    yield ExplanationStep(
        "output = weights V: each row mixes the values."
        if case.heads == 1
        else "output = weights V: each head mixes its part of the values; the results stand side by side.",
        values=[Matrix("output", found.output.tolist(), words)],
        conclusion=mixture(case, found) if case.heads == 1 else "",
        question=Question(f"What is the first number of the output of {words[0]}?", float(found.output[0, 0])),
    )


def mixture(case: AttentionCase, found: Attended) -> str:
    """The first row of the output, written out."""
    form = ".0f" if bool((case.v == case.v.round()).all()) else ".6f"
    pairs = zip(found.weights[0, 0].tolist(), case.v.tolist(), strict=True)
    parts = " + ".join(f"{weight:.6f} · {vector(value, form)}" for weight, value in pairs)
    return f"So {case.words[0]} becomes {parts} = {vector(found.output[0].tolist(), '.6f')}."


def vector(numbers: list[float], form: str) -> str:
    return f"[{', '.join(f'{x:{form}}' for x in numbers)}]"


def per_head(name: str, values: Tensor, rows: list[str], columns: list[str]) -> list[Matrix]:
    """A matrix for each head, H T S."""
    names = [name] if len(values) == 1 else [f"{name} of head {head}" for head in range(1, len(values) + 1)]
    return [Matrix(label, one.tolist(), rows, columns) for label, one in zip(names, values, strict=True)]


# ---- the operator, built up


def build_up(case: AttentionCase) -> Iterator[ExplanationStep]:
    words, x = case.words, case.x
    asking = torch.stack((x[0], x.sum(0)))  # two queries in the space of X
    labels = [words[0], "sum"]
    yield from one_query(case, asking[:1])
    many = attended(asking, x, x, Dot())
    yield ExplanationStep(
        "Many queries: a matrix product computes all scores at once.",
        ["Changed: a row of scores and of weights for each query; a second query is the sum of all rows of X."],
        [
            *per_head("weights of two queries", many.weights, labels, words),
            Matrix("outputs of two queries", many.output.tolist(), labels),
        ],
        Formula("Y = softmax(U Xᵀ / √C) X", r"Y = \operatorname{softmax}\left(U X^\top / \sqrt{C}\right) X"),
    )
    queries = asking @ case.w["wq"]
    keyed = attended(queries, case.k, case.v, case.score)
    yield ExplanationStep(
        "Keys and values: one projection of X is compared, another one is mixed.",
        [
            "Changed: K = X W_K decides the weights and V = X W_V is what is mixed, so that what a vector is found by "
            "and what it gives may differ, also in width. Queries have the width of keys now.",
        ],
        [
            Matrix("K", case.k.tolist(), words),
            Matrix("V", case.v.tolist(), words),
            *per_head("weights by keys", keyed.weights, labels, words),
            Matrix("outputs of values", keyed.output.tolist(), labels),
        ],
        Formula(
            f"Y = softmax(Q Kᵀ{case.divisor()}) V",
            rf"Y = \operatorname{{softmax}}\left(Q K^\top{case.divisor_latex()}\right) V",
        ),
    )
    yield ExplanationStep(
        "Cross-attention: queries are projected from an input of their own.",
        [
            "Changed: Q = U W_Q with a learned W_Q. The queries of the step before were these, so the numbers are the "
            "same; the layer now has three matrices, and two inputs.",
        ],
        [
            Matrix("Q of U", queries.tolist(), labels),
            Matrix("output of cross-attention", keyed.output.tolist(), labels),
        ],
        Formula("Q = U W_Q,  K = X W_K,  V = X W_V", r"Q = U W_Q,\quad K = X W_K,\quad V = X W_V"),
    )
    yield from self_attention(case)


def one_query(case: AttentionCase, query: Tensor) -> Iterator[ExplanationStep]:
    """One query: any score, the dot product, the scaled dot product.  `query` is 1 C."""
    words, x = case.words, case.x
    width = x.shape[1]
    additive = AdditiveScore(width).to(x.dtype).requires_grad_(False)
    additive.v.fill_(1.0)
    dot, scaled = Dot(1.0), Dot()
    found = {
        name: attended(query, x, x, score) for name, score in (("any", additive), ("dot", dot), ("scaled", scaled))
    }

    def shown(name: str, kind: str) -> list[Matrix]:
        one = found[kind]
        rows = torch.cat((one.scores[0], one.weights[0]))
        return [
            Matrix(f"scores and weights, {name}", rows.tolist(), ["scores", "weights"], words),
            Matrix(f"y, {name}", one.output.tolist(), ["y"]),
        ]

    yield ExplanationStep(
        "One query: a score for each data vector, weights that sum to 1, and a weighted sum.",
        [
            f"The query u is the first row of X. The score may be any function of u and x; here it is a small network "
            f"with all output weights 1, Σ tanh(u + x) over the {width} dimensions.",
        ],
        shown("any score", "any"),
        Formula(
            "e_i = f(u, x_i),  a = softmax(e),  y = Σ_i a_i x_i",
            r"e_i = f(u, x_i),\quad a = \operatorname{softmax}(e),\quad y = \sum_i a_i x_i",
        ),
    )
    yield ExplanationStep(
        "Dot product: the score needs no weights of its own.",
        ["Changed: f(u, x) = u · x, one multiplication for each dimension."],
        shown("dot product", "dot"),
        Formula("e_i = u · x_i", r"e_i = u \cdot x_i"),
        question=Question(
            "What is the dot product of the first row of X with itself?", float(found["dot"].scores[0, 0, 0])
        ),
    )
    yield ExplanationStep(
        "Scaled dot product: the score does not grow with the width.",
        [
            f"Changed: scores are divided by √{width} = {width**0.5:.6g}, so the weights are more even. "
            "headway explain scaling shows why that matters.",
        ],
        shown("scaled", "scaled"),
        Formula("e_i = u · x_i / √C", r"e_i = u \cdot x_i / \sqrt{C}"),
        question=Question(f"By what number are scores of width {width} divided?", width**0.5),
    )


def self_attention(case: AttentionCase) -> Iterator[ExplanationStep]:
    words = case.words
    whole = attended(case.q, case.k, case.v, case.score)
    causal = attended(case.q, case.k, case.v, case.score, keep=read_mask("causal", len(case.x)))
    yield ExplanationStep(
        "Self-attention: queries, keys and values come from the same input.",
        ["Changed: U = X, so every row asks all rows, itself among them."],
        [Matrix("output of self-attention", whole.output.tolist(), words)],
        Formula("Q = X W_Q,  K = X W_K,  V = X W_V", r"Q = X W_Q,\quad K = X W_K,\quad V = X W_V"),
    )
    yield ExplanationStep(
        "Masked self-attention: a row sees no row after it.",
        [
            "Changed: scores of later rows are −∞ before the softmax, so that their weights are 0. The first row sees "
            "itself alone."
        ],
        [
            *per_head("masked scores", causal.scores, words, words),
            *per_head("masked weights", causal.weights, words, words),
            Matrix("masked output", causal.output.tolist(), words),
        ],
        Formula("e_ij = −∞ for j > i", r"e_{ij} = -\infty \quad\text{for } j > i"),
        question=Question(f"Which weight does {words[0]} give to itself where it sees no later row?", 1.0),
    )
    heads = head_count(case)
    many = attended(case.q, case.k, case.v, case.score, heads)
    yield ExplanationStep(
        "Multi-head attention: parts of the vectors attend by themselves.",
        [
            f"Changed: Q, K and V are cut into {heads} parts, each with weights of its own; the outputs stand side by "
            "side, and a matrix W_O mixes them (the identity here).",
        ],
        [
            *per_head("multi-head weights", many.weights, words, words),
            Matrix("output of all heads", many.output.tolist(), words),
        ],
        Formula(
            "Y = [head_1 … head_H] W_O",
            r"Y = \left[\text{head}_1 \cdots \text{head}_H\right] W_O",
        ),
        question=Question(
            "How does the number of weights of W_Q, W_K, W_V change with the number of heads?",
            "not at all",
            ("it grows with the heads", "not at all", "it shrinks with the heads"),
        ),
    )


def head_count(case: AttentionCase) -> int:
    """As many as given; else two, if that divides the widths."""
    even = case.q.shape[1] % 2 == 0 and case.v.shape[1] % 2 == 0
    return case.heads if case.heads > 1 or not even else 2


def tensor(rows: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)
