"""`headway lesson`: list the lessons, run one, write one as a notebook."""

from __future__ import annotations

import sys
from json import dumps
from pathlib import Path

from cyclopts import App

from headway.console import WIDTH
from headway.errors import UserError, path_argument

lesson = App(
    name="lesson",
    help="Short experiments on attention and transformers that run offline: each prints what to look at, draws figures "
    "and asks three questions.",
)


@lesson.command(name="list")
def list_lessons(*, json: bool = False, markdown: bool = False) -> None:
    """List the lessons, with the minutes that each takes at most on two cores.

    Parameters
    ----------
    json
        Print the list as JSON, and nothing else.
    markdown
        Print it as the table of docs/LESSONS.md.
    """
    from textwrap import fill

    from headway.learn.lesson import LESSONS, markdown_table

    if json and markdown:
        raise UserError("json= and markdown= exclude each other")
    if json:
        print(dumps({name: vars(one) for name, one in LESSONS.items()}, indent=1, ensure_ascii=False))
        return
    if markdown:
        print(markdown_table())
        return
    wide = max(map(len, LESSONS)) + 2
    for name, one in LESSONS.items():
        print(fill(f"{name:{wide}}{one.title} ({one.minutes} min)", WIDTH, subsequent_indent=" " * wide))
    print("\nheadway lesson run NAME runs one; --quiz asks before it shows.")


@lesson.command
def run(name: str, /, *, out: Path | None = None, fast: bool = False, quiz: bool = False, json: bool = False) -> None:
    """Run a lesson: print what it finds, step by step, and write the text, a page and the figures to a folder.

    headway lesson run why-scale
    headway lesson run heads-at-equal-size --quiz
    headway lesson run masks --fast --json

    Parameters
    ----------
    name
        The lesson; headway lesson list shows them.
    out
        The folder for text, page and figures; lesson-NAME unless given. With --json nothing is written without it.
    fast
        Tiny sizes: seconds instead of minutes, to see that all of it runs; what it finds then means little.
    quiz
        Ask before steps are shown, and print a score; answers are lines of standard input.
    json
        Print the numbers, the questions and their answers as JSON, and nothing else.
    """
    from headway.learn import lesson as lessons

    if quiz and json:
        raise UserError("quiz= and json= exclude each other")
    lessons.find(name)
    if out is not None and out.is_file():
        raise UserError(f"{out} is a file", do="give out= the name of a folder")
    sizes = lessons.fast_sizes(name) if fast else {}
    if json:
        found = lessons.take(name, sizes)
        if out is not None:
            lessons.write_lesson(found, out)
        print(dumps(lessons.to_data(found), indent=1, ensure_ascii=False, allow_nan=False))
        return
    folder = Path(f"lesson-{name}") if out is None else out
    found = tell_steps(name, sizes, folder, quiz)
    for file in lessons.write_lesson(found, folder):
        print(f"wrote {file}")


def tell_steps(name: str, sizes: dict[str, object], folder: Path, quiz: bool):
    """Prints each step as soon as it is computed, or asks first; returns the whole."""
    from headway.learn import lesson as lessons
    from headway.learn.explanation import ExplanationStep
    from headway.learn.quiz import ask_through
    from headway.learn.rendering import text_of_step, wrapped

    def say(text: str) -> None:
        print(text, flush=True)

    steps, note = list[ExplanationStep](), lessons.naming_figures(name, folder)

    def remembered():
        for step in lessons.lesson_steps(name, sizes):
            steps.append(step)
            yield step

    say(wrapped(lessons.introduction(name)))
    if sizes:
        say("\nWith --fast, sizes are tiny: what is found means little.")
    if quiz:
        ask_through(remembered(), sys.stdin, say, note)
        return lessons.explained(name, steps, sizes)
    for number, step in enumerate(remembered(), 1):
        say(f"\n{text_of_step(number, step, note)}")
    found = lessons.explained(name, steps, sizes)
    say(f"\n{lessons.question_text(found)}\n")
    return found


@lesson.command
def export(name: str, /, *, ipynb: bool = True, out: Path | None = None, fast: bool = False) -> None:
    """Write a lesson as a Jupyter notebook, with its text and its code as cells.

    headway lesson export why-scale --ipynb

    Parameters
    ----------
    name
        The lesson; headway lesson list shows them.
    ipynb
        The format: a Jupyter notebook, the only one there is.
    out
        The file; NAME.ipynb in the working directory unless given.
    fast
        With tiny sizes.
    """
    from headway.learn import lesson as lessons

    lessons.find(name)
    file = Path(f"{name}.ipynb") if out is None else out
    if file.suffix != ".ipynb":
        raise UserError(f"out={file}", allowed="a file whose name ends in .ipynb")
    if not file.absolute().parent.is_dir():
        raise UserError(f"the folder {file.parent} does not exist", do="make it, or name another file in out=")
    from headway.learn.notebook import to_notebook
    from headway.system import write_text

    write_text(file, to_notebook(name, lessons.fast_sizes(name) if fast else {}))
    print(f"wrote {file}; jupyter lab {path_argument(file)} opens it")
