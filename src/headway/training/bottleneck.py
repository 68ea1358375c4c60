"""The bottleneck of one vector: quality against the length of the source, for models with attention and without.

A decoder that is given one vector for the whole source should lose more the longer the source is; one that attends to
it should not.  Each model learns from the same rows in the same order, with the same tokens, steps and seed, in a
folder of its own, and writes for the same held-out records.  The same call again trains what is not trained yet.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import torch

from headway.console import side_by_side, spaced
from headway.data.kinds import DataKind
from headway.data.records import Record
from headway.dtype import FP32
from headway.errors import UserError
from headway.figures import Curve, Point
from headway.loading import load
from headway.metrics.scores import MEASURES, Measure, Scores, quantile_edges, score_cell
from headway.metrics.scoring import score_pairs
from headway.recipe import Recipe, flat
from headway.system import keep_memory, read_json, write_json, write_text
from headway.tasks.registry import data_entry
from headway.tasks.results import EvalOptions
from headway.training.build import duration, model_line, require, vocabulary
from headway.training.calibration import timed
from headway.training.loop import RunResult
from headway.training.metrics_log import MetricsLog
from headway.training.plan import Plan, finish_plan, plan
from headway.training.recipe_sources import RecipeLayers, begun_with, from_yaml, resolve
from headway.training.report_page import Markup, curve_figure, facts_table, page, section, table, tag
from headway.training.resuming import FILES, check_data, data_hashes, resumed_plan
from headway.training.run import DATA, RECIPE, begin, check_place, run
from headway.training.run_summary import describe_end
from headway.training.setting_origins import CommandLineOption

PAGE, NUMBERS = "bottleneck.html", "bottleneck.json"
MAX_MODELS = 3  # that a chart has colours for
MAX_RECORDS = 2000  # held-out records that every model answers
MAX_BUCKETS, MIN_BUCKET = 8, 30  # lengths that are told apart, and records of each on average
UNITS = {"characters": "characters", "words": "words"}  # what a tokenizer's level counts; others count tokens
MAY_DIFFER = (  # between folders
    *("model.", "train.lr", "train.dropout", "train.threads", "train.recompute", "out", "device"),
    *FILES,
)
CLAIM = (
    "The claim to check: a model with one vector for the whole source gets worse as sources grow longer, and one that "
    "attends to the source does not. Each model was trained on the same pairs in the same order, with the same "
    "tokenizer, for the same number of steps; each wrote for the same held-out pairs, which are grouped by the length "
    "of their source."
)


@dataclass(frozen=True, eq=False)
class ComparedModel:
    """A model that was trained, and its scores by length."""

    made: Plan
    log: MetricsLog
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

    def to_dict(self) -> dict[str, Any]:
        train = self.made.recipe.train
        about = {"preset": self.name, "folder": str(self.made.recipe.out), "sees": self.sees}
        about |= {"parameters": self.parameters, "rate": train.lr, "dropout": self.made.config.dropout}
        return {**about, "kept": self.log.chosen_steps(), "seconds": self.log.total("seconds"), **self.scores.plain()}


@dataclass(frozen=True, eq=False)
class BottleneckResult:
    """Models on the same records, whose sources have these `lengths`; `command` repeats the whole comparison."""

    first: Plan
    folder: Path
    command: Sequence[str]
    lengths: Sequence[int]
    models: Sequence[ComparedModel]

    @property
    def unit(self) -> str:
        return self.models[0].scores.unit

    @property
    def metric(self) -> str:
        """The metric that decides; where that is the same for all models at all lengths, the first that is not."""
        names = list(self.models[0].scores.numbers)
        return next((name for name in names if len(set(self.cells(name))) > 1), names[0])

    def cells(self, metric: str) -> list[float]:
        """A metric of every model, of all records and by length."""
        scores = [one.scores for one in self.models]
        return [of[metric] for one in scores for of in (one.numbers, *(bucket.numbers for bucket in one.buckets))]

    @property
    def notes(self) -> list[str]:
        """Why the table shows another metric than the one that decides."""
        main = self.models[0].scores.main
        alike = f"{MEASURES[main].title}: {MEASURES[main].shown(self.cells(main)[0])} for every model at every length"
        return [] if self.metric == main else [alike]

    @property
    def measure(self) -> Measure:
        return MEASURES[self.metric]

    @property
    def title(self) -> str:
        return f"{self.measure.title} by {self.unit} of the source"

    def rows(self) -> list[list[str]]:
        """The main metric by length, then of all; the first row has the columns' names."""
        parts = [(*one.scores.buckets, one.scores) for one in self.models]
        labels = [*(bucket.label for bucket in self.models[0].scores.buckets), "all"]
        rows = [
            [label, spaced(same[0].count), *(score_cell(of, self.metric) for of in same)]
            for label, same in zip(labels, zip(*parts, strict=True), strict=True)
        ]
        return [[self.unit, "count", *(one.name for one in self.models)], *rows]

    @property
    def direction(self) -> str:
        return "higher is better" if self.measure.higher else "lower is better"

    def curves(self) -> list[Curve]:
        """The main metric over the mean length of each bucket."""
        times, curves = 100 if self.measure.percent else 1, list[Curve]()
        for one in self.models:
            points = list[Point]()
            for bucket in one.scores.buckets:
                inside = [length for length in self.lengths if bucket.first <= length <= (bucket.last or length)]
                points.append(Point(round(math.fsum(inside) / len(inside), 2), times * bucket.numbers[self.metric]))
            curves.append(Curve(one.name, points))
        return curves

    def to_dict(self) -> dict[str, Any]:
        recipe, encoded = self.first.recipe, self.first.encoded
        return {
            "data": self.first.splits.description,
            "rows": encoded.rows,
            "tokens": encoded.tokens,
            "held_out": len(self.lengths),
            "steps": recipe.train.steps,
            "batch": recipe.train.batch,
            "seed": recipe.seed,
            "unit": self.unit,
            "measure": self.metric,
            "command": shlex.join(self.command),
            "models": [one.to_dict() for one in self.models],
        }

    def to_text(self) -> str:
        """For a terminal of 80 columns."""
        train = self.first.recipe.train
        lines = [
            f"\n{self.title}; {self.direction}\n",
            "\n\n".join(side_by_side(self.rows())) + "\n",
            *self.notes,
            f"on {len(self.lengths):,} held-out pairs, the same for all; each learned from the same pairs",
            f"in the same order, {train.steps:,} steps of {train.batch:,} tokens",
            f"chart    {self.folder / PAGE}",
            f"numbers  {self.folder / NUMBERS}",
        ]
        return "\n".join(lines)

    def save(self) -> None:
        """Writes the numbers and the page into the folder."""
        write_json(self.folder / NUMBERS, self.to_dict())
        write_text(self.folder / PAGE, self.page())

    def page(self) -> str:
        """bottleneck.html: one file that needs nothing else."""
        title = f"{self.first.splits.name}: quality against the length of the source"
        heading = f"{self.title[0].upper()}{self.title[1:]}{', %' if self.measure.percent else ''}"
        figure = curve_figure(self.title, self.curves(), self.unit)
        heads, *rows = self.rows()
        numbers = table(f"On {len(self.lengths):,} held-out pairs; {self.direction}", heads, rows)
        return page(
            f"{title} – headway",
            tag("h1", title, dir="auto"),
            tag("p", CLAIM, class_="soft"),
            section(heading, *([figure] if figure else []), numbers, *(tag("p", note) for note in self.notes)),
            section("What was trained", self.model_table(), facts_table(self.shared_facts())),
            section("The same again", tag("pre", tag("code", shlex.join(self.command)), dir="auto")),
        )

    def model_table(self) -> Markup:
        heads = ["model", "sees the source", "parameters", "learning rate", "dropout", "weights of step", "time"]
        rows = [
            [
                one.name,
                one.sees,
                f"{one.parameters:,}",
                f"{require(one.made.recipe.train.lr):.3g}",
                f"{one.made.config.dropout:g}",
                ", ".join(map(str, one.log.chosen_steps())),
                duration(one.log.total("seconds")),
            ]
            for one in self.models
        ]
        return table("Each in a folder of its own, with a report", heads, rows)

    def shared_facts(self) -> list[tuple[str, str]]:
        made, train = self.first, self.first.recipe.train
        return [
            ("data", made.splits.description),
            ("learned from", f"{made.encoded.rows:,} pairs, {made.encoded.tokens:,} tokens"),
            ("vocabulary", str(vocabulary(made))),
            ("steps", f"{train.steps:,} of about {require(train.batch) * train.grad_accumulation:,} tokens"),
            ("seed", str(made.recipe.seed)),
            ("folders", ", ".join(str(self.folder / one.name) for one in self.models)),
        ]


def bottleneck(asks: Sequence[RecipeLayers], *, out: TextIO | None = None) -> BottleneckResult | RunResult:
    """Trains what each of `asks` names as its preset, alike in all else, compares the models and writes the page.

    All runs are described on `out` (standard output).  Where one was interrupted, its end is the result.
    """
    keep_memory()
    lines: TextIO = out or sys.stdout
    folder, plans = planned(asks)
    records = plans[0].splits.some_validation(MAX_RECORDS)
    if not records:
        raise UserError("nothing is held out to compare the models on", do="give data.validation, or more data")
    for made in plans:
        end = train_one(made, lines)
        if end is not None and end.signal is not None:
            print("or with the same headway bottleneck again, which then trains the others", file=lines)
            return end
    result = compared(asks[0], plans, folder, records)
    result.save()
    return result


# ---- training


def planned(asks: Sequence[RecipeLayers]) -> tuple[Path, list[Plan]]:
    """The folder of all runs, and a plan for each: one reading of the data, one tokenizer and one number of steps."""
    names = [ask.value("model.preset") for ask in asks]
    if not 0 < len(set(names)) == len(names) <= MAX_MODELS:
        raise UserError(f"presets= {','.join(names)}", allowed=f"one to {MAX_MODELS} names, each once")
    folder = folder_of(asks[0])
    kind = data_entry(DataKind.PAIRS).word
    same = {"data.task": kind, "train.dtype": FP32}  # one precision, whichever of them bf16 would make faster
    asks = [ask.with_options({**same, "out": folder / name}) for ask, name in zip(asks, names, strict=True)]
    first = plan(asks[0])
    plans = [on_same_data(ask, first) for ask in asks]
    steps = common_steps(resolve(asks[0]), plans)
    return folder, [on_same_data(ask.with_options({"train.steps": steps}), first) for ask in asks]


def folder_of(asked: RecipeLayers) -> Path:
    """As given, or named after the data: the same again for the same command, which goes on there."""
    data, out = resolve(asked).data, resolve(asked).out
    if not data.path and data.source is None:
        raise UserError("headway bottleneck needs data", do="headway bottleneck FILE, of two columns, or dates")
    name = (data.source or Path(data.path[0])).name.split(".")[0]
    return out or Path(f"{name}-bottleneck")


def on_same_data(asked: RecipeLayers, first: Plan) -> Plan:
    """A plan on the very data of another."""
    return finish_plan(asked, replace(first, recipe=resolve(asked), config=None))


def common_steps(draft: Recipe, plans: Sequence[Plan]) -> int:
    """As asked; or those of a run that began here; or as many as each of the models would be given."""
    begun = [made.out / RECIPE for made in plans if (made.out / RECIPE).is_file()]
    if begun and draft.train.steps is None and draft.train.epochs is None:
        return require(from_yaml(begun[0]).train.steps)
    torch.set_num_threads(require(plans[0].recipe.train.threads))
    settled = [made if made.recipe.train.steps else timed(made)[0] for made in plans]
    return min(require(made.recipe.train.steps) for made in settled)


def train_one(made: Plan, out: TextIO | None) -> RunResult | None:
    """Trains a model, or resumes its run; None where it is trained already."""
    folder = made.out
    print(f"\n{model_line(made)}: {made.recipe.train.steps:,} steps, in {folder}", file=out)
    torch.set_num_threads(require(made.recipe.train.threads))
    begun = (folder / RECIPE).is_file()
    if begun:
        check_same_settings(made.recipe, resolve(begun_with(folder / RECIPE)), folder)
        check_data(read_json(folder / DATA), data_hashes(made))
        if MetricsLog(folder).is_finished():
            print("it is trained already", file=out)
            return None
        places = {name: value for name, value in flat(made.recipe).items() if name in FILES and value}
        made = resumed_plan(RecipeLayers().with_options({**places, "out": folder}))
    else:
        check_place(folder)
        begin(made)
    made, end = run(made, resume=begun, out=out)
    print(describe_end(made, end), file=out)
    return end


def check_same_settings(wanted: Recipe, begun: Recipe, folder: Path) -> None:
    """Refuses a run that began with other settings than the models that it is to be compared with."""
    before = flat(begun)
    for name, value in flat(wanted).items():
        if not name.startswith(MAY_DIFFER) and before.get(name) != value:
            said = f"{name} would be {value}, but the run in {folder} has {before.get(name)}"
            raise UserError(said, do="give that, or name another out=")


# ---- comparison


def compared(asked: RecipeLayers, plans: Sequence[Plan], folder: Path, records: Sequence[Record]) -> BottleneckResult:
    """What each model writes for the same records, by the length of their sources in tokens."""
    first = plans[0]
    lengths = [len(row) for row in require(first.setup.tokenizer).plain_batch([record.fields[0] for record in records])]
    evaluated = [line["valid"] for line in MetricsLog(first.out).lines() if "valid" in line][-1]
    metrics = tuple(name for name in evaluated if name != "loss")  # as they were chosen for the runs
    models = [compared_model(made, records, lengths, metrics) for made in plans]
    return BottleneckResult(first, folder, command(asked, plans), lengths, models)


def compared_model(
    made: Plan, records: Sequence[Record], lengths: Sequence[int], metrics: tuple[str, ...]
) -> ComparedModel:
    loaded = load(made.out)
    samples = loaded.task.evaluate(loaded.model, records, EvalOptions(metrics=metrics)).samples
    answers, wanted = [sample.answer for sample in samples], [sample.wanted for sample in samples]
    scores = score_pairs(answers, wanted, lengths, by=metrics, edges=edges_for(lengths))
    scores = replace(scores, unit=UNITS.get(str(made.recipe.data.tokenizer), "tokens"))
    return ComparedModel(made, MetricsLog(made.out), scores, sum(one.numel() for one in loaded.model.parameters()))


def edges_for(lengths: Sequence[int]) -> tuple[int, ...]:
    """Edges between which there are about equally many records; the last is the longest there is."""
    buckets = max(2, min(MAX_BUCKETS, len(lengths) // MIN_BUCKET))
    return tuple(sorted({*quantile_edges(lengths, buckets), max(lengths)}))


def command(asked: RecipeLayers, plans: Sequence[Plan]) -> list[str]:
    """What to type for the same again, with the choices that were open then."""
    recipe, values = plans[0].recipe, flat(resolve(asked))
    chosen = {"train.steps": recipe.train.steps, "seed": recipe.seed, "train.threads": recipe.train.threads}
    left = ("data.path", "model.preset", "out", "train.minutes", *chosen)
    given = {name: values[name] for name in asked.layers[-1] if name not in left}
    options = [word for name, value in {**given, **chosen}.items() for word in spell(name, value)]
    presets = ",".join(str(made.recipe.model.preset) for made in plans)
    return ["headway", "bottleneck", *recipe.data.path, *options, "--presets", presets, "--out", "NEW"]


def spell(name: str, value: Any) -> list[str]:
    """A setting as it is typed: each of several files has the option again."""
    if isinstance(value, bool):
        return [CommandLineOption().spell(name)] * value
    if name == "data.validation":
        return [word for file in value for word in (CommandLineOption().spell(name), str(file))]
    return [CommandLineOption().spell(name), ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
