"""What a server has done, as Prometheus reads it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headway.system import resident_memory

if TYPE_CHECKING:
    from headway.serve.served_models import ModelPool

Labels = tuple[tuple[str, str], ...]
Values = dict[str, Counter[Labels]]  # by the names of metrics
COUNTER, GAUGE = "counter", "gauge"
METRICS = {
    "requests_total": (COUNTER, "Requests that were answered."),
    "tokens_total": (COUNTER, "Tokens of prompts, and tokens generated."),
    "requests_cancelled_total": (COUNTER, "Requests whose client left."),
    "requests_running": (GAUGE, "Requests that are being computed."),
    "requests_waiting": (GAUGE, "Requests that wait."),
    "model_bytes": (GAUGE, "Weights of loaded models."),
    "process_resident_bytes": (GAUGE, "Memory of the process, or of all workers."),
}


class Counters:
    """Numbers that only grow, by their labels."""

    def __init__(self) -> None:
        self.requests = Counter[Labels]()
        self.tokens = Counter[Labels]()
        self.cancelled = Counter[Labels]({(): 0})

    def answered(self, path: str, status: int) -> None:
        self.requests[("path", path), ("status", str(status))] += 1

    def client_left(self) -> None:
        self.cancelled[()] += 1

    def generated(self, model: str, prompt: int, new: int) -> None:
        self.tokens[("model", model), ("kind", "prompt")] += prompt
        self.tokens[("model", model), ("kind", "generated")] += new

    def values(self, pool: ModelPool) -> Values:
        """All metrics of this process."""
        found: Values = {name: Counter() for name in METRICS}
        found |= {
            "requests_total": self.requests,
            "tokens_total": self.tokens,
            "requests_cancelled_total": self.cancelled,
        }
        for name, slot in pool.slots.items():
            if (served := slot.loaded) is not None:
                parts = [served.queue, *([] if served.engine is None else [served.engine])]
                label = (("model", name),)
                found["requests_running"][label] = sum(part.running for part in parts)
                found["requests_waiting"][label] = sum(part.waiting for part in parts)
                found["model_bytes"][label] = served.bytes
        found["process_resident_bytes"][()] = resident_memory()
        return found

    def to_text(self, pool: ModelPool) -> str:
        return values_text(self.values(pool))

    async def refresh(self) -> None:
        """Called once a second; one process has nobody to tell."""


class WorkerCounters(Counters):
    """The counters of one of several workers, in a file beside those of the others: each tells the sums of all.

    The file is written when a request was answered, so that no count is lost with its worker; and once a second, for
    the gauges.  A worker that takes the place of one that has died counts on from its numbers.
    """

    def __init__(self, file: Path, pool: ModelPool):
        super().__init__()
        self.file, self.pool = file, pool
        if file.exists():
            known = read_values(file)
            self.requests, self.tokens = known["requests_total"], known["tokens_total"]
            self.cancelled = known["requests_cancelled_total"]
        self.publish()

    def answered(self, path: str, status: int) -> None:
        super().answered(path, status)
        self.publish()

    def publish(self) -> None:
        write_values(self.file, self.values(self.pool))

    async def refresh(self) -> None:
        self.publish()

    def to_text(self, pool: ModelPool) -> str:
        self.publish()
        sums: Values = {name: Counter() for name in METRICS}
        for file in self.file.parent.glob(f"*{self.file.suffix}"):
            for name, values in read_values(file).items():
                sums[name].update(values)
        return values_text(sums)


def write_values(file: Path, values: Values) -> None:
    """Others read the old file or the new one.  It need not outlive the machine, so nothing waits for the disk."""
    part = file.with_suffix(".part")
    with suppress(OSError):  # on a full disk the file stays as it was, and the server goes on
        part.write_text(json.dumps({name: list(found.items()) for name, found in values.items()}), encoding="utf-8")
        os.replace(part, file)


def read_values(file: Path) -> Values:
    values = json.loads(file.read_text(encoding="utf-8"))
    return {
        name: Counter({tuple((label, text) for label, text in labels): value for labels, value in found})
        for name, found in values.items()
    }


def forget_gauges(file: Path) -> None:
    """Of a worker that has ended its counts remain, and nothing is running."""
    if file.exists():
        values = read_values(file)
        write_values(
            file, {name: values[name] if kind == COUNTER else Counter() for name, (kind, _) in METRICS.items()}
        )


def values_text(values: Values) -> str:
    return "".join(f"{line}\n" for name in METRICS for line in metric(name, values[name]))


def metric(name: str, values: Counter[Labels]) -> Iterator[str]:
    kind, description = METRICS[name]
    yield f"# HELP headway_{name} {description}"
    yield f"# TYPE headway_{name} {kind}"
    for labels, value in values.items():
        inside = ",".join(f'{label}="{escaped(text)}"' for label, text in labels)
        yield f"headway_{name}{{{inside}}} {value}" if inside else f"headway_{name} {value}"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
