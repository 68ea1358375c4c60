"""Scores of parts, pooled, are those of all records at once."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.metrics.captions import score_captions
from headway.metrics.intervals import Share
from headway.metrics.pooling import pooled_scores
from headway.metrics.retrieval import MedianRank
from headway.metrics.scores import Scores
from headway.metrics.scoring import (
    score_classes,
    score_losses,
    score_pairs,
    score_tags,
    score_texts,
    score_words,
)
from headway.metrics.structured import score_answers, score_label_sets, score_numbers

WORDS = ["a", "the", "cat", "dog", "sees", "finds", "red", "blue"]


def sentence(draw: random.Random, least: int = 1) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, 9)))


def columns_of(draw: random.Random, count: int) -> dict[str, tuple[Callable[..., Scores], list[Sequence[Any]]]]:
    """For each kind of score, its function and lists with an entry for each record."""
    rows, lengths = range(count), [draw.randint(0, 60) for _ in range(count)]
    tags = [[draw.choice(["O", "B-x", "I-x", "B-y"]) for _ in range(draw.randint(1, 5))] for _ in rows]
    guessed = [[draw.choice([tag, "O"]) for tag in row] for row in tags]
    numbers = [draw.gauss(3, 2) for _ in rows]
    sets = [[frozenset(draw.sample("xyz", draw.randint(0, 3))) for _ in rows] for _ in range(2)]
    losses, counts = [draw.random() * 9 for _ in rows], [draw.randint(1, 9) for _ in rows]
    several = [[sentence(draw) for _ in range(draw.randint(1, 3))] for _ in rows]
    return {
        "classes": (score_classes, [draw.choices("xyz", k=count), draw.choices("xyz", k=count), lengths]),
        "pairs": (score_pairs, [[sentence(draw) for _ in rows], [sentence(draw, 4) for _ in rows], lengths]),
        "tags": (score_tags, [*([" ".join(["B-x", *row]) for row in side] for side in (guessed, tags)), lengths]),
        "numbers": (score_numbers, [[one + draw.gauss(0, 1) for one in numbers], numbers, lengths]),
        "label sets": (lambda a, r, n: score_label_sets(a, r, "xyz", n), [*sets, lengths]),
        "answers": (score_answers, [[sentence(draw) for _ in rows], several, lengths]),
        "captions": (score_captions, [[sentence(draw) for _ in rows], several]),
        "texts": (score_texts, [losses, counts, [3 * one for one in counts], lengths]),
        "hidden words": (score_words, [losses, counts, [one // 2 for one in counts], lengths]),
        "losses": (lambda a, n: score_losses(a, n, "tokens", ("loss", "perplexity")), [losses, counts]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", columns_of(random.Random(0), 2))
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), seed=st.integers(0, 999))
def test_pooled_scores_are_those_of_all_records(kind: str, sizes: list[int], seed: int) -> None:
    """Numbers, intervals, buckets by length and classes: also of ranks, and of captions, by the words of the set."""
    score, columns = columns_of(random.Random(seed), sum(sizes))[kind]
    ends = np.cumsum([0, *sizes]).tolist()
    parts = [score(*(column[first:last] for column in columns)) for first, last in pairwise(ends)]
    check_same(pooled_scores(parts), score(*columns))


def check_same(found: Scores, whole: Scores) -> None:
    assert (found.count, found.things, found.unit, found.main) == (whole.count, whole.things, whole.unit, whole.main)
    assert found.signatures == whole.signatures
    assert found.numbers == pytest.approx(dict(whole.numbers), rel=1e-9, nan_ok=True)
    for name, interval in whole.intervals.items():
        assert found.intervals[name] == pytest.approx(interval, rel=1e-6, abs=1e-9, nan_ok=True)
    assert found.classes == whole.classes
    assert [(one.label, one.count) for one in found.buckets] == [(one.label, one.count) for one in whole.buckets]


def test_a_score_is_no_mean_of_scores() -> None:
    """BLEU of 2 and 1 pairs, by sums of n-grams; and a share of 3 records."""
    parts = [score_classes(["a", "b"], ["a", "a"]), score_classes(["a"], ["a"])]
    assert pooled_scores(parts).told("accuracy") == "66.67 % (2 of 3; 9–99 %)"
    assert pooled_scores(parts).numbers["accuracy"] != (0.5 + 1.0) / 2


def test_ranks_are_counted_as_they_were_found() -> None:
    parts = [
        Scores({"texts_1": 1.0, "texts_rank": 1.0}, 1, statistics=statistics)
        for statistics in (
            {"texts_1": Share(np.array([True])), "texts_rank": MedianRank(np.array([1]))},
            {"texts_1": Share(np.array([False, False])), "texts_rank": MedianRank(np.array([4, 9]))},
        )
    ]
    assert pooled_scores(parts).numbers == {"texts_1": 1 / 3, "texts_rank": 4.0}


def test_numbers_without_records_are_weighted_by_how_many_there_are() -> None:
    found = pooled_scores([Scores({"accuracy": 0.5}, 30), Scores({"accuracy": 0.2}, 10)])
    assert (found.numbers["accuracy"], found.count) == (pytest.approx(0.425), 40)
    assert math.isnan(found.intervals["accuracy"].low)


def test_where_a_model_has_diverged_there_is_no_score() -> None:
    diverged = Scores({"loss": math.inf}, 0, "targets")
    assert pooled_scores([score_classes(["a"], ["a"]), diverged, score_classes(["b"], ["a"])]) is diverged
