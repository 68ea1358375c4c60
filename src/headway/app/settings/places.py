"""Where a setting was given, so that a message can name the place in the words that its writer used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps

from headway.errors import UserError, nearest
from headway.train.recipe import SECTIONS, SETTINGS

PREFIX = "HEADWAY_"
# Options that stand without their section
SHORT = {
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


class Place(ABC):
    """A place that settings come from; names are dotted."""

    @abstractmethod
    def spelled(self, name: str) -> str:
        """How a setting is written here."""

    @abstractmethod
    def says(self, name: str, value: object) -> str:
        """A setting and its value as they stand here, to begin a sentence with."""

    @abstractmethod
    def lacks(self, name: str) -> str:
        """That there is no such setting."""

    def unknown(self, name: str, sizes: tuple[str, ...] = ()) -> UserError:
        """The mistake of naming a setting that is not there; `sizes` are what the model could be given besides."""
        found = meant(name, sizes)
        allowed = ", ".join(sizes) or None
        return UserError(self.lacks(name), allowed=allowed, meant=self.spelled(found) if found else None)


@dataclass(frozen=True)
class Flag(Place):
    """The command line."""

    def spelled(self, name: str) -> str:
        return SHORT.get(name, f"--{name.replace('_', '-')}")

    def says(self, name: str, value: object) -> str:
        return f"{self.spelled(name)} {shown(value)}"

    def lacks(self, name: str) -> str:
        return f"headway train has no option '{self.spelled(name)}'"


@dataclass(frozen=True)
class Variable(Place):
    """The environment."""

    def spelled(self, name: str) -> str:
        return PREFIX + name.replace(".", "_").upper()

    def says(self, name: str, value: object) -> str:
        return f"{self.spelled(name)}={shown(value)}"

    def lacks(self, name: str) -> str:
        return f"{self.spelled(name)} is set and names no setting"


@dataclass(frozen=True)
class Line(Place):
    """A line of a file."""

    file: str
    line: int
    section: str

    def spelled(self, name: str) -> str:
        section, _, word = name.rpartition(".")
        return word if section == self.section else f"{section}: {word}" if section else word

    def says(self, name: str, value: object) -> str:
        written = repr(value) if isinstance(value, str) else shown(value)
        return f"{self.at()}: {name.rpartition('.')[2]}: {written}"

    def lacks(self, name: str) -> str:
        section = f"[{self.section}]" if self.section else "a recipe"
        return f"{self.at()}: {section} has no {name.rpartition('.')[2]!r}"

    def at(self) -> str:
        return f"{self.file} line {self.line}"


@dataclass(frozen=True)
class Chosen(Place):
    """A preset, which headway itself wrote."""

    preset: str

    def spelled(self, name: str) -> str:
        return name

    def says(self, name: str, value: object) -> str:
        return f"the preset {self.preset}: {name}: {shown(value)}"

    def lacks(self, name: str) -> str:
        return f"the preset {self.preset} gives {name}, which is no setting"


def meant(name: str, sizes: tuple[str, ...] = ()) -> str | None:
    """The setting that a wrong name was probably meant to be."""
    section, _, word = name.rpartition(".")
    if word in ELSEWHERE:
        return ELSEWHERE[word]
    here = [f"model.{one}" for one in sizes] if section == "model" else []
    here += [*SECTIONS] if not section else []
    here += [one for one, setting in SETTINGS.items() if setting.section == section]
    others = [one for one, setting in SETTINGS.items() if setting.word == word]
    return (others or [nearest(name, here)])[0]


def shown(value: object) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(shown, value))
    return str(value) if isinstance(value, str) else dumps(value, default=str)


# What other trainers call it, and what the model's sizes leave to other sections
ELSEWHERE: Mapping[str, str] = {
    "lr": "train.rate",
    "learning_rate": "train.rate",
    "lr_scheduler": "train.schedule",
    "batch_size": "train.batch",
    "max_steps": "train.steps",
    "max_epochs": "train.epochs",
    "num_epochs": "train.epochs",
    "grad_clip": "train.clip",
    "max_grad_norm": "train.clip",
    "label_smoothing": "train.smoothing",
    "gradient_accumulation_steps": "train.accumulate",
    "optimizer": "train.optimiser",
    "early_stopping": "train.patience",
    "vocab": "data.vocab",
    "vocab_size": "data.vocab",
    "max_length": "data.longest",
    "dropout": "train.dropout",
    "output_dir": "out",
}
