"""How well captions tell what is on images, where each image has several captions by people.

As the evaluation code of COCO captions computes it, but for the words, which its tokenizer of the Penn Treebank cuts:
here letters are lowered, punctuation becomes a space, and what spaces separate is a word ("dog s" there is "dog 's",
"black and white" there may be "black-and-white").  None depends on the order of images or of references.

* BLEU-n of a corpus: the geometric mean of the precisions of 1 … n words in a row, each answer's counts clipped by the
  largest count in one of its references, times exp(1 − r/c) where the answers' length c is less than r, the sum of
  the lengths of the references nearest in length (of two as near, the shorter).  Runs from 0 to 1.  Where some order
  has no match it is 0; COCO's code, which adds 1e-15 to each count, says some 1e-4.
* CIDEr-D: for each n from 1 to 4 the cosine of answer and reference as vectors of n-grams, where an n-gram weighs its
  count × log(images / images of whose references it is a part), the answer's weights clipped by the reference's in the
  product, times exp(−δ²/2σ²) for captions that differ by δ words, σ = 6; the mean over n and references, × 10.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial, reduce
from operator import or_

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError
from headway.metrics.intervals import SetSums, Statistic, Sums, columns
from headway.metrics.scores import Scores, share
from headway.metrics.scoring import mean_of, scores_of

ORDERS = 4
SIGMA = 6.0

Gram = tuple[str, ...]
Grams = Counter[Gram]
References = Sequence[Sequence[str]]  # of each image


def score_captions(answers: Sequence[str], references: References) -> Scores:
    """BLEU-1 … 4 and CIDEr-D of one answer for each image."""
    grams = gram_counts(answers, references)
    found: dict[str, Statistic] = {"cider": SetSums.made_by(cider_sums, answers, references)}
    found |= {f"bleu_{n}": Sums(grams, partial(bleu_of, order=n)) for n in range(1, ORDERS + 1)}
    return scores_of(found, "images")


def cider_sums(answers: Sequence[str], references: References) -> Sums:
    """The mean of CIDEr-D over images, whose tf-idf is that of the set."""
    each = cider_each(answers, references)
    return mean_of(columns(each, [1] * len(each)))


def bleu(answers: Sequence[str], references: References) -> tuple[float, ...]:
    """BLEU-1 … BLEU-4 of all answers together."""
    counts = gram_counts(answers, references)
    return tuple(Sums(counts, partial(bleu_of, order=n)).value() for n in range(1, ORDERS + 1))


def gram_counts(answers: Sequence[str], references: References) -> NDArray[np.int64]:
    """Of each answer the n-grams that match and those that it has, for each n, its length and the nearest one, K N."""
    rows = list[list[int]]()
    for answer, known in words_of(answers, references):
        nearest = min((len(one) for one in known), key=lambda n: (abs(n - len(answer)), n))
        matches, possible = list[int](), list[int]()
        for n in range(1, ORDERS + 1):
            said = grams(answer, n)
            allowed: Grams = reduce(or_, (grams(one, n) for one in known))  # the largest count of each
            matches.append((said & allowed).total())
            possible.append(said.total())
        rows.append([*matches, *possible, len(answer), nearest])
    return np.array(rows).T


def bleu_of(totals: Sequence[float], order: int) -> float:
    """BLEU of sums of `gram_counts`, up to so many words in a row."""
    *counts, long, nearest = totals
    short = min(0.0, 1.0 - nearest / long) if long else -math.inf
    shares = [share(*pair) for pair in zip(counts[:ORDERS], counts[ORDERS:], strict=True)]
    return math.exp(short) * math.prod(shares[:order]) ** (1 / order)


def cider(answers: Sequence[str], references: References) -> float:
    """CIDEr-D, the mean over images; the documents of its tf-idf are the images of this very set."""
    return mean(cider_each(answers, references))


def cider_each(answers: Sequence[str], references: References) -> list[float]:
    """CIDEr-D of each answer."""
    pairs = words_of(answers, references)
    seen = Counter[Gram]()  # in how many images
    for _, known in pairs:
        seen.update({gram for one in known for n in range(1, ORDERS + 1) for gram in grams(one, n)})

    def weights(row: Sequence[str], n: int) -> dict[Gram, float]:
        """How much the n-grams of a caption tell: count × log(images / images that have it)."""
        return {gram: count * math.log(len(pairs) / max(1, seen[gram])) for gram, count in grams(row, n).items()}

    def similarity(answer: Sequence[str], reference: Sequence[str]) -> float:
        """From 0 to 1: the mean over n of the clipped cosine, less where lengths differ."""
        near = math.exp(-((len(answer) - len(reference)) ** 2) / (2 * SIGMA**2))
        orders = range(1, ORDERS + 1)
        return near * mean(clipped_cosine(weights(answer, n), weights(reference, n)) for n in orders)

    return [10 * mean(similarity(answer, one) for one in known) for answer, known in pairs]


def clipped_cosine(a: dict[Gram, float], b: dict[Gram, float]) -> float:
    """min(a, b) · b / (|a| |b|): repeating a word of the reference gains nothing."""
    product = math.fsum(min(weight, b[gram]) * b[gram] for gram, weight in a.items() if gram in b)
    norms = math.hypot(*a.values()) * math.hypot(*b.values())
    return product / norms if norms else 0.0


def words(text: str) -> list[str]:
    """A caption's words: lowered, without punctuation."""
    kept = (" " if unicodedata.category(sign)[0] == "P" else sign for sign in text.lower())
    return "".join(kept).split()


def grams(row: Sequence[str], n: int) -> Grams:
    """How often each n words in a row occur."""
    return Counter(tuple(row[at : at + n]) for at in range(len(row) - n + 1))


def words_of(answers: Sequence[str], references: References) -> list[tuple[list[str], list[list[str]]]]:
    """Each answer's words, and those of its references; what cannot be measured is told."""
    if len(answers) != len(references):
        said = f"{len(answers)} captions cannot be measured by the references of {len(references)} images"
        raise UserError(said, do="give one answer and one list of references for each image")
    if not answers:
        raise UserError("there is nothing to measure: no captions", do="give one image or more")
    for image, known in enumerate(references, 1):
        if isinstance(known, str) or not known:
            said = f"image {image} has {known!r:.40} for its references"
            raise UserError(said, allowed="a list of one caption or more")
    return [(words(a), [words(one) for one in known]) for a, known in zip(answers, references, strict=True)]


def mean(numbers: Iterable[float]) -> float:
    listed = list(numbers)
    return math.fsum(listed) / len(listed)
