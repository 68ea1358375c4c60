"""A lesson as a Jupyter notebook: its file cut into cells, so that they are the code that `headway lesson run` runs.

Module-level statements become cells as they are; the body of `steps` is cut behind each `yield`, which becomes an
assignment to `step`; the defaults of its arguments become a cell of sizes.  The code of a cell may be run anywhere:
`ask`, `check` and `show` return values that a notebook displays and that a terminal prints.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from json import dumps
from textwrap import dedent
from typing import Any

from headway.figures import THEME
from headway.learn.explanation import ExplanationStep
from headway.learn.lesson import SEED, Sizes, find, introduction, module_of
from headway.learn.quiz import answer_text, asking, is_right
from headway.learn.rendering import html_step, text_of_step

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
FIRST = f"import torch\n\nfrom headway.learn.notebook import ask, check, show\n\ntorch.manual_seed({SEED});"


@dataclass(frozen=True)
class NotebookCell:
    kind: str  # markdown or code
    source: str


@dataclass(frozen=True)
class Shown:
    """What a cell shows: text, and HTML for a notebook."""

    text: str
    html: str | None = None

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str | None:
        return self.html


def show(step: ExplanationStep, number: int) -> Shown:
    """A step as it is shown in a page, and as text."""
    colours = "; ".join(f"--{name}: {colour}" for colour, name in THEME.items())
    page = f'<div style="{colours}; background: #fff; color: #1b1f24; padding: 0 1em">{html_step(number, step)}</div>'
    return Shown(text_of_step(number, step, lambda _, plot: f"(figure: {plot.title})"), page)


def ask(step: ExplanationStep) -> Shown:
    """The question of a step, before it is shown."""
    return Shown("no question" if step.question is None else f"Question: {asking(step.question)}")


def check(step: ExplanationStep, answer: str) -> Shown:
    """Whether an answer, a number or a choice or its number, is right; nothing is told before one is given."""
    if step.question is None or not answer.strip():
        return Shown('put your answer between the quotes, as in check(step, "1")')
    said = "right" if is_right(step.question, answer) else "not right"
    return Shown(f"{said}: {answer_text(step.question)}")


def to_notebook(name: str, sizes: Sizes) -> str:
    """The notebook of a lesson as JSON, in format 4.5, without outputs."""
    cells = [cell_data(number, cell) for number, cell in enumerate(notebook_cells(name, sizes))]
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return dumps(whole, indent=1, ensure_ascii=False) + "\n"


def cell_data(number: int, cell: NotebookCell) -> dict[str, Any]:
    common = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}}
    code = {"execution_count": None, "outputs": []} if cell.kind == "code" else {}
    return {**common, **code, "source": cell.source.splitlines(keepends=True)}


def notebook_cells(name: str, sizes: Sizes) -> Iterator[NotebookCell]:
    lesson, source = find(name), inspect.getsource(module_of(name))
    title, _, rest = introduction(name).partition("\n\n")
    read = f"\n\nFormulas: `headway explain {lesson.topics[0]}`." if lesson.topics else ""
    yield NotebookCell(
        "markdown",
        f"# {title}\n\n{rest}{read}\n\nRun the cells in order; all of them take at most {lesson.minutes} minutes. "
        f"`headway lesson run {name}` computes the same.",
    )
    lines, tree = source.splitlines(), ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    kept = [node for node in imports if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")]
    yield NotebookCell("code", "\n".join([FIRST.rpartition("\n\n")[0], *(text(lines, node) for node in kept)]))
    yield NotebookCell("code", FIRST.rpartition("\n\n")[2])
    for node in tree.body[1:]:
        if isinstance(node, ast.FunctionDef) and node.name == "steps":
            yield NotebookCell("code", size_cell(node, sizes))
            yield from step_cells(lines, node)
        elif node not in imports and not is_fast(node):
            yield NotebookCell("code", text(lines, node))


def is_fast(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign) and "FAST" in ast.unparse(node).split("=")[0]


def size_cell(function: ast.FunctionDef, sizes: Sizes) -> str:
    """The arguments of `steps` as assignments."""
    named = function.args.args
    defaults = {arg.arg: ast.unparse(value) for arg, value in zip(named, function.args.defaults, strict=True)}
    given = {**defaults, **{name: repr(value) for name, value in sizes.items()}}
    return "\n".join(f"{name} = {value}" for name, value in given.items())


def step_cells(lines: list[str], function: ast.FunctionDef) -> Iterator[NotebookCell]:
    """A cell up to each `yield`; where it has a question, one that asks, one that checks and one that shows."""
    first, number = function.body[0].lineno, 0
    for node in function.body:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield)):
            continue
        assert isinstance(node.value.value, ast.Call)
        number += 1
        body = dedent("\n".join(lines[first - 1 : node.end_lineno])).strip("\n")
        before = dedent("\n".join(lines[first - 1 : node.lineno - 1])).strip("\n")
        value = body[len(before) :].lstrip("\n").removeprefix("yield ")
        code = f"{before}\n\nstep = {value}".lstrip("\n")
        first = (node.end_lineno or node.lineno) + 1
        if any(keyword.arg == "question" for keyword in node.value.value.keywords):
            yield NotebookCell("code", f"{code}\nask(step)")
            yield NotebookCell("code", 'check(step, "")')
            yield NotebookCell("code", f"show(step, {number})")
        else:
            yield NotebookCell("code", f"{code}\nshow(step, {number})")


def text(lines: list[str], node: ast.stmt) -> str:
    """The source of a statement with its decorators and comments within."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(one.lineno for one in decorators)])
    return "\n".join(lines[first - 1 : node.end_lineno])
