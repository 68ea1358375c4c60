"""What becomes of the outcome when one head is switched off, made uniform, or left alone of its site, head by head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headway.errors import UserError, listed, nearest
from headway.inspect.edits import How, Off, Only, Uniform
from headway.look.attended import Attended, Change
from headway.look.outcome import Outcome

HOWS: dict[str, How] = {"off": Off(), "uniform": Uniform(), "only": Only()}
FLOPS = 10**11  # that a few seconds of one core hold
CALL = 10**7  # FLOPs in whose time a site is called at all, measured on sites of a few tokens


@dataclass(frozen=True)
class Effect:
    """The outcome with one head edited; `how` is a name in `HOWS`."""

    site: str
    head: int
    how: str
    outcome: Outcome


def effects(attended: Attended) -> Iterator[Effect]:
    """Every head of every site, each edited in each way."""
    for site in attended.sites.values():
        for head in range(site.heads):
            for name, how in HOWS.items():
                yield Effect(site.name, head, name, attended.edited(Change(site.name, head, how)))


def quick(attended: Attended, share: float = 1.0) -> bool:
    """Whether all effects can be had in a few seconds, or in a share of that time."""
    return edits_of(attended) * flops_of(attended) <= share * FLOPS


def edits_of(attended: Attended) -> int:
    return len(HOWS) * sum(site.heads for site in attended.sites.values())


def flops_of(attended: Attended) -> int:
    """About what one more run takes: each parameter meets each token, and what is written is written step by step."""
    said = max(1, len(attended.outcome.steps))
    tokens = said + max((len(site.columns) for site in attended.sites.values()), default=0)
    return 2 * attended.parameters * tokens + CALL * len(attended.sites) * said


def change(attended: Attended, site: object, head: object, how: object) -> Change:
    """An edit that a person or a page asks for, checked."""
    if not isinstance(site, str) or site not in attended.sites:
        names = list(attended.sites)
        raise UserError(f"no site {site!r} to edit", allowed=listed(names), meant=nearest(str(site), names))
    number = attended.sites[site].head(head)
    if not isinstance(how, str) or how not in HOWS:
        raise UserError(f"a head cannot be made {how!r}", allowed=listed(HOWS))
    return Change(site, number, HOWS[how])
