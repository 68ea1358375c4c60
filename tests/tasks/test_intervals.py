"""The 95 % interval of a score: exact for shares, by the bootstrap for all others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.metrics.intervals import (
    DRAWS,
    MIN_RESAMPLES,
    Interval,
    Share,
    Sums,
    clopper_pearson,
    columns,
    ratio,
    resamples,
)
from headway.metrics.retrieval import MedianRank
from headway.metrics.scores import MEASURES
from headway.metrics.scoring import MacroF1, bleu, chrf, score_classes, score_pairs, score_texts


def test_four_of_four_may_be_forty_percent() -> None:
    scores = score_classes(list("abab"), list("abab"))
    assert scores.told("accuracy") == "100.00 % (4 of 4; 40–100 %)"
    assert scores.told("f1") == "100.00 % (4 texts; 40–100 %)"  # no resample of these differs
    low, high = scores.intervals["accuracy"]
    assert (round(low, 4), high) == (0.3976, 1.0)
    plain = scores.plain()
    assert plain["scores"] == {"accuracy": 1.0, "f1": 1.0}
    assert plain["intervals"] == {name: {"low": low, "high": 1.0, "n": 4} for name in ("accuracy", "f1")}


@pytest.mark.slow
@given(count=st.integers(1, 3000), data=st.data())
def test_shares_have_the_limits_of_scipy(count: int, data: st.DataObject) -> None:
    beta = pytest.importorskip("scipy.stats").beta
    right = data.draw(st.integers(0, count))
    low, high = clopper_pearson(right, count)
    assert low == pytest.approx(beta.ppf(0.025, right, count - right + 1) if right else 0.0, abs=1e-9)
    assert high == pytest.approx(beta.ppf(0.975, right + 1, count - right) if right < count else 1.0, abs=1e-9)
    assert low <= right / count <= high


def test_a_mean_has_about_the_limits_of_its_standard_error() -> None:
    values = np.random.default_rng(1).normal(5.0, 2.0, 400)
    low, high = Sums(columns(values, np.ones(400)), ratio).interval()
    error = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - error, abs=0.03)
    assert high == pytest.approx(values.mean() + error, abs=0.03)
    assert (low, high) == Sums(columns(values[::-1], np.ones(400)), ratio).interval()  # whatever the order


def test_the_bootstrap_of_bleu_is_that_of_sacrebleu() -> None:
    """Its own half-width of the interval, by other draws."""
    sacrebleu = pytest.importorskip("sacrebleu.metrics.bleu")
    draw = np.random.default_rng(0)
    words = np.array(["the", "a", "cat", "dog", "sat", "ran", "on", "in", "mat", "house", "red", "blue"])
    references = [" ".join(draw.choice(words, 9)) for _ in range(60)]
    answers = [" ".join(w if draw.random() < 0.8 else "x" for w in text.split()) for text in references]
    found = sacrebleu.BLEU(force=True).corpus_score(answers, [references], n_bootstrap=1000)
    low, high = bleu(answers, references).interval()
    assert (high - low) / 2 == pytest.approx(found._ci, rel=0.1)
    assert bleu(answers, references).value() == found.score
    assert low < chrf(answers, references).value()


@pytest.mark.slow
@given(st.lists(st.tuples(*[st.sampled_from("abc")] * 2), min_size=2, max_size=12))
def test_resampled_scores_are_the_scores_of_resamples(rows: list[tuple[str, str]]) -> None:
    """What is computed for all resamples at once is what each of them has alone."""
    answers, references = zip(*sorted(rows), strict=True)
    counts = next(iter(resamples(len(rows))))[:20]
    right = np.array([a == r for a, r in sorted(rows)])
    ranks = np.sort(np.array([ord(a) - 96 for a, _ in rows]))
    for one in (MacroF1(answers, references), Share(np.sort(right)), MedianRank(ranks)):
        alone = [one.subset([at for at, n in enumerate(row.astype(int)) for _ in range(n)]).value() for row in counts]
        assert one.resampled(counts).tolist() == pytest.approx(alone)


@pytest.mark.slow
def test_one_record_has_no_interval_and_too_many_are_bounded() -> None:
    assert all(math.isnan(end) for end in Sums(columns([1.0], [1]), ratio).interval())
    assert score_texts([3.0], [2], [5]).told("loss") == "1.5000 (2 tokens)"
    assert [some.shape for some in resamples(3)] == [(1000, 3)]
    assert [some.shape for some in resamples(20_000)] == [(200, 20_000)]


@pytest.mark.slow
def test_resamples_of_many_records_come_in_parts_and_are_those_at_once() -> None:
    count, parts = 70_001, list(resamples(70_001))
    assert sum(map(len, parts)) == MIN_RESAMPLES
    assert max(part.size for part in parts) <= DRAWS
    at_once = np.random.default_rng(0).integers(0, count, (MIN_RESAMPLES, count))
    for row, draws in zip(np.concatenate(parts), at_once, strict=True):
        assert np.array_equal(row, np.bincount(draws, minlength=count))
    assert 2.0 in Interval(1.0, 2.0)
    assert 2.5 not in Interval(1.0, 2.0)


def test_intervals_are_written_in_the_unit_of_their_measure() -> None:
    assert MEASURES["accuracy"].shown_interval(Interval(0.781, 0.836)) == "78.1–83.6 %"
    assert MEASURES["accuracy"].shown_interval(Interval(0.398, 1.0)) == "40–100 %"
    assert MEASURES["bleu"].shown_interval(Interval(8.714, 9.916)) == "8.71–9.92"
    table = score_pairs(["a b c d", "b"], ["a b c d", "c"]).shown()
    assert "each score with its 95 % interval" in table
    assert table.splitlines()[3].endswith("50.00 % (1–99)")
