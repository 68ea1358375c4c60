"""`headway bottleneck`: quality against the length of the source, with attention and without.

A decoder that is given one vector for the whole source should lose more the longer that is; one that looks back should
not.  Each model learns from the same rows in the same order, with the same words, steps and seed, in a folder of its
own, and writes for the same held-out records.  The same command again trains what is not trained yet.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Any

import torch

from headway.answer import Wish
from headway.app.report.bottleneck_page import Compared, Trained, page_of, plain, shown
from headway.app.settings.places import Flag
from headway.app.settings.recipe import Asked, Said, from_yaml, resolve
from headway.app.train import begin, check_place, out_of, run
from headway.app.training.assemble import some
from headway.app.training.calibrate import timed
from headway.app.training.exams import ANSWERS
from headway.app.training.measure import measures_for, written
from headway.app.training.plan import Plan, craft_for, finished, plan
from headway.app.training.resume import DATA, FILES, RECIPE, check_data, facts, taken_up
from headway.app.training.told import model_told
from headway.checkpoint import load
from headway.data.drawn import drawn
from headway.data.kinds import Kind
from headway.data.sources import Record
from headway.errors import UserError
from headway.files import read_json, write_json, write_text
from headway.tasks.buckets import quantile_edges
from headway.tasks.scoring import score_pairs
from headway.train.journal import Journal
from headway.train.memory import keep_memory
from headway.train.recipe import Recipe, flat

PAGE, NUMBERS = "bottleneck.html", "bottleneck.json"
MODELS = 3  # that a chart has colours for
RECORDS = 2000  # held-out records that every model answers
BUCKETS, LEAST = 8, 30  # lengths that are told apart at most, and records of each on average at least
UNITS = {"characters": "letters", "words": "words"}  # what a tokenizer's level counts; others count pieces
OWN = ("model.", "train.rate", "train.dropout", "train.threads", "out", "device", *FILES)  # what may differ by folder


def bottleneck(asks: Sequence[Asked], *, json: bool = False) -> int:
    """Trains what each of `asks` names as its preset, alike in all else, compares them and writes; the exit code."""
    keep_memory()
    with redirect_stdout(sys.stderr) if json else nullcontext():
        folder, plans = planned(asks)
        records = plans[0].material.some_held(RECORDS)
        if not records:
            raise UserError("nothing is held out to compare the models on", do="give --validation, or more data")
        for made in plans:
            if code := learned(made):
                print("or with the same headway bottleneck again, which then trains the others")
                return code
    found = compared(asks[0], plans, folder, records)
    write_json(folder / NUMBERS, plain(found))
    write_text(folder / PAGE, page_of(found))
    print(dumps(plain(found), indent=1, ensure_ascii=False) if json else shown(found, folder / PAGE, folder / NUMBERS))
    return 0


def planned(asks: Sequence[Asked]) -> tuple[Path, list[Plan]]:
    """The folder of all runs, and a plan for each: one reading of the data, one tokenizer and one number of steps."""
    names = [ask.value("model.preset") for ask in asks]
    if not 0 < len(set(names)) == len(names) <= MODELS:
        raise UserError(f"--presets {','.join(names)}", allowed=f"one to {MODELS} names, each once")
    folder = folder_of(asks[0])
    asks = [
        with_these(ask, {"data.task": Kind.PAIRS.value, "out": folder / name})
        for ask, name in zip(asks, names, strict=True)
    ]
    first = plan(asks[0])
    plans = [alike(ask, first) for ask in asks]
    steps = common_steps(resolve(asks[0]), plans)
    return folder, [alike(with_these(ask, {"train.steps": steps}), first) for ask in asks]


def folder_of(asked: Asked) -> Path:
    """As given, or named after the data: the same again for the same command, which goes on there."""
    data, out = resolve(asked).data, resolve(asked).out
    if not data.path and data.source is None:
        raise UserError("headway bottleneck needs data", do="headway bottleneck FILE, of two columns, or dates")
    name = (data.source or Path(data.path[0])).name.split(".")[0]
    return out or Path(f"{name}-bottleneck")


def with_these(asked: Asked, values: Mapping[str, Any]) -> Asked:
    return Asked((*asked.layers, {name: Said(value, Flag()) for name, value in values.items()}))


def alike(asked: Asked, first: Plan) -> Plan:
    """A plan on the very data of another."""
    draft = resolve(asked)
    craft = craft_for(draft, first.material, None)
    return finished(asked, draft, first.material, craft, first.ready, None, first.prepared)


def common_steps(draft: Recipe, plans: Sequence[Plan]) -> int:
    """As asked; or those of a run that began here; or as many as each of the models would be given."""
    begun = [out_of(made.recipe) / RECIPE for made in plans if (out_of(made.recipe) / RECIPE).is_file()]
    if begun and draft.train.steps is None and draft.train.epochs is None:
        return some(from_yaml(begun[0]).train.steps)
    torch.set_num_threads(some(plans[0].recipe.train.threads))
    settled = [made if made.recipe.train.steps else timed(made)[0] for made in plans]
    return min(some(made.recipe.train.steps) for made in settled)


def learned(made: Plan) -> int:
    """Trains a model, goes on with its run, or finds it trained; the exit code."""
    folder = out_of(made.recipe)
    print(f"\n{model_told(made)}: {made.recipe.train.steps:,} steps, in {folder}")
    torch.set_num_threads(some(made.recipe.train.threads))
    if not (folder / RECIPE).is_file():
        check_place(folder)
        begin(made)
        return run(made, resume=False)
    check_alike(made.recipe, from_yaml(folder / RECIPE), folder)
    check_data(read_json(folder / DATA), facts(made))
    if Journal(folder).ended():
        print("it is trained already")
        return 0
    places = {name: value for name, value in flat(made.recipe).items() if name in FILES and value}
    return run(taken_up(with_these(Asked(), {**places, "out": folder})), resume=True)


def check_alike(wanted: Recipe, begun: Recipe, folder: Path) -> None:
    """Refuses a run that began otherwise than the models that it is to be compared with."""
    before = flat(begun)
    for name, value in flat(wanted).items():
        if not name.startswith(OWN) and before.get(name) != value:
            said = f"{name} would be {value}, but the run in {folder} has {before.get(name)}"
            raise UserError(said, do="give that, or name another --out")


def compared(asked: Asked, plans: Sequence[Plan], folder: Path, records: Sequence[Record]) -> Compared:
    """What each model makes of the same records, by their lengths as the models read them."""
    first = plans[0]
    lengths = [len(row) for row in some(first.ready.reader).plain_batch([record.fields[0] for record in records])]
    by = measures_for(drawn(records, ANSWERS))  # as they were chosen for the runs
    models = [trained(made, records, lengths, by) for made in plans]
    return Compared(first, folder, command(asked, plans), lengths, models)


def trained(made: Plan, records: Sequence[Record], lengths: Sequence[int], by: Sequence[str]) -> Trained:
    folder, loaded = out_of(made.recipe), load(out_of(made.recipe))
    samples = written(loaded.speaker(), records, Wish())
    answers, wanted = [sample.answer for sample in samples], [sample.wanted for sample in samples]
    scores = score_pairs(answers, wanted, lengths, by=by, edges=edges_for(lengths))
    scores = replace(scores, unit=UNITS.get(str(made.recipe.data.tokenizer), "pieces"))
    return Trained(made, Journal(folder), scores, sum(weight.numel() for weight in loaded.model.parameters()))


def edges_for(lengths: Sequence[int]) -> tuple[int, ...]:
    """Edges between which there are about equally many records; the last is the longest there is."""
    buckets = max(2, min(BUCKETS, len(lengths) // LEAST))
    return tuple(sorted({*quantile_edges(lengths, buckets), max(lengths)}))


def command(asked: Asked, plans: Sequence[Plan]) -> list[str]:
    """What to type for the same again, with the choices that were open then."""
    recipe, told = plans[0].recipe, flat(resolve(asked))
    chosen = {"train.steps": recipe.train.steps, "seed": recipe.seed, "train.threads": recipe.train.threads}
    left = ("data.path", "model.preset", "out", "train.minutes", *chosen)
    given = {name: told[name] for name in asked.layers[-1] if name not in left}
    options = [word for name, value in {**given, **chosen}.items() for word in spelled(name, value)]
    presets = ",".join(str(made.recipe.model.preset) for made in plans)
    return ["headway", "bottleneck", *recipe.data.path, *options, "--presets", presets, "--out", "NEW"]


def spelled(name: str, value: Any) -> list[str]:
    """A setting as it is typed: each of several files has the option again."""
    if isinstance(value, bool):
        return [Flag().spelled(name)] * value
    if name == "data.validation":
        return [word for file in value for word in (Flag().spelled(name), str(file))]
    return [Flag().spelled(name), ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
