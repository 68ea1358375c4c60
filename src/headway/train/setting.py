"""A field of a recipe, with what the outside needs to know of it: meaning, bounds, and name in files and options."""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def setting(default: T, text: str, *, least: float | None = None, most: float | None = None, spelled: str = "") -> T:
    """A field with its meaning and bounds; `spelled` is its outward name where Python's own words forbid it."""
    return field(default=default, metadata={"text": text, "least": least, "most": most, "spelled": spelled})


@dataclass(frozen=True)
class Setting:
    """A setting as the outside sees it, by its dotted name; `kind` is its type."""

    name: str
    section: str  # "" for the settings of the whole
    attribute: str
    kind: Any
    default: object
    text: str
    least: float | None
    most: float | None

    @property
    def word(self) -> str:
        """The name within its section."""
        return self.name.rpartition(".")[2]

    @property
    def key(self) -> str:
        """The name as one word of Python."""
        return self.name.replace(".", "_")

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it may be, if it is one of some words."""
        return next((get_args(kind) for kind in kinds_of(self.kind) if get_origin(kind) is Literal), ())


def kinds_of(kind: Any) -> tuple[Any, ...]:
    """The types of which a value has one."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def settings_of(section: str, kind: type) -> dict[str, Setting]:
    """The settings of a section by dotted name, in order."""
    hints = get_type_hints(kind)
    told = (outward(section, one, hints[one.name]) for one in fields(kind) if "text" in one.metadata)
    return {one.name: one for one in told}


def outward(section: str, one: Field[Any], kind: Any) -> Setting:
    about = one.metadata
    word = about["spelled"] or one.name
    name = f"{section}.{word}" if section else word
    return Setting(name, section, one.name, kind, one.default, about["text"], about["least"], about["most"])
