"""Checks of a data set: bad records, duplicates, leaks into validation, and what is left without them.

Training is strict: one bad record stops it, by name.  `Skipped` lets it continue without bad records, duplicates and
those that validation has too, and counts them.  Duplicates do not stop a strict training: real data has some.

Duplicates are found by hashes.  A record takes 28 bytes: two hashes of 64 bits, of all its fields and of its source
alone, its line and its file.  Among a hundred million records the probability of any collision is one in four thousand.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headway.data.composed import labels_in
from headway.data.kinds import LABELLED, DataKind
from headway.data.records import MAX_FIELD_CHARACTERS, ParallelFiles, RecognisedData, Record, records
from headway.data.text_lines import REMEDIES, Flaw, Problem, spot
from headway.errors import UserError, counted, listed

Rows: TypeAlias = NDArray[np.int64]  # numbers of records, in the order in which they were read
MAX_SHOWN = 20  # problems of a kind that are kept
MAX_AHEAD = 100_000  # records in which a strict training still counts what else is wrong
MAX_CLASSES = 10_000  # labels or tags that are counted
FEWEST_ROWS = 9  # of a table: a history of 8, and the row that follows it
MAX_PRINTED = 5  # problems of a kind that are printed


@dataclass(frozen=True)
class CheckResult:
    """What a check found.  Of each kind the first problems are kept; `counts` has all, in lines."""

    data: RecognisedData
    count: int
    good: int
    problems: tuple[Problem, ...]
    counts: dict[Flaw, int]
    lines: tuple[str, ...]

    @property
    def bad(self) -> int:
        """How much should be mended: all but sources with several targets, which translations have."""
        return sum(count for what, count in self.counts.items() if what is not Flaw.ANOTHER)

    def to_dict(self) -> dict[str, Any]:
        return {
            "data": self.data.description,
            "files": [str(file) for file in self.data.files],
            "columns": list(self.data.columns),
            "records": self.count,
            "good": self.good,
            "bad": self.bad,
            "counts": {str(what): count for what, count in self.counts.items()},
            "problems": [
                {"file": str(one.file), "line": one.line, "what": str(one.what), "said": one.said, "lines": one.lines}
                for one in self.problems
            ],
        }

    def to_text(self) -> str:
        """What the data is, and under each kind of problem its first places."""
        lines = [self.data.description, *self.lines]
        for what, count in self.counts.items():
            places = [problem for problem in self.problems if problem.what is what][:MAX_PRINTED]
            rest = count - sum(problem.lines for problem in places)
            lines += ["", f"{what}: {count:,}", *(f"  {problem}" for problem in places)]
            lines += [f"  and {rest:,} more"] if rest else []
            lines += [f"  {REMEDIES[what][1]}"] if what in REMEDIES else []
        return "\n".join([*lines, "", self.advice()])

    def advice(self) -> str:
        if not self.bad:
            return "nothing to mend"
        if Flaw.BROKEN in self.counts:
            return "get the damaged archive again: how much of it is missing cannot be known"
        if Flaw.FEW in self.counts or self.counts.keys() <= {Flaw.ANOTHER, Flaw.ONE_CLASS, Flaw.CLASS}:
            return "mend these before you train"
        return "mend these, or let headway train leave them out with --skip-bad"


def check(
    given: RecognisedData,
    *,
    validation: RecognisedData | None = None,
    test: RecognisedData | None = None,
    longest: int = MAX_FIELD_CHARACTERS,
) -> CheckResult:
    """All that is wrong with data, on its own and beside the data that it will be measured on."""
    found = Findings()
    ours = DataReading(given, longest, found)
    hashes, classes = ours.hashes, ours.classes
    if ours.good < (needed := fewest_records(given.kind, held_out=validation is None)):
        said = f"{counted(ours.good, 'good record')}, where training needs {needed} or more"
        found.add(Problem(given.files[0], 0, Flaw.FEW, said, needed - ours.good))
    if len(classes) == 1:
        found.add(Problem(*hashes.place(0), Flaw.ONE_CLASS, f"every label is {next(iter(classes))!r}"))
    found.add_rows(hashes, Flaw.DUPLICATE, "the same as {}", hashes, hashes.duplicates())
    found.add_rows(hashes, Flaw.ANOTHER, "the source of {} with another target", hashes, hashes.others())
    lines, before = [ours.summary("")], {"training": hashes}
    for name, beside in (("validation", validation), ("test", test)):
        if beside is not None:
            theirs = DataReading(beside, longest, found, known=classes)
            for other, seen in before.items():
                found.add_rows(theirs.hashes, Flaw.LEAK, f"in {other} too, at {{}}", seen, theirs.hashes.shared(seen))
            lines.append(theirs.summary(f" for {name}"))
            before[name] = theirs.hashes
    problems = tuple(problem for problems in found.first.values() for problem in problems)
    return CheckResult(given, ours.good + ours.bad, ours.good, problems, dict(found.counts), tuple(lines))


def fewest_records(kind: DataKind, *, held_out: bool) -> int:
    """Records without which training has nothing to learn from; some are held out where validation has no own data."""
    match kind:
        case DataKind.ROWS:
            return FEWEST_ROWS + 2 * held_out
        case DataKind.TEXTS:  # one document may be long
            return 1
        case _:
            return 1 + held_out


class DataReading:
    """One reading of data: hashes of its records, its classes, and how much was good and bad."""

    def __init__(self, given: RecognisedData, longest: int, found: Findings, known: Counter[str] | None = None):
        self.hashes, self.classes, self.good, self.bad = RecordHashes(), Counter[str](), 0, 0
        for one in records(given, longest):
            if isinstance(one, Problem):
                self.bad += one.lines
                found.add(one)
                continue
            self.hashes.add(one)
            self.good += given.kind is DataKind.ROWS or not one.goes_on  # a document is one, a table many rows
            for label in labels_of(one, given.kind):
                if known and label not in known and len(known) < MAX_CLASSES:
                    found.add(Problem(one.file, one.line, Flaw.CLASS, f"training has no {label!r}"))
                if label in self.classes or len(self.classes) < MAX_CLASSES:
                    self.classes[label] += 1

    def summary(self, role: str) -> str:
        count = f"{counted(self.good + self.bad, 'record')}{role}, {self.good:,} good"
        if not self.classes:
            return count
        common = listed((f"{label} {number:,}" for label, number in self.classes.most_common()), 8)
        return f"{count}; {counted(len(self.classes), 'label')}: {common}"


def labels_of(record: Record, kind: DataKind) -> list[str]:
    if kind in LABELLED:
        return [record.fields[1]]
    if kind is DataKind.LABEL_SETS:
        return labels_in(record.fields[1])
    return record.fields[1].split() if kind is DataKind.TAGS else []


class Findings:
    """Problems by kind: all are counted, and the first few are there."""

    def __init__(self) -> None:
        self.counts = Counter[Flaw]()
        self.first: defaultdict[Flaw, list[Problem]] = defaultdict(list)

    def add(self, problem: Problem) -> None:
        self.counts[problem.what] += problem.lines
        if len(self.first[problem.what]) < MAX_SHOWN:
            self.first[problem.what].append(problem)

    def add_rows(
        self, hashes: RecordHashes, what: Flaw, said: str, other: RecordHashes, pairs: tuple[Rows, Rows]
    ) -> None:
        """Problems of records that belong to earlier ones, of which only the first few are spelled out."""
        again, first = pairs
        for row, origin in zip(again[:MAX_SHOWN].tolist(), first[:MAX_SHOWN].tolist(), strict=True):
            self.add(Problem(*hashes.place(row), what, said.format(spot(*other.place(origin)))))
        if len(again) > MAX_SHOWN:
            self.counts[what] += len(again) - MAX_SHOWN


@dataclass
class Skipped:
    """What a reading of one data set left out, in lines by kind: known when the reading ends, counted anew by each."""

    counts: Counter[Flaw] = field(default_factory=Counter[Flaw])
    rows: dict[int, Flaw] | None = None  # good records that are left out, found before the first reading
    noun: str = "line"  # what is counted

    @property
    def total(self) -> int:
        return self.counts.total()

    def __str__(self) -> str:
        kinds = ", ".join(f"{what} {count:,}" for what, count in self.counts.most_common())
        return f"{counted(self.total, self.noun)} left out{f' ({kinds})' if kinds else ''}"


def good_records(
    given: RecognisedData,
    skipped: Skipped | None,
    *,
    beside: Sequence[RecognisedData] = (),
    longest: int = MAX_FIELD_CHARACTERS,
) -> Iterator[Record]:
    """Records to learn from: strictly all of them, or what is left without the skipped ones and those of `beside`."""
    if skipped is not None:
        yield from left_records(given, skipped, beside, longest)
        return
    stream = records(given, longest)
    for found in stream:
        if isinstance(found, Problem):
            raise refused(found, stream, given)
        yield found


def left_records(
    given: RecognisedData, skipped: Skipped, beside: Sequence[RecognisedData], longest: int
) -> Iterator[Record]:
    if skipped.rows is None:
        skipped.rows = left_out(given, beside, longest)
    counts = Counter[Flaw]()
    row, what = -1, None
    for found in records(given, longest):
        if isinstance(found, Problem):
            check_countable(found)
            counts[found.what] += found.lines
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


def left_out(given: RecognisedData, beside: Sequence[RecognisedData], longest: int) -> dict[int, Flaw]:
    """The good records that say nothing new, or that validation or test data have."""
    hashes = RecordHashes.of(given, longest)
    rows = dict.fromkeys(hashes.duplicates()[0].tolist(), Flaw.DUPLICATE)
    for other in beside:
        both, _ = hashes.shared(RecordHashes.of(other, longest))
        rows |= dict.fromkeys(both.tolist(), Flaw.LEAK)
    return rows


def leaks(held: Iterable[Record], learned: Iterable[Record]) -> int:
    """How many records have a source that is among those that were learned from."""
    ours, known = Counter(source_hashes(held)), set[int]()
    known.update(one for one in source_hashes(learned) if one in ours)
    return sum(ours[one] for one in known)


def source_hashes(records: Iterable[Record]) -> Iterator[int]:
    """A hash of the source of each record; the pieces of a document are one record."""
    document = None
    for record in records:
        if document is not None and record.goes_on:
            document.update(record.fields[0].encode("utf-8"))
            continue
        if document is not None:
            yield number(document)
        document = hashed(record.fields[:1])
    if document is not None:
        yield number(document)


def refused(problem: Problem, rest: Iterator[Record | Problem], given: RecognisedData) -> UserError:
    """The first problem by name, and how many follow."""
    check_countable(problem)
    ahead = [found.lines for found in islice(rest, MAX_AHEAD) if isinstance(found, Problem)]
    unread = next(rest, None) is not None
    more = sum(ahead) + problem.lines - 1
    others = f"; {'at least ' if unread else ''}{counted(more, given.noun)} more like this" if more else ""
    do = f"see {checking(given, problem)}, or train without such {given.noun}s with data.skip_bad"
    return problem.error(do, others)


def check_countable(problem: Problem) -> None:
    """A UserError where what is missing behind a problem cannot even be counted."""
    if problem.what is Flaw.BROKEN:
        raise UserError(str(problem), do="get the file again, or unpack what is whole")


def checking(given: RecognisedData, problem: Problem) -> str:
    """The command that reports all that is wrong with data."""
    first = given.sources[0]
    if isinstance(first, ParallelFiles):
        return f"headway check --source {quote(str(first.source))} --target {quote(str(first.target))}"
    return f"headway check {' '.join(quote(str(path)) for path in given.paths or (problem.file,))}"


class RecordHashes:
    """Hashes of records, added one by one; the pieces of a document are one record."""

    def __init__(self) -> None:
        self.wholes, self.sources, self.lines, self.owners = array("Q"), array("Q"), array("Q"), array("I")
        self.files: list[Path] = []
        self.document = blake2b()  # that is being read

    @staticmethod
    def of(given: RecognisedData, longest: int) -> RecordHashes:
        """Of all good records."""
        found = RecordHashes()
        for one in records(given, longest):
            if isinstance(one, Record):
                found.add(one)
        return found

    def __len__(self) -> int:
        return len(self.wholes)

    def add(self, record: Record) -> None:
        if record.goes_on:
            self.document.update(record.fields[0].encode("utf-8"))
            self.wholes[-1] = self.sources[-1] = number(self.document)
            return
        self.document = hashed(record.fields[:1])
        self.sources.append(number(self.document))
        self.wholes.append(number(hashed(record.fields)))
        self.lines.append(record.line)
        if not self.files or self.files[-1] != record.file:
            self.files.append(record.file)
        self.owners.append(len(self.files) - 1)

    def place(self, row: int) -> tuple[Path, int]:
        return self.files[self.owners[row]], self.lines[row]

    def duplicates(self) -> tuple[Rows, Rows]:
        """Records that say what an earlier one said, and those earlier ones."""
        return repeated(self.wholes)

    def others(self) -> tuple[Rows, Rows]:
        """Records with the source of an earlier one and another target, and the first with that source."""
        again, first = repeated(self.sources)
        duplicates, _ = repeated(self.wholes)
        fresh = ~np.isin(again, duplicates, assume_unique=True)
        return again[fresh], first[fresh]

    def shared(self, other: RecordHashes) -> tuple[Rows, Rows]:
        """Records whose source is in the other set too, and where it is first there."""
        theirs, first = np.unique(np.frombuffer(other.sources, np.uint64), return_index=True)
        ours = np.frombuffer(self.sources, np.uint64)
        at = np.minimum(np.searchsorted(theirs, ours), max(len(theirs) - 1, 0))
        both = np.flatnonzero(theirs[at] == ours) if len(theirs) else np.empty(0, np.int64)
        return both, first[at[both]] if len(both) else both


def repeated(hashes: array[int]) -> tuple[Rows, Rows]:
    """Rows whose hash an earlier row has, and the first such row; besides the hashes, 25 bytes a row while it looks."""
    values = np.frombuffer(hashes, np.uint64)
    order = np.argsort(values, kind="stable")
    values = values[order]
    same = np.concatenate([[False], values[1:] == values[:-1]])[: len(order)]
    places, starts = np.flatnonzero(same), np.flatnonzero(~same)
    again, first = order[places], order[starts[np.searchsorted(starts, places) - 1]]
    in_order = np.argsort(again)
    return again[in_order], first[in_order]


def hashed(fields: Sequence[str]) -> blake2b:
    """A hash that can go on; NUL, which no field holds, stands between fields."""
    return blake2b("\0".join(fields).encode("utf-8"), digest_size=8)


def number(digest: blake2b) -> int:
    return int.from_bytes(digest.digest(), "little")
