"""docs/COVERAGE.md: every statement of the lectures with the commands that show it, from the same data as the pages."""

from __future__ import annotations

from collections.abc import Sequence

from headway.learn.shown_commands import ShownCommand
from headway.learn.statements import (
    Lecture,
    LectureSection,
    Standing,
    Statement,
    errata,
    lectures,
    standings,
    statements,
)

INTRODUCTION = """\
# What the lectures say, and the command that shows it

headway exists because of five lectures on attention and transformers. Each of their {count} statements stands here in
our words, with what shows it. `headway lecture S0.28` shows one with its output; `headway lecture --out FOLDER` builds
a page for each section, with every number computed. `headway lecture coverage --out docs/COVERAGE.md` writes this file
from `src/headway/learn/lectures/`.

*shown*: a command shows it. *partly*: a command shows a part, and the row says what is left. *mention*: nothing to
run. *impossible*: needs data or machines that cannot be had; the row says what, and what runs in its place."""


def coverage_markdown() -> str:
    rows = list(statements())
    parts = [INTRODUCTION.format(count=len(rows)), totals(), *map(lecture_part, lectures()), errata_part(rows)]
    return "\n\n".join(parts) + "\n"


def totals() -> str:
    lines = [f"| lecture | {' | '.join(Standing)} | rows |", "| --- |" + " ---: |" * (len(Standing) + 1)]
    for one in lectures():
        rows = [row for section in one.sections for row in section.statements]
        lines.append(total_line(one.name, rows))
    return "\n".join([*lines, total_line("all", list(statements()))])


def total_line(name: str, rows: Sequence[Statement]) -> str:
    return f"| {name} | {' | '.join(str(count) for count in standings(rows).values())} | {len(rows)} |"


def lecture_part(one: Lecture) -> str:
    return "\n\n".join([f"## {one.name}: {one.title}", *map(section_part, one.sections)])


def section_part(section: LectureSection) -> str:
    head = ["| # | what the lecture says | stands | shown by | code |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([f"### {section.name}: {section.title}\n", *head, *map(row_line, section.statements)])


def row_line(row: Statement) -> str:
    shown = "<br>".join(map(command_cell, row.commands)) or "–"
    code = ", ".join(f"`{where}`" for where in row.code) or "–"
    slip = f" *Erratum: {row.erratum}.*" if row.erratum else ""
    stands = f"{row.standing}: {row.reason}" if row.reason else row.standing
    return f"| {row.id} | {cell(row.says)}{slip} | {cell(stands)} | {shown} | {code} |"


def command_cell(command: ShownCommand) -> str:
    return f"`{command.line}`"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def errata_part(rows: Sequence[Statement]) -> str:
    lines = ["| erratum | what the lecture has | what holds | rows |", "| --- | --- | --- | --- |"]
    for name, one in errata().items():
        places = ", ".join(row.id for row in rows if row.erratum == name)
        lines.append(f"| {name} | {cell(one.said)} | {cell(one.right)} | {places} |")
    return "## Errata\n\n`headway lecture errata` computes the numbers of each.\n\n" + "\n".join(lines)
