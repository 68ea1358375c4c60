"""Commands that show what a lecture says: their words, and what they compute, without a process of their own.

Quick commands (`explain`, `cost`) are computed by the functions behind them; of a lesson the fast version is.  Commands
that need data or a trained model are shown with the time that they take.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from headway.errors import counted
from headway.learn.explanation import Cell, Explanation, ExplanationStep, ValueTable

Options = tuple[tuple[str, Any], ...]


class ShownCommand(ABC):
    @property
    @abstractmethod
    def line(self) -> str:
        """The command as it is typed."""

    @property
    def note(self) -> str:
        """What is to be known of the command, such as the time that it takes."""
        return ""

    def output(self) -> Sequence[ExplanationStep]:
        """What it computes; nothing where that takes long."""
        return ()


@dataclass(frozen=True)
class ExplainCommand(ShownCommand):
    topic: str
    presets: tuple[str, ...] = ()
    options: Options = ()
    steps: tuple[str, ...] = ()  # beginnings of the titles of those that show it; all of them where it is empty

    @property
    def line(self) -> str:
        return shlex.join(["headway", "explain", self.topic, *self.presets, *spelled_options(self.options)])

    def output(self) -> Sequence[ExplanationStep]:
        steps = computed(self.topic, self.presets, self.options).steps
        return [step_called(title, steps, self.line) for title in self.steps] or steps


def step_called(title: str, steps: Sequence[ExplanationStep], line: str) -> ExplanationStep:
    found = [step for step in steps if step.title.startswith(title)]
    assert len(found) == 1, f"{len(found)} steps of {line} begin with {title!r}"
    return found[0]


@cache
def computed(topic: str, presets: tuple[str, ...], options: Options) -> Explanation:
    from headway.learn.explain import explain

    return explain(topic, *presets, **dict(options))


@dataclass(frozen=True)
class CostCommand(ShownCommand):
    preset: str
    options: Options = ()

    @property
    def line(self) -> str:
        return shlex.join(["headway", "cost", self.preset, *spelled_options(self.options)])

    def output(self) -> Sequence[ExplanationStep]:
        return [cost_step(self.preset, self.options)]


@cache
def cost_step(preset: str, options: Options) -> ExplanationStep:
    """Options are those of the command: length, bits, tokens, and sizes such as model.layers."""
    from headway.zoo.build import config_of
    from headway.zoo.cost import cost

    sizes = {name.removeprefix("model."): value for name, value in options if name.startswith("model.")}
    given = {name: value for name, value in options if not name.startswith("model.")}
    tokens = given.pop("tokens", None)
    costs = cost(config_of(preset, **sizes), **given)
    rows: list[list[Cell]] = [
        ["parameters", costs.total.parameters],
        [f"FLOPs per {costs.unit}, forward", costs.per_token(costs.total.flops)],
        [f"FLOPs per {costs.unit}, training", costs.training_per_token],
        *([f"bytes of {kind.replace('_', ' ')}", size] for kind, size in costs.bytes_by_kind().items()),
    ]
    if tokens is not None:
        rows.insert(3, [f"FLOPs of training on {tokens:.3g} {costs.unit}s", f"{costs.training_per_token * tokens:.3g}"])
    size = f"batch {costs.batch}" + (f", length {costs.length}" if costs.unit != "image" else "")
    return ExplanationStep(
        f"{preset}: {size}, numbers of {costs.bits} bits.",
        values=[ValueTable(f"cost of {preset}", ["", "number"], rows)],
    )


@dataclass(frozen=True)
class LessonCommand(ShownCommand):
    name: str

    @property
    def line(self) -> str:
        return shlex.join(["headway", "lesson", "run", self.name])

    @property
    def note(self) -> str:
        from headway.learn.lesson import find

        minutes = counted(find(self.name).minutes, "minute")
        return f"{minutes} at most; below with --fast: tiny sizes, which show only that all of it runs"

    def output(self) -> Sequence[ExplanationStep]:
        return [replace(step, conclusion="") for step in fast_lesson(self.name).steps]  # tiny sizes conclude nothing


@cache
def fast_lesson(name: str) -> Explanation:
    from headway.learn.lesson import fast_sizes, take

    return take(name, fast_sizes(name))


@dataclass(frozen=True)
class LongCommand(ShownCommand):
    """Needs data or a model, so it is shown and not run."""

    words: str
    takes: str = ""

    @property
    def line(self) -> str:
        return self.words

    @property
    def note(self) -> str:
        words = shlex.split(self.words)
        if "--minutes" in words:
            minutes = counted(int(words[words.index("--minutes") + 1]), "minute")
            return f"{minutes} of training" if words[1] == "train" else f"{minutes} for each training"
        return f"takes {self.takes or 'seconds'}"


def spelled_options(options: Options) -> list[str]:
    words = list[str]()
    for name, value in options:
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


def read_command(given: dict[str, Any]) -> ShownCommand:
    """A command of a table with one of the keys explain, cost, lesson and run; all else in it are its options."""
    match given:
        case {"explain": str(words), **rest}:
            steps = tuple(rest.pop("steps", ()))
            topic, *presets = words.split()
            return ExplainCommand(topic, tuple(presets), tuple(rest.items()), steps)
        case {"cost": str(preset), **rest}:
            return CostCommand(preset, tuple(rest.items()))
        case {"lesson": str(name)}:
            return LessonCommand(name)
        case {"run": str(words), **rest}:
            return LongCommand(words, **rest)
        case _:
            raise ValueError(f"no command: {given}")
