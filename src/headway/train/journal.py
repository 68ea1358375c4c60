"""The record of a run: `metrics.jsonl`, the numbers of learning, and `times.jsonl`, the clock's.

They are apart so that a run that was interrupted and resumed leaves the same metrics, byte for byte.  A checkpoint
remembers how long the metrics were; resuming cuts off what was written after it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

METRICS, TIMES = "metrics.jsonl", "times.jsonl"


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
        with self.metrics.open("rb+") as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    def cut(self, length: int) -> None:
        """Forgets the metrics behind the first `length` bytes."""
        with self.metrics.open("ab") as file:
            file.truncate(length)
            os.fsync(file.fileno())

    def lines(self) -> list[dict[str, Any]]:
        return read_lines(self.metrics)

    def seconds(self) -> float:
        """How long the run has worked so far, over all its parts."""
        return sum(line.get("seconds", 0.0) for line in read_lines(self.times))


def append(path: Path, values: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values, ensure_ascii=False) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that are whole; the last one may have been cut by a crash."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
