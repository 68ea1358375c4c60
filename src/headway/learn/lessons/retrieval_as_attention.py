"""Information retrieval as attention: query, keys and values of a small search.

A search engine compares a query with the key of each document and returns the value of the best. Count words: the
score is a dot product. Replace "the best" by a softmax and the search is attention: it returns a mixture, can be
differentiated, and with a small temperature it is the search again.

Axes:  N documents   V words   E numbers of a value
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headway.figures import BarChart, CurveChart, Plot
from headway.learn.experiment import curve
from headway.learn.explanation import ExplanationStep, Formula, Matrix, Question, ValueTable
from headway.ops.attend import Dot, attend

FAST = {"temperatures": (0.1, 1.0)}
DOCUMENTS = {  # title: words
    "cats at home": "cat cat milk sleep house sleep",
    "dogs outdoors": "dog dog walk park ball park",
    "cats and dogs": "cat dog house fight milk",
    "city parks": "park park tree city walk",
    "dairy farms": "milk cow cow farm milk",
}
LENGTH = [3.0, 7.0, 12.0, 5.0, 9.0]  # a value: minutes of each film
WORDS = sorted({word for text in DOCUMENTS.values() for word in text.split()})


def counts(text: str) -> Tensor:
    """V"""
    return torch.tensor([float(text.split().count(word)) for word in WORDS])


def read(query: Tensor, keys: Tensor, values: Tensor, temperature: float) -> Tensor:
    """softmax(q · k / temperature) values, E"""
    score = Dot(1 / temperature)
    return attend(query[None, None, None], keys[None, None], values[None, None], score=score)[0, 0, 0]


def steps(
    query: str = "cat milk", temperatures: tuple[float, ...] = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
) -> Iterator[ExplanationStep]:
    keys, asked, titles = torch.stack([counts(text) for text in DOCUMENTS.values()]), counts(query), list(DOCUMENTS)
    scores = keys @ asked
    found = titles[int(scores.argmax())]
    yield ExplanationStep(
        "Count words, take dot products.",
        [f"Query: {query!r}. Keys are the counts of words in each text; the score is q · k."],
        [
            Matrix("keys", keys.tolist(), titles, WORDS),
            ValueTable("scores", ["document", "q · k"], list(zip(titles, scores.tolist(), strict=True)), ".0f"),
        ],
        Formula("score_i = q · k_i,  answer = value of the largest", r"s_i = q \cdot k_i"),
        question=Question("Which document does the search return?", found, tuple(titles)),
    )
    identity, minutes = torch.eye(len(titles)), torch.tensor(LENGTH)[:, None]
    weights = read(asked, keys, identity, 1.0)
    mixed = float(read(asked, keys, minutes, 1.0)[0])
    yield ExplanationStep(
        "A softmax in place of the best: attention.",
        ["Values are the minutes of five films. Attention returns their mean, weighted by the softmax of the scores."],
        [
            ValueTable(
                "documents",
                ["document", "score", "weight", "value: minutes"],
                [[t, float(scores[at]), float(weights[at]), LENGTH[at]] for at, t in enumerate(titles)],
                ".3f",
            ),
            ValueTable("answers", ["search", "attention"], [[LENGTH[titles.index(found)], mixed]], ".3f"),
        ],
        figure=Plot("weights of the documents", [BarChart(f"query: {query}", titles, weights.tolist(), "weight")]),
        question=Question("How many minutes does attention return?", mixed, tolerance=0.1),
    )
    sharp = [float(read(asked, keys, identity, t).max()) for t in temperatures]
    answers = [float(read(asked, keys, minutes, t)[0]) for t in temperatures]
    moved = asked.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(read(moved, keys, minutes, 1.0)[0], moved)
    longest = WORDS[int(gradient.argmax())]
    yield ExplanationStep(
        "Between search and mean; and what a gradient says.",
        [
            "Scores divided by a temperature: near 0 it is the search, far above all documents count alike. Unlike the "
            "search, the answer has a gradient: which word, added to the query, makes the film longer?",
        ],
        [
            ValueTable(
                "by temperature",
                ["temperature", "largest weight", "minutes"],
                [[f"{t:g}", s, a] for t, s, a in zip(temperatures, sharp, answers, strict=True)],
                ".3f",
            ),
            ValueTable(
                "gradient of the minutes", ["word", "gradient"], list(zip(WORDS, gradient.tolist(), strict=True)), ".3f"
            ),
        ],
        figure=Plot(
            "from search to mean",
            [CurveChart("", [curve("largest weight", temperatures, sharp)], "temperature", xscale="log")],
        ),
        question=Question("Which word in the query would lengthen the film most?", longest, tuple(WORDS)),
        conclusion=f"Temperature {temperatures[0]:g}: {answers[0]:.2f} minutes (search: "
        f"{LENGTH[titles.index(found)]:.2f}); {temperatures[-1]:g}: {answers[-1]:.2f} (mean of all: "
        f"{float(minutes.mean()):.2f}).",
    )
