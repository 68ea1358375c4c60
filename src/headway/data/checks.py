"""Data that can be learned from: what is wrong with it, and what is left without that.

Training is strict: one bad record stops it, by name.  `Skipped` lets it go on without bad records, repeated ones and
those that validation has too, and counts them.  Repeated records do not stop a strict training: honest data has some.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from shlex import quote

from headway.data.kinds import LABELLED, Kind
from headway.data.lines import Problem, What, spot
from headway.data.recognise import Given
from headway.data.records import LONGEST, Record, records
from headway.data.sources import Parallel, counted
from headway.data.survey import Rows, Survey
from headway.errors import UserError, listed

SHOWN = 20  # problems of a kind that are kept
AHEAD = 100_000  # records in which a strict training still counts what else is wrong
CLASSES = 10_000  # labels or tags that are told apart


@dataclass(frozen=True)
class Checked:
    """What a check found.  Of each kind the first problems are kept; `counts` has all, in lines."""

    count: int
    good: int
    problems: tuple[Problem, ...]
    counts: dict[What, int]
    lines: tuple[str, ...]

    @property
    def bad(self) -> int:
        """How much should be mended: all but sources with several targets, which translations have."""
        return sum(count for what, count in self.counts.items() if what is not What.ANOTHER)


def check(given: Given, *, validation: Given | None = None, longest: int = LONGEST) -> Checked:
    """All that is wrong with data, on its own and beside the data that it will be measured on."""
    found = Findings()
    ours = Look(given, longest, found)
    if len(ours.classes) == 1 and len(ours.survey) > 1:
        file, line = ours.survey.place(0)
        found.add(Problem(file, line, What.ONE_CLASS, f"every label is {next(iter(ours.classes))!r}"))
    found.repeats(ours.survey)
    lines = [ours.told("")]
    if validation:
        theirs = Look(validation, longest, found, known=ours.classes)
        found.leaks(theirs.survey, ours.survey)
        lines.append(theirs.told(" for validation"))
    return Checked(ours.good + ours.bad, ours.good, found.kept(), dict(found.counts), tuple(lines))


@dataclass
class Skipped:
    """What a reading of one data set left out, in lines by kind: known when the reading ends, counted anew by each."""

    counts: Counter[What] = field(default_factory=Counter[What])
    rows: dict[int, What] | None = None  # good records that are left out, found before the first reading
    noun: str = "line"  # what is counted

    @property
    def total(self) -> int:
        return self.counts.total()

    def __str__(self) -> str:
        kinds = ", ".join(f"{what} {count:,}" for what, count in self.counts.most_common())
        return f"{counted(self.total, self.noun)} left out{f' ({kinds})' if kinds else ''}"


def good_records(
    given: Given, skipped: Skipped | None, *, validation: Given | None = None, longest: int = LONGEST
) -> Iterator[Record]:
    """Records to learn from: strictly all of them, or what is left without the skipped ones."""
    if skipped is None:
        return strict_records(given, longest)
    return left_records(given, skipped, validation, longest)


def strict_records(given: Given, longest: int) -> Iterator[Record]:
    stream = records(given, longest)
    for found in stream:
        if isinstance(found, Problem):
            raise refused(found, stream, given)
        yield found


def left_records(given: Given, skipped: Skipped, validation: Given | None, longest: int) -> Iterator[Record]:
    if skipped.rows is None:
        skipped.rows = left_out(given, validation, longest)
    counts = Counter[What]()
    row, what = -1, None
    for found in records(given, longest):
        if isinstance(found, Problem):
            counts[readable(found).what] += found.lines
            continue
        if not found.goes_on:
            row += 1
            what = skipped.rows.get(row)
            counts.update([what] if what else [])
        if what is None:
            yield found
    skipped.counts, skipped.noun = counts, given.noun
    if row + 1 == len(skipped.rows):
        raise UserError(f"{listed(map(str, given.files), 3)}: nothing is left to learn from: {skipped}")


def left_out(given: Given, validation: Given | None, longest: int) -> dict[int, What]:
    """The good records that say nothing new, or that validation has."""
    survey = surveyed(given, longest)
    again, _ = survey.duplicates()
    rows = dict.fromkeys(again.tolist(), What.DUPLICATE)
    if validation:
        both, _ = survey.shared(surveyed(validation, longest))
        rows |= dict.fromkeys(both.tolist(), What.LEAK)
    return rows


def surveyed(given: Given, longest: int) -> Survey:
    survey = Survey()
    for found in records(given, longest):
        if isinstance(found, Record):
            survey.add(found)
    return survey


def refused(problem: Problem, rest: Iterator[Record | Problem], given: Given) -> UserError:
    """The first problem by name, and how many follow."""
    readable(problem)
    ahead = [found.lines for found in islice(rest, AHEAD) if isinstance(found, Problem)]
    unread = next(rest, None) is not None
    more = sum(ahead) + problem.lines - 1
    others = f"; {'at least ' if unread else ''}{counted(more, given.noun)} more like this" if more else ""
    do = f"see {checking(given, problem)}, or train without such {given.noun}s with --skip-bad"
    return UserError(f"{problem}{others}", do=do)


def checking(given: Given, problem: Problem) -> str:
    """The command that tells all that is wrong with data."""
    first = given.sources[0]
    if isinstance(first, Parallel):
        return f"headway check --source {quote(str(first.source))} --target {quote(str(first.target))}"
    return f"headway check {' '.join(quote(str(path)) for path in given.paths or (problem.file,))}"


def readable(problem: Problem) -> Problem:
    """The problem, unless what is missing behind it cannot even be counted."""
    if problem.what is What.BROKEN:
        raise UserError(str(problem), do="get the file again, or unpack what is whole")
    return problem


class Look:
    """One reading of data: its survey, its classes, and what was bad."""

    def __init__(self, given: Given, longest: int, found: Findings, known: Counter[str] | None = None):
        self.survey, self.classes, self.good, self.bad = Survey(), Counter[str](), 0, 0
        for one in records(given, longest):
            if isinstance(one, Problem):
                self.bad += one.lines
                found.add(one)
                continue
            self.survey.add(one)
            self.good += given.kind is Kind.FORECAST or not one.goes_on  # a document is one, a table many rows
            for label in labels_of(one, given.kind):
                if known and label not in known and len(known) < CLASSES:
                    found.add(Problem(one.file, one.line, What.CLASS, f"training has no {label!r}"))
                if label in self.classes or len(self.classes) < CLASSES:
                    self.classes[label] += 1

    def told(self, role: str) -> str:
        count = f"{counted(self.good + self.bad, 'record')}{role}, {self.good:,} good"
        if not self.classes:
            return count
        common = listed((f"{label} {number:,}" for label, number in self.classes.most_common()), 8)
        return f"{count}; {counted(len(self.classes), 'label')}: {common}"


class Findings:
    """Problems by kind, counted all and kept a few."""

    def __init__(self) -> None:
        self.counts = Counter[What]()
        self.first: defaultdict[What, list[Problem]] = defaultdict(list)

    def add(self, problem: Problem) -> None:
        self.counts[problem.what] += problem.lines
        if len(self.first[problem.what]) < SHOWN:
            self.first[problem.what].append(problem)

    def kept(self) -> tuple[Problem, ...]:
        return tuple(problem for problems in self.first.values() for problem in problems)

    def repeats(self, survey: Survey) -> None:
        self.rows(survey, What.DUPLICATE, "the same as {}", survey, survey.duplicates())
        self.rows(survey, What.ANOTHER, "the source of {} with another target", survey, survey.others())

    def leaks(self, validation: Survey, training: Survey) -> None:
        self.rows(validation, What.LEAK, "in training too, at {}", training, validation.shared(training))

    def rows(self, survey: Survey, what: What, said: str, other: Survey, pairs: tuple[Rows, Rows]) -> None:
        """Problems of records that belong to earlier ones, of which only the first few are spelled out."""
        again, first = pairs
        for row, origin in zip(again[:SHOWN].tolist(), first[:SHOWN].tolist(), strict=True):
            file, line = other.place(origin)
            self.add(Problem(*survey.place(row), what, said.format(spot(file, line))))
        if len(again) > SHOWN:
            self.counts[what] += len(again) - SHOWN


def labels_of(record: Record, kind: Kind) -> list[str]:
    if kind in LABELLED:
        return [record.fields[1]]
    return record.fields[1].split() if kind is Kind.TAGS else []
