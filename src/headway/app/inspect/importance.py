"""`headway inspect importance`: how much worse a model does on data with each head changed, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from headway.answer import Wish
from headway.app.inspect.cells import digits, number, table
from headway.app.inspect.figures import Drawing, Heat
from headway.app.inspect.handed import Handed
from headway.app.inspect.heads import filled
from headway.app.inspect.reading import some_of
from headway.app.inspect.told import Found
from headway.app.purpose import Data, Purpose, check_labels
from headway.app.training.measure import held_loss
from headway.checkpoint import Loaded
from headway.data.batched import batched
from headway.data.keyed import random_for
from headway.data.kinds import Kind
from headway.data.sources import Record
from headway.errors import UserError, listed, nearest
from headway.inspect.importance import heads_of, one_by_one
from headway.look.effects import HOWS
from headway.tasks.scores import MEASURES
from headway.tasks.task import RecordTask, ids

TOGETHER = 32  # records at a time
Score = Callable[[], float]


def importance(
    model: Path, data: Path, *, task: str | None, columns: str | None, how: str, most: int
) -> Callable[[Loaded], Importance]:
    """Measures a model on data as it is, and with each head changed; `columns` are as typed: en,de."""
    if how not in HOWS:
        raise UserError(f"--how {how}", allowed=listed(HOWS), meant=nearest(how, HOWS))
    handed = Handed((data,), task, columns)
    _ = handed.first  # what is wrong with the data is told before the model is loaded

    def measure(loaded: Loaded) -> Importance:
        heads = heads_of(loaded.model)
        if not heads:
            said = f"the model in {model} has no attention, and so no heads"
            raise UserError(said, do="take a model that attends: headway list shows them")
        purpose, fit = handed.fitted(loaded, model)
        return measured(loaded, purpose, cut(fit, most), how)

    return measure


def cut(data: Data, most: int) -> Data:
    """The same data, at most so many records of it: of texts, which come in pieces, the first."""
    texts = data.kind is Kind.TEXTS
    kept = list(islice(data.read(), most)) if texts else some_of(data.read(), lambda record: record.fields[0], most)
    return replace(data, read=lambda: iter(kept), unseen=None)


def measured(loaded: Loaded, purpose: Purpose, data: Data, how: str) -> Importance:
    name, score = scored(loaded, purpose, data)
    total, base = sum(heads_of(loaded.model).values()), score()
    found: dict[str, list[float]] = {}
    for at, one in enumerate(one_by_one(loaded.model, HOWS[how], score), 1):
        found.setdefault(one.site, []).append(one.measured)
        progress(at, total)
    return Importance(data.why, name, how, base, found)


def scored(loaded: Loaded, purpose: Purpose, data: Data) -> tuple[str, Score]:
    """The name of what is measured, and how: the loss where a record has one, and else the model's own score."""
    if purpose.task is not None:
        task = purpose.task(loaded)
        batches = list(collated(task, data.read()))
        return "loss", lambda: held_loss(task, loaded.model, batches)
    first = purpose.measure(loaded, data, Wish()).scores
    name = "loss" if "loss" in first.numbers else first.main
    return name, lambda: purpose.measure(loaded, data, Wish()).scores.numbers[name]


def collated(task: RecordTask, records: Iterator[Record]) -> Iterator[Any]:
    """Batches that every measurement reads anew: what is cut or resized is so only once."""
    for some in batched(records, TOGETHER):
        check_labels(task, some)
        rows = [tuple(map(ids, row)) for row in task.encode([record.handed for record in some])]
        yield task.collate(rows, random_for("unused"))


def progress(at: int, total: int) -> None:
    """How far it is, for whoever watches a terminal."""
    if sys.stderr.isatty():
        print(f"\r{at} of {total} heads", end="\n" if at == total else "", file=sys.stderr, flush=True)


@dataclass(frozen=True, eq=False)
class Importance(Found):
    """What was measured with each head of each site changed, and `base`, what is measured as the model is."""

    why: str
    name: str
    how: str
    base: float
    values: Mapping[str, Sequence[float]]

    def worse(self, value: float) -> float:
        """How much worse a value is than that of the model as it is."""
        return self.base - value if MEASURES[self.name].higher else value - self.base

    def plain(self) -> dict[str, Any]:
        sites = [
            {"site": site, "heads": [{self.name: number(x), "worse": number(self.worse(x))} for x in values]}
            for site, values in self.values.items()
        ]
        return {"data": self.why, "measure": self.name, "how": self.how, "base": number(self.base), "sites": sites}

    def shown(self) -> str:
        found = [(site, head, value) for site, values in self.values.items() for head, value in enumerate(values)]
        found.sort(key=lambda each: -self.worse(each[2]))
        title = MEASURES[self.name].title
        rows = [
            (site, str(head), digits(value, ".4f"), digits(self.worse(value), "+.4f")) for site, head, value in found
        ]
        rows.append(("(as it is)", "", digits(self.base, ".4f"), ""))
        return "\n\n".join([self.why, f"each head {self.how}", table(("site", "head", title, "worse by"), rows)])

    def drawn(self) -> Drawing:
        most = max(map(len, self.values.values()))
        rows = [filled([self.worse(value) for value in values], most) for values in self.values.values()]
        heads = [str(head) for head in range(most)]
        title = f"{MEASURES[self.name].title}, worse by, each head {self.how}"
        return Drawing(title, [Heat("", rows, list(self.values), heads, "", "head", signed=True)])
