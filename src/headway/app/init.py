"""`headway init`: a recipe with every setting, its meaning, and the value that it has unless you change it."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from headway.app.settings import yaml12
from headway.app.settings.recipe import Asked, nested, preset_values, resolve
from headway.app.settings.values import bounds
from headway.train.recipe import SECTIONS, SETTINGS
from headway.train.setting import Setting
from headway.zoo.presets import preset

WIDTH = 76  # of a comment, so that its lines fit into 80 columns
ABOUT = {"data": "What is learned from", "model": "What is trained", "train": "How it is trained"}


def init(name: str | None = None) -> str:
    """The recipe of a preset, or of what headway chooses, as commented YAML."""
    recipe = resolve(Asked(), preset_values(name) if name else {})
    values = nested(recipe)
    comments: dict[yaml12.Path, str] = {}
    for one in SETTINGS.values():
        comments[(one.section, one.word) if one.section else (one.word,)] = "\n".join(told(one))
    for section in SECTIONS:
        comments[(section,)] = f"\n{ABOUT[section]}"
    sizes = list(recipe.model.sizes)
    if name and sizes:
        comments["model", sizes[0]] = f"sizes of the {preset(name).architecture}, from the preset"
    return "\n".join([*head(name), yaml12.write(values, comments)])


def head(name: str | None) -> Iterator[str]:
    yield f"# A recipe{f' for {name}' if name else ''}.  Keep it in a file, change it, and train with it:"
    yield "#   headway train DATA --config recipe.yaml"
    yield "# A line that is taken out counts as it stands here, and null is chosen before the run."


def told(one: Setting) -> list[str]:
    """The lines of a comment."""
    limits = f" ({bounds(one)})" if one.most is not None else ""
    words = f" ({' | '.join(one.choices)})" if one.choices else ""
    return wrap(f"{one.text}{limits}{words}", WIDTH)
