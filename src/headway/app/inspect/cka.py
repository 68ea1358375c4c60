"""`headway inspect cka`: how alike the layers of one model, or of two, hold the same samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.app.inspect.cells import digits, number, table
from headway.app.inspect.figures import Drawing, Heat
from headway.app.inspect.reading import samples_in
from headway.app.inspect.told import Found
from headway.app.inspect.windows import reader_of
from headway.checkpoint import Loaded
from headway.inspect.cka import cka_matrix

FEW = "fewer samples than a layer is wide make layers look more alike than they are"
WIDE = 8  # layers whose columns a table has room for


def cka(data: Path, most: int | None, other: Callable[[], Loaded] | None) -> Callable[[Loaded], Alike]:
    """Compares the layers of a model with each other, or with those of the other one."""
    samples = samples_in(data, most)

    def compare(loaded: Loaded) -> Alike:
        ours = reader_of(loaded).layers(samples)
        theirs = ours if other is None else reader_of(other()).layers(samples)
        values = cka_matrix(list(ours.values()), list(theirs.values())).tolist()
        widest = max(layer.shape[1] for layer in (*ours.values(), *theirs.values()))
        return Alike(list(ours), list(theirs), values, len(samples), widest)

    return compare


@dataclass(frozen=True, eq=False)
class Alike(Found):
    """`values` has a row for each layer of the model and a column for each of the other's, or of its own."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    samples: int
    widest: int

    def plain(self) -> dict[str, Any]:
        matrix = [[number(value) for value in row] for row in self.values]
        told = {"samples": self.samples, "widest": self.widest, "rows": list(self.rows), "columns": list(self.columns)}
        return {**told, "cka": matrix}

    def shown(self) -> str:
        parts = list[str]()
        for first in range(0, len(self.columns), WIDE):
            some = slice(first, first + WIDE)
            rows = [
                (name, *(digits(value, ".2f") for value in values[some]))
                for name, values in zip(self.rows, self.values, strict=True)
            ]
            parts.append(table(("", *self.columns[some]), rows))
        notes = (
            [f"note: {FEW} ({self.samples} samples, up to {self.widest} wide)"] if self.samples < self.widest else []
        )
        return "\n\n".join([f"linear CKA of layers, over {self.samples:,} samples", *parts, *notes])

    def drawn(self) -> Drawing:
        title = f"linear CKA over {self.samples:,} samples"
        return Drawing(title, [Heat("", self.values, self.rows, self.columns, limits=(0.0, 1.0))])
