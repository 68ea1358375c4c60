"""Simple methods: those of scikit-learn, and examples counted by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.metrics.baselines import (
    bigram_losses,
    frequent_tags,
    most_frequent,
    naive_bayes,
    nearest_mean,
    unigram_losses,
)

texts = st.lists(st.sampled_from(["good", "bad", "the", "Film", "x"]), min_size=1, max_size=6).map(" ".join)


@pytest.mark.slow
@given(
    rows=st.lists(st.tuples(texts, st.sampled_from("ab")), min_size=2, max_size=20), asked=st.lists(texts, min_size=1)
)
def test_naive_bayes_is_that_of_scikit_learn(rows: list[tuple[str, str]], asked: list[str]) -> None:
    pytest.importorskip("sklearn")
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB

    known, labels = (list(side) for side in zip(*rows, strict=True))
    counted = CountVectorizer(token_pattern=r"\S+").fit(known)
    model = MultinomialNB().fit(counted.transform(known), labels)
    sure = (
        np.ptp(model.predict_joint_log_proba(counted.transform(asked)), axis=1) > 1e-9 if len(set(labels)) > 1 else ...
    )
    found, expected = np.array(naive_bayes(known, labels, asked)), model.predict(counted.transform(asked))
    assert found[sure].tolist() == expected[sure].tolist()  # of classes that are as likely, either


@pytest.mark.slow
def test_nearest_means_are_those_of_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    from sklearn.neighbors import NearestCentroid

    draw = np.random.default_rng(0)
    labels = [f"c{at % 3}" for at in range(60)]
    vectors = (draw.normal(size=(60, 5)) + np.arange(60)[:, None] % 3).astype(np.float32)
    asked = draw.normal(1.0, 1.0, (40, 5)).astype(np.float32)
    assert nearest_mean(vectors, labels, asked) == NearestCentroid().fit(vectors, labels).predict(asked).tolist()


def test_the_most_frequent_is_counted_and_ties_are_by_the_alphabet() -> None:
    assert most_frequent(["b", "a", "b"]) == "b"
    assert most_frequent(["b", "a"]) == "a"
    tags, usual = frequent_tags([(["a", "run"], ["DET", "N"]), (["run"], ["V"]), (["run"], ["V"])])
    assert (tags, usual) == ({"a": "DET", "run": "V"}, "V")


def test_token_losses_counted_by_hand() -> None:
    seen, asked = np.array([0, 0, 1]), np.array([0, 2])
    assert np.exp(-unigram_losses(seen, asked, 4)).tolist() == pytest.approx([3 / 7, 1 / 7])
    pairs = np.array([0, 1, 0]), np.array([1, 0, 1])  # 0 1 0 1
    alone = np.exp(-unigram_losses(pairs[1], np.array([1, 0]), 2))
    found = np.exp(-bigram_losses(pairs, (np.array([0, 0]), np.array([1, 0])), 2))
    assert found.tolist() == pytest.approx([(2 + alone[0]) / 3, (0 + alone[1]) / 3])


def test_probabilities_sum_to_one() -> None:
    draw = random.Random(0)
    stream = np.array([draw.randrange(5) for _ in range(50)])
    every = np.arange(7)
    assert np.exp(-unigram_losses(stream, every, 7)).sum() == pytest.approx(1)
    for first in every:
        asked = np.full(7, first), every
        assert np.exp(-bigram_losses((stream[:-1], stream[1:]), asked, 7)).sum() == pytest.approx(1)
