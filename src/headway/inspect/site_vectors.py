"""What a site shows, as one vector for each token, and changes of these vectors as edits of the site.

Blocks and embeddings show … C, a vector for each token or cell.  Attention shows values and heads as B H T D, where a
token's vector is all its heads side by side.

Axes:  B batch   T tokens   C width   H heads   D head width   N vectors
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from headway.errors import UserError, listed
from headway.nn.attention import merge, split
from headway.nn.trace import Edit, Seen, matching, sites_of

WEIGHTS = "weights"  # of attention: a map, whose rows are no vectors of one width
BY_HEADS = ("values", "heads")


def one_site(model: nn.Module, glob: str) -> str:
    """The one site with vectors that a glob means."""
    found = matching(glob, sites_of(model))
    names = [name for name in found if what(name) != WEIGHTS]
    if not names:
        said, do = f"{glob!r} shows attention weights, which are no vectors", "choose a site such as '*.0.out'"
        raise UserError(said, allowed=listed(others(model)), do=do)
    if len(names) > 1:
        raise UserError(f"{glob!r} means {len(names)} sites", allowed=f"one of {listed(names)}")
    return names[0]


def vectors(site: str, value: Seen) -> Tensor:
    """A vector for each token, N C, row by row."""
    if not isinstance(value, Tensor) or value.dim() < 2:
        raise UserError(f"{site!r} shows no vectors", do="choose the out of a block")
    return by_token(site, value).flatten(0, -2)


def changed(site: str, change: Callable[[Tensor], Tensor]) -> Edit:
    """An edit of a site that changes its vectors, N C → N C."""

    def edit(value: Tensor) -> Tensor:
        told = by_token(site, value)
        told = change(told.flatten(0, -2)).view(told.shape)
        if what(site) not in BY_HEADS:
            return told
        return split(told, value.shape[1])

    return edit


def by_token(site: str, value: Tensor) -> Tensor:
    """… C: attention's B H T D becomes B T (H D)."""
    return merge(value) if what(site) in BY_HEADS else value


def what(site: str) -> str:
    return site.rpartition(".")[2]


def others(model: nn.Module) -> list[str]:
    """Sites of a model that show vectors, those of whole blocks first."""
    return sorted((name for name in sites_of(model) if what(name) != WEIGHTS), key=lambda name: what(name) != "out")
