"""Simple methods that a model is compared with: each learns from the same data by counting, in a second.

Axes:  N samples   K classes   V words   C numbers of a sample   M tokens
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

WORD = re.compile(r"\w+")
COMPARED_TOGETHER = 1000  # samples whose neighbours are looked for at once


def most_frequent(texts: Iterable[str]) -> str:
    """The most frequent text; of several, the first in order."""
    counts = Counter(texts)
    return min(counts, key=lambda text: (-counts[text], text))


def naive_bayes(texts: Sequence[str], labels: Sequence[str], asked: Iterable[str]) -> list[str]:
    """The class of each text that is asked for, by multinomial naive Bayes over lower-case words.

    log P(class) + Σ over words of log P(word | class), where every word is counted once more than it occurs.  Words
    that were never seen say nothing.
    """
    classes, words = sorted(set(labels)), dict[str, int]()
    rows = [[words.setdefault(word, len(words)) for word in text.lower().split()] for text in texts]
    places = {label: at for at, label in enumerate(classes)}
    counted = WordCounts.of(rows, [places[label] for label in labels], len(classes), len(words))
    before, likely = counted.prior(), counted.likelihoods()
    known = ([words[word] for word in text.lower().split() if word in words] for text in asked)
    return [classes[int((before + likely[row].sum(0)).argmax())] for row in known]


@dataclass(frozen=True, eq=False)
class WordCounts:
    """How often words occur in the texts of each class, as naive Bayes counts them: N texts of M words in all."""

    words: NDArray[np.int64]  # M
    texts: NDArray[np.int64]  # M: the text that each word is of
    labels: NDArray[np.int64]  # N
    counts: NDArray[np.float64]  # V K
    frequency: NDArray[np.float64]  # K

    @staticmethod
    def of(rows: Sequence[Sequence[int] | NDArray[Any]], labels: Sequence[int], classes: int, vocab: int) -> WordCounts:
        words = np.fromiter((word for row in rows for word in row), np.int64)
        texts, given = np.repeat(np.arange(len(rows)), [len(row) for row in rows]), np.asarray(labels, np.int64)
        counts = np.bincount(words * classes + given[texts], minlength=vocab * classes).astype(np.float64)
        frequency = np.bincount(given, minlength=classes).astype(np.float64)
        return WordCounts(words, texts, given, counts.reshape(vocab, classes), frequency)

    def prior(self) -> NDArray[np.float64]:
        """log P(class), K."""
        return np.log(self.frequency / self.frequency.sum())

    def likelihoods(self) -> NDArray[np.float64]:
        """log P(word | class), V K, every word counted once more than it occurs; 0 for words that never occur."""
        seen = self.counts.any(1, keepdims=True)
        return np.where(seen, np.log(self.counts + 1) - np.log((self.counts + seen).sum(0)), 0.0)

    def left_out(self) -> NDArray[np.float64]:
        """log P(class, text) of each text by the counts of all others, N K."""
        texts, classes = len(self.labels), len(self.frequency)
        pairs, times = np.unique(self.texts * len(self.counts) + self.words, return_counts=True)
        text, word = np.divmod(pairs, len(self.counts))
        own, length = self.labels[text], np.bincount(self.texts, minlength=texts)
        known = times * (self.counts[word].sum(1) > times)
        total, found = (self.counts + self.counts.any(1, keepdims=True)).sum(0), np.empty((texts, classes))
        for at in range(classes):
            counts = self.counts[word, at] - np.where(own == at, times, 0) + 1
            size = total[at] - np.where(self.labels == at, length, 0)
            count = self.frequency[at] - (self.labels == at)
            found[:, at] = np.bincount(text, known * np.log(counts), texts) - np.bincount(text, known, texts) * np.log(
                np.maximum(size, 1)
            )
            found[:, at] += np.log(np.maximum(count, 0.5) / max(1, texts - 1))
        return found

    def temperature(self) -> float:
        """The factor from 0.01 to 1 of log-probabilities that fits classes of texts by the counts of all others best.

        Naive Bayes takes words for independent, so its probabilities are far too near 0 and 1.
        """
        scores = self.left_out()

        def loss(factor: float) -> float:
            scaled = factor * (scores - scores.max(1, keepdims=True))
            return float((np.log(np.exp(scaled).sum(1)) - scaled[np.arange(len(scaled)), self.labels]).mean())

        return min(np.geomspace(0.01, 1, 41).tolist(), key=loss)


def nearest_mean(vectors: Vectors, labels: Sequence[str], asked: Vectors) -> list[str]:
    """The class whose mean is nearest to each sample that is asked for: N C and its classes, M C → M."""
    classes, known = sorted(set(labels)), np.array(labels)
    means = np.stack([vectors[known == label].mean(0) for label in classes])  # K C
    # |x − m|² without |x|², which is the same for all classes
    distances = (means**2).sum(1) - 2 * asked @ means.T  # M K
    return [classes[at] for at in distances.argmin(1).tolist()]


def mean_of_nearest(vectors: Vectors, numbers: Sequence[float], asked: Vectors, k: int) -> list[float]:
    """The mean of the numbers of the k samples nearest to each that is asked for: N C and N numbers, M C → M."""
    # |x − y|² without |y|², which is the same for all that are known
    distances = (vectors**2).sum(1) - 2 * asked @ vectors.T  # M N
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.asarray(numbers, float)[order].mean(1).tolist()


def nearest_neighbours(vectors: Vectors, labels: Sequence[str], k: int) -> list[str]:
    """The class of each sample by its k nearest others, each counting as much as its cosine: N C and N classes → N.

    The evaluation of representations by Wu et al. (2018), among the samples themselves, each left out once.
    """
    classes, known = np.unique(np.array(labels), return_inverse=True)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found = list[str]()
    for start in range(0, len(unit), COMPARED_TOGETHER):
        near = unit[start : start + COMPARED_TOGETHER] @ unit.T  # M N
        near[np.arange(len(near)), start + np.arange(len(near))] = -np.inf
        order = np.argsort(-near, axis=1, kind="stable")[:, : min(k, len(unit) - 1)]
        for row, at in zip(near, order, strict=True):
            votes = np.bincount(known[at], 1.0 + row[at], len(classes))  # a cosine is at least −1
            found.append(str(classes[int(votes.argmax())]))
    return found


def frequent_tags(rows: Iterable[tuple[Sequence[str], Sequence[str]]]) -> tuple[dict[str, str], str]:
    """The most frequent tag of each word in rows of words and tags, and that of all words."""
    tags = defaultdict[str, Counter[str]](Counter)
    for words, given in rows:
        for word, tag in zip(words, given, strict=True):
            tags[word][tag] += 1
    every = sum(tags.values(), Counter[str]())
    return {word: most_frequent(counts.elements()) for word, counts in tags.items()}, most_frequent(every.elements())


def unigram_losses(tokens: NDArray[np.int64], asked: NDArray[np.int64], vocab: int) -> NDArray[np.float64]:
    """−log of how frequent each token is that is asked for, M; every token is counted once more than it occurs."""
    counts = np.bincount(tokens, minlength=vocab) + 1.0
    return np.log(counts.sum()) - np.log(counts[asked])


def bigram_losses(
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]], asked: tuple[NDArray[np.int64], NDArray[np.int64]], vocab: int
) -> NDArray[np.float64]:
    """−log P(token | the one before it), M, of tokens and those that follow: what was counted, and unigrams beside it.

    P(b | a) = (count(a b) + P(b)) / (count(a) + 1): a token that never followed is as likely as it is frequent.
    """
    first, second = (np.concatenate(sides).astype(np.int64) for sides in zip(pairs, asked, strict=True))
    seen = len(pairs[0])
    _, numbers = np.unique(first * vocab + second, return_inverse=True)
    both = np.bincount(numbers[:seen], minlength=int(numbers.max()) + 1)[numbers[seen:]]
    alone = np.bincount(pairs[0], minlength=vocab)[asked[0]]
    return np.log(alone + 1.0) - np.log(both + np.exp(-unigram_losses(pairs[1], asked[1], vocab)))


def mean_of_words(texts: Sequence[str], numbers: Sequence[float], asked: Iterable[str]) -> list[float]:
    """The number of each text that is asked for, on the line of least squares through what its words say on average.

    A word says how far the texts that have it are from the mean, divided by one more than there are of them.  Words
    that were never seen say nothing.
    """
    mean = float(np.mean(numbers))
    moved, count = defaultdict[str, float](float), Counter[str]()
    for text, number in zip(texts, numbers, strict=True):
        for word in set(text.lower().split()):
            moved[word] += number - mean
            count[word] += 1

    def said(text: str) -> float:
        known = [word for word in set(text.lower().split()) if word in count]
        return sum(moved[word] / (count[word] + 1) for word in known) / max(1, len(known))

    return line_through(list(map(said, texts)), numbers, list(map(said, asked)))


def line_through(values: Sequence[float], numbers: Sequence[float], asked: Sequence[float]) -> list[float]:
    """The numbers of values that are asked for, on the line of least squares through those that are known."""
    x, y = np.asarray(values, float), np.asarray(numbers, float)
    apart = x - x.mean()
    slope = float(apart @ (y - y.mean()) / (apart @ apart)) if apart.any() else 0.0
    return [float(y.mean()) + slope * (one - float(x.mean())) for one in asked]


SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")


def sentence_like(question: str, context: str) -> str:
    """The sentence of a context that has the most words of a question; of several, the first."""
    asked = set(WORD.findall(question.lower()))
    sentences = [one.strip() for one in SENTENCE_END.split(context) if one.strip()]
    return max(sentences, key=lambda one: len(asked & set(WORD.findall(one.lower()))), default="")
