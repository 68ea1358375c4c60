"""What is checked before torch is imported, which takes seconds: folders, files, and settings that cannot be together.

What is wrong with a command is so told at once, and so is what its data was recognised as.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TextIO

from headway.data.records import is_builtin
from headway.data.splits import DataSplits
from headway.data.text_lines import check_exists
from headway.errors import UserError
from headway.progress import fitted, phase
from headway.recipe import Recipe
from headway.system import no_model
from headway.training.dataset import load_splits
from headway.training.recipe_sources import RecipeLayers, resolve

RECIPE, DATA = "recipe.yaml", "data.json"


def preflight(layers: RecipeLayers, out: TextIO | None) -> DataSplits:
    """Checks a new run, but for what needs a model; its data, which is described on `out`.

    Without `out` the run is only asked about, so that its folder may hold anything.
    """
    recipe = resolve(layers)
    if recipe.out is not None and out is not None:
        check_place(recipe.out)
    if recipe.model.start is not None and not recipe.model.start.exists():
        raise no_model(recipe.model.start)
    check_recipe(recipe)
    data, names = recipe.data, recipe.data.path or (str(recipe.data.source),)
    for file in (*(() if is_builtin(data.path) else data.path), data.source, data.target, *data.validation):
        if file is not None:
            check_exists(Path(file))
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


def check_place(folder: Path) -> None:
    """Refuses a folder that holds something, or that cannot be made."""
    if (folder / RECIPE).is_file():
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
    return folder if (folder / RECIPE).is_file() else None
