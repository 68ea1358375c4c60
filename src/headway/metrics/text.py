"""How well answers meet references: one function for each measure, over plain lists.

BLEU and chrF are sacrebleu's own and run from 0 to 100, as they are published; every other share runs from 0 to 1.
None depends on the order of the pairs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from headway.errors import UserError, nearest

# those of sacrebleu's that need neither another package nor a download
TOKENIZERS = ("13a", "intl", "char", "zh", "none")

Texts = Sequence[str]


class Signed(NamedTuple):
    """A score, and the signature that says how it was computed, for others to compare with."""

    score: float
    signature: str


def bleu(answers: Texts, references: Texts, *, tokenize: str = "13a") -> Signed:
    """sacrebleu's corpus BLEU, cased, on detokenised text; 0 where the texts together have no four words in a row."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in TOKENIZERS:
        said = f"BLEU knows no tokenizer {tokenize!r} here"
        raise UserError(said, allowed=", ".join(TOKENIZERS), meant=nearest(tokenize, TOKENIZERS))
    check(answers, references)
    # forced: the warning about tokenised text would be printed for each bucket again
    metric = BLEU(tokenize=tokenize, force=True)
    score = metric.corpus_score(list(answers), [list(references)]).score
    return Signed(score, metric.get_signature().format())


def chrf(answers: Texts, references: Texts) -> Signed:
    """sacrebleu's corpus chrF2: letters in runs of one to six, recall weighing twice."""
    from sacrebleu.metrics.chrf import CHRF

    check(answers, references)
    metric = CHRF()
    score = metric.corpus_score(list(answers), [list(references)]).score
    return Signed(score, metric.get_signature().format())


def exact(answers: Texts, references: Texts) -> float:
    """The share of answers that are their reference, letter by letter; for classes, the accuracy."""
    check(answers, references)
    return sum(a == r for a, r in zip(answers, references, strict=True)) / len(references)


def word_error_rate(answers: Texts, references: Texts) -> float:
    """Edits of words, separated by spaces, over the references' words; of phonemes, the phoneme error rate."""
    return error_rate([a.split() for a in answers], [r.split() for r in references])


def character_error_rate(answers: Texts, references: Texts) -> float:
    """Edits of letters over the references' letters."""
    return error_rate(answers, references)


def error_rate(answers: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """All edits over all tokens of the references; above 1 where the answers are much longer."""
    check(answers, references)
    edits = sum(edit_distance(a, r) for a, r in zip(answers, references, strict=True))
    total = sum(map(len, references))
    return edits / total if total else (math.inf if edits else 0.0)


def edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """The fewest tokens to insert, delete or replace that turn `a` into `b`.

    d(i, j) = min(d(i−1, j) + 1, d(i, j−1) + 1, d(i−1, j−1) + (aᵢ ≠ bⱼ)), row by row
    """
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


@dataclass(frozen=True)
class Classes:
    """How often each class was answered for each: `counts` by (reference, answer)."""

    counts: Counter[tuple[str, str]]

    @staticmethod
    def of(answers: Texts, references: Texts) -> Classes:
        check(answers, references)
        return Classes(Counter(zip(references, answers, strict=True)))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The classes that were asked for or answered, in order."""
        return tuple(sorted({label for pair in self.counts for label in pair}))

    @cached_property
    def asked(self) -> Counter[str]:
        return summed((reference, n) for (reference, _), n in self.counts.items())

    @cached_property
    def answered(self) -> Counter[str]:
        return summed((answer, n) for (_, answer), n in self.counts.items())

    def precision(self, label: str) -> float:
        """Of the answers that name the class, the share that is right; 0 where there are none."""
        return share(self.counts[label, label], self.answered[label])

    def recall(self, label: str) -> float:
        """Of the references that name the class, the share that was found; 0 where there are none."""
        return share(self.counts[label, label], self.asked[label])

    def f1(self, label: str) -> float:
        return f1(self.counts[label, label], self.answered[label], self.asked[label])

    @property
    def macro_f1(self) -> float:
        """The mean of F1 over the classes, each counting the same."""
        return math.fsum(map(self.f1, self.labels)) / len(self.labels)

    def plain(self) -> dict[str, object]:
        """As data, for JSON; `confusion` is by reference, then by answer."""
        return {label: self.row(label) for label in self.labels}

    def row(self, label: str) -> dict[str, object]:
        confusion = {answer: n for answer in self.labels if (n := self.counts[label, answer])}
        told = {"precision": self.precision(label), "recall": self.recall(label), "f1": self.f1(label)}
        return {**told, "count": self.asked[label], "confusion": confusion}


def span_f1(answers: Texts, references: Texts) -> float:
    """F1 of whole spans in BIO tags, separated by spaces: a span counts where its kind and both its ends are right.

    Where nothing was to be found and nothing was, it is 1.
    """
    check_tags(answers, references)
    found, wanted = ([spans(row.split()) for row in rows] for rows in (answers, references))
    right = sum(len(a & r) for a, r in zip(found, wanted, strict=True))
    sizes = sum(map(len, found)), sum(map(len, wanted))
    return f1(right, *sizes) if any(sizes) else 1.0


def token_accuracy(answers: Texts, references: Texts) -> float:
    """The share of words with the right tag."""
    check_tags(answers, references)
    return exact(tags(answers), tags(references))


def spans(row: Sequence[str]) -> set[tuple[str, int, int]]:
    """Kind, first word and end of each span; an I without a beginning begins a span, as CoNLL's own script reads it."""
    found, kind, start = set[tuple[str, int, int]](), "", 0
    for at, tag in enumerate([*row, "O"]):
        mark, _, name = tag.partition("-")
        if kind and (mark != "I" or name != kind):
            found.add((kind, start, at))
            kind = ""
        if not kind and mark in ("B", "I"):
            kind, start = name, at
    return found


def tags(rows: Texts) -> list[str]:
    """The tags of all rows, one after the other."""
    return [tag for row in rows for tag in row.split()]


def perplexity(losses: Sequence[float], counts: Sequence[int]) -> float:
    """exp(loss per token), from summed losses; with counts of bytes, per byte."""
    mean = mean_loss(losses, counts)
    return math.inf if mean > 700 else math.exp(mean)  # a float ends at exp(709)


def bits_per_byte(losses: Sequence[float], byte_counts: Sequence[int]) -> float:
    """What writing a byte of the text would take, if the model's probabilities were the code."""
    return mean_loss(losses, byte_counts) / math.log(2)


def mean_loss(losses: Sequence[float], counts: Sequence[int]) -> float:
    """Summed losses, in nats, over summed counts; not a number where the counts are 0."""
    if len(losses) != len(counts):
        raise UserError(f"{len(losses)} losses and {len(counts)} counts", do="give one count for each loss")
    if not counts or min(counts) < 0:
        raise UserError(
            f"{len(counts)} losses have no mean over these counts", allowed="one count or more, each 0 or more"
        )
    return math.fsum(losses) / sum(counts) if any(counts) else math.nan


def f1(right: int, found: int, wanted: int) -> float:
    """The harmonic mean of precision and recall: 2 right / (found + wanted)."""
    return share(2 * right, found + wanted)


def share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def summed(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    total = Counter[str]()
    for label, n in pairs:
        total[label] += n
    return total


def check(answers: Sequence[object], references: Sequence[object]) -> None:
    if len(answers) != len(references):
        said = f"{len(answers)} answers cannot be measured by {len(references)} references"
        raise UserError(said, do="give one reference for each answer")
    if not references:
        raise UserError("there is nothing to measure: no answers and no references", do="give one pair or more")


def check_tags(answers: Texts, references: Texts) -> None:
    check(answers, references)
    for row, (a, r) in enumerate(zip(answers, references, strict=True), 1):
        if len(a.split()) != len(r.split()):
            said = f"row {row} has {len(a.split())} tags for {len(r.split())} words"
            raise UserError(said, do="give one tag for each word")
    if not any(map(str.split, references)):
        raise UserError("there is nothing to measure: no row has a tag", do="give one word or more")
