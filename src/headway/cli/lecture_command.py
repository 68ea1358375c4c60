"""`headway lecture`: what five lectures say, statement by statement, with the commands that show it."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.options import import_torch
from headway.console import WIDTH
from headway.errors import UserError, counted

if TYPE_CHECKING:
    from headway.learn.statements import LectureSection


def lecture(what: str | None = None, /, *, out: Path | None = None, json: bool = False) -> None:
    """Show what five lectures on attention and transformers say, with the command, its output and the code behind it.

    headway lecture
    headway lecture S0-recurrence
    headway lecture S0.28
    headway lecture S1 --out pages
    headway lecture errata

    Parameters
    ----------
    what
        list: the sections (the default); S0 to S4, or a section: its statements and their commands; a statement such
        as S0.28: the same with all outputs; errata: where the lectures slip, in numbers; coverage: all as Markdown.
    out
        The folder for pages, one self-contained file for each section, with all outputs.  For coverage, the file.
    json
        Print it as JSON, with the numbers of all outputs, and nothing else.
    """
    from headway.learn.statements import find_sections, find_statement

    if out is not None and json:
        raise UserError("out= and json= exclude each other")
    what = "list" if what is None else what
    name, statement = what.lower(), find_statement(what)
    if out is not None and (name == "errata" or statement is not None):
        raise UserError(f"{what} is printed, and out= writes pages of sections", do="leave out= out, or name a section")
    if name == "coverage":
        print_coverage(out, json)
    elif name == "errata":
        print_errata(json)
    elif statement is not None:
        from headway.learn.statement_pages import statement_data, statement_text

        print(as_json(statement_data(statement)) if json else statement_text(statement))
    elif name == "list" and out is None:
        print_sections(json)
    else:
        chosen = find_sections(None if name == "list" else what)
        if out is not None:
            write(chosen, out)
        else:
            from headway.learn.statement_pages import listing, section_data

            print(as_json([section_data(one) for one in chosen]) if json else "\n\n\n".join(map(listing, chosen)))


def print_sections(json: bool) -> None:
    from textwrap import fill

    from headway.learn.statements import lectures

    if json:
        rows = [
            {"name": section.name, "title": section.title, "statements": len(section.statements)}
            for one in lectures()
            for section in one.sections
        ]
        print(as_json(rows))
        return
    wide = max(len(section.name) for one in lectures() for section in one.sections) + 4
    for one in lectures():
        print(fill(f"{one.name}  {one.title}", WIDTH, subsequent_indent=" " * 4))
        for section in one.sections:
            told = f"{f'  {section.name}':{wide}}{section.title} ({len(section.statements)})"
            print(fill(told, WIDTH, subsequent_indent=" " * wide))
    print("\nheadway lecture SECTION shows what it says; --out FOLDER builds pages.")


def print_errata(json: bool) -> None:
    from headway.learn.statement_pages import erratum_data, erratum_text
    from headway.learn.statements import errata

    print(as_json([erratum_data(name) for name in errata()]) if json else "\n\n\n".join(map(erratum_text, errata())))


def print_coverage(out: Path | None, json: bool) -> None:
    from headway.learn.coverage_table import coverage_markdown

    if json:
        raise UserError("coverage is Markdown", do="leave json= out; headway lecture list --json has the sections")
    if out is None:
        print(coverage_markdown(), end="")
        return
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise UserError(f"{out} cannot be written", do="give out= the name of a file in a folder that exists")
    from headway.system import write_text

    write_text(out, coverage_markdown())
    print(f"wrote {out}")


def write(chosen: list[LectureSection], folder: Path) -> None:
    if folder.is_file():
        raise UserError(f"{folder} is a file", do="give out= the name of a folder")
    import_torch()
    from headway.learn.statement_pages import write_pages

    index, *files = write_pages(chosen, folder)
    print(f"wrote {index} and {counted(len(files), 'page')}")


def as_json(data: object) -> str:
    return dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
