"""What a run writes as it trains: files of metrics and durations, and progress for people.

`metrics.jsonl` (loss, learning rate, scores) and `times.jsonl` (durations) are separate so that a resumed run leaves
the same metrics, byte for byte.  A checkpoint stores the length of the metrics; resuming truncates them to it.  Numbers
that are not finite are written as null, since JSON has none.

Progress is a bar on a terminal, and plain lines in a file or a pipe:

step 1200/5000  loss 2.3140  bleu 21.4  lr 3.0e-04  8,412 tokens/s  6 min left
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import Any, TextIO, cast

from headway.console import REFRESH_SECONDS, fitted, is_terminal, progress_bar
from headway.system import check_inside, flush
from headway.tasks.results import EvalResult
from headway.training.learner import StepResult

DONE = "done"
SPEED_DECAY = 0.98  # of the moving average of the speed
MAX_COLUMNS = 80  # of a plain line
MIN_BAR_COLUMNS = 8


class MetricsLog:
    """Appends lines of JSON to the files of a run's folder."""

    def __init__(self, folder: Path):
        check_inside(folder)
        self.metrics, self.times = folder / "metrics.jsonl", folder / "times.jsonl"

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
        lost = length - found
        damaged = [
            f"{path} has damaged lines, and goes on without" for path in (self.metrics, self.times) if spoiled(path)
        ]
        return [f"{self.metrics} has lost {lost:,} bytes, and goes on without", *damaged] if lost > 0 else damaged

    def lines(self) -> list[dict[str, Any]]:
        return read_lines(self.metrics)

    def chosen_steps(self) -> list[int]:
        """The steps whose weights the model has, once the run has ended."""
        return next((line["chosen"] for line in reversed(self.lines()) if "chosen" in line), [])

    def time_lines(self) -> list[dict[str, Any]]:
        return read_lines(self.times)

    def total(self, name: str) -> float:
        """The seconds, or the tokens, of all steps so far, over all resumptions."""
        return sum(line.get(name, 0.0) for line in self.time_lines())

    def mark_finished(self, step: int) -> None:
        """Marks the run as finished."""
        self.append_time(step=step, **{DONE: True})

    def is_finished(self) -> bool:
        return any(DONE in line for line in self.time_lines()[-1:])


def append_line(path: Path, values: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(finite(values), ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: finite(inner) for name, inner in cast(Mapping[str, object], value).items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines that are as a run writes them; others are left out."""
    return [line for raw in whole_lines(path).splitlines() if (line := parsed(raw)) is not None]


def spoiled(path: Path) -> bool:
    return any(parsed(raw) is None for raw in whole_lines(path).splitlines())


def parsed(raw: bytes) -> dict[str, Any] | None:
    """A line; None for what no run has written, such as the remains of another file."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    right = isinstance(line, dict) and (type(line.get("step")) is int or "budget" in line)
    return line if right and all(LINE.get(name, is_score)(value) for name, value in line.items()) else None


def is_score(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))


def is_scores(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_score, cast(dict[str, object], value).values()))


def is_intervals(value: object) -> bool:
    limits = list(cast(dict[str, object], value).values()) if isinstance(value, dict) else [None]
    return all(is_scores(one) and {"low", "high"} <= cast(dict[str, object], one).keys() for one in limits)


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_steps(value: object) -> bool:
    return isinstance(value, list) and all(type(step) is int for step in cast(list[object], value))


def is_budget(value: object) -> bool:
    return isinstance(value, dict | None)


LINE = {  # others are numbers
    **{"valid": is_scores, "chosen": is_steps, "budget": is_budget},
    **{"things": is_text, "intervals": is_intervals},
}


def whole_lines(path: Path) -> bytes:
    """The content up to the last complete line: a crash or a full disk may have cut the one after it."""
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def truncate_file(path: Path, length: int) -> None:
    if path.exists():
        os.truncate(path, length)
        flush(path)


class RunProgress:
    """Callback that shows the steps of a run on a terminal or in a file, and logs its speed."""

    def __init__(self, out: TextIO, steps: int, metrics_log: MetricsLog, unit: str = "tokens"):
        self.out, self.steps, self.metrics_log, self.unit = out, steps, metrics_log, unit
        self.bar = progress_bar(out, steps) if is_terminal(out) else None
        self.speed: tuple[float, float] = (0.0, 0.0)  # seconds and tokens per step, moving averages
        self.refreshed = 0.0
        self.loss: float | None = None
        self.lr: float | None = None
        self.score = ""
        self.since: list[float] = [0.0, 0.0]  # seconds and tokens since the last line of metrics

    def on_step(self, result: StepResult, seconds: float) -> None:
        decay = SPEED_DECAY if self.speed[0] else 0.0
        average = (decay * self.speed[0] + (1 - decay) * seconds, decay * self.speed[1] + (1 - decay) * result.tokens)
        self.speed, self.lr = average, result.lr
        self.since = [self.since[0] + seconds, self.since[1] + result.tokens]
        if self.loss is None and not result.skipped:
            self.loss = result.loss / max(1, result.targets)
        if self.bar is not None and perf_counter() - self.refreshed > REFRESH_SECONDS:
            self.refreshed = perf_counter()
            step, *numbers = self.parts(result.step, self.bar.console.width - MIN_BAR_COLUMNS)
            self.bar.update(self.bar.task_ids[0], completed=result.step, step=step, numbers="  ".join(numbers))
            self.bar.refresh()

    def on_log(self, line: Mapping[str, Any]) -> None:
        self.loss = line["loss"] if line["loss"] is not None else self.loss
        seconds, tokens = self.since
        self.since = [0.0, 0.0]
        self.metrics_log.append_time(step=line["step"], seconds=round(seconds, 3), tokens=int(tokens))
        if self.bar is None:
            self.on_message("  ".join(self.parts(line["step"], MAX_COLUMNS)))

    def on_evaluate(self, step: int, found: EvalResult, best: bool) -> None:
        loss = () if found.loss is None else (f"loss {found.loss:.4g}",)
        values = "  ".join([*loss, *(f"{name} {found.scores.told(name)}" for name in found.scores.numbers)])
        self.score = next((f"{name} {value:.4g}" for name, value in found.values.items() if name != "loss"), "")
        self.on_message(f"step {step}: validation {values}{'  (best so far)' if best else ''}")
        if found.samples:
            one = found.samples[step % len(found.samples)]
            right = "" if one.answer == one.wanted else f"   should be: {one.wanted}"
            self.on_message(f"  {one.source} → {one.answer}{right}")

    def on_save(self, step: int) -> None:
        """Shows nothing: a run saves often."""

    def on_steps(self, steps: int) -> None:
        self.steps = steps
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], total=steps)

    def on_message(self, sentence: str) -> None:
        """A line of its own, above the progress bar."""
        if self.bar is not None:
            self.bar.console.print(fitted(sentence, self.out), markup=False, highlight=False, soft_wrap=True)
        else:
            self.out.write(f"{sentence}\n")
            self.out.flush()

    def on_last_step(self) -> None:
        """Ends the bar: what comes after the steps is shown by itself."""
        self.close()
        self.bar = None

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()

    def parts(self, step: int, columns: int) -> list[str]:
        """The step and the numbers of a line; a narrow one leaves out the score, then the learning rate."""
        seconds, tokens = self.speed
        loss = "" if self.loss is None else f"loss {self.loss:.4f}"
        lr = "" if self.lr is None else f"lr {self.lr:.1e}"
        parts = [f"step {step}/{self.steps}", loss, self.score, lr]
        if seconds:
            parts += [f"{tokens / seconds:,.0f} {self.unit}/s", f"{duration((self.steps - step) * seconds)} left"]
        for optional in ("", self.score, lr):
            if not optional or len("  ".join(parts)) > columns:
                parts = [part for part in parts if part != optional]
        return parts


class TensorBoardProgress(RunProgress):
    """Also writes the metrics to TensorBoard, from the beginning when a run is resumed."""

    def __init__(self, out: TextIO, steps: int, metrics_log: MetricsLog, unit: str, folder: Path):
        super().__init__(out, steps, metrics_log, unit)
        self.folder, self.written = folder, 0

    @cached_property
    def writer(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        rmtree(self.folder, ignore_errors=True)
        return SummaryWriter(str(self.folder))

    def on_log(self, line: Mapping[str, Any]) -> None:
        super().on_log(line)
        self.write_scalars()

    def on_evaluate(self, step: int, found: EvalResult, best: bool) -> None:
        super().on_evaluate(step, found, best)
        self.write_scalars()

    def write_scalars(self) -> None:
        """Writes the metrics that are not written yet."""
        for line in self.metrics_log.lines()[self.written :]:
            self.written += 1
            train = {name: line[name] for name in ("loss", "rate", "norm") if name in line}
            for part, values in {"train": train, "valid": line.get("valid", {})}.items():
                for name, value in values.items():
                    if value is not None:
                        self.writer.add_scalar(f"{part}/{name}", value, line["step"])

    def close(self) -> None:
        super().close()
        if self.written:
            self.writer.close()


@contextmanager
def progress_to(out: TextIO, steps: int, metrics_log: MetricsLog, unit: str = "tokens") -> Generator[RunProgress]:
    """Progress on a stream, and in TensorBoard files in the run's folder if that is installed."""
    if find_spec("tensorboard") is None:
        progress = RunProgress(out, steps, metrics_log, unit)
    else:
        progress = TensorBoardProgress(out, steps, metrics_log, unit, metrics_log.metrics.parent / "tensorboard")
    try:
        yield progress
    finally:
        progress.close()


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
