"""The record of a run: `metrics.jsonl`, the numbers of learning, and `times.jsonl`, the clock's.

They are apart so that a run that was interrupted and resumed leaves the same metrics, byte for byte.  A checkpoint
remembers how long the metrics were; resuming cuts off what was written after it.  A number that is not finite is null:
JSON has no word for it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from headway.files import flush

METRICS, TIMES = "metrics.jsonl", "times.jsonl"
DONE = "done"


class Journal:
    """Appends lines of JSON to the files of a run's folder."""

    def __init__(self, folder: Path):
        self.metrics, self.times = folder / METRICS, folder / TIMES

    def tell(self, **values: Any) -> None:
        """A line of what depends on the data and the seed alone."""
        append(self.metrics, values)

    def time(self, **values: Any) -> None:
        """A line of what the clock says."""
        append(self.times, values)

    def length(self) -> int:
        """Bytes of the metrics that are safely on the disk, once this has returned."""
        if not self.metrics.exists():
            return 0
        flush(self.metrics)
        flush(self.metrics.parent)  # the name, too
        return self.metrics.stat().st_size

    def cut(self, length: int) -> list[str]:
        """Forgets the metrics behind the first `length` bytes; a sentence where not all of these are there."""
        shorten(self.times, len(whole_lines(self.times)))
        found = len(whole_lines(self.metrics))
        shorten(self.metrics, min(length, found))
        return [] if found >= length else [f"{self.metrics} has lost {length - found:,} bytes, and goes on without"]

    def lines(self) -> list[dict[str, Any]]:
        return read_lines(self.metrics)

    def seconds(self) -> float:
        """How long the run has worked so far, over all its parts."""
        return sum(line.get("seconds", 0.0) for line in read_lines(self.times))

    def end(self, step: int) -> None:
        """Notes that nothing is left to do."""
        self.time(step=step, **{DONE: True})

    def ended(self) -> bool:
        return any(DONE in line for line in read_lines(self.times)[-1:])


def append(path: Path, values: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(finite(values), ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: finite(inner) for name, inner in cast(Mapping[str, object], value).items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in whole_lines(path).splitlines()]


def whole_lines(path: Path) -> bytes:
    """What a file holds up to the last line that is whole: a crash or a full disk may have cut the one after it."""
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def shorten(path: Path, length: int) -> None:
    if path.exists():
        os.truncate(path, length)
        flush(path)
