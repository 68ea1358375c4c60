"""Edits of a recorded run: of heads (off, uniform, alone), of an edge or a token that is not seen, from another input.

A cut takes weights away as a mask does: what is left of a row is scaled to its sum (attention knockout, Geva et al.
2023).  A patch puts what a head gave in another run of the same model in the place of what it gives in this one
(activation patching).

Axes:  B batch   H heads   T queries   S keys   E value width
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import torch
from torch import Tensor

from headway.errors import UserError, listed, nearest
from headway.look.recording import Recording, RunEdit
from headway.nn.trace import HEAD_EDITS, Edit, EditKind, record
from headway.tasks.tracing import Outcome

MAX_FLOPS = 3 * 10**11  # of all head effects: about 15 seconds of one core, which does 1 to 6 · 10¹⁰ in a second
CALL_FLOPS = 10**7  # FLOPs that cost as much as the call of a site, measured on sites of a few tokens


@dataclass(frozen=True)
class HeadEdit(RunEdit):
    """An edit of one head of one site."""

    site: str
    head: int
    how: EditKind

    def edits(self, recording: Recording) -> Iterator[tuple[str, Edit]]:
        yield edit_of_weights(
            recording, self.site, self.how(recording.sites[recording.resolve(self.site)].head(self.head))
        )


@dataclass(frozen=True)
class EdgeCut(RunEdit):
    """A query of one head does not see one key."""

    keeps_text: ClassVar[bool] = True

    site: str
    head: int
    row: int
    column: int

    def edits(self, recording: Recording) -> Iterator[tuple[str, Edit]]:
        site = recording.sites[recording.resolve(self.site)]
        check_uncut(recording, site.name)
        head, seen = site.head(self.head), 0  # rows of the calls before: a recurrent decoder asks one row at a time

        def edit(weights: Tensor) -> Tensor:
            nonlocal seen
            row, rows = self.row - seen, weights.shape[2]
            seen = (seen + rows) % len(site.rows)
            keep = torch.ones_like(weights, dtype=torch.bool)
            if 0 <= row < rows:
                keep[:, head, row, self.column] = False
            return masked(weights, keep)

        yield edit_of_weights(recording, site.name, edit)


@dataclass(frozen=True)
class TokenCut(RunEdit):
    """Nobody but the token itself sees a token of an axis, in all heads of all sites along that axis."""

    keeps_text: ClassVar[bool] = True

    axis: str
    index: int

    def edits(self, recording: Recording) -> Iterator[tuple[str, Edit]]:
        def edit(weights: Tensor, *, own: bool) -> Tensor:
            keep = torch.ones_like(weights, dtype=torch.bool)
            keep[..., self.index] = False
            if own:
                keep[..., self.index, self.index] = True
            return masked(weights, keep)

        for name, site in recording.sites.items():
            if site.columns.name == self.axis:
                check_uncut(recording, name)
                own = site.rows == site.columns
                yield edit_of_weights(recording, name, lambda weights, own=own: edit(weights, own=own))


@dataclass(frozen=True, eq=False)
class HeadPatch(RunEdit):
    """A head gives what it gave in `source`, another run of the same model on an input of the same length."""

    keeps_text: ClassVar[bool] = True

    site: str
    head: int
    source: Recording

    def edits(self, recording: Recording) -> Iterator[tuple[str, Edit]]:
        name = recording.resolve(self.site)
        head, here, there = (
            recording.sites[name].head(self.head),
            recording.sources[name],
            self.source.sources.get(name),
        )
        if self.source.run.model is not recording.run.model or there is None:
            raise UserError("a head can be patched from another input of the same model only")
        outputs = here.site.weights_name.removesuffix("weights") + "heads"
        with record(self.source.run.model, outputs) as trace:
            self.source.run.call()
        value = trace.all(outputs)[there.call]
        assert isinstance(value, Tensor)
        if value.shape[2] != len(recording.sites[name].rows):
            counts = f"{len(recording.sites[name].rows)} rows here and {value.shape[2]} there"
            raise UserError(
                f"{name} has {counts}: nothing can be patched", do="take inputs of the same number of tokens"
            )

        def edit(given: Tensor) -> Tensor:  # B H T E
            patched = given.clone()
            patched[:, head] = value[:, head]
            return patched

        yield outputs, edit_at_call(edit, here.call, here.calls)


def check_uncut(recording: Recording, site: str) -> None:
    if recording.sources[site].tiling is not None:
        raise UserError(f"{site} attends within windows, where single cells cannot be cut", do="edit a whole head")


def masked(weights: Tensor, keep: Tensor) -> Tensor:
    """The weights as a softmax over the kept keys gives them: rows keep their sums, unless nothing is left."""
    kept = torch.where(keep, weights, 0)
    left = kept.sum(-1, keepdim=True)
    return torch.where(left > 0, kept * (weights.sum(-1, keepdim=True) / left.clamp(min=1e-30)), 0)


def edit_of_weights(recording: Recording, site: str, edit: Edit) -> tuple[str, Edit]:
    source = recording.sources[recording.resolve(site)]
    return source.site.weights_name, edit_at_call(edit, source.call, source.calls)


def edit_at_call(edit: Edit, call: int, calls: int) -> Edit:
    """An edit of one of the calls of a layer whose parameters are shared."""
    if calls == 1:
        return edit
    counter = count()

    def chosen(weights: Tensor) -> Tensor:
        return edit(weights) if next(counter) % calls == call else weights

    return chosen


@dataclass(frozen=True)
class HeadEffect:
    """The outcome with one head edited; `how` is a key of `HEAD_EDITS`."""

    site: str
    head: int
    how: str
    outcome: Outcome


def head_effects(recording: Recording, kinds: Iterable[str] = HEAD_EDITS) -> Iterator[HeadEffect]:
    """Every head of every site, with each of these kinds of edit."""
    names = list(kinds)
    for site in recording.sites.values():
        for head in range(site.heads):
            for name in names:
                outcome = recording.edited(HeadEdit(site.name, head, HEAD_EDITS[name]))
                yield HeadEffect(site.name, head, name, outcome)


def affordable_edits(recording: Recording, share: float = 1.0) -> tuple[str, ...]:
    """The kinds of edits whose effects fit the budget, or a share of it: all, only switching off, or none.

    Approximate FLOPs of a run: each parameter meets each token, and the output is generated step by step.
    """
    sites, steps = recording.sites.values(), max(1, len(recording.outcome.steps))
    tokens = steps + max((len(site.columns) for site in sites), default=0)
    flops = 2 * recording.parameters * tokens + CALL_FLOPS * len(sites) * steps
    heads, budget = sum(site.heads for site in sites), share * MAX_FLOPS
    return next((kinds for kinds in (tuple(HEAD_EDITS), ("off",)) if len(kinds) * heads * flops <= budget), ())


def edit_count(recording: Recording) -> int:
    return len(HEAD_EDITS) * sum(site.heads for site in recording.sites.values())


def parse_edit(recording: Recording, change: Mapping[str, Any], other: Recording | None = None) -> RunEdit:
    """A checked edit from the values of a request: {"site", "head", "how"}, of a cut also {"row", "column"}."""
    name, how = change.get("site"), change.get("how")
    if not isinstance(name, str) or name not in recording.sites:
        names = list(recording.sites)
        raise UserError(f"no site {name!r} to edit", allowed=listed(names), meant=nearest(str(name), names))
    site = recording.sites[name]
    head = site.head(change.get("head"))
    if isinstance(how, str) and how in HEAD_EDITS:
        return HeadEdit(name, head, HEAD_EDITS[how])
    if how == "cut":
        row, column = place(change, "row", len(site.rows)), place(change, "column", len(site.columns))
        return EdgeCut(name, head, row, column)
    if how == "token":
        return TokenCut(site.columns.name, place(change, "column", len(site.columns)))
    if how == "patch":
        if other is None:
            raise UserError("there is no other input to patch from", do="read two inputs")
        return HeadPatch(name, head, other)
    raise UserError(f"unknown edit {how!r}", allowed=listed([*HEAD_EDITS, "cut", "token", "patch"]))


def place(change: Mapping[str, Any], name: str, count: int) -> int:
    value = change.get(name)
    if type(value) is not int or not 0 <= value < count:
        raise UserError(f"there is no {name} {value!r}", allowed=f"0 to {count - 1}")
    return value
