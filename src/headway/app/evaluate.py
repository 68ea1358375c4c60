"""`headway eval`: a model folder and data, and how good the model is on it, in the numbers of what it is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from json import dumps
from pathlib import Path
from typing import Any

from headway.answer import Wish
from headway.app.check import kind_of
from headway.app.purpose import Data, Measured, Purpose, purpose_for
from headway.checkpoint import load
from headway.data.checks import checking
from headway.data.dates import Part
from headway.data.embedded import NAME, date_records, is_embedded
from headway.data.kinds import Kind
from headway.data.lines import Problem
from headway.data.named import only_named
from headway.data.recognise import Given, recognise
from headway.data.records import records
from headway.data.sources import Record
from headway.errors import UserError
from headway.generate.beam import Beam
from headway.train.memory import keep_memory

DATES = 1000  # of the embedded set
COLUMNS = (Kind.PAIRS, Kind.LABELS, Kind.TAGS)  # what a table of two columns may be


def evaluate(
    model: Path,
    data: Sequence[Path],
    *,
    source: Path | None = None,
    target: Path | None = None,
    task: str | None = None,
    columns: str | None = None,
    label_from: str | None = None,
    test_from: str | None = None,
    beam: int | None = None,
    json: bool = False,
    heads: int | None = None,
    unsafe: bool = False,
) -> int:
    """Measures a model and prints what was found; `columns` are as typed: en,de."""
    keep_memory()
    kind, chosen = kind_of(task), columns.split(",") if columns else ()
    wish = Wish() if beam is None else Wish(Beam(beam))

    def seen(kind: Kind | None) -> Data:
        if embedded := known(data):
            return embedded
        given = recognise(data, source=source, target=target, kind=kind, columns=chosen, label_from=label_from)
        return given_data(given if test_from is None else only_named(given, test_from, "--test-from"))

    first = seen(kind)  # what is wrong with the data is told before the model is loaded
    loaded = load(model, heads=heads, unsafe=unsafe)
    purpose = purpose_for(loaded, first.kind, model)
    if beam is not None and not purpose.writes:
        raise UserError(f"the model in {model} {purpose.does} and has no use for --beam", do="leave it out")
    fit = fitting(purpose, first, seen if kind is None else None)
    if fit is None:
        raise UserError(
            f"the model in {model} {purpose.does}, but {first.why}", do=f"give data for {purpose.kind.value}"
        )
    found = purpose.measure(loaded, fit, wish)
    print(dumps(plain(model, fit, found), indent=1, ensure_ascii=False) if json else shown(fit, found))
    return 0


def fitting(purpose: Purpose, data: Data, again: Callable[[Kind], Data] | None) -> Data | None:
    """The data as the purpose needs it: a table of two columns is what the model is for, unless somebody said it."""
    if data.kind is purpose.kind:
        return data
    if again is None or data.kind not in COLUMNS or purpose.kind not in COLUMNS:
        return None
    data = again(purpose.kind)
    return data if data.kind is purpose.kind else None  # the embedded set is what it is


def known(paths: Sequence[Path]) -> Data | None:
    """The embedded set, where nothing of its name lies in this folder."""
    if not is_embedded(paths):
        return None

    def part(which: Part) -> Callable[[], Iterator[Record]]:
        return lambda: date_records(0, DATES, which)

    why = f"{NAME}: {DATES:,} dates that are kept from every training, so translation"
    return Data(Kind.PAIRS, why, part(Part.VALIDATION), part(Part.UNSEEN))


def given_data(given: Given) -> Data:
    def strict() -> Iterator[Record]:
        for found in records(given):
            if isinstance(found, Problem):
                raise UserError(str(found), do=f"see {checking(given, found)}")
            yield found

    return Data(given.kind, given.why, strict)


def plain(model: Path, data: Data, found: Measured) -> dict[str, Any]:
    told = {"model": str(model), "data": data.why, "task": data.kind.value}
    return {**told, **found.told, **found.scores.plain()}


def shown(data: Data, found: Measured) -> str:
    return "\n\n".join([data.why, found.scores.shown(), *found.notes])
