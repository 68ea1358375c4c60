"""The logs of a run: `metrics.jsonl` (loss, learning rate, scores) and `times.jsonl` (durations).

They are separate so that a resumed run leaves the same metrics, byte for byte.  A checkpoint stores the length of the
metrics; resuming truncates them to it.  Numbers that are not finite are written as null, since JSON has none.
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


class MetricsLog:
    """Appends lines of JSON to the files of a run's folder."""

    def __init__(self, folder: Path):
        self.metrics, self.times = folder / METRICS, folder / TIMES

    def append(self, **values: Any) -> None:
        """Appends a line that depends on the data and the seed alone."""
        append_line(self.metrics, values)

    def append_time(self, **values: Any) -> None:
        """Appends a line of durations."""
        append_line(self.times, values)

    def length(self) -> int:
        """Length of the metrics in bytes, flushed to the disk."""
        if not self.metrics.exists():
            return 0
        flush(self.metrics)
        flush(self.metrics.parent)  # the name, too
        return self.metrics.stat().st_size

    def truncate(self, length: int) -> list[str]:
        """Truncates the metrics to `length` bytes; a message if they are shorter than that."""
        truncate_file(self.times, len(whole_lines(self.times)))
        found = len(whole_lines(self.metrics))
        truncate_file(self.metrics, min(length, found))
        return [] if found >= length else [f"{self.metrics} has lost {length - found:,} bytes, and goes on without"]

    def lines(self) -> list[dict[str, Any]]:
        return read_lines(self.metrics)

    def seconds(self) -> float:
        """Training time so far, over all resumptions."""
        return sum(line.get("seconds", 0.0) for line in read_lines(self.times))

    def mark_finished(self, step: int) -> None:
        """Marks the run as finished."""
        self.append_time(step=step, **{DONE: True})

    def is_finished(self) -> bool:
        return any(DONE in line for line in read_lines(self.times)[-1:])


def append_line(path: Path, values: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(finite(values), ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: finite(inner) for name, inner in cast(Mapping[str, object], value).items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in whole_lines(path).splitlines()]


def whole_lines(path: Path) -> bytes:
    """The content up to the last complete line: a crash or a full disk may have cut the one after it."""
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def truncate_file(path: Path, length: int) -> None:
    if path.exists():
        os.truncate(path, length)
        flush(path)
