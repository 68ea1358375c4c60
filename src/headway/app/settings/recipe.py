"""From what a person gave to a recipe: defaults < preset < file < HEADWAY_* variables < options.

Each layer holds only what was given, under dotted names, and where.  `ask` collects file, variables and options; the
preset joins when it is known, in `resolve`.  A stronger layer that gives one of several rivals (steps, epochs or
minutes) takes back what a weaker one gave of the others.

A model's sizes, such as `model.layers`, belong to its architecture: `check_sizes` checks their names, once it is known
which one is trained.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headway.app.settings import yaml12
from headway.app.settings.places import PREFIX, Chosen, Flag, Line, Place, Variable
from headway.app.settings.values import fit, from_words, size, tupled
from headway.errors import UserError
from headway.train.recipe import RIVALS, SECTIONS, SETTINGS, Recipe, flat, from_flat
from headway.zoo.presets import preset

LARGEST = 1_000_000  # bytes of a recipe


class Said(NamedTuple):
    """A value and where it was given."""

    value: Any
    place: Place


Layer = Mapping[str, Said]


@dataclass(frozen=True)
class Asked:
    """What a person gave, weakest layer first: file, variables, options."""

    layers: tuple[Layer, ...] = ()

    def said(self, name: str) -> Said | None:
        """What the strongest layer that names a setting says of it."""
        return next((layer[name] for layer in reversed(self.layers) if name in layer), None)

    def value(self, name: str) -> Any:
        """The value that was given, or None."""
        said = self.said(name)
        return None if said is None else said.value

    def check_sizes(self, known: Iterable[str]) -> None:
        """Refuses a size that is not among those of the architecture."""
        names = tuple(name for name in known if name not in ("vocab", "dropout"))
        for layer in self.layers:
            for name, said in layer.items():
                if name not in SETTINGS and name.removeprefix("model.") not in names:
                    raise said.place.unknown(name, names)


def ask(flags: Mapping[str, Any], config: Path | None = None, environ: Mapping[str, str] = os.environ) -> Asked:
    """All that was given: `flags` are the words of the options by dotted name."""
    file = read_file(config) if config else {}
    asked = Asked((file, read_variables(environ), read_flags(flags)))
    resolve(asked)  # settings that contradict one another are told at once
    return asked


def resolve(asked: Asked, preset_values: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of the layers together."""
    chosen = Chosen(asked.value("model.preset") or "")
    weakest = {name: checked(name, value, chosen) for name, value in (preset_values or {}).items()}
    values: dict[str, Any] = {}
    for layer in (weakest, *asked.layers):
        for name in taken_back(layer):
            values.pop(name, None)
        values |= {name: said.value for name, said in layer.items()}
    return from_flat(values)


def taken_back(layer: Layer) -> list[str]:
    """The rivals of what a layer gives."""
    given = {name for name, said in layer.items() if said.value not in (None, ())}
    return [name for rivals in RIVALS if given & {*rivals} for name in rivals]


def preset_values(name: str) -> dict[str, Any]:
    """What a preset gives to a recipe.  Its vocabulary is not among it: that is learned from the data."""
    sizes = {key: value for key, value in preset(name).sizes.items() if "vocab" not in key}
    dropout = {"train.dropout": sizes.pop("dropout")} if "dropout" in sizes else {}
    return {"model.preset": name, **{f"model.{key}": value for key, value in sizes.items()}, **dropout}


def read_flags(flags: Mapping[str, Any]) -> Layer:
    return {name: of_words(name, value, Flag()) for name, value in flags.items()}


def read_variables(environ: Mapping[str, str]) -> Layer:
    """The settings among the variables; an empty one counts as none.  Others of our prefix are not settings."""
    spelled = {Variable().spelled(name): name for name in SETTINGS}
    found: dict[str, Said] = {}
    for variable, text in sorted(environ.items()):
        section, _, word = variable.removeprefix(PREFIX).lower().partition("_")
        if variable.startswith(PREFIX) and text and (variable in spelled or section in SECTIONS):
            name = spelled.get(variable, f"{section}.{word}")
            found[name] = of_words(name, text, Variable())
    return found


def of_words(name: str, value: Any, place: Place) -> Said:
    """A value whose text was typed."""
    if isinstance(value, str):
        value = from_words(SETTINGS[name].kind, value) if name in SETTINGS else size(value, place.spelled(name))
    return checked(name, value, place)


def read_file(path: Path) -> Layer:
    """The settings that a YAML file gives, each with its line."""
    name = str(path)
    document = yaml12.read(text_of(path), name)
    if document.value is None:
        return {}
    if not isinstance(document.value, dict):
        raise UserError(f"{name} holds no settings", do="headway init shows how a recipe is written")
    layer: dict[str, Said] = {}
    for key, value in document.value.items():
        if key not in SECTIONS:
            layer[key] = checked(key, value, Line(name, document.lines[(key,)], ""))
            continue
        if not isinstance(value, dict | None):
            do = f"write settings such as those of headway init below {key}:"
            raise UserError(f"{name} line {document.lines[(key,)]}: {key}: {value!r} is no section", do=do)
        for word, inner in (value or {}).items():
            full = f"{key}.{word}"
            layer[full] = checked(full, inner, Line(name, document.lines[(key, word)], key))
    return layer


def checked(name: str, value: Any, place: Place) -> Said:
    if name == "model.preset" and isinstance(value, str):
        preset(value)
    if name in SETTINGS:
        return Said(fit(SETTINGS[name], value, place.says(name, value)), place)
    if not name.startswith("model.") or name in ("model.vocab", "model.dropout"):
        raise place.unknown(name)
    return Said(tupled(value), place)


def text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            found = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist", do="headway init PRESET > recipe.yaml writes a recipe") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder", do="name a recipe, such as the recipe.yaml in it") from None
    if len(found) > LARGEST:
        raise UserError(f"{path} is too large for a recipe", allowed=f"{LARGEST:,} bytes")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = found.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} line {line}: this is not UTF-8", do="save the file as UTF-8") from None


def to_yaml(recipe: Recipe) -> str:
    """A recipe that `read_file` reads back to the same one."""
    return yaml12.write(nested(recipe))


def from_yaml(path: Path) -> Recipe:
    """The recipe of a file alone, as a run's folder keeps it."""
    return resolve(Asked((read_file(path),)))


def nested(recipe: Recipe) -> dict[str, Any]:
    """A recipe as plain data in sections."""
    top: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, value in flat(recipe).items():
        section, _, word = name.rpartition(".")
        (sections[section] if section else top)[word] = plain(value)
    return {**top, **sections}


def plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [plain(item) for item in value] if isinstance(value, tuple) else value
