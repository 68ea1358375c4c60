"""A setting of a recipe: a field of a dataclass with its help text and bounds, and its public dotted name."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def setting(
    default: T,
    text: str,
    *,
    min_value: float | None = None,
    max_value: float | None = None,
    limit: float | None = None,
    spelled: str = "",
) -> T:
    """A field with its help text and bounds; `spelled` is its public name where that is a keyword of Python.

    `limit` is a bound far beyond any use, which help does not show: what a file asks for is never made without one.
    """
    bounds = {"min_value": min_value, "max_value": max_value, "limit": limit}
    return field(default=default, metadata={"text": text, "spelled": spelled, **bounds})


@dataclass(frozen=True)
class Setting:
    """A setting by its public dotted name; `kind` is its type."""

    name: str
    section: str  # "" at the top level
    attribute: str
    kind: Any
    default: object
    text: str
    min_value: float | None
    max_value: float | None
    limit: float | None

    @property
    def word(self) -> str:
        """The name within its section."""
        return self.name.rpartition(".")[2]

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values of a setting that is one of a few words."""
        return next((get_args(kind) for kind in kinds_of(self.kind) if get_origin(kind) is Literal), ())


def kinds_of(kind: Any) -> tuple[Any, ...]:
    """The members of a union type, or the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def settings_of(section: str, kind: type) -> dict[str, Setting]:
    """The settings of a section by dotted name, in order."""
    hints, found = get_type_hints(kind), dict[str, Setting]()
    for one in fields(kind):
        if "text" in one.metadata:
            about = dict(one.metadata)
            word = about.pop("spelled") or one.name
            name = f"{section}.{word}" if section else word
            found[name] = Setting(name, section, one.name, hints[one.name], one.default, **about)
    return found
