"""A checkpoint map: a table of rules, each a rename and an invertible change of tensors, read in both directions.

Names are matched whole; `*` stands for a number, and means the same number on both sides.  What no rule names, on
either side, is an error that lists it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from headway.errors import UserError, listed

Tensors = dict[str, Tensor]


class Change(Protocol):
    """An invertible change of some tensors: `there` to `here` on loading, back on saving."""

    def load(self, tensors: list[Tensor]) -> list[Tensor]: ...

    def save(self, tensors: list[Tensor]) -> list[Tensor]: ...


@dataclass(frozen=True)
class Split:
    """One tensor there, equal parts of it along an axis here."""

    parts: int
    axis: int = 0

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        return list(tensors[0].chunk(self.parts, self.axis))

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        return [torch.cat(tensors, self.axis)]


@dataclass(frozen=True)
class Transpose:
    """A matrix stored as its transpose."""

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.T for x in tensors]

    save = load


@dataclass(frozen=True)
class Rule:
    theirs: str
    ours: str | tuple[str, ...]
    changes: tuple[Change, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.ours,) if isinstance(self.ours, str) else self.ours


@dataclass(frozen=True)
class KeyMap:
    """Rules between their names and ours.

    `prefixes` are words that may stand before all of their names (the first is written on saving, where not empty);
    `ignored` are patterns of their names that hold nothing of the model, such as stored masks; `ties` are their names
    that repeat another's tensor, {repeated: original}: accepted if equal, and not written.
    """

    rules: tuple[Rule, ...]
    prefixes: tuple[str, ...] = ("",)
    ignored: tuple[str, ...] = ()
    ties: Mapping[str, str] | None = None

    def load(self, theirs: Mapping[str, Tensor]) -> Tensors:
        """Their tensors under our names."""
        left = self.bare(theirs)
        self.untie(left)
        ours: Tensors = {}
        for rule in self.rules:
            for key, index in matches(rule.theirs, left):
                tensors = [left.pop(key)]
                for change in rule.changes:
                    tensors = change.load(tensors)
                ours.update(zip((name.replace("*", index) for name in rule.names), tensors, strict=True))
        left = {key: x for key, x in left.items() if not any(matched(pattern, key) for pattern in self.ignored)}
        if left:
            raise UserError(f"{len(left)} tensors have no place in this model: {listed(sorted(left))}")
        return ours

    def save(self, ours: Mapping[str, Tensor]) -> Tensors:
        """Our tensors under their names."""
        left, theirs = dict(ours), Tensors()
        for rule in self.rules:
            for _, index in matches(rule.names[0], left):
                tensors = [left.pop(name.replace("*", index)) for name in rule.names]
                for change in reversed(rule.changes):
                    tensors = change.save(tensors)
                theirs[self.prefixes[0] + rule.theirs.replace("*", index)] = tensors[0].contiguous()
        if left:
            raise UserError(f"{len(left)} parameters have no name there: {listed(sorted(left))}")
        return theirs

    def bare(self, theirs: Mapping[str, Tensor]) -> Tensors:
        """Their tensors without the prefix."""
        found = (prefix for prefix in self.prefixes if prefix and any(key.startswith(prefix) for key in theirs))
        prefix = next(found, "")
        return {key.removeprefix(prefix): x for key, x in theirs.items()}

    def untie(self, left: Tensors) -> None:
        for repeated, original in (self.ties or {}).items():
            if repeated in left and original in left:
                if not torch.equal(left[repeated], left[original]):
                    raise UserError(f"{repeated!r} and {original!r} should be one tensor and differ")
                del left[repeated]


def matches(pattern: str, keys: Mapping[str, Tensor]) -> Sequence[tuple[str, str]]:
    """The keys that match, each with the number that `*` stands for."""
    found = ((key, matched(pattern, key)) for key in list(keys))
    return [(key, match[1] if match.groups() else "") for key, match in found if match]


def matched(pattern: str, key: str) -> re.Match[str] | None:
    first, *others = re.escape(pattern).split(r"\*")
    return re.fullmatch(first + "".join((r"(\d+)" if i == 0 else r"\1") + part for i, part in enumerate(others)), key)
