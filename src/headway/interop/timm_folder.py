"""What config.json of timm's tells beside sizes: how images are made fit, and the names of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import UserError

SETTINGS, NAMES = "pretrained_cfg", "label_names"


def is_timm(values: Mapping[str, Any]) -> bool:
    """Whether a config.json is timm's: it names an architecture in place of a model_type."""
    return isinstance(values.get("architecture"), str) and "model_type" not in values


def settings_of(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """timm's settings; files of its first years have them beside the architecture."""
    told = values.get(SETTINGS) or values
    if not isinstance(told, Mapping):
        raise UserError(f"config.json: {SETTINGS} is {told!r}", allowed="an object")
    return told


def read_names(values: Mapping[str, Any], classes: int) -> dict[str, Any]:
    """The names of classes as transformers' configs have them; nothing, where none are told."""
    given = values.get(NAMES) or settings_of(values).get(NAMES)
    if not given:
        return {}
    if isinstance(given, Mapping):  # where some classes have no name
        given = [given.get(str(k), str(k)) for k in range(classes)]
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise UserError(f"config.json: {NAMES} is {str(given)[:60]}", allowed="a list of names, or an object of them")
    return {
        "id2label": {str(k): name for k, name in enumerate(given)},
        "label2id": {name: k for k, name in enumerate(given)},
    }


def write_named(
    name: str, c: Any, features: int, model_args: Mapping[str, Any], *, classes: int | None = None, pool: str = "avg"
) -> dict[str, Any]:
    """A config.json of timm's: an architecture's name, and what is changed of its sizes."""
    classes = c.classes if classes is None else classes
    return {
        "architecture": name,
        "num_classes": classes,
        "num_features": features,
        "global_pool": pool,
        SETTINGS: {"input_size": [c.channels, c.image, c.image], "num_classes": classes},
        "model_args": dict(model_args),
    }


def with_settings(told: Mapping[str, Any], settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A config.json of timm's with names of classes in its own spelling, and settings, if made for the same images."""
    rest = {name: value for name, value in told.items() if name not in ("id2label", "label2id")}
    own = told[SETTINGS]
    fitting = settings if settings.get("input_size") == own["input_size"] else {}
    return {**rest, **({NAMES: list(names)} if names else {}), SETTINGS: {**own, **fitting}}
