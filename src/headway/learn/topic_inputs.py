"""What a topic can be given: matrices, sizes and choices, checked where they are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import cast

from headway.errors import UserError, listed, nearest

Rows = list[list[float]]


@dataclass(frozen=True)
class TopicInputs:
    """Inputs of a topic; those that are left out have defaults that can be followed by hand.

    Parameters
    ----------
    x
        Input vectors, a row for each, as in "0 1 1; 1 0 1".
    wq
        Query matrix W_Q, a row for each column of --x.
    wk
        Key matrix W_K, a row for each column of --x.
    wv
        Value matrix W_V, a row for each column of --x.
    heads
        Number of attention heads.
    scaled
        Divide scores by the root of the key width (the default).
    unscaled
        Do not divide scores.
    mask
        Which keys a query may see: causal, or a matrix of 0 and 1 with a row for each query.
    n
        Number of tokens, positions or keys.
    dim
        Width of the vectors.
    layers
        Number of layers.
    bits
        Bits of a number: 8, 16, 32 or 64.
    window
        Side of a window of attention on a grid, in tokens.
    experts
        Number of experts.
    active
        Number of experts that a token takes.
    eps
        The small number in the denominator of a norm.
    seed
        Random seed of weights and inputs that are drawn.
    """

    x: str | None = None
    wq: str | None = None
    wk: str | None = None
    wv: str | None = None
    heads: int | None = None
    scaled: bool = False
    unscaled: bool = False
    mask: str | None = None
    n: int | None = None
    dim: int | None = None
    layers: int | None = None
    bits: int | None = None
    window: int | None = None
    experts: int | None = None
    active: int | None = None
    eps: float | None = None
    seed: int | None = None

    def given(self) -> dict[str, object]:
        """Those that are not left out."""
        return {field.name: getattr(self, field.name) for field in fields(self) if self[field.name] != field.default}

    def __getitem__(self, name: str) -> object:
        return getattr(self, name)

    def matrix(self, name: str) -> Rows | None:
        """A matrix by its name, or None where it was left out."""
        value = cast("str | Sequence[Sequence[float]] | None", self[name])
        return None if value is None else read_matrix(name, value)

    def count(self, name: str, default: int, least: int = 1, most: int = 1 << 40) -> int:
        """A whole number by its name, within its range."""
        value = self[name]
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            allowed = f"a whole number of {least} or more" if most == 1 << 40 else f"a whole number, {least} to {most}"
            raise UserError(f"{name}={value}", allowed=allowed)
        return value

    @property
    def is_scaled(self) -> bool:
        if self.scaled and self.unscaled:
            raise UserError("scaled= and unscaled= exclude each other", do="leave one out")
        return not self.unscaled


def check_options(topic: str, given: Iterable[str], taken: Sequence[str]) -> None:
    """Refuses what a topic does not take."""
    for name in given:
        if name not in taken:
            allowed = listed([f"{option}=" for option in taken], 20) if taken else None
            do = None if taken else f"leave {name}= out: this topic takes no inputs"
            raise UserError(f"{topic} takes no {name}=", allowed=allowed, do=do)


def check_names(options: Iterable[str]) -> None:
    """Refuses names that no topic knows."""
    known = [field.name for field in fields(TopicInputs)]
    for name in options:
        if name not in known:
            raise UserError(f"no option {name!r}", allowed=listed(known, 20), meant=nearest(name, known))


def read_matrix(name: str, value: str | Sequence[Sequence[float]]) -> Rows:
    """A matrix of a text, rows separated by semicolons and numbers by spaces or commas; or of lists."""
    rows = (
        [row.replace(",", " ").split() for row in value.strip().strip("[];").split(";")]
        if isinstance(value, str)
        else value
    )
    numbers = [[read_entry(name, entry) for entry in row] for row in rows]
    widths = [len(row) for row in numbers]
    if not numbers or min(widths) < 1 or len(set(widths)) > 1:
        said = f"{name}= has rows of {listed([str(width) for width in widths])} numbers"
        raise UserError(said, allowed='rows of one length, separated by semicolons, as in "0 1 1; 1 0 1"')
    return numbers


def read_entry(name: str, entry: str | float) -> float:
    try:
        number = float(entry)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise UserError(f"{name}= has the entry {entry!r}", allowed="numbers separated by spaces, rows by semicolons")
    return number


def shape(rows: Rows) -> str:
    return f"{len(rows)}×{len(rows[0])}"
