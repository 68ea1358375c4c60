"""The scores of a model on a set: named numbers, how they were computed, and the same by length of the source.

The formulas are in `scoring.py`, `captions.py` and `retrieval.py`; here scores are compared and shown.  Where a model
begins to fail is hidden in the mean over all lengths: buckets of sources of like length show it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from headway.console import WIDTH, aligned, cut, finite, side_by_side, spaced, widest
from headway.errors import UserError, listed, nearest
from headway.metrics.intervals import UNKNOWN, Interval, Share, Statistic, clopper_pearson

EDGES = (5, 10, 15, 20, 30, 50)  # the last length of each bucket; one more holds all that is longer


@dataclass(frozen=True)
class Bucket:
    """The scores of sources of `first` to `last` tokens; without a last, of all longer ones."""

    first: int
    last: int | None
    count: int
    numbers: Mapping[str, float]
    statistics: Mapping[str, Statistic] = field(default_factory=dict[str, Statistic], repr=False, compare=False)

    @property
    def label(self) -> str:
        if self.last is None:
            return f"> {self.first - 1}"
        return str(self.last) if self.first == self.last else f"{self.first}–{self.last}"

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        return intervals_of(self.numbers, self.statistics)


def by_length(
    lengths: Sequence[int], statistics: Mapping[str, Statistic], *, edges: Sequence[int] = EDGES
) -> tuple[Bucket, ...]:
    """The buckets that have rows, shortest first; statistics are those of all rows."""
    if not lengths or min(lengths) < 0:
        raise UserError(f"{len(lengths)} lengths of sources", allowed="one or more, each 0 or more")
    if not edges or list(edges) != sorted(set(edges)):
        raise UserError(
            f"{list(edges)} are no edges of buckets", allowed="one number or more, each above the one before"
        )
    rows: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for row, length in enumerate(lengths):
        rows[bisect_left(edges, length)].append(row)
    firsts, found = [min(1, *lengths), *(edge + 1 for edge in edges)], list[Bucket]()
    for first, last, inside in zip(firsts, [*edges, None], rows, strict=True):
        if inside:
            some = {name: one.subset(inside) for name, one in statistics.items()}
            numbers = {name: one.value() for name, one in some.items()}
            found.append(Bucket(first, last, next(iter(some.values())).n, numbers, some))
    return tuple(found)


def quantile_edges(lengths: Sequence[int], buckets: int = 5) -> tuple[int, ...]:
    """Edges that share out the rows about equally; fewer where many are equally long."""
    if not lengths or buckets < 2:
        raise UserError(f"{len(lengths)} rows in {buckets} buckets", allowed="one row or more, in 2 buckets or more")
    ordered = sorted(lengths)
    return tuple(sorted({ordered[len(ordered) * at // buckets] for at in range(1, buckets)}))


CLASSES = 20  # that have a row in it
LETTERS = 3  # by which a class is known at the head of a column
UNSURE = "–"  # in the place of an interval that nobody knows
WITH_INTERVALS = ", each score with its 95 % interval"
WIDE = 0.1  # of the scale: the limits of an interval as wide as this are whole percents


@dataclass(frozen=True)
class Scores:
    """Named numbers over `count` things; the first is the one that models are chosen by."""

    numbers: Mapping[str, float]
    count: int
    things: str = "pairs"
    signatures: Mapping[str, str] = field(default_factory=dict[str, str])
    buckets: tuple[Bucket, ...] = ()
    classes: Classes | None = None
    unit: str = "length"  # what lengths are counted in: words, letters, tokens
    statistics: Mapping[str, Statistic] = field(default_factory=dict[str, Statistic], repr=False, compare=False)
    lengths: Sequence[int] | None = field(default=None, repr=False, compare=False)  # of each record

    def __post_init__(self) -> None:
        for name in self.numbers:
            measure(name)  # a mistyped name is told here, not in the table

    @property
    def main(self) -> str:
        return next(iter(self.numbers))

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """The 95 % interval of each number."""
        return intervals_of(self.numbers, self.statistics)

    def told(self, name: str) -> str:
        """A number with what it rests on: 100.00 % (4 of 4; 40–100 %)."""
        return f"{MEASURES[name].shown(self.numbers[name])} ({self.basis(name)})"

    def basis(self, name: str) -> str:
        """How many records a number is of, and its interval where it has one: 4 of 4; 40–100 %."""
        one, limits = self.statistics.get(name), MEASURES[name].shown_interval(self.intervals[name])
        right = f"{round(self.numbers[name] * one.count):,} of {one.count:,}" if isinstance(one, Share) else None
        every = f"{self.count:,} {self.things if self.count != 1 else self.things.removesuffix('s')}"
        return "; ".join([right or every, *([] if limits == UNSURE else [limits])])

    def plain(self) -> dict[str, object]:
        """As data, for JSON, which has no infinity: what is not finite is null."""
        buckets = [
            {"first": b.first, "last": b.last, "count": b.count}
            | {"scores": finite(b.numbers), "intervals": plain_limits(b)}
            for b in self.buckets
        ]
        told: dict[str, object] = {"count": self.count, "scores": finite(self.numbers), "by_length": buckets}
        told |= {"unit": self.unit, "things": self.things}
        told |= {"signatures": dict(self.signatures), "intervals": plain_limits(self)}
        return told if self.classes is None else {**told, "classes": self.classes.plain()}

    def shown(self, others: Mapping[str, Scores] | None = None) -> str:
        """Tables of at most 80 columns: of all, of each length, and of others; below them classes and signatures."""
        things = self.things if self.count != 1 else self.things.removesuffix("s")
        title = f"{spaced(self.count)} {things}{WITH_INTERVALS if self.statistics else ''}"
        blocks = [title, *side_by_side(score_rows(self, others or {}))]
        if self.classes is not None:
            blocks += class_tables(self.classes)
            blocks += [table] if (table := confusion_table(self.classes)) else []
        signed = [f"{MEASURES[name].title}  {signature}" for name, signature in self.signatures.items()]
        return "\n\n".join([*blocks, *(["\n".join(signed)] if signed else [])])


def intervals_of(numbers: Mapping[str, float], statistics: Mapping[str, Statistic]) -> dict[str, Interval]:
    """The 95 % interval of each number; of a share of 0 or 1 that of so many whole records.

    Where no record differs from another, no resample does, which says nothing of how few they are.
    """
    found = dict[str, Interval]()
    for name, number in numbers.items():
        one, top = statistics.get(name), MEASURES[name].top
        if one is not None and top is not None and number in (0, top):
            found[name] = Interval(*(top * end for end in clopper_pearson(one.count if number else 0, one.count)))
        else:
            found[name] = UNKNOWN if one is None else one.interval()
    return found


def plain_limits(of: Scores | Bucket) -> dict[str, object]:
    """The 95 % interval of each number as data, and of how many things it is."""
    return {
        name: {**finite(one._asdict()), "n": of.statistics[name].n}
        for name, one in of.intervals.items()
        if name in of.statistics
    }


def score_rows(found: Scores, others: Mapping[str, Scores]) -> list[list[str]]:
    """Rows of a table: names of columns, scores of all, by length, and of others; each with its count and interval."""
    rows = [[found.unit if found.buckets else "part", "count", *(MEASURES[name].title for name in found.numbers)]]
    parts = [("all", found), *((one.label, one) for one in found.buckets), *others.items()]
    return rows + [[label, spaced(of.count), *(score_cell(of, name) for name in found.numbers)] for label, of in parts]


def score_cell(of: Scores | Bucket, name: str) -> str:
    """63.00 % (49–76), or nothing where it was not measured."""
    return MEASURES[name].with_interval(of.numbers[name], of.intervals[name]) if name in of.numbers else ""


@dataclass(frozen=True)
class Measure:
    """How a number is called and written, and whether more of it is better."""

    title: str
    higher: bool = True
    percent: bool = False
    digits: int = 2
    range: float | None = None  # the highest of numbers that begin at 0, where it is no share

    @property
    def top(self) -> float | None:
        """The end of a scale that begins at 0."""
        return 1.0 if self.percent else self.range

    def better(self, a: float, b: float) -> bool:
        if math.isnan(a) or math.isnan(b):
            return math.isnan(b) and not math.isnan(a)
        return a > b if self.higher else a < b

    def shown(self, number: float) -> str:
        if math.isnan(number):
            return "–"
        return f"{100 * number:.{self.digits}f} %" if self.percent else f"{number:.{self.digits}f}"

    def shown_difference(self, a: float, b: float) -> str:
        """What b has more than a: +0.50, or −1.20 points of a share."""
        if not math.isfinite(b - a):
            return UNSURE
        size = f"{abs(b - a) * (100 if self.percent else 1):.{self.digits}f}"
        return f"{'+' if b >= a else '−'}{size}{' points' if self.percent else ''}"

    def shown_interval(self, limits: Interval) -> str:
        """40–100 %, or – where nothing is known."""
        if math.isnan(limits.low) or math.isnan(limits.high):
            return UNSURE
        if not self.percent:
            return f"{limits.low:.{self.digits}f}–{limits.high:.{self.digits}f}"
        digits = 0 if limits.high - limits.low >= WIDE else 1
        return f"{100 * limits.low:.{digits}f}–{100 * limits.high:.{digits}f} %"

    def with_interval(self, number: float, limits: Interval) -> str:
        """63.00 % (49–76), or the number alone where nothing more is known."""
        shown = self.shown_interval(limits)
        return self.shown(number) + ("" if shown == UNSURE else f" ({shown.removesuffix(' %')})")


PERCENT = Measure("", percent=True, digits=1)
MEASURES = {
    "bleu": Measure("BLEU", range=100.0),
    "chrf": Measure("chrF", range=100.0),
    **{n: Measure(title, percent=True) for n, title in (("exact", "exact"), ("exact_match", "exact match"))},
    **{f"{n}_error_rate": Measure(f"{n} errors", higher=False, percent=True) for n in ("word", "character")},
    "accuracy": Measure("accuracy", percent=True),
    "f1": Measure("macro F1", percent=True),
    "token_accuracy": Measure("accuracy of words", percent=True),
    "span_f1": Measure("F1 of spans", percent=True),
    "loss": Measure("loss", higher=False, digits=4),
    "perplexity": Measure("perplexity", higher=False),
    "byte_perplexity": Measure("perplexity of bytes", higher=False, digits=3),
    "bits_per_byte": Measure("bits per byte", higher=False, digits=3),
    **{n: Measure(title, percent=True) for n, title in (("top5", "top 5"), ("view_accuracy", "other view found"))},
    "neighbour_accuracy": Measure("class of neighbours", percent=True),
    "error": Measure("error in deviations", higher=False, digits=4),
    "gain": Measure("less than by repeating", percent=True),
    "cosine": Measure("mean cosine to fp32", digits=5),
    "rmse": Measure("root mean square error", higher=False, digits=4),
    "mae": Measure("mean absolute error", higher=False, digits=4),
    **{n: Measure(title, digits=4) for n, title in (("r2", "R²"), ("pearson", "Pearson"), ("spearman", "Spearman"))},
    **{n: Measure(title, percent=True) for n, title in (("micro_f1", "micro F1"), ("answer_f1", "F1 of words"))},
    "cider": Measure("CIDEr-D", digits=3, range=10.0),
    **{f"bleu_{n}": Measure(f"BLEU-{n}", percent=True) for n in (1, 2, 3, 4)},
    **{f"{found}_{k}": Measure(f"{found} @{k}", percent=True) for found in ("texts", "images") for k in (1, 5, 10)},
    **{f"{found}_rank": Measure(f"{found} rank", higher=False, digits=1) for found in ("texts", "images")},
}


def measure(name: str) -> Measure:
    if name not in MEASURES:
        raise UserError(f"there is no measure {name!r}", allowed=listed(MEASURES, 20), meant=nearest(name, MEASURES))
    return MEASURES[name]


def class_tables(classes: Classes) -> list[str]:
    """Precision, recall and F1 of the most frequent classes, and what was most often answered in their place."""
    rest = len(classes.labels) - CLASSES
    return [table + (f"\nand {rest} more" if rest > 0 else "") for table in side_by_side(class_rows(classes))]


def class_rows(classes: Classes) -> list[list[str]]:
    """The same as rows, of which the first names the columns."""
    ordered = sorted(classes.labels, key=lambda label: (-classes.asked[label], label))
    rows = [["class", "count", "precision", "recall", "F1", "taken for"]]
    for label in ordered[:CLASSES]:
        shares = (
            PERCENT.with_interval(one.share, one.interval) if one.n else UNSURE for one in classes.rates(label).values()
        )
        rows.append([cut(label), spaced(classes.asked[label]), *shares, taken_for(classes, label)])
    return rows


def confusion_table(classes: Classes) -> str | None:
    """What was answered (columns) for each class (rows); None where there are too many to stand side by side."""
    labels, corner = [cut(label) for label in classes.labels], "asked \\ said"
    room = (WIDTH - max(map(len, [corner, *labels]))) // len(labels) - 2  # letters of a column
    if len(labels) < 3 or room < LETTERS:
        return None
    counts = [[str(classes.counts[asked, said] or "·") for said in classes.labels] for asked in classes.labels]
    rows = ([label, *row] for label, row in zip(labels, counts, strict=True))
    table = aligned([(corner, *(label[:room] for label in labels)), *rows])
    return table if widest(table) <= WIDTH else None


def taken_for(classes: Classes, label: str) -> str:
    wrong = [(-n, answer) for (asked, answer), n in classes.counts.items() if asked == label != answer]
    return f"{cut(min(wrong)[1])} ({-min(wrong)[0]})" if wrong else ""


Texts = Sequence[str]


class Rate(NamedTuple):
    """A share of `n` records with its exact interval."""

    share: float
    interval: Interval
    n: int


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

    def rates(self, label: str) -> dict[str, Rate]:
        """Precision, recall and F1 of a class.

        F1 is 2 J / (1 + J), where J is the share of right ones among all that were asked for or answered.
        """
        right, answered, asked = self.counts[label, label], self.answered[label], self.asked[label]
        either = answered + asked - right
        f1_limits = Interval(*(2 * end / (1 + end) for end in clopper_pearson(right, either)))
        return {
            "precision": Rate(self.precision(label), clopper_pearson(right, answered), answered),
            "recall": Rate(self.recall(label), clopper_pearson(right, asked), asked),
            "f1": Rate(self.f1(label), f1_limits, either),
        }

    @property
    def macro_f1(self) -> float:
        """The mean of F1 over the classes, each counting the same."""
        return math.fsum(map(self.f1, self.labels)) / len(self.labels)

    def plain(self) -> dict[str, object]:
        """As data, for JSON; `confusion` is by reference, then by answer."""
        return {label: self.row(label) for label in self.labels}

    def row(self, label: str) -> dict[str, object]:
        confusion = {answer: n for answer in self.labels if (n := self.counts[label, answer])}
        rates = self.rates(label)
        intervals = {name: {**finite(one.interval._asdict()), "n": one.n} for name, one in rates.items()}
        told = {name: one.share for name, one in rates.items()}
        return {**told, "count": self.asked[label], "intervals": intervals, "confusion": confusion}


def f1(right: float, found: float, wanted: float) -> float:
    """The harmonic mean of precision and recall: 2 right / (found + wanted)."""
    return share(2 * right, found + wanted)


def share(part: float, whole: float) -> float:
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
