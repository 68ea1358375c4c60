"""Where a recipe comes from: defaults < preset < recipe file < HEADWAY_* variables < command-line options.

A layer holds only what was given there, by dotted name, each value with its origin, so that messages name it as it was
written: option, variable or line of a file.  `read_layers` reads file, variables and options; `resolve` adds the
preset, once it is known.  A stronger layer that sets one of several exclusive settings (steps, epochs or minutes)
overrides what a weaker one gave for the others.

Config fields of a model, such as `model.layers`, belong to its architecture: `RecipeLayers.check_sizes` checks their
names once the architecture is known.

`preflight` checks folders, files, and settings that cannot be together before torch is imported, which takes seconds.
What is wrong with a command is so told at once, and so is what its data was recognised as.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from headway.console import fitted, phase
from headway.data.records import is_builtin
from headway.data.text_lines import check_exists, expanded
from headway.dtype import FP32, check_device_present
from headway.errors import UserError, nearest, no_model
from headway.recipe import (
    ALIASES,
    EXCLUSIVE,
    SECTIONS,
    SETTINGS,
    Recipe,
    canonical,
    flat,
    from_flat,
)
from headway.system import regular
from headway.tasks.registry import DATA_WORDS, TASKS
from headway.training.lora import LoRA
from headway.training.setting_origins import (
    COMMAND_LINE,
    PREFIX,
    EnvironmentVariable,
    GivenValue,
    RecipeLine,
    SettingOrigin,
)
from headway.training.settings import (
    fit,
    lists_to_tuples,
    parse_size,
    parse_text,
    read_yaml,
    write_yaml,
)
from headway.zoo.presets import preset

if TYPE_CHECKING:
    from headway.data.splits import DataSplits

MAX_FILE_BYTES = 1_000_000
INIT = "headway init > recipe.yaml"
FORMAT, VERSION = "version", 1  # the key of a recipe file that tells its format, and what is read and written here
RECIPE, DATA = "recipe.yaml", "data.json"  # in the folder of a run
FOLDS = "folds"  # in that of a cross-validation: what all trainings share, and the run of each fold
Layer = Mapping[str, GivenValue]


@dataclass(frozen=True)
class RecipeLayers:
    """What the user gave, weakest layer first: file, variables, options."""

    layers: tuple[Layer, ...] = ()

    def given(self, name: str) -> GivenValue | None:
        """The value of the strongest layer that has the setting."""
        return next((layer[name] for layer in reversed(self.layers) if name in layer), None)

    def value(self, name: str) -> Any:
        """The given value, or None."""
        given = self.given(name)
        return None if given is None else given.value

    def with_options(self, values: Mapping[str, Any]) -> RecipeLayers:
        """These layers under one more, as if the values had been given as options."""
        options = {name: GivenValue(value, COMMAND_LINE) for name, value in values.items()}
        return RecipeLayers((*self.layers, options))

    def given_sizes(self) -> dict[str, Any]:
        """The sizes that the user gave, not those in the recipe of a run: there all is written, threads too."""
        origins = [getattr(layer.get("train.threads"), "origin", None) for layer in self.layers]
        asked = (one for one, origin in zip(self.layers, origins, strict=True) if not isinstance(origin, RecipeLine))
        return {name[6:]: one.value for layer in asked for name, one in layer.items() if name not in SETTINGS}

    def locate(self, error: UserError) -> UserError:
        """An error about settings that a recipe file gives: with their lines, and spelled as they are there."""
        names = [name for name in SETTINGS if re.search(rf"\b{re.escape(name)}\b(?!\.\w)", error.said)]
        origins = {name: one.origin for name in names if (one := self.given(name))}
        lines = [one for one in origins.values() if isinstance(one, RecipeLine)]
        if not lines:
            return error

        def spell(text: str) -> str:
            for name in names:
                text = text.replace(name, origins.get(name, lines[0]).spell(name))
            return text

        first = min(lines, key=lambda one: one.line)
        return first.locate(UserError(spell(error.said), allowed=error.allowed, do=error.do and spell(error.do)))

    def check_sizes(self, known: Iterable[str]) -> None:
        """Refuses a config field that the architecture does not have."""
        names = tuple(name for name in known if name not in ("vocab", "dropout"))
        for layer in self.layers:
            for name, given in layer.items():
                if name not in SETTINGS and name.removeprefix("model.") not in names:
                    raise given.origin.unknown(name, names)


def read_layers(
    options: Mapping[str, Any],
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    origin: SettingOrigin = COMMAND_LINE,
) -> RecipeLayers:
    """Everything that was given: `options` holds values, or the text of options, by dotted name."""
    file = read_file(config) if config else {}
    typed = layer_of((name, parse_typed(name, value, origin), origin) for name, value in options.items())
    layers = RecipeLayers((file, read_variables(environ), typed))
    try:
        resolve(layers)
    except UserError as error:  # settings that contradict each other
        raise layers.locate(error) from None
    return layers


def resolve(layers: RecipeLayers, preset_values: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of all layers together, over the values of a preset."""
    values = dict(preset_values or {})
    for layer in layers.layers:
        given = {name for name, one in layer.items() if one.value not in (None, ())}
        for rivals in EXCLUSIVE:
            for name in rivals if given & {*rivals} else ():
                values.pop(name, None)
        values |= {name: one.value for name, one in layer.items()}
    return from_flat(values)


def preset_values(name: str) -> dict[str, Any]:
    """The settings of a preset, without its vocabulary size: the tokenizer is trained on the data."""
    sizes = {key: value for key, value in preset(name).sizes.items() if "vocab" not in key}
    dropout = {"train.dropout": sizes.pop("dropout")} if "dropout" in sizes else {}
    return {"model.preset": name, **{f"model.{key}": value for key, value in sizes.items()}, **dropout}


def read_variables(environ: Mapping[str, str]) -> Layer:
    """The settings among the environment variables.  Empty ones are ignored, and so are other HEADWAY_* variables."""
    origin = EnvironmentVariable()
    known = {origin.spell(name): name for name in (*SETTINGS, *ALIASES)}
    given: list[tuple[str, Any, SettingOrigin]] = []
    for variable, text in sorted(environ.items()):
        section, _, word = variable.removeprefix(PREFIX).lower().partition("_")
        if variable.startswith(PREFIX) and text and (variable in known or section in SECTIONS):
            name = known.get(variable, f"{section}.{word}")
            given.append((name, parse_typed(name, text, origin), origin))
    return layer_of(given)


def parse_typed(name: str, value: Any, origin: SettingOrigin) -> Any:
    """The value of a text that was typed as an option or a variable."""
    if not isinstance(value, str):
        return value
    one = SETTINGS.get(canonical(name))
    return parse_size(value, origin.spell(name)) if one is None else parse_text(one.kind, value)


def read_file(path: Path) -> Layer:
    """The settings of a YAML file, each with its line."""
    name = str(path)
    document = read_yaml(read_text(path), name)
    if document.value is None:
        return {}
    if not isinstance(document.value, dict):
        raise UserError(f"{name} line 1: this is no setting of a recipe, such as seed: 1", do=f"{INIT} writes one")
    given: list[tuple[str, Any, SettingOrigin]] = []
    for key, value in document.value.items():
        if key == FORMAT:
            check_format(value, f"{name} line {document.lines[(key,)]}")
            continue
        if key not in SECTIONS:
            given.append((key, value, RecipeLine(name, document.lines[(key,)], "")))
            continue
        if not isinstance(value, dict | None):
            do = f"write settings below {key}:, as {INIT} does"
            raise UserError(f"{name} line {document.lines[(key,)]}: {key}: {value!r} is no section", do=do)
        for word, inner in (value or {}).items():
            given.append((f"{key}.{word}", inner, RecipeLine(name, document.lines[(key, word)], key)))
    layer = layer_of(given)
    share = layer.get("data.validation_split")
    if share and share.value is not None and "data.stratify" not in layer:  # as versions split that knew no classes
        layer = {**layer, "data.stratify": GivenValue(False, share.origin)}
    return layer


def check_format(value: object, place: str) -> None:
    """Refuses a recipe of a format that is not known here; recipes without a version are of the first."""
    if value != VERSION or isinstance(value, bool):
        said = f"{place}: {FORMAT}: {value!r:.60} is no version of a recipe that is known here"
        raise UserError(said, allowed=f"{VERSION}", do="use a newer headway, or write the recipe anew")


def layer_of(given: Iterable[tuple[str, Any, SettingOrigin]]) -> Layer:
    """Checked values by their current names; one setting under two names is refused."""
    layer: dict[str, GivenValue] = {}
    for written, value, origin in given:
        name = canonical(written)
        if name in layer:
            said = f"{origin.describe(written, value)}: {name} is given twice"
            raise UserError(said, do=f"give {origin.spell(name)}")
        layer[name] = GivenValue(checked(written, value, origin), origin)
    return layer


def checked(written: str, value: Any, origin: SettingOrigin) -> Any:
    """A value in the type and bounds of its setting; errors use the name that was written, and say where."""
    one = SETTINGS.get(canonical(written))
    if one is None and (not written.startswith("model.") or written in ("model.vocab", "model.dropout")):
        raise origin.unknown(written)
    try:
        if written == "model.preset" and isinstance(value, str):
            preset(value)
        if written == "data.task" and isinstance(value, str) and value not in (*DATA_WORDS, *TASKS):
            meant, allowed = nearest(value, (*DATA_WORDS, *TASKS)), ", ".join(DATA_WORDS)
            raise UserError(f"{origin.describe(written, value)} is not a choice", allowed=allowed, meant=meant)
        if one is None:
            return lists_to_tuples(value)
        found = fit(one, value, origin.describe(written, value))
        # the files of a pattern are what a run goes on with
        patterns = isinstance(found, tuple) and one.name in ("data.path", "data.validation", "data.test")
        return tuple(type(path)(file) for path in found for file in files_of(path)) if patterns else found
    except UserError as error:
        raise origin.locate(error) from None


def files_of(path: str | Path) -> Sequence[str | Path]:
    """The files of a pattern; a path as it was written."""
    return [path] if (files := expanded(Path(path))) == [Path(path)] else files


def read_text(path: Path) -> str:
    try:
        with regular(path).open("rb") as file:
            found = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        do = f"headway init > {shlex.quote(str(path))} writes a recipe"
        raise UserError(f"{path} does not exist", do=do) from None
    except IsADirectoryError:
        inside = path / "recipe.yaml"
        do = f"give --config {shlex.quote(str(inside))}" if inside.is_file() else f"{INIT} writes a recipe"
        raise UserError(f"{path} is a folder", do=do) from None
    if len(found) > MAX_FILE_BYTES:
        raise UserError(f"{path} is too large for a recipe", allowed=f"{MAX_FILE_BYTES:,} bytes")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = found.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} line {line}: this is not UTF-8", do="save the file as UTF-8") from None


def to_yaml(recipe: Recipe) -> str:
    """The text of a recipe; `from_yaml` reads it back to an equal one."""
    return write_yaml(nested(recipe))


def from_yaml(path: Path) -> Recipe:
    """The recipe of a file alone, as a run's folder keeps it."""
    return resolve(RecipeLayers((read_file(path),)))


def begun_with(path: Path) -> RecipeLayers:
    """The settings in a run's folder; a run of a version that computed in float32 alone does not name its precision."""
    float32 = GivenValue(FP32, RecipeLine(str(path), 1, "train"))
    return RecipeLayers(({"train.dtype": float32, **read_file(path)},))


def nested(recipe: Recipe) -> dict[str, Any]:
    """A recipe as plain data, by section."""
    top: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, value in flat(recipe).items():
        section, _, word = name.rpartition(".")
        (sections[section] if section else top)[word] = to_plain(value)
    return {FORMAT: VERSION, **top, **sections}


def to_plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


def preflight(layers: RecipeLayers, out: TextIO | None) -> DataSplits:
    """Checks a new run, but for what needs a model; its data, which is described on `out`.

    Without `out` the run is only asked about, so that its folder may hold anything.
    """
    recipe = resolve(layers)
    if recipe.out is not None and out is not None:
        check_place(recipe.out)
    for folder in (recipe.model.start, recipe.train.teacher):
        if folder is not None and not folder.exists():
            raise no_model(folder)
    check_recipe(recipe)
    data, names = recipe.data, recipe.data.path or (str(recipe.data.source),)
    paths = () if is_builtin(data.path) else data.path
    for file in (*paths, data.source, data.target, *data.validation, *data.test):
        if file is not None:
            check_exists(Path(file))
    from headway.training.recipe_data import load_splits  # late: it is for a run alone

    with phase(f"reading {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")):
        splits = load_splits(recipe)
    if out is not None:
        print(fitted(splits.description, out), file=out, flush=True)
    return splits


def check_recipe(recipe: Recipe, own_data: object = None, own_module: object = None) -> None:
    """Refuses settings that need others; data and a module may be Python's own."""
    if own_data is None and not recipe.data.path and recipe.data.source is None:
        do = "headway train FILE, or headway train dates, the built-in data set"
        raise UserError("headway train needs data", do=do)
    if recipe.model.freeze is not None and recipe.model.start is None and own_module is None:
        said = "model.freeze without model.from would freeze weights that were never trained"
        raise UserError(said, do="give model.from too, or leave model.freeze out")
    if recipe.model.lora is not None:
        LoRA.of(recipe.model.lora)
        if recipe.model.start is None:
            raise UserError("model.lora needs a model whose weights stay as they are", do="give model.from too")
    fold, folds = recipe.data.fold, recipe.data.folds
    if fold is not None and fold > (folds or 0):
        said = f"data.fold {fold} is one of so many folds" if folds is None else f"data.fold {fold} of {folds} folds"
        do = "give data.folds too, or leave data.fold out" if folds is None else "give a smaller data.fold"
        raise UserError(said, do=do)
    for name in ("teacher_temperature", "teacher_weight"):
        if recipe.train.teacher is None and getattr(recipe.train, name) is not None:
            raise UserError(f"train.{name} without train.teacher", do="give train.teacher too, or leave it out")
    check_device_present(recipe.device)


def check_place(folder: Path) -> None:
    """Refuses a folder that holds something, or that cannot be made."""
    if any((place / RECIPE).is_file() for place in (folder, folder / FOLDS)):
        raise UserError(f"{folder} holds a run already", do="go on with it by resume=, or name another out=")
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise UserError(f"out= {folder}: {nearest} is not a folder", do="name another out=")
    # what a crash left that came before the recipe is nobody's
    if nearest == folder and any(found.name != DATA and found.suffix != ".part" for found in folder.iterdir()):
        raise UserError(f"{folder} is there already and not empty", do="name another out=")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no right to write there", str(nearest))


def run_to_resume(layers: RecipeLayers) -> Path | None:
    """The folder of the run to go on with; None where no run is in it yet, so that it starts."""
    folder: Path | None = layers.value("out")
    if folder is None:
        raise UserError("resume= needs the folder of the run", do="give out= DIR")
    return folder if any((place / RECIPE).is_file() for place in (folder, folder / FOLDS)) else None


def folds_to_resume(layers: RecipeLayers) -> Path | None:
    """The folder of the folds in that of a cross-validation that was begun."""
    folder = run_to_resume(layers)
    return folder / FOLDS if folder is not None and (folder / FOLDS / RECIPE).is_file() else None
