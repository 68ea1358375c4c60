"""Rows of cells in lines of text: plain separated columns, and CSV with quotes as RFC 4180 has them.

A .tsv file has no quotes: a sentence in it may begin with one.  In a .csv file a quoted cell may hold the separator,
line ends and doubled quotes; a quote inside an unquoted cell is a letter.  After broken quotes reading goes on with the
line that follows the one where the row began.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from headway.data.lines import Line, Problem, What, bare, read_lines, without_last_blanks

SPAN = 1000  # lines that a quoted cell may have: a quote that nobody closed takes no more with it
SEPARATORS = (",", ";", "\t")


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row that begins at `line`."""

    line: int
    cells: tuple[str, ...]


class Dialect(Protocol):
    """How cells are told apart."""

    def rows(self, file: Path) -> Iterator[Row | Problem]: ...


@dataclass(frozen=True)
class Plain:
    """Cells between separators, without quotes."""

    separator: str = "\t"

    def rows(self, file: Path) -> Iterator[Row | Problem]:
        for line in without_last_blanks(read_lines(file)):
            yield line.problem or Row(line.number, tuple(line.bare.split(self.separator)))


@dataclass(frozen=True)
class Quoted:
    """RFC 4180 with any separator."""

    separator: str = ","

    def rows(self, file: Path) -> Iterator[Row | Problem]:
        lines = Ahead(without_last_blanks(read_lines(file)))
        for line in lines:
            if '"' not in line.text:
                yield line.problem or Row(line.number, tuple(line.bare.split(self.separator)))
                continue
            taken = [line]
            cells = self.cells(line.text, (taking(taken, following) for following in islice(lines, SPAN)))
            if cells is None:
                lines.back(taken[1:])
                said = "a cell begins with a quote that nothing closes before a separator or the end of a line"
                yield line.problem or Problem(file, line.number, What.QUOTES, said)
            else:
                yield next((part.problem for part in taken if part.problem), Row(line.number, tuple(cells)))

    def cells(self, text: str, more: Iterator[str]) -> list[str] | None:
        """The cells of the row that begins with `text`; None where its quotes are broken."""
        cells: list[str] = []
        at = 0
        while True:
            if text.startswith('"', at):
                closed = quoted(text, at + 1, more)
                if closed is None:
                    return None
                cell, text, at = closed
            else:
                end = text.find(self.separator, at)
                end = len(bare(text)) if end < 0 else end
                cell, at = text[at:end], end
            cells.append(cell)
            if not text.startswith(self.separator, at):
                return None if bare(text[at:]) else cells
            at += 1


def quoted(text: str, at: int, more: Iterator[str]) -> tuple[str, str, int] | None:
    """The cell whose quote opened before `at`, the line in which it closes, and the place after its end."""
    parts: list[str] = []
    while True:
        end = text.find('"', at)
        if end < 0:
            parts.append(text[at:])
            following = next(more, None)
            if following is None:
                return None
            text, at = following, 0
            continue
        parts.append(text[at:end])
        if not text.startswith('"', end + 1):
            return "".join(parts), text, end + 1
        parts.append('"')
        at = end + 2


def taking(taken: list[Line], line: Line) -> str:
    """A line's text, and a note that it was read."""
    taken.append(line)
    return line.text


class Ahead:
    """Lines of which some may be put back."""

    def __init__(self, lines: Iterator[Line]):
        self.lines, self.waiting = lines, deque[Line]()

    def __iter__(self) -> Iterator[Line]:
        return self

    def __next__(self) -> Line:
        return self.waiting.popleft() if self.waiting else next(self.lines)

    def back(self, lines: list[Line]) -> None:
        self.waiting.extendleft(reversed(lines))


def sniff(file: Path, rows: int = 200) -> Quoted:
    """The separator by which most of the first rows have the same number of columns, more than one."""

    def agreement(separator: str) -> float:
        found = [len(row.cells) for row in islice(Quoted(separator).rows(file), rows) if isinstance(row, Row)]
        (width, share), *_ = Counter(found).most_common(1) or [(1, 0)]
        return share / max(len(found), 1) if width > 1 else 0.0

    return Quoted(max(SEPARATORS, key=agreement))
