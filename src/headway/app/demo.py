"""`headway demo`: a translator of dates, trained here and now, asked, and looked into.

Axes:  T letters of the answer   S letters of the source
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headway.app.settings.recipe import ask
from headway.app.train import train
from headway.app.training.plan import free
from headway.checkpoint import Loaded, load
from headway.nn.model import EncoderDecoder
from headway.nn.trace import record

ASKED = ("Sunday, 15 November 2026", "3. Mai 2021", "14 juillet 1989", "2001年9月9日", "٢٧ مايو ٢٠٣٤", "31.12.1999")
SHADES = " ·░▒▓█"


def demo(steps: int | None = None, say: Callable[[str], None] = print) -> int:
    """Trains on the embedded data set, with its own number of steps unless given; the exit code."""
    folder = free(Path("dates-model"))
    length = {} if steps is None else {"train.steps": str(steps)}
    code = train(ask({"data.path": ("dates",), "out": str(folder), **length}))
    if code == 0:
        loaded = load(folder)
        say("\nsome dates, each from another language:\n")
        for text in ASKED:
            say(f"  {text:28} → {loaded.run(text)['output']}")
        show_alignment(loaded, ASKED[0], say)
        say(f"\nthe same in colour, with curves and mistakes: {folder / 'report.html'}")
    return code


def show_alignment(loaded: Loaded, text: str, say: Callable[[str], None]) -> None:
    """Which letters of the source each letter of the answer looked at, in the last layer, as shades."""
    assert isinstance(loaded.model, EncoderDecoder)
    last = sum(1 for _ in loaded.model.decoder.stack.get_submodule("blocks").children()) - 1
    with record(loaded.model, f"decoder.{last}.cross.weights") as trace:
        answer = loaded.run(text)["output"]
    weights = trace.joined(f"decoder.{last}.cross").full()[0].mean(0)  # T S
    say(f"\n{text} → {answer}: what each letter of the answer looked at (the last layer's mean over heads)\n")
    say(f"    {text}")
    for letter, row in zip(answer, weights[: len(answer)].tolist(), strict=True):
        say(f"  {letter} " + "".join(shade(weight) for weight in row[: len(text)]))


def shade(weight: float) -> str:
    return SHADES[min(5, int(weight * 10 + 0.5))]
