"""`headway check`: what is wrong with data, before anything is trained on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json import dumps
from pathlib import Path
from typing import Any

from headway.data.checks import Checked
from headway.data.checks import check as look_through
from headway.data.kinds import TASKS, Kind
from headway.data.lines import What
from headway.data.named import split_by_names
from headway.data.recognise import Given, recognise
from headway.data.records import LONGEST
from headway.data.sources import Parallel
from headway.errors import UserError, nearest

SHOWN = 5  # problems of a kind that are printed; --json has more


def check(
    paths: Sequence[Path],
    *,
    source: Path | None = None,
    target: Path | None = None,
    validation: Sequence[Path] = (),
    task: str | None = None,
    columns: str | None = None,
    label_from: str | None = None,
    test_from: str | None = None,
    longest: int = LONGEST,
    json: bool = False,
) -> int:
    """Prints what was found, and returns 2 where something should be mended, else 0; `columns` are as typed: en,de."""
    kind, chosen = kind_of(task), columns.split(",") if columns else ()
    if validation and test_from is not None:
        raise UserError("--validation and --test-from are both given", do="give one of them")
    given = recognise(paths, source=source, target=target, kind=kind, columns=chosen, label_from=label_from)
    beside = read_alike(given, validation, chosen, label_from) if validation else None
    if test_from is not None:
        given, beside = split_by_names(given, test_from, "--test-from")
    found = look_through(given, validation=beside, longest=longest)
    print(dumps(plain(given, found), indent=1, ensure_ascii=False) if json else "\n".join(told(given, found)))
    return 2 if found.bad else 0


def kind_of(task: str | None) -> Kind | None:
    if task is not None and task not in TASKS:
        raise UserError(f"--task {task} is not known", allowed=", ".join(TASKS), meant=nearest(task, TASKS))
    return TASKS[task] if task else None


def read_alike(given: Given, validation: Sequence[Path], columns: Sequence[str], label_from: str | None) -> Given:
    """Validation data, read as the data is that it belongs to."""
    if not isinstance(given.sources[0], Parallel):
        return recognise(validation, kind=given.kind, columns=columns or given.columns, label_from=label_from)
    if len(validation) != 2:
        raise UserError(f"--validation {validation[0]} is one file", allowed="two, as --source and --target are")
    return recognise((), source=validation[0], target=validation[1], kind=given.kind)


def told(given: Given, found: Checked) -> Iterator[str]:
    """Lines to print: what the data is, and under each kind of problem its first places."""
    yield given.why
    yield from found.lines
    for what, count in found.counts.items():
        yield ""
        yield f"{what}: {count:,}"
        places = [problem for problem in found.problems if problem.what is what]
        yield from (f"  {problem}" for problem in places[:SHOWN])
        rest = count - sum(problem.lines for problem in places[:SHOWN])
        if rest:
            yield f"  and {rest:,} more"
    yield ""
    yield advice(found)


def advice(found: Checked) -> str:
    if not found.bad:
        return "nothing to mend"
    if What.BROKEN in found.counts:
        return "get the damaged archive again: how much of it is missing cannot be known"
    if found.counts.keys() <= {What.ANOTHER, What.ONE_CLASS, What.CLASS}:
        return "mend these before you train"
    return "mend these, or let headway train leave them out with --skip-bad"


def plain(given: Given, found: Checked) -> dict[str, Any]:
    return {
        "data": given.why,
        "task": given.kind.value,
        "files": [str(file) for file in given.files],
        "columns": list(given.columns),
        "records": found.count,
        "good": found.good,
        "bad": found.bad,
        "counts": {str(what): count for what, count in found.counts.items()},
        "problems": [
            {"file": str(one.file), "line": one.line, "what": str(one.what), "said": one.said, "lines": one.lines}
            for one in found.problems
        ],
    }
