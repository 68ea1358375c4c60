"""A recipe to edit: all settings as YAML, with a comment above each, as `headway init` prints it."""

from __future__ import annotations

from textwrap import wrap

from headway.recipe import SETTINGS
from headway.setting import Setting
from headway.training.recipe_sources import FORMAT, RecipeLayers, nested, preset_values, resolve
from headway.training.settings import KeyPath, bounds, write_yaml
from headway.zoo.presets import preset

COMMENT_WIDTH = 76  # so that commented lines fit into 80 columns
ABOUT = {"data": "Training data", "model": "Model", "train": "Training"}


def commented_yaml(name: str | None = None) -> str:
    """The recipe of a preset, or the default one, as YAML with a comment above each setting."""
    recipe = resolve(RecipeLayers(), preset_values(name) if name else {})
    comments: dict[KeyPath, str] = {
        ((one.section, one.word) if one.section else (one.word,)): setting_comment(one) for one in SETTINGS.values()
    }
    comments[FORMAT,] = "version of the format of this file"
    comments |= {(section,): f"\n{about}" for section, about in ABOUT.items()}
    sizes = list(recipe.model.sizes)
    if name and sizes:
        comments["model", sizes[0]] = f"sizes of the {preset(name).architecture}, from the preset"
    head = (
        f"# A recipe{f' for {name}' if name else ''}.  Save it to a file, edit it, and train with it:\n"
        "#   headway train DATA --config recipe.yaml\n"
        "# A setting that is left out has the value shown here; null is chosen before the run.\n"
    )
    return head + write_yaml(nested(recipe), comments)


def setting_comment(one: Setting) -> str:
    limits = f" ({bounds(one)})" if one.max_value is not None else ""
    choices = f" ({' | '.join(one.choices)})" if one.choices else ""
    return "\n".join(wrap(f"{one.text}{limits}{choices}", COMMENT_WIDTH))
