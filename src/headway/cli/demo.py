"""`headway demo`: train a translator of dates, run it, and show its cross-attention.

Axes:  T characters of the output   S characters of the source
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headway.loading import load
from headway.model import Model
from headway.nn.trace import record
from headway.nn.trunk import EncoderDecoder
from headway.training.plan import free_folder
from headway.training.recipe_sources import read_layers
from headway.training.run import train

ASKED = ("Sunday, 15 November 2026", "3. Mai 2021", "14 juillet 1989", "2001年9月9日", "٢٧ مايو ٢٠٣٤", "31.12.1999")
SHADES = " ·░▒▓█"


def demo(steps: int | None = None, say: Callable[[str], None] = print) -> int:
    """Trains on the built-in data set, with its own number of steps unless given; returns the exit code."""
    folder = free_folder(Path("dates-model"))
    length = {} if steps is None else {"train.steps": str(steps)}
    _, end = train(read_layers({"data.path": ("dates",), "out": str(folder), **length}))
    if end.signal is not None:
        return 128 + end.signal
    loaded = load(folder)
    say("\ndates in several languages:\n")
    for text in ASKED:
        say(f"  {text:28} → {loaded.predict(text).to_text()}")
    show_alignment(loaded, ASKED[0], say)
    say(f"\nlearning curves, errors and more attention: {folder / 'report.html'}")
    return 0


def show_alignment(loaded: Model, text: str, say: Callable[[str], None]) -> None:
    """Prints the cross-attention of the last layer, mean over heads: a row of shades for each output character."""
    assert isinstance(loaded.model, EncoderDecoder)
    last = sum(1 for _ in loaded.model.decoder.stack.get_submodule("blocks").children()) - 1
    with record(loaded.model, f"decoder.{last}.cross.weights") as trace:
        answer = loaded.predict(text).to_text()
    weights = trace.joined(f"decoder.{last}.cross").full()[0].mean(0)  # T S
    say(f"\n{text} → {answer}: cross-attention of each output character (last layer, mean over heads)\n")
    say(f"    {text}")
    for letter, row in zip(answer, weights[: len(answer)].tolist(), strict=True):
        say(f"  {letter} " + "".join(shade(weight) for weight in row[: len(text)]))


def shade(weight: float) -> str:
    return SHADES[min(5, int(weight * 10 + 0.5))]
