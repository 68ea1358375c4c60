"""What headway.compare trains: the combinations of the choices, as plans of equal size and equal budget.

The budget of a training is a number of steps, the same for all variants: each learns from the same batches.  With
minutes given, it is as many as the slowest of them does in that time, its evaluation included.  Equal time would give
each its own number of batches, and what is compared is a part of the model, not the speed of its implementation here.

The numbers of parameters are made equal by the hidden width of the feed-forward layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from headway.data.kinds import DataKind
from headway.dtype import FP32
from headway.errors import UserError, counted, nearest
from headway.recipe import flat, from_flat
from headway.training.build import require
from headway.training.calibration import max_steps, timed
from headway.training.comparison_result import Budget, Choice, Choices
from headway.training.plan import OwnParts, Plan, finish_plan, plan
from headway.training.recipe_data import load_splits
from headway.training.recipe_sources import RecipeLayers, resolve
from headway.zoo.build import on_meta, to_plain
from headway.zoo.presets import preset
from headway.zoo.workbench import ARRANGEMENTS, FFNS, MIXERS, NORMS, POSITIONS, Config

NAMED: Mapping[str, Mapping[str, Any]] = {
    "norm": NORMS,
    "arrangement": ARRANGEMENTS,
    "ffn": FFNS,
    "positions": POSITIONS,
    "mixer": MIXERS,
}
NUMBERED = ("heads", "layers", "dim", "window", "kernel", "experts")
AXES = (*NAMED, *NUMBERED)
MAX_VARIANTS = 16
MINUTES = 3.0  # of each training, where nothing else is given


# ---- choices


def checked(choices: Choices) -> dict[str, tuple[Choice, ...]]:
    """The axes with their choices; refuses what is unknown, given twice, or too much."""
    found = {axis: tuple(checked_axis(axis, values)) for axis, values in choices.items()}
    if not found:
        raise UserError("nothing to compare", do="name an axis and its choices, as in norm=layer,rms")
    count = 1
    for values in found.values():
        count *= len(values)
    if count < 2:
        raise UserError("one variant has nothing to be compared with", do="give an axis two choices or more")
    if count > MAX_VARIANTS:
        said = f"{' × '.join(str(len(values)) for values in found.values())} = {count} variants"
        raise UserError(said, allowed=f"{MAX_VARIANTS} at most", do="compare one axis after the other")
    return found


def checked_axis(axis: str, values: Sequence[Choice]) -> Iterator[Choice]:
    if axis not in AXES:
        raise UserError(f"the workbench has no axis {axis!r}", allowed=", ".join(AXES), meant=nearest(axis, AXES))
    meanings = list[Any]()
    for value in values:
        if axis in NUMBERED:
            if not str(value).isdigit() or int(value) < 1:
                raise UserError(f"{axis}={value}", allowed="whole numbers of 1 or more")
            value = int(value)
        elif value not in NAMED[axis]:
            near = nearest(str(value), NAMED[axis])
            do = f"did you mean {axis}={near}?" if near else None
            raise UserError(f"{axis}={value} is not a choice", allowed=", ".join(NAMED[axis]), do=do)
        meaning = NAMED[axis][str(value)] if axis in NAMED else value
        if meaning in meanings:
            same = values[meanings.index(meaning)]
            said = (
                f"{axis}={same} is given twice" if same == value else f"{axis}={same} and {axis}={value} are the same"
            )
            raise UserError(said, do="give each choice once")
        meanings.append(meaning)
        yield value


def with_shared(asked: RecipeLayers, choices: Choices) -> tuple[RecipeLayers, dict[str, Any], tuple[str, ...]]:
    """What is asked, with the sizes that all variants have, and what is to be said about them."""
    name = asked.value("model.preset")
    if preset(name).architecture != "workbench":
        raise UserError(f"{name} is not a workbench", allowed="workbench, workbench-nano", do="leave out the preset")
    shared, notes = asked.given_sizes(), tuple[str, ...]()
    if twice := [axis for axis in choices if axis in shared]:
        raise UserError(f"{twice[0]} is compared, and model.{twice[0]} is given", do="leave one of them out")
    if set(choices.get("mixer", ())) - {"attention"} and not {"positions"} & {*choices, *shared}:
        shared["positions"] = "sinusoidal"
        notes = ("positions are sinusoidal for all: rotary ones are for attention alone",)
    options = {f"model.{name}": value for name, value in shared.items()}
    steps = (
        {}
        if any(asked.value(f"train.{kind}") for kind in ("steps", "epochs", "minutes"))
        else {"train.minutes": MINUTES}
    )
    return asked.with_options({**options, **steps, "train.dtype": FP32}), shared, notes


# ---- plans of equal size and length


def planned(
    asked: RecipeLayers, grid: Sequence[Mapping[str, Choice]], own: OwnParts, kept: Budget | None
) -> tuple[list[Plan], Budget]:
    """A plan for each variant: one reading of the data, one size, one rate and one budget (`kept`, if any)."""
    asks = [asked.with_options({f"model.{axis}": one for axis, one in variant.items()}) for variant in grid]
    splits = load_splits(resolve(asks[0]), None, own.records)
    if splits.kind is not DataKind.TEXTS:
        said = f"the workbench learns from running text, and this is {splits.description.partition(', so ')[0]}"
        raise UserError(said, do="give a .txt file or a folder of them")
    first = plan(asks[0], own=own, splits=splits)
    if not first.encoded.validation:
        raise UserError("nothing is held out to compare the variants on", do="give data.validation, or more data")
    train, size = first.recipe.train, parameters(first.config)
    same = {"train.lr": train.lr, "train.batch": train.batch, "data.max_length": first.recipe.data.max_length}

    def on_same_data(ask: RecipeLayers, hidden: int | None = None) -> Plan:
        ask = ask.with_options({**same, **({} if hidden is None else {"model.hidden": hidden})})
        return finish_plan(ask, replace(first, recipe=resolve(ask), config=None))

    plans = [on_same_data(ask, matched(on_same_data(ask).config, size)) for ask in asks]
    budget = budget_of(plans, [name_of(variant) for variant in grid], kept)
    made = [
        on_same_data(ask.with_options({"train.steps": budget.steps}), made.config.hidden)
        for ask, made in zip(asks, plans, strict=True)
    ]
    return made, budget


def budget_of(plans: Sequence[Plan], names: Sequence[str], kept: Budget | None) -> Budget:
    """As many steps as asked, or as the slowest variant does in the minutes; `kept` is that of a comparison begun."""
    train = plans[0].recipe.train
    if kept is not None:
        same = train.minutes == kept.minutes if train.steps is None else train.steps == kept.steps
        if not same:
            given = counted(require(train.minutes), "minute") if train.steps is None else counted(train.steps, "step")
            said = f"the comparison in this folder was begun with {kept}, not with {given}"
            raise UserError(said, do="give the same, or name another out=")
        return kept
    if train.steps is not None:
        return Budget(train.steps)
    torch.set_num_threads(require(train.threads))
    steps = [require(timed(evaluated_once(made))[0].recipe.train.steps) for made in plans]
    fewest = min(steps)
    slowest = names[steps.index(fewest)] if fewest < max_steps(plans[0]) else None
    return Budget(fewest, train.minutes, slowest)


def evaluated_once(made: Plan) -> Plan:
    """The plan without evaluations before the last step, which take none of its minutes then."""
    return replace(made, recipe=from_flat({**flat(made.recipe), "train.evaluate_every": max_steps(made)}))


def matched(config: Config, size: int) -> int:
    """The hidden width of the feed-forward layers at which a model has about `size` parameters."""
    one, two = (parameters(replace(config, hidden=hidden)) for hidden in (1, 2))
    hidden = 1 + round((size - one) / (two - one))
    if hidden < 1:
        said = f"{name_of(to_plain(config), ('mixer', 'ffn', 'dim', 'layers'))} has {one:,} parameters or more"
        raise UserError(said, allowed=f"{size:,}, as the first variant has", do="put the largest variant first")
    return hidden


def parameters(config: Config) -> int:
    return sum(parameter.numel() for parameter in on_meta(config).parameters())


def name_of(choices: Mapping[str, Any], axes: Iterable[str] | None = None) -> str:
    return " ".join(f"{axis}={choices[axis]}" for axis in (choices if axes is None else axes))
