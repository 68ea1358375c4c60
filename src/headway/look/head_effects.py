"""Head ablation: the outcome with one head switched off, made uniform, or left as the only one of its site."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headway.errors import UserError, listed, nearest
from headway.look.recording import HeadEdit, Recording
from headway.nn.head_edits import HEAD_EDITS
from headway.tasks.outcome import Outcome

MAX_FLOPS = 10**11  # a few seconds of one core
CALL_FLOPS = 10**7  # FLOPs that cost as much as the call of a site, measured on sites of a few tokens


@dataclass(frozen=True)
class HeadEffect:
    """The outcome with one head edited; `how` is a key of `HEAD_EDITS`."""

    site: str
    head: int
    how: str
    outcome: Outcome


def head_effects(recording: Recording) -> Iterator[HeadEffect]:
    """Every head of every site, with each kind of edit."""
    for site in recording.sites.values():
        for head in range(site.heads):
            for name, how in HEAD_EDITS.items():
                yield HeadEffect(site.name, head, name, recording.edited(HeadEdit(site.name, head, how)))


def is_fast(recording: Recording, share: float = 1.0) -> bool:
    """Whether all effects take a few seconds at most, or a share of that time."""
    return edit_count(recording) * estimated_flops(recording) <= share * MAX_FLOPS


def edit_count(recording: Recording) -> int:
    return len(HEAD_EDITS) * sum(site.heads for site in recording.sites.values())


def estimated_flops(recording: Recording) -> int:
    """Approximate FLOPs of one more run: each parameter meets each token, and the output is generated step by step."""
    steps = max(1, len(recording.outcome.steps))
    tokens = steps + max((len(site.columns) for site in recording.sites.values()), default=0)
    return 2 * recording.parameters * tokens + CALL_FLOPS * len(recording.sites) * steps


def parse_head_edit(recording: Recording, site: object, head: object, how: object) -> HeadEdit:
    """A checked edit from the values of a request."""
    if not isinstance(site, str) or site not in recording.sites:
        names = list(recording.sites)
        raise UserError(f"no site {site!r} to edit", allowed=listed(names), meant=nearest(str(site), names))
    number = recording.sites[site].head(head)
    if not isinstance(how, str) or how not in HEAD_EDITS:
        raise UserError(f"unknown edit {how!r}", allowed=listed(HEAD_EDITS))
    return HeadEdit(site, number, HEAD_EDITS[how])
