"""What a terminal of 80 columns shows: progress, tables and numbers.

While a command does not answer yet, it shows what it is doing: bars on a terminal, plain lines in a file or a pipe.

`phase` names work that may take longer than a second, `Phase.counted` counts its items.  Records that are read within a
phase that counts nothing of its own are counted by `counted_within`.  They are shown on the stream that `progress_on`
was given, and nowhere without it: the library itself is silent.

On a terminal a phase is one line that disappears when it ends; one that is `moving` is drawn again by a thread, so it
must not fork.  Elsewhere it is a line at its beginning and, if it goes on and counts something, another every two
seconds.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from shutil import get_terminal_size
from textwrap import wrap
from time import monotonic
from typing import TYPE_CHECKING, TextIO, TypeVar

from headway.errors import counted

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

WIDTH = 80  # columns of a terminal
STREAM: ContextVar[TextIO | None] = ContextVar("STREAM", default=None)
REFRESH_SECONDS = 0.2  # of a bar
LINE_SECONDS = 2.0  # between plain lines
COMMAND = re.compile(r"headway [a-z]+(?: (?:'[^']*'|[^\s;,()]+(?:,[^\s;,()]+)*))+")  # in a sentence
UNBROKEN = "\x1f"  # for a space within a command: no text has it
PHASE: ContextVar[Phase | None] = ContextVar("PHASE", default=None)


class Phase:
    """Work that is shown, where there is a stream for it."""

    def __init__(
        self,
        name: str,
        out: TextIO | None,
        unit: str = "",
        clock: Callable[[], float] = monotonic,
        moving: bool = False,
    ):
        self.name, self.out, self.unit, self.clock = name, out, unit, clock
        self.done, self.shown_at = 0, clock()
        self.bar = progress_bar(out, None, moving) if out is not None and is_terminal(out) else None
        self.show()

    @property
    def numbers(self) -> str:
        return counted(self.done, self.unit.removesuffix("s")) if self.done else ""

    def show(self) -> None:
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], step=f"{self.name} …", numbers=self.numbers)
            self.bar.refresh()
        elif self.out is not None:
            self.out.write(f"{self.name} … {self.numbers}".rstrip() + "\n")
            self.out.flush()

    def counted(self, items: Iterable[T]) -> Iterator[T]:
        """The items, of which each counts as work that is done."""
        for item in items:
            yield item
            self.done += 1
            now = self.clock()
            if now - self.shown_at > (LINE_SECONDS if self.bar is None else REFRESH_SECONDS):
                self.shown_at = now
                self.show()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


@contextmanager
def progress_on(out: TextIO | None) -> Generator[None]:
    """Shows the phases within on a stream; None shows nothing."""
    token = STREAM.set(out)
    try:
        yield
    finally:
        STREAM.reset(token)


@contextmanager
def phase(name: str, unit: str = "", *, moving: bool = False) -> Generator[Phase]:
    """Around work that may take long, `moving` if it does not fork; a phase within another is not shown."""
    found, shown = Phase(name, STREAM.get(), unit, moving=moving), STREAM.get() is not None
    token = PHASE.set(found) if shown else None
    try:
        with progress_on(None):
            yield found
    finally:
        found.close()
        if token is not None:
            PHASE.reset(token)


def counted_within(items: Iterable[T], unit: str) -> Iterable[T]:
    """The items, which the phase around counts, unless it counts something of its own."""
    around = PHASE.get()
    if around is None or around.unit not in ("", unit):
        return items
    around.unit = unit
    return around.counted(items)


def is_terminal(out: TextIO) -> bool:
    return out.isatty() and os.environ.get("TERM") != "dumb"


def fitted(text: str, out: TextIO) -> str:
    """Text for a terminal: long lines are broken between words, where these are not within a command to copy.

    Indented lines, which are rows and commands, stay as they are; elsewhere than on a terminal everything does.
    """
    if not is_terminal(out):
        return text
    width = get_terminal_size().columns

    def broken(line: str) -> str:
        if len(line) <= width or line.startswith(" "):
            return line
        whole = COMMAND.sub(lambda found: found[0].replace(" ", UNBROKEN), line)
        lines = wrap(whole, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        return "\n".join(lines).replace(UNBROKEN, " ")

    return "\n".join(map(broken, text.split("\n")))


def progress_bar(out: TextIO, total: int | None, moving: bool = False) -> Progress:
    """A started progress bar that refreshes when told to: a thread would not survive the fork of data workers.

    One that is `moving` refreshes by itself.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    fixed = Column(no_wrap=True)
    bar = Progress(
        TextColumn("{task.fields[step]}", markup=False, table_column=fixed),
        BarColumn(None, table_column=Column(ratio=1)),
        TextColumn("{task.fields[numbers]}", markup=False, table_column=fixed.copy()),
        console=Console(file=out, emoji=False),
        auto_refresh=moving,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        expand=True,
    )
    bar.add_task("", total=total, step="", numbers="")
    bar.start()
    return bar


# ---- tables and numbers


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows under one another, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def widest(table: str) -> int:
    return max(map(len, table.splitlines()))


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def side_by_side(rows: Sequence[Sequence[str]], fixed: int = 2, width: int = WIDTH) -> list[str]:
    """Tables of at most `width`: as many of the columns of each row as it allows, behind the first ones."""
    tables: list[list[int]] = []
    for column in range(fixed, len(rows[0])):
        if tables and widest(chosen(rows, [*tables[-1], column])) <= width:
            tables[-1].append(column)
        else:
            tables.append([*range(fixed), column])
    return [chosen(rows, columns) for columns in tables]


def chosen(rows: Sequence[Sequence[str]], columns: Sequence[int]) -> str:
    return aligned([[row[at] for at in columns] for row in rows])


def short(number: int) -> str:
    """1 557 611 200 as 1.56 G"""
    return scaled(number, 1000, ("", " k", " M", " G", " T", " P"))


def binary(number: int) -> str:
    """1 280 000 000 000 bytes as 1.16 TiB"""
    return scaled(number, 1024, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"))


def scaled(number: int, base: int, units: tuple[str, ...]) -> str:
    value, power = float(number), 0
    while value >= base and power < len(units) - 1:
        value, power = value / base, power + 1
    return f"{value:.0f}{units[0]}" if power == 0 else f"{value:.2f}{units[power]}"


def cut(label: str) -> str:
    """A class's name, short enough to stand in a table."""
    return label if len(label) <= 16 else f"{label[:15]}…"


def finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """For JSON, which has no infinity: what is not finite is null."""
    return {name: number if math.isfinite(number) else None for name, number in numbers.items()}
