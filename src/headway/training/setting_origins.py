"""Where a setting was given, and how its name and value are written there: option, variable, line of a file, Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from typing import Any, NamedTuple

from headway.errors import UserError, nearest
from headway.recipe import ALIASES, SECTIONS, SETTINGS, canonical

PREFIX = "HEADWAY_"
# Options without their section
SHORT_OPTIONS = {
    "data.source": "--source",
    "data.target": "--target",
    "data.validation": "--validation",
    "data.test": "--test",
    "data.task": "--task",
    "data.objective": "--objective",
    "data.columns": "--columns",
    "data.header": "--header",
    "data.skip_bad": "--skip-bad",
    "model.preset": "--preset",
    "model.from": "--from",
    "model.freeze": "--freeze",
    "model.lora": "--lora",
    "train.minutes": "--minutes",
    "train.teacher": "--teacher",
}
# Short names that other trainers have; the first is shown in --help
TRAINER_OPTIONS = {
    "train.steps": ("--steps", "--max-steps"),
    "train.epochs": ("--epochs", "--num-epochs", "--max-epochs"),
    "train.batch": ("--batch-size", "--batch"),
    "train.lr": ("--lr", "--learning-rate"),
    "train.dropout": ("--dropout",),
}
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
    "precision": "train.dtype",
    "mixed_precision": "train.dtype",
    "gradient_checkpointing": "train.recompute",
    "activation_checkpointing": "train.recompute",
    "random_seed": "seed",
    "dropout": "train.dropout",
    "output_dir": "out",
}


@dataclass(frozen=True)
class SettingOrigin:
    """Where a setting was given, so that messages name it as the user wrote it; names are dotted."""

    def spell(self, name: str) -> str:
        """How a setting is written here."""
        return name

    def describe(self, name: str, value: object) -> str:
        """A setting and its value as written here, as the subject of an error message."""
        return f"{self.spell(name)}={to_text(value)}"

    def missing(self, name: str) -> str:
        """The error message for a name that is not a setting."""
        return f"there is no setting {name}"

    def unknown(self, name: str, sizes: tuple[str, ...] = ()) -> UserError:
        """The error for a name that is not a setting; `sizes` are the fields of the model's config."""
        found = self.nearest(name, sizes)
        meant = self.spell(found) if found else None
        return UserError(self.missing(name), allowed=", ".join(sizes) or None, meant=meant)

    def locate(self, error: UserError) -> UserError:
        """The error of a value that was given here, told with its place."""
        return error

    def nearest(self, name: str, sizes: tuple[str, ...]) -> str | None:
        """The setting that a wrong name was probably meant to be."""
        section, _, word = name.rpartition(".")
        if found := setting_called(word):
            return found
        here = [f"model.{one}" for one in sizes] if section == "model" else []
        here += [*SECTIONS] if not section else []
        here += [one for one, setting in SETTINGS.items() if setting.section == section]
        return nearest(name, here)


class CommandLineOption(SettingOrigin):
    """The command line."""

    def spell(self, name: str) -> str:
        return SHORT_OPTIONS.get(name, f"--{name.replace('_', '-')}")

    def describe(self, name: str, value: object) -> str:
        return f"{self.spell(name)} {to_text(value)}"

    def missing(self, name: str) -> str:
        return f"headway train has no option '{self.spell(name)}'"


COMMAND_LINE = CommandLineOption()


class PythonArgument(SettingOrigin):
    """A keyword argument of a call."""

    def describe(self, name: str, value: object) -> str:
        return f"{name}={value!r}"

    def nearest(self, name: str, sizes: tuple[str, ...]) -> str | None:
        """A word without a section may have been meant as any setting."""
        words = {**{size: f"model.{size}" for size in sizes}, **{one.rpartition(".")[2]: one for one in SETTINGS}}
        return words.get(nearest(name.rpartition(".")[2], words) or "") or super().nearest(name, sizes)


class EnvironmentVariable(SettingOrigin):
    """The environment."""

    def spell(self, name: str) -> str:
        return PREFIX + name.replace(".", "_").upper()

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
        return word if section in (self.section, "") else f"{section}: {word}"

    @property
    def place(self) -> str:
        return f"{self.file} line {self.line}"

    def describe(self, name: str, value: object) -> str:
        written = repr(value) if isinstance(value, str) else to_text(value)
        return f"{self.place}: {name.rpartition('.')[2]}: {written}"

    def missing(self, name: str) -> str:
        section = f"[{self.section}]" if self.section else "a recipe"
        return f"{self.place}: {section} has no {name.rpartition('.')[2]!r}"

    def unknown(self, name: str, sizes: tuple[str, ...] = ()) -> UserError:
        error = super().unknown(name, sizes)
        own = [word for section, _, word in (known.rpartition(".") for known in SETTINGS) if section == self.section]
        if not (error.allowed or error.meant):
            error = UserError(error.said, allowed=", ".join([*own, *(() if self.section else SECTIONS)]), do=error.do)
        return self.locate(error)

    def locate(self, error: UserError) -> UserError:
        """With file and line; the word that was meant stands in the file, so no other command mends it."""
        said = error.said if error.said.startswith(self.place) else f"{self.place}: {error.said}"
        meant = f"did you mean {error.meant!r}?" if error.meant else None
        return UserError(said, allowed=error.allowed, do="; ".join(filter(None, (error.do, meant))) or None)


class GivenValue(NamedTuple):
    """A value and its origin."""

    value: Any
    origin: SettingOrigin


def setting_called(word: str) -> str | None:
    """The setting that has this name in another trainer, without its section, or had it in an earlier version."""
    if word in ELSEWHERE:
        return ELSEWHERE[word]
    return {name.rpartition(".")[2]: canonical(name) for name in (*ALIASES, *SETTINGS)}.get(word)


def to_text(value: object) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(to_text, value))
    return str(value) if isinstance(value, str) else dumps(value, default=str)
