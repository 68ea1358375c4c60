"""Where a setting was given, so that a message can name it as the user wrote it: option, variable or line of a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps

from headway.errors import UserError, nearest
from headway.recipe import ALIASES, SECTIONS, SETTINGS, canonical

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
