"""A checkpoint map: a table of rules, each a rename and an invertible change of tensors, read in both directions.

Names are matched whole; each `*` stands for a number, and the first, the second … means the same on both sides.  What
no rule names, on either side, is an error that lists it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from headway.errors import UserError, listed

Tensors = dict[str, Tensor]
Filling = tuple[str, Callable[[Tensor], Tensor]]


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
class Portions:
    """One tensor there, rows of it here, so many to each."""

    rows: tuple[int, ...]

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        if len(tensors[0]) != sum(self.rows):
            allowed = f"{' + '.join(str(rows) for rows in self.rows)}, as the config says"
            raise UserError(f"a tensor of several layers has {len(tensors[0])} rows", allowed=allowed)
        return list(tensors[0].split(self.rows))

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        return [torch.cat(tensors)]


@dataclass(frozen=True)
class Grouped:
    """One tensor there, whose rows are of `groups` groups, in each so many heads of every tensor here.

    GPT-NeoX has a query, a key and a value of the first head, then of the second; Falcon the queries of a group, then
    their one key and value.
    """

    groups: int
    heads: tuple[int, ...]

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        count = self.groups * sum(self.heads)
        if len(tensors[0]) % count:
            allowed = f"a multiple of {count}, as the config says"
            raise UserError(f"a tensor of several layers has {len(tensors[0])} rows", allowed=allowed)
        return [
            x.flatten(0, 2) for x in tensors[0].unflatten(0, (self.groups, sum(self.heads), -1)).split(self.heads, 1)
        ]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        pairs = zip(tensors, self.heads, strict=True)
        return [torch.cat([x.unflatten(0, (self.groups, heads, -1)) for x, heads in pairs], 1).flatten(0, 2)]


@dataclass(frozen=True)
class Unstack:
    """Each tensor there holds `parts` tensors of here along a first axis of its own."""

    parts: int

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        if any(len(x) != self.parts for x in tensors):
            raise UserError(f"a tensor holds {len(tensors[0])} others", allowed=f"{self.parts}, as the config says")
        return [part for x in tensors for part in x.unbind()]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        return [torch.stack(tensors[i : i + self.parts]) for i in range(0, len(tensors), self.parts)]


@dataclass(frozen=True)
class Transpose:
    """A matrix stored as its transpose."""

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.T for x in tensors]

    save = load


@dataclass(frozen=True)
class Row:
    """A vector stored as a matrix of one row."""

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.squeeze(0) for x in tensors]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x[None] for x in tensors]


@dataclass(frozen=True)
class Rule:
    theirs: str
    ours: str | tuple[str, ...]
    changes: tuple[Change, ...] = ()
    outside: bool = False  # their name stands without the prefix of the others, as a head's does

    @property
    def names(self) -> tuple[str, ...]:
        return (self.ours,) if isinstance(self.ours, str) else self.ours

    def within(self, theirs: str, ours: str) -> Rule:
        """The rule of a part of a model, whose names stand behind these."""
        return replace(self, theirs=theirs + self.theirs, ours=tuple(ours + name for name in self.names))


def linear(theirs: str, ours: str, *, outside: bool = False) -> tuple[Rule, ...]:
    """Weight and bias, of a linear layer or a norm."""
    return tuple(Rule(f"{theirs}.{part}", f"{ours}.{part}", outside=outside) for part in ("weight", "bias"))


def linears(there: str, here: str, parts: Mapping[str, str]) -> tuple[Rule, ...]:
    """Those of several layers, {their name: ours}, below the paths `there` and `here`."""
    return tuple(rule for theirs, ours in parts.items() for rule in linear(f"{there}.{theirs}", f"{here}.{ours}"))


def qkv(theirs: str, ours: str) -> tuple[Rule, ...]:
    """Queries, keys and values that are projected by one matrix there; `theirs` is what stands before `weight`."""
    return tuple(
        Rule(f"{theirs}{kind}", tuple(f"{ours}.{part}.{kind}" for part in "qkv"), (Split(3),))
        for kind in ("weight", "bias")
    )


def batch_norm(theirs: str, ours: str) -> tuple[Rule, ...]:
    """Weight and bias, and the running statistics."""
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    return (*linear(theirs, ours), *(Rule(f"{theirs}.{name}", f"{ours}.{name}") for name in statistics))


@dataclass(frozen=True)
class KeyMap:
    """Rules between their names and ours; where two of them name the same of ours, the first is written on saving.

    `prefixes` are words that may stand before all of their names (the first is written on saving, where not empty);
    `ignored` are patterns of their names that hold nothing of the model, such as stored masks; `ties` are their names
    that repeat another's tensor, {repeated: original}: either will do, both must be equal, and the original is written;
    `absent` are their names that some files leave out, each with the tensor, and the function of it, to take instead;
    `fixed` are their names of what is computed here: written on saving, and on loading only compared.
    """

    rules: tuple[Rule, ...]
    prefixes: tuple[str, ...] = ("",)
    ignored: tuple[str, ...] = ()
    ties: Mapping[str, str] | None = None
    absent: Mapping[str, Filling] = field(default_factory=dict[str, Filling])
    fixed: Mapping[str, Callable[[], Tensor]] = field(default_factory=dict[str, Callable[[], Tensor]])

    def load(self, theirs: Mapping[str, Tensor]) -> Tensors:
        """Their tensors under our names."""
        left = self.bare(theirs)
        self.untie(left)
        self.compare(left)
        for name, (source, make) in self.absent.items():
            if name not in left and source in left:
                left[name] = make(left[source])
        ours: Tensors = {}
        for rule in self.rules:
            for key, numbers in matches(rule.theirs, left):
                tensors = [left.pop(key)]
                for change in rule.changes:
                    tensors = change.load(tensors)
                ours.update(zip((filled(name, numbers) for name in rule.names), tensors, strict=True))
        left = {key: x for key, x in left.items() if not any(matched(pattern, key) for pattern in self.ignored)}
        if left:
            raise UserError(f"{len(left)} tensors have no place in this model: {listed(sorted(left))}")
        return ours

    def save(self, ours: Mapping[str, Tensor]) -> Tensors:
        """Our tensors under their names."""
        left, theirs = dict(ours), Tensors()
        for rule in self.rules:
            for _, numbers in matches(rule.names[0], left):
                tensors = [left.pop(filled(name, numbers)) for name in rule.names]
                for change in reversed(rule.changes):
                    tensors = change.save(tensors)
                prefix = "" if rule.outside else self.prefixes[0]
                theirs[prefix + filled(rule.theirs, numbers)] = tensors[0].contiguous()
        if left:
            raise UserError(f"{len(left)} parameters have no name there: {listed(sorted(left))}")
        return theirs | {self.prefixes[0] + name: make() for name, make in self.fixed.items()}

    def bare(self, theirs: Mapping[str, Tensor]) -> Tensors:
        """Their tensors without the prefix."""
        found = (prefix for prefix in self.prefixes if prefix and any(key.startswith(prefix) for key in theirs))
        prefix = next(found, "")
        return {key.removeprefix(prefix): x for key, x in theirs.items()}

    def untie(self, left: Tensors) -> None:
        for repeated, original in (self.ties or {}).items():
            if repeated in left:
                tensor = left.pop(repeated)
                if not torch.equal(tensor, left.setdefault(original, tensor)):
                    raise UserError(f"{repeated!r} and {original!r} should be one tensor and differ")

    def compare(self, left: Tensors) -> None:
        """Takes out what is computed here, and refuses what is not that; files may hold it in 16 bits."""
        for name, make in self.fixed.items():
            if (tensor := left.pop(name, None)) is None:
                continue
            made = make()
            if tensor.shape != made.shape or not torch.allclose(tensor.float(), made, atol=0.01, rtol=0):
                raise UserError(f"{name!r} holds other numbers than the fixed ones that belong there")


def matches(pattern: str, keys: Mapping[str, Tensor]) -> Sequence[tuple[str, tuple[str, ...]]]:
    """The keys that match, each with the numbers that its `*` stand for."""
    found = ((key, matched(pattern, key)) for key in list(keys))
    return [(key, match.groups()) for key, match in found if match]


def matched(pattern: str, key: str) -> re.Match[str] | None:
    return re.fullmatch(re.escape(pattern).replace(r"\*", r"(\d+)"), key)


def filled(pattern: str, numbers: Sequence[str]) -> str:
    """A name whose `*` are given numbers, in order."""
    return "".join(part + number for part, number in zip(pattern.split("*"), (*numbers, ""), strict=True))
