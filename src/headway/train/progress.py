"""How a run goes, for people: one live line on a terminal, plain lines in a file or a pipe.

step 1200/5000  loss 2.314  bleu 21.40  8,412 tokens/s  6 min left
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import Any, TextIO

from headway.train.journal import Journal
from headway.train.learner import Update
from headway.train.loop import Examined

BLINK = 0.2  # seconds between two states of the live line
MEMORY = 0.98  # how slowly the pace that is shown forgets
CLEAR = "\r\x1b[K"


class Progress:
    """Tells a run's steps to a terminal or a file, and its pace to the journal."""

    def __init__(self, out: TextIO, steps: int, journal: Journal, unit: str = "tokens"):
        self.out, self.steps, self.journal, self.unit = out, steps, journal, unit
        self.live = out.isatty() and os.environ.get("TERM") != "dumb"
        self.pace: tuple[float, float] = (0.0, 0.0)  # seconds of a step and its tokens, averaged
        self.shown = 0.0
        self.loss: float | None = None
        self.score = ""
        self.since: list[float] = [0.0, 0.0]  # seconds and tokens since the last line

    def stepped(self, update: Update, seconds: float) -> None:
        keep = MEMORY if self.pace[0] else 0.0
        self.pace = (keep * self.pace[0] + (1 - keep) * seconds, keep * self.pace[1] + (1 - keep) * update.tokens)
        self.since = [self.since[0] + seconds, self.since[1] + update.tokens]
        if self.loss is None and not update.skipped:
            self.loss = update.loss / max(1, update.targets)
        if self.live and perf_counter() - self.shown > BLINK:
            self.shown = perf_counter()
            self.write(CLEAR + self.line(update.step)[: width()])

    def logged(self, line: Mapping[str, Any]) -> None:
        self.loss = line["loss"] if line["loss"] is not None else self.loss
        seconds, tokens = self.since
        self.since = [0.0, 0.0]
        self.journal.time(step=line["step"], seconds=round(seconds, 3), tokens=int(tokens))
        if not self.live:
            self.write(self.line(line["step"]) + "\n")

    def evaluated(self, step: int, found: Examined, best: bool) -> None:
        told = "  ".join(f"{name} {value:.4g}" for name, value in found.values.items())
        self.score = next((f"{name} {value:.4g}" for name, value in found.values.items() if name != "loss"), "")
        self.said(f"step {step}: validation {told}{'  (best so far)' if best else ''}")
        if found.samples:
            one = found.samples[step % len(found.samples)]
            right = "" if one.answer == one.wanted else f"   should be: {one.wanted}"
            self.said(f"  {one.source} → {one.answer}{right}")

    def saved(self, step: int) -> None:
        """Nothing to say: a run saves often."""

    def said(self, sentence: str) -> None:
        """A line of its own."""
        self.write(f"{CLEAR if self.live else ''}{sentence}\n")

    def close(self) -> None:
        if self.live:
            self.write(CLEAR)

    def line(self, step: int) -> str:
        seconds, tokens = self.pace
        parts = [f"step {step}/{self.steps}", "" if self.loss is None else f"loss {self.loss:.4f}", self.score]
        if seconds:
            parts += [f"{tokens / seconds:,.0f} {self.unit}/s", f"{left((self.steps - step) * seconds)} left"]
        return "  ".join(part for part in parts if part)

    def write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()


class Board(Progress):
    """The same, and to TensorBoard: curves of the metrics so far, drawn anew when a run is resumed."""

    def __init__(self, out: TextIO, steps: int, journal: Journal, unit: str, folder: Path):
        super().__init__(out, steps, journal, unit)
        self.folder, self.drawn = folder, 0

    @cached_property
    def board(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        rmtree(self.folder, ignore_errors=True)
        return SummaryWriter(str(self.folder))

    def logged(self, line: Mapping[str, Any]) -> None:
        super().logged(line)
        self.draw()

    def evaluated(self, step: int, found: Examined, best: bool) -> None:
        super().evaluated(step, found, best)
        self.draw()

    def draw(self) -> None:
        """The metrics that are not drawn yet; those of a resumed run, from its beginning."""
        for line in self.journal.lines()[self.drawn :]:
            self.drawn += 1
            train = {name: line[name] for name in ("loss", "rate", "norm") if name in line}
            for part, values in {"train": train, "valid": line.get("valid", {})}.items():
                for name, value in values.items():
                    if value is not None:
                        self.board.add_scalar(f"{part}/{name}", value, line["step"])

    def close(self) -> None:
        super().close()
        if self.drawn:
            self.board.close()


@contextmanager
def progress_to(out: TextIO, steps: int, journal: Journal, unit: str = "tokens") -> Generator[Progress]:
    """Progress on a stream, and to TensorBoard in the run's folder where that is installed."""
    if find_spec("tensorboard") is None:
        watcher = Progress(out, steps, journal, unit)
    else:
        watcher = Board(out, steps, journal, unit, journal.metrics.parent / "tensorboard")
    try:
        yield watcher
    finally:
        watcher.close()


def left(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def width() -> int:
    """Columns of the terminal, less one: a full line would wrap."""
    try:
        return os.get_terminal_size().columns - 1
    except OSError:
        return 79
