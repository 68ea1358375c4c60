"""Values of settings: made of the words of an option or a variable, and fitted to the setting's type and bounds.

A list is written `a,b` in words, or, where it is of paths, as the system joins paths; `none` leaves a choice open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, cast, get_args, get_origin

from headway.app.settings import yaml12
from headway.errors import UserError, nearest
from headway.train.setting import Setting, kinds_of

NUMBERS = re.compile(r"\d+(,\d+)+")

ENDLESS = 1e300
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def fit(setting: Setting, value: object, told: str) -> Any:
    """The value as the setting's type has it; `told` is the setting with its value, to begin a sentence with."""
    try:
        fitted = fitted_to(setting.kind, value)
    except UnfitError:
        raise misfit(setting, value, told) from None
    for number in fitted if isinstance(fitted, tuple) else (fitted,):
        if isinstance(number, int | float) and not within(setting, number):
            raise UserError(f"{told} is out of bounds", allowed=bounds(setting))
    return fitted


def from_words(kind: Any, text: str) -> Any:
    """What a text means for a type; itself where it means nothing, which `fit` then tells."""
    if NoneType in kinds_of(kind) and text.lower() in ("none", "null"):
        return None
    for one in kinds_of(kind):
        try:
            return fitted_to(one, plain(one, text))
        except UnfitError:
            continue
    return text


def plain(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple:
        items = get_args(kind)
        parts = text.split(os.pathsep) if items[0] is Path else [part.strip() for part in text.split(",")]
        return [from_words(items[0], part) for part in parts]
    if kind is bool:
        return TRUTH.get(text.lower(), text)
    return yaml12.scalar(text) if kind in (int, float) else text


def size(text: str, name: str) -> Any:
    """A field of an architecture's config, of which only its own file knows the type."""
    if NUMBERS.fullmatch(text):  # 2,2,6,2 as presets are read aloud
        text = f"[{text}]"
    return yaml12.read(text, name).value if text[:1] in ("{", "[") else yaml12.scalar(text)


def tupled(value: Any) -> Any:
    """A size as presets have it: what YAML calls a list is a tuple there."""
    if isinstance(value, dict):
        return {name: tupled(inner) for name, inner in cast("dict[str, Any]", value).items()}
    return tuple(map(tupled, cast("list[Any]", value))) if isinstance(value, list) else value


class UnfitError(Exception):
    """A value is not of a type."""


def fitted_to(kind: Any, value: Any) -> Any:
    if len(kinds_of(kind)) > 1:
        return first_fit(kinds_of(kind), value)
    if get_origin(kind) is tuple:
        return fitted_tuple(get_args(kind), value)
    if get_origin(kind) is Literal and value in get_args(kind) and isinstance(value, str):
        return value
    if kind is Path and isinstance(value, str | Path) and str(value):
        return Path(value)
    if kind in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
        return fitted_number(kind, value)
    if kind in (bool, str, NoneType) and isinstance(value, kind):
        return value
    raise UnfitError


def fitted_number(kind: type[int] | type[float], value: float) -> float:
    """`1e4` is a whole number too; what is not finite is none."""
    if not abs(value) < ENDLESS or (kind is int and value != int(value)):
        raise UnfitError
    return kind(value)


def first_fit(kinds: Sequence[Any], value: Any) -> Any:
    for kind in kinds:
        try:
            return fitted_to(kind, value)
        except UnfitError:
            continue
    raise UnfitError


def fitted_tuple(items: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """A list; where any number of items may be, one alone need not stand in a list."""
    endless = items[-1] is Ellipsis
    if not isinstance(value, list | tuple):
        if not endless or value is None or isinstance(value, dict):
            raise UnfitError
        value = [value]
    if not endless and len(value) != len(items):
        raise UnfitError
    return tuple(fitted_to(items[0], item) for item in value)


def misfit(setting: Setting, value: object, told: str) -> UserError:
    names = setting.choices
    if names and isinstance(value, str):
        return UserError(f"{told} is not a choice", allowed=", ".join(names), meant=nearest(value, names))
    return UserError(f"{told} is not {described(setting)}")


def described(setting: Setting) -> str:
    """What a setting's value is, in words."""
    return " or ".join(words(kind) for kind in kinds_of(setting.kind) if kind is not NoneType)


def words(kind: Any) -> str:
    if get_origin(kind) is tuple:
        items = get_args(kind)
        return "a list" if items[-1] is Ellipsis else f"a list of {len(items)} numbers"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}[kind]


def within(setting: Setting, number: float) -> bool:
    least, most = setting.least, setting.most
    return (least is None or number >= least) and (most is None or number <= most)


def bounds(setting: Setting) -> str:
    if setting.most is None:
        return f"{setting.least:g} or more"
    return f"{setting.least} to {setting.most}"
