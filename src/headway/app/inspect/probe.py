"""`headway inspect probe`: what a linear classifier can read off each layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.app.check import kind_of
from headway.app.evaluate import given_data
from headway.app.inspect.cells import digits, table
from headway.app.inspect.figures import Curves, Drawing
from headway.app.inspect.reading import Samples, some_of
from headway.app.inspect.told import Found
from headway.app.inspect.windows import reader_of
from headway.checkpoint import Loaded
from headway.data.kinds import LABELLED, Kind
from headway.data.recognise import recognise
from headway.errors import UserError
from headway.inspect.probe import Probed, Split


def probe(
    data: Path, *, task: str | None, columns: str | None, label_from: str | None, most: int, ridge: float | None
) -> Callable[[Loaded], Probes]:
    """Fits a probe to each layer, to tell the classes of labelled data; `columns` are as typed: text,label."""
    if ridge is not None and ridge <= 0:
        raise UserError(f"--ridge {ridge:g}", allowed="a number above 0", do="without it, a probe has no one answer")
    given = recognise([data], kind=kind_of(task), columns=columns.split(",") if columns else (), label_from=label_from)
    if given.kind is Kind.PAIRS and task is None:  # two columns of texts may be texts and their classes
        given = recognise([data], kind=Kind.LABELS, columns=columns.split(",") if columns else ())
    if given.kind not in LABELLED:
        raise UserError(f"{given.why}: a probe needs classes", do="give labelled texts, images, sounds or numbers")
    kept = some_of(given_data(given).read(), lambda record: record.fields[0], most)
    split = Split.of([record.fields[1] for record in kept])
    samples = Samples(tuple(record.handed[0] for record in kept), given.kind, data)

    def fit(loaded: Loaded) -> Probes:
        layers = reader_of(loaded).layers(samples)
        return Probes({name: split.probed(x, ridge) for name, x in layers.items()}, split, given.why)

    return fit


@dataclass(frozen=True, eq=False)
class Probes(Found):
    """What was read off each layer."""

    layers: Mapping[str, Probed]
    split: Split
    why: str

    @property
    def counts(self) -> dict[str, int]:
        return {"learned": len(self.split.learned), "held": len(self.split.tried)}

    def plain(self) -> dict[str, Any]:
        layers = [{"layer": name, **vars(one)} for name, one in self.layers.items()]
        told = {"data": self.why, **self.counts, "classes": list(self.split.labels)}
        return {**told, "majority": self.split.majority, "layers": layers}

    def shown(self) -> str:
        rows = [
            (name, digits(one.accuracy), digits(one.learned), f"{one.ridge:g}") for name, one in self.layers.items()
        ]
        rows.append(("(majority)", digits(self.split.majority), "", ""))
        counts = f"{len(self.split.labels)} classes; learned from {self.counts['learned']:,}"
        heads = ("layer", "held out", "learned from", "ridge")
        return "\n\n".join([self.why, f"{counts}, tried on {self.counts['held']:,}", table(heads, rows)])

    def drawn(self) -> Drawing:
        lines = {
            "held out": [one.accuracy for one in self.layers.values()],
            "learned from": [one.learned for one in self.layers.values()],
        }
        levels = {"majority class": self.split.majority}
        return Drawing("linear probes", [Curves("", list(self.layers), lines, levels, "accuracy")])
