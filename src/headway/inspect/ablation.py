"""Ablation of attention heads: how much worse a model does on data with each head edited, one after the other.

Michel, Levy and Neubig (2019, arXiv:1905.10650) switch heads off in this way; the edits are in `nn/trace.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from torch import Tensor, nn

from headway.data.kinds import DataKind
from headway.data.order import batched
from headway.data.records import Record
from headway.errors import UserError, listed, nearest
from headway.figures import Plot
from headway.inspect.activations import query_of, subsample
from headway.inspect.presentation import LazyModel, Result, format_number, head_map, resolve, table
from headway.metrics.scores import MEASURES
from headway.nn.attention import Attention
from headway.nn.trace import HEAD_EDITS, Edit, EditKind, record, sites_of
from headway.tasks.base import RecordTask, Task, validation_loss

BATCH = 32  # records
T = TypeVar("T")


def importance(
    model: LazyModel,
    data: Any,
    *,
    task: str | None = None,
    columns: str | None = None,
    header: str | None = None,
    label_from: str | None = None,
    how: str = "off",
    most: int = 500,
    callback: Callable[[int, int], None] = lambda done, total: None,
    named: str = "the model",
) -> ImportanceResult:
    """Evaluates a model on at most `most` records of data, unchanged and with each head edited.

    `data`, `task`, `columns`, `header` and `label_from` are those of `headway.evaluate`: a path or several, or an
    iterable of records.  `how` is off, uniform or only.  `callback` gets the number of heads that are done, and of all;
    errors call the model `named`.
    """
    if how not in HEAD_EDITS:
        raise UserError(f"how={how}", allowed=listed(HEAD_EDITS), meant=nearest(how, HEAD_EDITS))
    query = query_of(data, task=task, columns=columns, header=header, label_from=label_from)
    first = query.first  # errors of the data are reported before the model is loaded
    loaded = resolve(model)
    heads = heads_of(loaded.model)
    if not heads:
        said = f"{named} has no attention, and so no heads"
        raise UserError(said, do="take a model that attends: headway list shows them")
    own, fit = query.fitted(loaded, first, named)
    texts = fit.kind is DataKind.TEXTS  # which come in pieces
    records = list(islice(fit, most)) if texts else subsample(fit, lambda record: record.fields[0], most)
    name, score = scorer(own, loaded.model, records)
    base, values = score(), dict[str, list[float]]()
    for done, (site, _, value) in enumerate(one_by_one(loaded.model, HEAD_EDITS[how], score), 1):
        values.setdefault(site, []).append(value)
        callback(done, sum(heads.values()))
    return ImportanceResult(fit.description, name, how, base, values)


def scorer(task: Task, model: nn.Module, records: Sequence[Record]) -> tuple[str, Callable[[], float]]:
    """The name of a score and a function that computes it: the loss where records have one, else the main score."""
    if isinstance(task, RecordTask) and task.has_loss(model, described=False):
        task.check(records)
        plain = task.without_augmentation()
        batches = [plain.batch(model, part) for part in batched(records, BATCH)]
        return "loss", lambda: validation_loss(plain, model, batches)
    first = task.evaluate(model, records).scores
    name = "loss" if "loss" in first.numbers else first.main
    return name, lambda: task.evaluate(model, records).scores.numbers[name]


def heads_of(model: nn.Module) -> dict[str, int]:
    """The number of heads of each attention site, by its name without `.weights`."""
    return {
        name.removesuffix(".weights"): module.heads
        for name, (module, what) in sites_of(model).items()
        if what == "weights" and isinstance(module, Attention)
    }


def one_by_one(model: nn.Module, how: EditKind, measure: Callable[[], T]) -> Iterator[tuple[str, int, T]]:
    """Each head, by site and number, and what `measure` returns while it is edited; in the order of the modules."""
    for site, heads in heads_of(model).items():
        for head in range(heads):
            with edited(model, {f"{site}.weights": how(head)}):
                yield site, head, measure()


@contextmanager
def edited(model: nn.Module, edits: Mapping[str, Edit]) -> Generator[None]:
    """Edits sites of a model inside this block.  Nothing is recorded, however much the model reads."""

    def forgetful(edit: Edit) -> Edit:
        def forget(value: Tensor) -> Tensor:
            trace.values.clear()  # a trace also records what it edits, call by call
            return edit(value)

        return forget

    with record(model, *edits, edit={site: forgetful(edit) for site, edit in edits.items()}) as trace:
        try:
            yield
        finally:
            trace.values.clear()


@dataclass(frozen=True, eq=False)
class ImportanceResult(Result):
    """The score with each head of each site edited, and `base`, that of the model unchanged."""

    description: str  # of the data
    name: str
    how: str
    base: float
    values: Mapping[str, Sequence[float]]

    def worse(self, value: float) -> float:
        """How much worse a score is than that of the model unchanged."""
        return self.base - value if MEASURES[self.name].higher else value - self.base

    def data(self) -> dict[str, Any]:
        sites = [
            {"site": site, "heads": [{self.name: value, "worse": self.worse(value)} for value in values]}
            for site, values in self.values.items()
        ]
        return {"data": self.description, "measure": self.name, "how": self.how, "base": self.base, "sites": sites}

    def blocks(self) -> Iterator[str]:
        found = [(site, head, value) for site, values in self.values.items() for head, value in enumerate(values)]
        found.sort(key=lambda each: -self.worse(each[2]))
        rows = [
            (site, str(head), format_number(value, ".4f"), format_number(self.worse(value), "+.4f"))
            for site, head, value in found
        ]
        yield self.description
        yield f"each head {self.how}"
        unchanged = ("(unchanged)", "", format_number(self.base, ".4f"), "")
        yield table(("site", "head", MEASURES[self.name].title, "worse by"), [*rows, unchanged])

    def plot(self) -> Plot:
        title = f"{MEASURES[self.name].title}, worse by, each head {self.how}"
        worse = {site: [self.worse(value) for value in values] for site, values in self.values.items()}
        return Plot(title, [head_map("", worse, signed=True)])
