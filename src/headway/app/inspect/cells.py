"""What stands in the cells of tables and figures: numbers, and texts of others."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from headway.tasks.scores import aligned

LETTERS = 28  # of a text in a table


def number(value: float | None) -> float | None:
    """A number for JSON, which knows no infinity."""
    return value if value is not None and isfinite(value) else None


def digits(value: float | None, form: str = ".3f") -> str:
    """A number for a table."""
    return "–" if value is None or not isfinite(value) else f"{value:{form}}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return aligned([heads, *rows])


def visible(text: str, most: int = LETTERS) -> str:
    """A text of others, short, and without signs that would move the cursor or break a line."""
    clean = "".join(sign if sign.isprintable() else "·" for sign in text)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
