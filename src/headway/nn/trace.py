"""Traces: record or edit activations and attention weights of named modules during one call (hooks, by glob).

A module lists what it can show in `emits` and passes each value through `ctx.emit`.  A trace chooses among these
sites by glob.  It belongs to a call (in its context) or to a block of code (`record`), never to the model, so two
requests that share a model do not see each other's recordings.

Edits of a single attention head, for ablation, are frozen values (`HEAD_EDITS`): called with a head's number, each
returns an edit of attention weights for `record(…, edit=…)`.

Axes:  B batch   H heads   T queries   S keys
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from headway.errors import UserError, listed, nearest
from headway.ops.attention_map import JoinedMap, Readable

Seen = Tensor | Readable
Edit = Callable[[Tensor], Tensor]
Site = tuple[nn.Module, str]
SILENT = frozenset({"stack", "blocks", "body"})  # containers: `decoder.stack.blocks.1.cross.body` is `decoder.1.cross`


class Trace:
    """Collects the values of the sites that match `globs` (and replaces those that match a glob in `edit`).

    A site is named by its module's path and what it shows, as in `decoder.1.cross.weights`; a glob may leave out
    the last word: `decoder.*.cross` means all that these modules show.
    """

    def __init__(self, model: nn.Module, *globs: str, edit: Mapping[str, Edit] | None = None):
        sites = sites_of(model)
        edits = {site: change for glob, change in (edit or {}).items() for site in matching(glob, sites)}
        chosen = dict.fromkeys([*(site for glob in globs for site in matching(glob, sites)), *edits])
        self.names: dict[Site, str] = {sites[name]: name for name in chosen}
        self.edits: dict[Site, Edit] = {sites[name]: change for name, change in edits.items()}
        self.values: dict[str, list[Seen]] = {}

    def __getitem__(self, name: str) -> Seen:
        """What a site showed, where it was called once."""
        values = self.all(name)
        if len(values) != 1:
            do = "take one of trace.all(name), or trace.joined(name) for the steps of decoding"
            raise UserError(f"{name!r} was recorded {len(values)} times", do=do)
        return values[0]

    def all(self, name: str) -> list[Seen]:
        """What a site showed, call by call."""
        name = self.resolve(name)
        if name not in self.values:
            raise UserError(f"nothing was recorded at {name!r}", do="call the model inside the block, and not compiled")
        return self.values[name]

    def resolve(self, name: str) -> str:
        """A site's name, or its module's: then its attention weights are meant, or the one thing recorded of it."""
        names = sorted(self.names.values())
        of_module = [site for site in names if site.rpartition(".")[0] == name]
        if name in names:
            return name
        if f"{name}.weights" in names:
            return f"{name}.weights"
        if len(of_module) == 1:
            return of_module[0]
        raise unmatched(name, of_module or names)

    def joined(self, name: str) -> Readable:
        """The attention of several calls as one map: the steps of decoding, one row after the other."""
        return JoinedMap([value for value in self.all(name) if isinstance(value, Readable)])

    def show(self, site: Site, value: Seen) -> None:
        self.values.setdefault(self.names[site], []).append(value)


@contextmanager
def record(model: nn.Module, *globs: str, edit: Mapping[str, Edit] | None = None) -> Generator[Trace]:
    """Records what the sites of `model` that match `globs` show inside this block, in this thread or task only."""
    trace = Trace(model, *(globs or ("*.weights",)), edit=edit)
    token = _ambient.set(trace)
    try:
        yield trace
    finally:
        _ambient.reset(token)


def ambient() -> Trace | None:
    """The recording of the `record` block around this call."""
    return _ambient.get()


_ambient: ContextVar[Trace | None] = ContextVar("headway.record", default=None)


def sites_of(model: nn.Module) -> dict[str, Site]:
    """All that a model can show, by name."""
    return {
        ".".join([*(part for part in path.split(".") if part and part not in SILENT), what]): (module, what)
        for path, module in model.named_modules()
        for what in getattr(module, "emits", ())
    }


def matching(glob: str, sites: Mapping[str, Site]) -> list[str]:
    found = [name for name in sites if matches(name, glob)]
    if not found:
        raise unmatched(glob, sorted(sites))
    return found


def matches(name: str, glob: str) -> bool:
    """Whether a glob means this site, or its module, or (as `*.weights` does) either at the model's very top."""
    return any(fnmatchcase(told, glob) for told in (name, f".{name}", name.rpartition(".")[0]))


def unmatched(name: str, sites: list[str]) -> UserError:
    if not sites:
        return UserError(
            f"{name!r} matches no site: this model shows nothing", do="give a model made of headway's parts"
        )
    return UserError(f"{name!r} matches no site", allowed=listed(sites), meant=mend_glob(name, sites))


def mend_glob(glob: str, sites: list[str]) -> str | None:
    """The glob with each mistyped word mended, or the nearest site where that still matches nothing."""
    words = {word for site in sites for word in site.split(".")}
    mended = ".".join(word if "*" in word else nearest(word, words) or word for word in glob.split("."))
    return mended if any(matches(site, mended) for site in sites) else nearest(glob, sites)


@dataclass(frozen=True)
class EditKind(ABC):
    """Called with a head's number: an edit of a site's weights that treats this head and the others differently."""

    @abstractmethod
    def weights(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the head and those of all others, B H T S each."""

    def __call__(self, head: int) -> Edit:
        def edit(weights: Tensor) -> Tensor:
            chosen = (torch.arange(weights.shape[1], device=weights.device) == head)[None, :, None, None]  # 1 H 1 1
            return torch.where(chosen, *self.weights(weights))

        return edit


@dataclass(frozen=True)
class Off(EditKind):
    """The head attends to nothing: its output is zero."""

    def weights(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(weights), weights


@dataclass(frozen=True)
class Uniform(EditKind):
    """The head attends uniformly to all keys with a weight above zero; masked keys stay masked."""

    def weights(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        seen = (weights > 0).to(weights.dtype)
        return seen / seen.sum(-1, keepdim=True).clamp(min=1), weights


@dataclass(frozen=True)
class Only(EditKind):
    """All other heads of the site attend to nothing."""

    def weights(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        return weights, torch.zeros_like(weights)


HEAD_EDITS: dict[str, EditKind] = {"off": Off(), "uniform": Uniform(), "only": Only()}
