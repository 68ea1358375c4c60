"""Scores of answers that are neither one class nor a free text: numbers, sets of labels, and spans of a context.

Numbers and sets of labels are measured as scikit-learn does it, spans as the script of SQuAD 2.0 does it.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.metrics.intervals import SetSums, Share, Statistic, Sums, columns
from headway.metrics.scores import Scores, check, f1
from headway.metrics.scoring import exact, mean_of, scores_of

ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)

Values = Sequence[float] | NDArray[np.float64]


# ---- numbers


def score_numbers(
    answers: Sequence[float], references: Sequence[float], lengths: Sequence[int] | None = None
) -> Scores:
    """Of one number for each text: errors, the share of variance that is explained, and correlations."""
    check(answers, references)
    found, wanted = np.array(answers, np.float64), np.array(references, np.float64)
    error, ones = found - wanted, np.ones(len(wanted))
    statistics: dict[str, Statistic] = {
        "rmse": mean_of(columns(error * error, ones), math.sqrt),
        "mae": mean_of(columns(np.abs(error), ones)),
        "r2": SetSums.made_by(explained_variance, found, wanted),
        "pearson": SetSums.made_by(correlation, found, wanted),
        "spearman": SetSums.made_by(rank_correlation, found, wanted),
    }
    return scores_of(statistics, "texts", lengths)


def explained_variance(found: Values, wanted: Values) -> Sums:
    """R², of deviations from the mean of the set."""
    error, apart = np.asarray(found) - np.asarray(wanted), np.asarray(wanted) - math.fsum(wanted) / len(wanted)
    return Sums(columns(error * error, apart, apart * apart, np.ones(len(wanted))), explained)


def explained(totals: Sequence[float]) -> float:
    """R² = 1 − Σ (ŷ − y)² / Σ (y − mean)²: of squared errors, y, y² and a count."""
    errors, total, squares, count = totals
    variance = squares - total**2 / count if count else 0.0
    return 1 - errors / variance if variance > 0 else math.nan


def rank_correlation(x: Values, y: Values) -> Sums:
    """Spearman's coefficient."""
    return correlation(ranks(x), ranks(y))


def correlation(first: Values, second: Values) -> Sums:
    """Pearson's coefficient."""
    x, y = (values - values.mean() for values in (np.asarray(first), np.asarray(second)))
    return Sums(columns(x, y, x * x, y * y, x * y, np.ones(len(x))), cosine_of_sums)


def cosine_of_sums(totals: Sequence[float]) -> float:
    x, y, xx, yy, xy, count = totals
    if not count:
        return math.nan
    across = (xx - x * x / count) * (yy - y * y / count)
    return (xy - x * y / count) / math.sqrt(across) if across > 0 else math.nan


def ranks(values: Values) -> np.ndarray:
    """The rank of each value from 1; equal ones have the mean of theirs."""
    _, at, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[at]


# ---- sets of labels


def score_label_sets(
    answers: Sequence[frozenset[str]],
    references: Sequence[frozenset[str]],
    labels: Sequence[str],
    lengths: Sequence[int] | None = None,
) -> Scores:
    """Of the labels that a text has, out of `labels`: F1 of all decisions, its mean over labels, and whole sets."""
    check(answers, references)
    right, found, wanted = (
        np.array([[label in one for label in labels] for one in several], np.int64).reshape(len(answers), len(labels))
        for several in ([a & r for a, r in zip(answers, references, strict=True)], answers, references)
    )
    whole = [("\n".join(sorted(one)) for one in several) for several in (answers, references)]
    statistics = {
        "micro_f1": Sums(columns(right.sum(1), found.sum(1), wanted.sum(1)), lambda totals: f1(*totals)),
        "f1": Sums(np.concatenate([right, found, wanted], 1).T, mean_f1),
        "exact": exact(*map(list, whole)),
    }
    return scores_of(statistics, "texts", lengths)


def mean_f1(totals: Sequence[float]) -> float:
    """The mean of F1 over labels, of their counts of right, found and wanted texts; 0 where a label has none."""
    count = len(totals) // 3
    several = zip(totals[:count], totals[count : 2 * count], totals[2 * count :], strict=True)
    return math.fsum(f1(*one) for one in several) / count


def label_rates(
    answers: Sequence[frozenset[str]], references: Sequence[frozenset[str]], labels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and count of each label."""
    pairs, rates = list(zip(answers, references, strict=True)), dict[str, dict[str, float]]()
    for label in labels:
        right = sum(label in a and label in r for a, r in pairs)
        found, wanted = sum(label in a for a, _ in pairs), sum(label in r for _, r in pairs)
        shares = {"precision": right / found if found else 0.0, "recall": right / wanted if wanted else 0.0}
        rates[label] = {**shares, "f1": f1(right, found, wanted), "count": wanted}
    return rates


# ---- spans of a context


def score_answers(
    answers: Sequence[str], references: Sequence[Sequence[str]], lengths: Sequence[int] | None = None
) -> Scores:
    """Of answers that a context holds, each against several references, or none where it holds no answer."""
    check(answers, references)
    wanted = [[one for one in several if normalised(one)] or [""] for several in references]
    words = [max(word_f1(a, r) for r in several) for a, several in zip(answers, wanted, strict=True)]
    same = [any(normalised(a) == normalised(r) for r in several) for a, several in zip(answers, wanted, strict=True)]
    statistics = {"answer_f1": mean_of(columns(words, [1.0] * len(words))), "exact_match": Share(np.array(same))}
    return scores_of(statistics, "questions", lengths)


def normalised(text: str) -> str:
    """SQuAD's: small letters, no punctuation, no articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def word_f1(answer: str, reference: str) -> float:
    """F1 of the words of an answer; where either has none, whether both have none."""
    found, wanted = normalised(answer).split(), normalised(reference).split()
    if not found or not wanted:
        return float(found == wanted)
    return f1((Counter(found) & Counter(wanted)).total(), len(found), len(wanted))
