"""What an explanation is: a sequence of typed steps, and nothing about how they are shown (`rendering`).

A step has a title, and may have a formula, sentences, named values (matrices, tables, quantities, diagrams), a figure,
a conclusion, and a question that `--quiz` asks before it shows the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from headway.console import spaced
from headway.figures import Plot

Cell = str | int | float | None
LABEL = 8  # characters of a label of a matrix at least, so that the columns of several stand below one another


@dataclass(frozen=True)
class Formula:
    """A formula as plain text, which may have several lines, and as LaTeX."""

    text: str
    latex: str


@dataclass(frozen=True, eq=False)
class Matrix:
    """Numbers in rows and columns, with or without labels; whole numbers are shown without digits behind the point."""

    name: str
    values: Sequence[Sequence[float]]
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    digits: int = 6

    def data(self) -> list[list[float | None]]:
        return [[x if isfinite(x) else None for x in row] for row in self.values]

    def cells(self) -> list[list[str]]:
        """The header, if there is one, and the rows, each behind its label."""
        whole = all(float(x).is_integer() for row in self.values for x in row if isfinite(x))
        form = "2.0f" if whole else f"{self.digits + 3}.{self.digits}f"
        labels = self.rows or [""] * len(self.values)
        body = [
            [f"{label:{LABEL}}", *(matrix_cell(x, form) for x in row)]
            for label, row in zip(labels, self.values, strict=True)
        ]
        return [["", *self.columns], *body] if self.columns else body


def matrix_cell(x: float, form: str) -> str:
    return f"{x:{form}}" if isfinite(x) else "−∞" if x < 0 else "∞"


@dataclass(frozen=True, eq=False)
class ValueTable:
    """A table with a header; whole numbers are grouped, and `form` is the format of others."""

    name: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    form: str = ".5g"

    def data(self) -> list[dict[str, Cell]]:
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]

    def cells(self) -> list[list[str]]:
        return [list(self.header), *([cell_text(cell, self.form) for cell in row] for row in self.rows)]


def cell_text(cell: Cell, form: str) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return cell
    return spaced(cell) if isinstance(cell, int) else f"{cell:{form}}"


@dataclass(frozen=True)
class Quantity:
    """One number with its name and unit."""

    name: str
    value: int | float
    unit: str = ""
    form: str = ".6g"

    def data(self) -> int | float:
        return self.value

    def line(self) -> str:
        return f"{self.name} = {cell_text(self.value, self.form)} {self.unit}".rstrip()


@dataclass(frozen=True)
class Diagram:
    """A drawing made of characters."""

    name: str
    lines: Sequence[str]

    def data(self) -> list[str]:
        return list(self.lines)


Value = Matrix | ValueTable | Quantity | Diagram


@dataclass(frozen=True)
class Question:
    """What `--quiz` asks before a step: for a number, within a tolerance, or for one of several choices."""

    text: str
    answer: float | str
    choices: Sequence[str] = ()
    tolerance: float = 0.005  # absolute

    def __post_init__(self) -> None:
        assert (self.answer in self.choices) if self.choices else isinstance(self.answer, int | float)


@dataclass(frozen=True, eq=False)
class ExplanationStep:
    """A piece of an explanation.  A value whose name begins the title is shown without its name."""

    title: str
    sentences: Sequence[str] = ()
    values: Sequence[Value] = ()
    formula: Formula | None = None
    figure: Plot | None = None
    conclusion: str = ""
    question: Question | None = None


@dataclass(frozen=True, eq=False)
class Explanation:
    """The steps of a topic, computed for these options."""

    topic: str
    summary: str
    steps: Sequence[ExplanationStep]
    formula: Formula | None = None
    options: Mapping[str, object] = field(default_factory=dict[str, object])

    def values(self) -> dict[str, Value]:
        """All named values, in order; names are unique in an explanation."""
        return {value.name: value for step in self.steps for value in step.values}

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON; null for infinity."""
        formula = {} if self.formula is None else {"formula": self.formula.text, "latex": self.formula.latex}
        return {
            "topic": self.topic,
            "summary": self.summary,
            **formula,
            "options": dict(self.options),
            "steps": [step_data(step) for step in self.steps],
            "values": {name: value.data() for name, value in self.values().items()},
        }


def step_data(step: ExplanationStep) -> dict[str, Any]:
    formula = {} if step.formula is None else {"formula": step.formula.text, "latex": step.formula.latex}
    labels = {
        value.name: {"rows": list(value.rows), "columns": list(value.columns)}
        for value in step.values
        if isinstance(value, Matrix) and (value.rows or value.columns)
    }
    return {
        "title": step.title,
        **formula,
        "sentences": list(step.sentences),
        "values": [value.name for value in step.values],
        **({"labels": labels} if labels else {}),
        **({"conclusion": step.conclusion} if step.conclusion else {}),
    }
