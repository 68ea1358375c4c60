"""What `headway bottleneck` found, told: as a table, as data, and as a page with one chart."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.app.report.figures import Curve, Point, chart
from headway.app.report.markup import Markup, page, tag
from headway.app.report.page import facts, section, table
from headway.app.report.style import STYLE
from headway.app.training.assemble import some
from headway.app.training.plan import Plan
from headway.app.training.told import spent, words_told
from headway.tasks.buckets import Bucket
from headway.tasks.scores import MEASURES, Measure, Scores, aligned, spaced
from headway.train.journal import Journal


@dataclass(frozen=True, eq=False)
class Trained:
    """A model that was trained, and its scores by length."""

    made: Plan
    journal: Journal
    scores: Scores
    parameters: int

    @property
    def name(self) -> str:
        return str(self.made.recipe.model.preset)

    @property
    def sees(self) -> str:
        """How it knows the source while it writes."""
        config, kind = self.made.config, self.made.architecture
        if kind == "seq2seq" or (kind == "rnn" and config.score == "fixed"):
            return "through one vector"
        return f"by {config.score} attention" if kind == "rnn" else "by attention, in every layer"

    @property
    def kept(self) -> list[int]:
        """The steps whose weights it has."""
        return next((line["chosen"] for line in reversed(self.journal.lines()) if "chosen" in line), [])

    def plain(self) -> dict[str, Any]:
        train = self.made.recipe.train
        told = {"preset": self.name, "folder": str(self.made.recipe.out), "sees": self.sees}
        told |= {"parameters": self.parameters, "rate": train.rate, "dropout": self.made.config.dropout}
        return {**told, "kept": self.kept, "seconds": self.journal.seconds(), **self.scores.plain()}


@dataclass(frozen=True, eq=False)
class Compared:
    """Models on the same records, whose sources have these `lengths`; `command` makes all of it again."""

    first: Plan
    folder: Path
    command: Sequence[str]
    lengths: Sequence[int]
    models: Sequence[Trained]

    @property
    def unit(self) -> str:
        return self.models[0].scores.unit

    @property
    def name(self) -> str:
        return self.models[0].scores.main

    @property
    def measure(self) -> Measure:
        return MEASURES[self.name]

    @property
    def title(self) -> str:
        return f"{self.measure.title} by {self.unit} of the source"

    @property
    def best(self) -> str:
        return "more is better" if self.measure.higher else "less is better"

    def rows(self) -> list[list[str]]:
        """The main measure by length, then of all; the first row has the columns' names."""
        told = [[one.scores.numbers, *(bucket.numbers for bucket in one.scores.buckets)] for one in self.models]
        buckets = self.models[0].scores.buckets
        counts = [("all", len(self.lengths)), *((bucket.label, bucket.count) for bucket in buckets)]
        rows = [
            [label, spaced(count), *(self.measure.shown(numbers[at][self.name]) for numbers in told)]
            for at, (label, count) in enumerate(counts)
        ]
        return [[self.unit, "count", *(one.name for one in self.models)], *rows[1:], rows[0]]

    def curves(self) -> list[Curve]:
        times = 100 if self.measure.percent else 1
        return [
            Curve(one.name, [Point(self.mean(b), times * b.numbers[self.name]) for b in one.scores.buckets])
            for one in self.models
        ]

    def mean(self, bucket: Bucket) -> float:
        """The mean length in a bucket, where its point stands."""
        inside = [length for length in self.lengths if bucket.first <= length <= (bucket.last or length)]
        return round(math.fsum(inside) / len(inside), 2)


def shown(found: Compared, page: Path, numbers: Path) -> str:
    """For a terminal of 80 columns."""
    train, count = found.first.recipe.train, len(found.lengths)
    return "\n".join(
        [
            "",
            f"{found.title}; {found.best}",
            "",
            aligned(found.rows()),
            "",
            f"on {count:,} held-out pairs, the same for all; each learned from the same pairs",
            f"in the same order, {train.steps:,} steps of {train.batch:,} tokens",
            f"chart    {page}",
            f"numbers  {numbers}",
        ]
    )


def plain(found: Compared) -> dict[str, Any]:
    """For JSON."""
    recipe, prepared = found.first.recipe, found.first.prepared
    return {
        "data": found.first.material.why,
        "rows": prepared.rows,
        "tokens": prepared.tokens,
        "held_out": len(found.lengths),
        "steps": recipe.train.steps,
        "batch": recipe.train.batch,
        "seed": recipe.seed,
        "unit": found.unit,
        "measure": found.name,
        "command": shlex.join(found.command),
        "models": [one.plain() for one in found.models],
    }


def page_of(found: Compared) -> str:
    """bottleneck.html: one file that needs nothing else."""
    title = f"{found.first.material.name}: quality against the length of the source"
    heads, *rows = found.rows()
    drawing = chart(found.title, found.curves(), across=found.unit)
    beside = [table(f"On {len(found.lengths):,} held-out pairs; {found.best}", heads, rows)]
    return page(
        f"{title} – headway",
        STYLE,
        tag("h1", title, dir="auto"),
        tag("p", *said(), class_="soft"),
        section(headline(found), *[drawing] if drawing else [], *beside),
        section("What was trained", models(found), facts(shared(found))),
        section("The same again", tag("pre", tag("code", shlex.join(found.command)), dir="auto")),
    )


def headline(found: Compared) -> str:
    return f"{found.title[0].upper()}{found.title[1:]}{', %' if found.measure.percent else ''}"


def said() -> list[str]:
    return [
        "The claim to look at: a model that has one vector for the whole source gets worse as sources grow longer, ",
        "and one that may look back at the source does not. Each model learned from the same pairs in the same ",
        "order, with the same words, for the same number of steps; each wrote for the same held-out pairs, and these ",
        "are put together by the length of their source.",
    ]


def models(found: Compared) -> Markup:
    heads = ["model", "sees the source", "parameters", "rate", "dropout", "weights of step", "time"]
    rows = [
        [
            one.name,
            one.sees,
            f"{one.parameters:,}",
            f"{some(one.made.recipe.train.rate):.3g}",
            f"{one.made.config.dropout:g}",
            ", ".join(map(str, one.kept)),
            spent(one.journal.seconds()),
        ]
        for one in found.models
    ]
    return table("Each in a folder of its own, with a report", heads, rows)


def shared(found: Compared) -> tuple[tuple[str, str], ...]:
    made, recipe = found.first, found.first.recipe
    return (
        ("data", made.material.why),
        ("learned from", f"{made.prepared.rows:,} pairs, {made.prepared.tokens:,} tokens"),
        *((name, told) for name, told, _ in words_told(made)),
        ("steps", f"{recipe.train.steps:,} of about {some(recipe.train.batch) * recipe.train.accumulate:,} tokens"),
        ("seed", str(recipe.seed)),
        ("folders", ", ".join(str(found.folder / one.name) for one in found.models)),
    )
