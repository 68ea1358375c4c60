"""What five lectures on attention and transformers say, row by row, and the commands that show it.

The rows are data: `learn/lectures/*.toml`, one file for each lecture, in our own words.  A lecture has sections, a
section has statements.  A statement is shown by commands, or is a mention with nothing to run, or needs what cannot be
had here; where the lecture slips, it names an erratum.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from headway.errors import UserError, listed, nearest
from headway.learn.explain import resolve
from headway.learn.explanation import ExplanationStep
from headway.learn.shown_commands import ShownCommand, read_command

NAMES = ("S0", "S1", "S2", "S3", "S4")


class Standing(StrEnum):
    SHOWN = "shown"
    PARTLY = "partly"
    MENTION = "mention"  # nothing to run
    IMPOSSIBLE = "impossible"  # needs data or machines that cannot be had


@dataclass(frozen=True)
class Statement:
    id: str  # S0.28
    says: str
    standing: Standing = Standing.SHOWN
    reason: str = ""  # why nothing, or not all of it, can be shown
    commands: tuple[ShownCommand, ...] = ()
    code: tuple[str, ...] = ()  # module:name below headway
    erratum: str | None = None  # of errata

    def __post_init__(self) -> None:
        assert bool(self.reason) == (self.standing is not Standing.SHOWN), self.id
        assert self.commands or self.standing is not Standing.SHOWN, self.id


@dataclass(frozen=True)
class LectureSection:
    name: str  # S0-recurrence
    title: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Lecture:
    name: str
    title: str
    sections: tuple[LectureSection, ...]


@dataclass(frozen=True)
class Erratum:
    said: str  # what the lecture has
    right: str  # what holds
    numbers: str  # the function of learn/errata.py that computes them

    def step(self) -> ExplanationStep:
        return correction(self.numbers)


@cache
def correction(function: str) -> ExplanationStep:
    return resolve(f"errata:{function}", "headway.learn.")()


@cache
def errata() -> dict[str, Erratum]:
    return {name: Erratum(**one) for name, one in read_data("errata").items()}


def read_data(name: str) -> dict[str, Any]:
    return tomllib.loads(files("headway.learn").joinpath("lectures", f"{name}.toml").read_text(encoding="utf-8"))


@cache
def lecture(name: str) -> Lecture:
    data = read_data(name.lower())
    sections = tuple(
        LectureSection(f"{name}-{one['name']}", one["title"], tuple(map(read_statement, one["rows"])))
        for one in data["sections"]
    )
    return Lecture(name, data["title"], sections)


def read_statement(row: dict[str, Any]) -> Statement:
    return Statement(
        row["id"],
        row["says"],
        Standing(row.get("standing", Standing.SHOWN)),
        row.get("reason", ""),
        tuple(read_command(one) for one in row.get("show", ())),
        tuple(row.get("code", ())),
        row.get("erratum"),
    )


def lectures() -> list[Lecture]:
    return [lecture(name) for name in NAMES]


def sections() -> list[LectureSection]:
    return [section for one in lectures() for section in one.sections]


def statements() -> Iterator[Statement]:
    for section in sections():
        yield from section.statements


def find_sections(name: str | None) -> list[LectureSection]:
    """The sections of a lecture, one section by its name, or all of them."""
    by_name = {section.name.lower(): [section] for section in sections()}
    by_name |= {one.name.lower(): list(one.sections) for one in lectures()}
    if name is None:
        return sections()
    if name.lower() not in by_name:
        raise unknown(name)
    return by_name[name.lower()]


def find_statement(name: str) -> Statement | None:
    """A statement by its number, S0.28, or None where it is not the name of one."""
    lead, dot, number = name.upper().partition(".")
    if not dot or lead not in NAMES:
        return None
    rows = {one.id: one for section in lecture(lead).sections for one in section.statements}
    found = rows.get(f"{lead}.{number.zfill(2)}")
    if found is None:
        raise UserError(f"no statement {name!r}", allowed=f"{lead}.01 to {list(rows)[-1]}")
    return found


def unknown(name: str) -> UserError:
    words = [*NAMES, *(section.name for section in sections()), "list", "coverage", "errata"]
    meant = next((word for word in words if word.lower() == (nearest(name.lower(), map(str.lower, words)))), None)
    return UserError(
        f"no lecture or section {name!r}",
        allowed=f"{listed([*NAMES], 5)}, a section or a statement such as S0.28",
        do="headway lecture list shows them",
        meant=meant,
    )


def standings(rows: Sequence[Statement]) -> dict[Standing, int]:
    counted = Counter(row.standing for row in rows)
    return {standing: counted[standing] for standing in Standing}
