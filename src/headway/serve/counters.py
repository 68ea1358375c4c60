"""What a server has done, as Prometheus reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from headway.serve.served_models import ModelPool
from headway.system import resident_memory

Labels = tuple[tuple[str, str], ...]


class Counters:
    """Numbers that only grow, by their labels."""

    def __init__(self) -> None:
        self.requests = Counter[Labels]()
        self.tokens = Counter[Labels]()
        self.cancelled = 0

    def answered(self, path: str, status: int) -> None:
        self.requests[("path", path), ("status", str(status))] += 1

    def generated(self, model: str, prompt: int, new: int) -> None:
        self.tokens[("model", model), ("kind", "prompt")] += prompt
        self.tokens[("model", model), ("kind", "generated")] += new

    def to_text(self, pool: ModelPool) -> str:
        return "".join(f"{line}\n" for line in self.lines(pool))

    def lines(self, pool: ModelPool) -> Iterator[str]:
        yield from metric("requests_total", "counter", "Requests that were answered.", self.requests.items())
        yield from metric("tokens_total", "counter", "Tokens of prompts, and tokens generated.", self.tokens.items())
        yield from metric("requests_cancelled_total", "counter", "Requests whose client left.", [((), self.cancelled)])
        loaded = [(name, slot.loaded) for name, slot in pool.slots.items() if slot.loaded is not None]
        running, waiting = list[tuple[Labels, int]](), list[tuple[Labels, int]]()
        for name, served in loaded:
            parts = [served.queue, *([] if served.engine is None else [served.engine])]
            running.append(((("model", name),), sum(part.running for part in parts)))
            waiting.append(((("model", name),), sum(part.waiting for part in parts)))
        yield from metric("requests_running", "gauge", "Requests that are being computed.", running)
        yield from metric("requests_waiting", "gauge", "Requests that wait.", waiting)
        held = [((("model", name),), served.bytes) for name, served in loaded]
        yield from metric("model_bytes", "gauge", "Weights of loaded models.", held)
        yield from metric("process_resident_bytes", "gauge", "Memory of the process.", [((), resident_memory())])


def metric(name: str, kind: str, description: str, values: Iterable[tuple[Labels, int]]) -> Iterator[str]:
    yield f"# HELP headway_{name} {description}"
    yield f"# TYPE headway_{name} {kind}"
    for labels, value in values:
        inside = ",".join(f'{label}="{escaped(text)}"' for label, text in labels)
        yield f"headway_{name}{{{inside}}} {value}" if inside else f"headway_{name} {value}"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
