"""A run as it is told to people: what was trained on what, how it went, how good it is, and on which machine.

Plain data, from which the page and the card are written.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headway import __version__
from headway.app.doctor import cores, python
from headway.app.models import binary
from headway.app.report.figures import Curve, Point
from headway.app.report.final import Final
from headway.app.settings.recipe import to_yaml
from headway.app.training.calibrate import peak
from headway.app.training.material import NAMELESS
from headway.app.training.plan import Plan
from headway.app.training.told import size_told, spent, words_told
from headway.data.given import GOAL
from headway.data.kinds import HEARD, PICTURED, Kind
from headway.data.sources import counted
from headway.files import going_on
from headway.tasks.scores import MEASURES, Scores
from headway.train.journal import Journal, read_lines
from headway.train.loop import End
from headway.train.recipe import Recipe

FILES = 20  # names of data files that are told
NEW = "in ways of writing never seen"
READABLE = 80  # letters of a text that is given as an example of what to type

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Outcome:
    """All that is told of a run.  `kept` are the steps whose weights the model has."""

    name: str
    task: str
    folder: str
    summary: Facts
    machine: Facts
    curves: Mapping[str, Sequence[Curve]]
    kept: Sequence[int]
    recipe: str
    smoothed: bool
    final: Final
    said: str  # a text that the model knows what to do with


def told(made: Plan, end: End, journal: Journal, model: nn.Module, final: Final) -> Outcome:
    lines = journal.lines()
    kept = next((line["chosen"] for line in reversed(lines) if "chosen" in line), [end.step])
    return Outcome(
        name=made.material.name,
        task=task_of(made),
        folder=str(made.recipe.out),
        summary=summary(made, end, journal, model),
        machine=machine(made.recipe),
        curves=curves(lines),
        kept=kept,
        recipe=to_yaml(made.recipe),
        smoothed=bool(made.recipe.train.smoothing),
        final=final,
        said=made.example or example(final),
    )


def task_of(made: Plan) -> str:
    if made.material.kind is Kind.TEXTS:
        return f"{made.recipe.data.objective} language modelling"
    objective = made.recipe.data.objective
    nameless = objective in NAMELESS
    return f"{objective} learning from images" if nameless else GOAL[made.material.kind]


def summary(made: Plan, end: End, journal: Journal, model: nn.Module) -> Facts:
    recipe, count = made.recipe, sum(parameter.numel() for parameter in model.parameters())
    name = f"going on from {recipe.model.start}" if made.start else str(recipe.model.preset)
    facts = [
        ("task", made.material.why),
        ("data", "; ".join(data_files(made))),
        ("size of the data", size_told(made)),
        ("held out", held(made)),
        *((name, told) for name, told, _ in words_told(made)),
        ("model", f"{name} ({made.architecture}), {count:,} parameters"),
        ("training", f"{end.step:,} steps of about {batch(recipe):,} {made.prepared.unit}: {epochs(made, end)}"),
        ("weights", end.chosen),
        ("time", time_told(journal, made.prepared.unit)),
    ]
    if made.material.left_out is not None:
        facts.insert(3, ("left out", made.material.left_out))
    return tuple(facts)


def data_files(made: Plan) -> Iterator[str]:
    files = made.material.files
    if not files:
        yield f"{made.material.name}, the embedded data set"
    if made.material.kind in PICTURED | HEARD:  # names of thousands of images say less than that of their folder
        yield f"{made.material.name}, {counted(len(files), 'file')}"
        return
    yield from (file.name for file in files[:FILES])
    if len(files) > FILES:
        yield f"and {len(files) - FILES:,} more files"


def held(made: Plan) -> str:
    if not made.prepared.held:
        return "nothing, so nothing was measured"
    if made.recipe.data.validation:
        return "files of their own: " + "; ".join(Path(path).name for path in made.recipe.data.validation)
    targets = sum(batch.targets for batch in made.prepared.held)
    if not made.material.files:
        return f"dates that training has not seen ({targets:,} targets)"
    return f"a part of the data that training has not seen ({targets:,} targets)"


def batch(recipe: Recipe) -> int:
    return (recipe.train.batch or 0) * recipe.train.accumulate


def epochs(made: Plan, end: End) -> str:
    return f"{end.step * batch(made.recipe) / max(1, made.prepared.tokens):.1f} times through the data"


def time_told(journal: Journal, unit: str) -> str:
    lines = read_lines(journal.times)
    seconds, tokens = journal.seconds(), sum(line.get("tokens", 0) for line in lines)
    pace = f", {tokens / seconds:,.0f} {unit}/s" if seconds else ""
    return f"{spent(seconds)} of steps, evaluations not counted{pace}"


def machine(recipe: Recipe) -> Facts:
    return (
        ("processor", processor()),
        ("cores", cores().found),
        ("threads", str(recipe.train.threads)),
        ("device", str(recipe.device)),
        ("memory", f"{binary(peak())} at most"),
        ("system", python().found),
        ("torch", str(torch.__version__)),
        ("headway", __version__),
    )


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def curves(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[Curve]]:
    """The loss, in training and in validation, and what else was measured, each with its own chart."""
    training = [Point(line["step"], line["loss"]) for line in lines if line.get("loss") is not None]
    checks = [(line["step"], line["valid"]) for line in lines if "valid" in line and "chosen" not in line]
    names = dict.fromkeys(name for _, values in checks for name in values)
    # what is no number is null in the file
    points = {name: [Point(step, v[name]) for step, v in checks if v.get(name) is not None] for name in names}
    found = {name: Curve("validation", some) for name, some in points.items()}
    loss = [Curve("training", training), *([found.pop("loss")] if "loss" in found else [])]
    return {"loss": loss, **{name: [curve] for name, curve in found.items()}}


def score_table(scores: Scores, unseen: Scores | None) -> list[list[str]]:
    """Scores by length, of all, and of what is unlike anything in training; the first row has the columns' names."""
    by = "tokens read before" if scores.things == "tokens" else "pieces of the source"
    by = by if scores.buckets else "part"
    told = [(bucket.label, bucket.count, bucket.numbers) for bucket in scores.buckets]
    told.append(("all", scores.count, scores.numbers))
    if unseen is not None:
        told.append((NEW, unseen.count, unseen.numbers))
    heads = [by, "count", *(MEASURES[name].title for name in scores.numbers)]
    rows = [[label, f"{n:,}", *(MEASURES[m].shown(of[m]) for m in scores.numbers)] for label, n, of in told]
    return [heads, *rows]


def example(final: Final) -> str:
    """A text to try the model with: short, and such that a terminal shows it as it is."""
    fit = [one for one in final.samples if one.source.isprintable() and 0 < len(one.source) <= READABLE]
    best = min(fit, key=lambda one: (one.answer != one.wanted, not one.source.isascii()), default=None)
    if best is None and final.scores is not None and final.scores.things == "images":
        return final.pictures[0].title if final.pictures else "image.png"
    return "some text" if best is None else best.source


def commands(outcome: Outcome) -> list[tuple[str, str]]:
    """What to type next, each with what it does."""
    folder = shlex.quote(outcome.folder)
    recipe = shlex.quote(str(Path(outcome.folder) / "recipe.yaml"))
    return [
        (f"headway run {folder} {shlex.quote(outcome.said)}", "use the model"),
        (f"headway eval {folder} DATA", "measure it on other data"),
        (f"headway train --config {recipe} --out NEW", "train it again: the same data and threads give the same bits"),
        (going_on(outcome.folder), "go on with this run, where it was interrupted"),
        (f"headway train DATA --from {folder} --out NEW", "go on from this model with other data"),
    ]
