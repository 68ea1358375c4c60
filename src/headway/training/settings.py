"""Settings of a run: where each was given, and how its text becomes a value.

Values of settings: parsed from the text of an option or a variable, converted to their type, checked for bounds.

A list is written `a,b`, a list of paths with the separator of PATH; `none` resets a setting to its automatic choice.

Where a setting was given, so that a message can name it as the user wrote it: option, variable or line of a file.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from types import NoneType
from typing import Any, Literal, cast, get_args, get_origin

from headway.errors import UserError, nearest
from headway.recipe import ALIASES, SECTIONS, SETTINGS, Setting, canonical, kinds_of
from headway.training import yaml12

NUMBERS = re.compile(r"\d+(,\d+)+")

MAX_MAGNITUDE = 1e300
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def fit(setting: Setting, value: object, subject: str) -> Any:
    """The value in the type and bounds of a setting; `subject` begins the error message: the setting and its value."""
    try:
        converted = convert(setting.kind, value)
    except WrongTypeError:
        raise wrong_type(setting, value, subject) from None
    for number in converted if isinstance(converted, tuple) else (converted,):
        if isinstance(number, int | float) and not in_bounds(setting, number):
            raise UserError(f"{subject} is out of bounds", allowed=bounds(setting))
    return converted


def parse_text(kind: Any, text: str) -> Any:
    """The value of a text for a type; the text itself if it has none, which `fit` then reports."""
    if NoneType in kinds_of(kind) and text.lower() in ("none", "null"):
        return None
    for one in kinds_of(kind):
        try:
            return convert(one, parse_plain(one, text))
        except WrongTypeError:
            continue
    return text


def parse_plain(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple:
        items = get_args(kind)
        parts = text.split(os.pathsep) if items[0] is Path else [part.strip() for part in text.split(",")]
        return [parse_text(items[0], part) for part in parts]
    if kind is bool:
        return TRUTH.get(text.lower(), text)
    return yaml12.scalar(text) if kind in (int, float) else text


def parse_size(text: str, name: str) -> Any:
    """The value of a field of an architecture's config, whose type is known to its own file only."""
    if NUMBERS.fullmatch(text):  # 2,2,6,2 without brackets
        text = f"[{text}]"
    return yaml12.read(text, name).value if text[:1] in ("{", "[") else yaml12.scalar(text)


def lists_to_tuples(value: Any) -> Any:
    """A config field as presets have it: with tuples for the lists of YAML."""
    if isinstance(value, dict):
        return {name: lists_to_tuples(inner) for name, inner in cast("dict[str, Any]", value).items()}
    return tuple(map(lists_to_tuples, cast("list[Any]", value))) if isinstance(value, list) else value


class WrongTypeError(Exception):
    """A value does not have the type of its setting."""


def convert(kind: Any, value: Any) -> Any:
    if len(kinds_of(kind)) > 1:
        return convert_union(kinds_of(kind), value)
    if get_origin(kind) is tuple:
        return convert_tuple(get_args(kind), value)
    if get_origin(kind) is Literal and value in get_args(kind) and isinstance(value, str):
        return value
    if kind is Path and isinstance(value, str | Path) and str(value):
        return Path(value)
    if kind in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
        return convert_number(kind, value)
    if kind in (bool, str, NoneType) and isinstance(value, kind):
        return value
    raise WrongTypeError


def convert_number(kind: type[int] | type[float], value: float) -> float:
    """`1e4` is an integer too; infinities and NaN are no numbers."""
    if not abs(value) < MAX_MAGNITUDE or (kind is int and value != int(value)):
        raise WrongTypeError
    return kind(value)


def convert_union(kinds: Sequence[Any], value: Any) -> Any:
    for kind in kinds:
        try:
            return convert(kind, value)
        except WrongTypeError:
            continue
    raise WrongTypeError


def convert_tuple(items: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """A tuple; where its length is free, a single item needs no list."""
    endless = items[-1] is Ellipsis
    if not isinstance(value, list | tuple):
        if not endless or value is None or isinstance(value, dict):
            raise WrongTypeError
        value = [value]
    if not endless and len(value) != len(items):
        raise WrongTypeError
    return tuple(convert(items[0], item) for item in value)


def wrong_type(setting: Setting, value: object, subject: str) -> UserError:
    names = setting.choices
    if names and isinstance(value, str):
        return UserError(f"{subject} is not a choice", allowed=", ".join(names), meant=nearest(value, names))
    return UserError(f"{subject} is not {describe_type(setting)}")


def describe_type(setting: Setting) -> str:
    """The type of a setting in words."""
    return " or ".join(describe_kind(kind) for kind in kinds_of(setting.kind) if kind is not NoneType)


def describe_kind(kind: Any) -> str:
    if get_origin(kind) is tuple:
        items = get_args(kind)
        return "a list" if items[-1] is Ellipsis else f"a list of {len(items)} numbers"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}[kind]


def in_bounds(setting: Setting, number: float) -> bool:
    low, high = setting.min_value, setting.max_value
    return (low is None or number >= low) and (high is None or number <= high)


def bounds(setting: Setting) -> str:
    if setting.max_value is None:
        return f"{setting.min_value:g} or more"
    return f"{setting.min_value} to {setting.max_value}"


PREFIX = "HEADWAY_"
# Options without their section
SHORT_OPTIONS = {
    "data.source": "--source",
    "data.target": "--target",
    "data.validation": "--validation",
    "data.task": "--task",
    "data.objective": "--objective",
    "data.columns": "--columns",
    "data.skip_bad": "--skip-bad",
    "model.preset": "--preset",
    "model.from": "--from",
    "model.freeze": "--freeze",
    "train.minutes": "--minutes",
}


class SettingOrigin(ABC):
    """A source of settings; names are dotted."""

    @abstractmethod
    def spell(self, name: str) -> str:
        """How a setting is written here."""

    @abstractmethod
    def describe(self, name: str, value: object) -> str:
        """A setting and its value as written here, as the subject of an error message."""

    @abstractmethod
    def missing(self, name: str) -> str:
        """The error message for a name that is not a setting."""

    def unknown(self, name: str, sizes: tuple[str, ...] = ()) -> UserError:
        """The error for a name that is not a setting; `sizes` are the fields of the model's config."""
        found = nearest_setting(name, sizes)
        allowed = ", ".join(sizes) or None
        return UserError(self.missing(name), allowed=allowed, meant=self.spell(found) if found else None)


@dataclass(frozen=True)
class CommandLineOption(SettingOrigin):
    """The command line."""

    def spell(self, name: str) -> str:
        return SHORT_OPTIONS.get(name, f"--{name.replace('_', '-')}")

    def describe(self, name: str, value: object) -> str:
        return f"{self.spell(name)} {to_text(value)}"

    def missing(self, name: str) -> str:
        return f"headway train has no option '{self.spell(name)}'"


@dataclass(frozen=True)
class PythonArgument(SettingOrigin):
    """A keyword argument of a call."""

    def spell(self, name: str) -> str:
        return name

    def describe(self, name: str, value: object) -> str:
        return f"{name}={value!r}"

    def missing(self, name: str) -> str:
        return f"there is no setting {name}"

    def unknown(self, name: str, sizes: tuple[str, ...] = ()) -> UserError:
        """A word without a section may have been meant as any setting."""
        word = name.rpartition(".")[2]
        words = {**{size: f"model.{size}" for size in sizes}, **{one.rpartition(".")[2]: one for one in SETTINGS}}
        meant = words.get(nearest(word, words) or "") or nearest_setting(name, sizes)
        return UserError(self.missing(name), allowed=", ".join(sizes) or None, meant=meant)


@dataclass(frozen=True)
class EnvironmentVariable(SettingOrigin):
    """The environment."""

    def spell(self, name: str) -> str:
        return PREFIX + name.replace(".", "_").upper()

    def describe(self, name: str, value: object) -> str:
        return f"{self.spell(name)}={to_text(value)}"

    def missing(self, name: str) -> str:
        return f"{self.spell(name)} is set and names no setting"


@dataclass(frozen=True)
class RecipeLine(SettingOrigin):
    """A line of a file."""

    file: str
    line: int
    section: str

    def spell(self, name: str) -> str:
        section, _, word = name.rpartition(".")
        return word if section == self.section else f"{section}: {word}" if section else word

    def describe(self, name: str, value: object) -> str:
        written = repr(value) if isinstance(value, str) else to_text(value)
        return f"{self.at()}: {name.rpartition('.')[2]}: {written}"

    def missing(self, name: str) -> str:
        section = f"[{self.section}]" if self.section else "a recipe"
        return f"{self.at()}: {section} has no {name.rpartition('.')[2]!r}"

    def at(self) -> str:
        return f"{self.file} line {self.line}"


@dataclass(frozen=True)
class PresetValue(SettingOrigin):
    """A preset of headway list."""

    preset: str

    def spell(self, name: str) -> str:
        return name

    def describe(self, name: str, value: object) -> str:
        return f"the preset {self.preset}: {name}: {to_text(value)}"

    def missing(self, name: str) -> str:
        return f"the preset {self.preset} gives {name}, which is no setting"


def nearest_setting(name: str, sizes: tuple[str, ...] = ()) -> str | None:
    """The setting that a wrong name was probably meant to be."""
    section, _, word = name.rpartition(".")
    if found := setting_called(word):
        return found
    here = [f"model.{one}" for one in sizes] if section == "model" else []
    here += [*SECTIONS] if not section else []
    here += [one for one, setting in SETTINGS.items() if setting.section == section]
    return nearest(name, here)


def setting_called(word: str) -> str | None:
    """The setting that has this name in another trainer, without its section, or had it in an earlier version."""
    if word in ELSEWHERE:
        return ELSEWHERE[word]
    return {name.rpartition(".")[2]: canonical(name) for name in (*ALIASES, *SETTINGS)}.get(word)


def to_text(value: object) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(to_text, value))
    return str(value) if isinstance(value, str) else dumps(value, default=str)


# Names in other trainers, and fields of a model's config that are settings of another section
ELSEWHERE: Mapping[str, str] = {
    "learning_rate": "train.lr",
    "lr_scheduler": "train.schedule",
    "batch_size": "train.batch",
    "max_steps": "train.steps",
    "max_epochs": "train.epochs",
    "num_epochs": "train.epochs",
    "grad_clip": "train.max_grad_norm",
    "gradient_accumulation": "train.grad_accumulation",
    "gradient_accumulation_steps": "train.grad_accumulation",
    "optimizer": "train.optimiser",
    "early_stopping": "train.patience",
    "vocab": "data.vocab",
    "vocab_size": "data.vocab",
    "max_seq_length": "data.max_length",
    "val_split": "data.validation_split",
    "min_lr": "train.min_lr_ratio",
    "num_workers": "train.workers",
    "random_seed": "seed",
    "dropout": "train.dropout",
    "output_dir": "out",
}
