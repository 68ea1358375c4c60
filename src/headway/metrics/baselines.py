"""Simple methods that a model is compared with: each learns from the same data by counting, in a second.

Axes:  N samples   K classes   V words   C numbers of a sample   M tokens
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

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
    counts = np.ones((len(classes), len(words)))  # K V
    for row, label in zip(rows, labels, strict=True):
        np.add.at(counts[places[label]], row, 1)
    likely = np.log(counts) - np.log(counts.sum(1, keepdims=True))
    frequency = Counter(labels)
    before = np.log([frequency[label] / len(labels) for label in classes])  # K
    known = ([words[word] for word in text.lower().split() if word in words] for text in asked)
    return [classes[int((before + likely[:, row].sum(1)).argmax())] for row in known]


def nearest_mean(vectors: Vectors, labels: Sequence[str], asked: Vectors) -> list[str]:
    """The class whose mean is nearest to each sample that is asked for: N C and its classes, M C → M."""
    classes, known = sorted(set(labels)), np.array(labels)
    means = np.stack([vectors[known == label].mean(0) for label in classes])  # K C
    # |x − m|² without |x|², which is the same for all classes
    distances = (means**2).sum(1) - 2 * asked @ means.T  # M K
    return [classes[at] for at in distances.argmin(1).tolist()]


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
