"""A section of a lecture as one self-contained page: statement → command → its output → source → erratum.

All numbers are computed when the page is built.  Pages load nothing; the code that they refer to stands at their end.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from textwrap import dedent
from typing import Any

from headway.console import phase
from headway.errors import counted
from headway.learn.explain import place_of, resolve
from headway.learn.explanation import Diagram, Explanation, ExplanationStep, Quantity, step_data
from headway.learn.rendering import html_document, html_indices, html_parts, text_of_step, wrapped
from headway.learn.shown_commands import ShownCommand
from headway.learn.statements import LectureSection, Standing, Statement, errata, lecture, lectures, sections, standings

INDEX = "index.html"
MOST_STEPS, MOST_LINES = 2, 24  # of an output that is not folded
STYLE = """
main { margin-bottom: 4rem }
nav { display: flex; gap: .2rem 1rem; flex-wrap: wrap; font-size: .9rem }
a { color: var(--a) } article { border-top: 1px solid var(--rule); margin-top: 1.6rem; padding-top: .2rem }
article > h2 { font-size: 1.1rem; margin: .8rem 0 .5rem; line-height: 1.35 }
article > h2 > a { color: var(--soft); font-weight: normal; text-decoration: none; margin-right: .5rem }
code, pre { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .86rem }
.command { margin: .7rem 0 .2rem } .command code { background: color-mix(in srgb, var(--ink) 7%, transparent);
  padding: .2rem .45rem; border-radius: .3rem; overflow-wrap: anywhere }
.note, .sources, .reason { color: var(--soft); font-size: .9rem }
.sources { margin-top: .7rem; overflow-wrap: anywhere }
.output { border-left: 3px solid var(--rule); padding-left: .9rem; margin: .4rem 0 .4rem .2rem }
.step { color: var(--ink); font-size: .95rem; margin: .7rem 0 .2rem }
.erratum { border-left: 3px solid var(--b); padding-left: .9rem; margin: .8rem 0 .4rem .2rem }
.erratum > p:first-child { font-weight: 600; color: var(--b) } summary { cursor: pointer; color: var(--soft) }
#code pre { overflow-x: auto; border: 1px solid var(--rule); border-radius: .3rem; padding: .7rem }
pre { margin: .4rem 0 } td { white-space: nowrap } sub, sup { line-height: 1 } li { margin: .4rem 0 }
ul, ol { padding-left: 1.4rem }
@media (max-width: 40rem) { body { margin: 1rem auto } h1 { font-size: 1.6rem } }
"""


def write_pages(chosen: Sequence[LectureSection], folder: Path) -> list[Path]:
    """A page for each section and their index, in a folder, which is made."""
    from headway.system import write_text

    folder.mkdir(parents=True, exist_ok=True)
    files = list[Path]()
    for section in chosen:
        with phase(f"building {section.name}"):
            files.append(folder / page_of(section))
            write_text(files[-1], section_page(section, chosen))
    write_text(folder / INDEX, index_page(chosen))
    return [folder / INDEX, *files]


def page_of(section: LectureSection) -> str:
    return f"{section.name}.html"


# ---- a page


def section_page(section: LectureSection, chosen: Sequence[LectureSection]) -> str:
    seen = dict[tuple[str, ...], str]()
    rows = "\n".join(html_statement(one, seen) for one in section.statements)
    code = dict.fromkeys(where for one in section.statements for where in one.code)
    body = (
        f"{navigation(section, chosen)}\n<main>\n<h1>{escape(section.title)}</h1>\n"
        f'<p class="note">{escape(lecture_of(section))} · {escape(summary(section.statements))}</p>\n{rows}\n'
        f'<section id="code">\n<h2>Code</h2>\n{"".join(map(html_code, code))}</section>\n</main>'
    )
    return html_document(f"{section.name} – headway lecture", body, STYLE)


def navigation(section: LectureSection, chosen: Sequence[LectureSection]) -> str:
    at = [one.name for one in chosen].index(section.name)
    links = [f'<a href="{INDEX}">All sections</a>']
    if at:
        links.append(f'<a href="{page_of(chosen[at - 1])}">← {escape(chosen[at - 1].title)}</a>')
    if at + 1 < len(chosen):
        links.append(f'<a href="{page_of(chosen[at + 1])}">{escape(chosen[at + 1].title)} →</a>')
    return f"<nav>{''.join(links)}</nav>"


def lecture_of(section: LectureSection) -> str:
    name = section.name.partition("-")[0]
    return f"{name}: {lecture(name).title}"


def summary(rows: Sequence[Statement]) -> str:
    kinds = [f"{count} {standing}" for standing, count in standings(rows).items() if count]
    return f"{counted(len(rows), 'statement')}: {', '.join(kinds)}"


def html_statement(one: Statement, seen: dict[tuple[str, ...], str]) -> str:
    parts = [f'<h2><a href="#{one.id}">{one.id}</a>{html_indices(one.says)}</h2>']
    if one.reason:
        parts.append(f'<p class="reason">{escape(REASONS[one.standing])}: {escape(one.reason)}</p>')
    parts += [html_command(command, one.id, seen) for command in one.commands]
    if one.code:
        links = ", ".join(f'<a href="#{anchor(where)}">{escape(where)}</a>' for where in one.code)
        parts.append(f'<p class="sources">Code: {links}</p>')
    if one.erratum is not None:
        parts.append(html_erratum(one.erratum))
    return f'<article id="{one.id}">\n' + "\n".join(parts) + "\n</article>"


REASONS = {Standing.MENTION: "Mention", Standing.PARTLY: "In part", Standing.IMPOSSIBLE: "Not here"}


def html_command(command: ShownCommand, row: str, seen: dict[tuple[str, ...], str]) -> str:
    """The command and what it computes; where the same was shown before on the page, a link to that."""
    note = f' <span class="note">{escape(command.note)}</span>' if command.note else ""
    line = f'<div class="command"><code>{escape(command.line)}</code>{note}</div>'
    steps = command.output()
    key = (command.line, *(step.title for step in steps))
    if not steps:
        return line
    if key in seen:
        return f'{line}<p class="note">Its output is shown at <a href="#{seen[key]}">{seen[key]}</a>.</p>'
    seen[key] = row
    body = f'<div class="output">{"".join(map(html_output, steps))}</div>'
    if len(steps) > MOST_STEPS or sum(map(line_count, steps)) > MOST_LINES:
        body = f"<details><summary>Output: {counted(len(steps), 'step')}</summary>{body}</details>"
    return line + body


def line_count(step: ExplanationStep) -> int:
    """Lines of the values of a step."""
    return sum(
        len(value.lines if isinstance(value, Diagram) else value.cells())
        for value in step.values
        if not isinstance(value, Quantity)
    )


def html_output(step: ExplanationStep) -> str:
    return f'<h3 class="step">{escape(step.title)}</h3>\n{html_parts(step)}\n'


def html_erratum(name: str) -> str:
    found = errata()[name]
    return (
        f'<div class="erratum"><p>Erratum</p><p>{escape(found.said)} {escape(found.right)}</p>'
        f"{html_output(found.step())}</div>"
    )


def anchor(where: str) -> str:
    return f"code-{where}"


def html_code(where: str) -> str:
    code = resolve(where, "headway.")
    place = escape(where)
    if not inspect.isroutine(code) and not inspect.isclass(code):
        return f'<p id="{anchor(where)}"><code>{place}</code>: {escape(str(code))}</p>\n'
    text = f'<pre id="{anchor(where)}">{escape(dedent(inspect.getsource(code)))}</pre>'
    return f"<details><summary><code>{place}</code></summary>{text}</details>\n"


def index_page(chosen: Sequence[LectureSection]) -> str:
    parts = list[str]()
    for one in lectures():
        mine = [section for section in chosen if section in one.sections]
        if mine:
            items = "".join(map(index_item, mine))
            parts.append(f"<h2>{one.name}: {escape(one.title)}</h2>\n<ul>{items}</ul>")
    slips = "".join(f"<li>{item}</li>" for item in erratum_links(chosen))
    corrections = f"<h2>Errata</h2>\n<ol>{slips}</ol>" if slips else ""
    rows = [row for section in chosen for row in section.statements]
    body = (
        "<main><h1>The lectures, statement by statement</h1>\n<p>Statement, command, its output, its code, and an "
        f"erratum where a lecture slips. {escape(summary(rows))}. Every number was computed when these pages were "
        f"built.</p>\n{''.join(parts)}\n{corrections}</main>"
    )
    return html_document("headway lecture", body, STYLE)


def index_item(section: LectureSection) -> str:
    link = f'<a href="{page_of(section)}">{escape(section.title)}</a>'
    count = counted(len(section.statements), "statement")
    return f'<li>{link} <span class="note">{section.name}, {count}</span></li>'


def erratum_links(chosen: Sequence[LectureSection]) -> Iterator[str]:
    for name, one in errata().items():
        places = [(section, row) for section in chosen for row in section.statements if row.erratum == name]
        if places:
            links = ", ".join(f'<a href="{page_of(section)}#{row.id}">{row.id}</a>' for section, row in places)
            yield f"{escape(one.said)} {escape(one.right)} {links}"


# ---- text and data


def statement_text(one: Statement) -> str:
    """A statement with the output of its commands, its code and its erratum, for a terminal."""
    parts = [wrapped(f"{one.id}  {one.says}")]
    if one.reason:
        parts.append(wrapped(f"{REASONS[one.standing]}: {one.reason}"))
    for command in one.commands:
        parts.append(f"$ {command.line}" + (f"\n{wrapped(command.note)}" if command.note else ""))
        parts += [text_of_step(number, step) for number, step in enumerate(command.output(), 1)]
    if one.code:
        parts.append("\n".join(code_place(where) for where in one.code))
    if one.erratum is not None:
        parts.append(erratum_text(one.erratum))
    return "\n\n".join(parts)


def erratum_text(name: str) -> str:
    found = errata()[name]
    rows = [row.id for section in sections() for row in section.statements if row.erratum == name]
    head = wrapped(f"Erratum ({', '.join(rows)}): {found.said} {found.right}")
    return f"{head}\n\n{text_of_step(1, found.step())}"


def code_place(where: str) -> str:
    code = resolve(where, "headway.")
    found = inspect.isroutine(code) or inspect.isclass(code)
    return f"{where}  {place_of(code)}" if found else where


def listing(section: LectureSection) -> str:
    """The statements of a section and their commands; nothing is computed."""
    rows = list[str]()
    for one in section.statements:
        slip = f"\n  erratum: {errata()[one.erratum].said}" if one.erratum else ""
        why = f"\n  {REASONS[one.standing]}: {one.reason}" if one.reason else ""
        commands = "".join(f"\n  {command.line}" for command in one.commands)
        rows.append(wrapped(f"{one.id}  {one.says}") + wrapped(why) + commands + wrapped(slip))
    return "\n\n".join([f"{section.name}: {section.title}", *rows])


def section_data(section: LectureSection) -> dict[str, Any]:
    return {
        "name": section.name,
        "title": section.title,
        "statements": [statement_data(one) for one in section.statements],
    }


def statement_data(one: Statement) -> dict[str, Any]:
    commands = [
        {"command": command.line, "note": command.note, **output_data(command.line, command.output())}
        for command in one.commands
    ]
    slip = None if one.erratum is None else erratum_data(one.erratum)
    return {
        "id": one.id,
        "says": one.says,
        "standing": one.standing,
        "reason": one.reason,
        "commands": commands,
        "code": list(one.code),
        "erratum": slip,
    }


def output_data(name: str, steps: Sequence[ExplanationStep]) -> dict[str, Any]:
    values = Explanation(name, "", steps).values()
    return {"steps": [step_data(step) for step in steps], "values": {key: one.data() for key, one in values.items()}}


def erratum_data(name: str) -> dict[str, Any]:
    found = errata()[name]
    return {"name": name, "said": found.said, "right": found.right, **output_data(name, [found.step()])}
