"""Configs as plain data, for files: dataclasses to dictionaries and back, every value checked against its field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from headway.errors import UserError, listed, nearest

C = TypeVar("C")


def to_plain(config: Any) -> dict[str, Any]:
    """A config's fields; a value that is itself a dataclass says its kind."""

    def plain(value: Any) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            return {"kind": type(value).__name__, **{f.name: plain(getattr(value, f.name)) for f in fields(value)}}
        return value

    return {f.name: plain(getattr(config, f.name)) for f in fields(config)}


def from_plain(kind: type[C], values: Mapping[str, Any]) -> C:
    """The config that `values` tell of; an unknown field or a value of another type is told to the person."""
    hints = get_type_hints(kind)
    for name in values:
        if name not in hints:
            allowed = listed(sorted(hints), 20)
            raise UserError(f"a config has no field {name!r}", allowed=allowed, meant=nearest(name, hints))
    return kind(**{name: fitted(name, value, hints[name]) for name, value in values.items()})


def fitted(name: str, value: Any, hint: Any) -> Any:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if isinstance(value, Mapping) and "kind" in value:
        for kind in (known for base in kinds for known in family_of(base)):
            if kind.__name__ == value["kind"]:
                return from_plain(kind, {key: x for key, x in value.items() if key != "kind"})
        raise UserError(f"{name} of kind {value['kind']!r} is not known")
    for kind in kinds:
        if kind is NoneType and value is None:
            return None
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        if get_origin(kind) is tuple and isinstance(value, list | tuple):
            return tuple(value)
    told = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
    raise UserError(f"{name}={value!r} in a config", allowed=told)


def family_of(kind: Any) -> list[type]:
    """A dataclass and all that inherit from it."""
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return []
    return [kind, *(known for child in kind.__subclasses__() for known in family_of(child))]
