"""`headway inspect direction`: what lies between two groups of samples, and what a model says when moved along it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from headway.answer import Answer
from headway.app.inspect.cells import digits, number, table, visible
from headway.app.inspect.figures import Curves, Drawing
from headway.app.inspect.reading import samples_in
from headway.app.inspect.told import Found
from headway.app.inspect.windows import reader_of
from headway.app.run import shown as answered
from headway.checkpoint import Loaded
from headway.errors import UserError, listed, nearest
from headway.inspect.importance import changed
from headway.inspect.layers import FEATURES
from headway.inspect.space import Direction
from headway.inspect.space import direction as between


@dataclass(frozen=True)
class Move:
    """What to ask the model while its stream is moved: by 1 is the whole way from the second group to the first.

    `layer` is that which tells the groups best apart unless given.
    """

    text: str
    by: float
    layer: str | None


def direction(first: Path, second: Path, move: Move | None, most: int | None) -> Callable[[Loaded], Directions]:
    """The way from the samples of the second file to those of the first, after each layer."""
    groups = samples_in(first, most), samples_in(second, most)

    def find(loaded: Loaded) -> Directions:
        reader = reader_of(loaded)
        ours, theirs = (reader.layers(group) for group in groups)
        ways = {name: between(ours[name], theirs[name]) for name in ours}
        sizes = len(groups[0]), len(groups[1])
        return Directions(str(first), str(second), sizes, ways, None if move is None else moved(loaded, ways, move))

    return find


def moved(loaded: Loaded, ways: Mapping[str, Direction], move: Move) -> Moved:
    """The model's answer as it is, and with its stream moved after one layer, at every token."""
    layer = move.layer or best_of(ways)
    site = f"{layer.removesuffix('.out')}.out"
    if site not in ways or site.startswith(FEATURES):
        names = [name for name in ways if "@" not in name and name != FEATURES]
        raise UserError(f"no layer {layer!r} can be moved", allowed=listed(names), meant=nearest(layer, names))
    before = loaded.run(move.text)

    def along(stream: Tensor) -> Tensor:
        return ways[site].moved(stream, move.by)

    with changed(loaded.model, {site: along}):
        after = loaded.run(move.text)
    return Moved(site, move.by, before, after)


def best_of(ways: Mapping[str, Direction]) -> str:
    """The layer whose groups are told apart best, of those that can be moved; the first of several."""
    able = [name for name in ways if "@" not in name and name != FEATURES]
    if not able:
        raise UserError("no layer of this model can be moved", do="leave --move out")
    return max(able, key=lambda name: (ways[name].accuracy, ways[name].apart))


@dataclass(frozen=True, eq=False)
class Moved:
    layer: str
    by: float
    before: Answer
    after: Answer

    def shown(self) -> str:
        told = [("as it is", self.before), (f"moved by {self.by:g} after {self.layer}", self.after)]
        return "\n".join(f"{name}: {answered(answer)}" for name, answer in told)


@dataclass(frozen=True, eq=False)
class Directions(Found):
    first: str
    second: str
    sizes: tuple[int, int]
    ways: Mapping[str, Direction]
    moved: Moved | None

    def plain(self) -> dict[str, Any]:
        layers = [
            {
                "layer": name,
                "accuracy": way.accuracy,
                "d_prime": number(way.apart),
                "length": float(way.difference.norm()),
            }
            for name, way in self.ways.items()
        ]
        told = {"first": self.first, "second": self.second, "samples": list(self.sizes), "layers": layers}
        return told if self.moved is None else {**told, "moved": vars(self.moved)}

    def shown(self) -> str:
        rows = [
            (name, digits(way.accuracy), digits(way.apart, ".2f"), digits(float(way.difference.norm())))
            for name, way in self.ways.items()
        ]
        heads = ("layer", "told apart", "d′", "length")
        told = "told apart: the share on its own side of the middle, each judged without itself"
        return "\n\n".join(
            [self.title, table(heads, rows), told, *([] if self.moved is None else [self.moved.shown()])]
        )

    @property
    def title(self) -> str:
        return f"from {visible(self.second)} ({self.sizes[1]}) to {visible(self.first)} ({self.sizes[0]})"

    def drawn(self) -> Drawing:
        names = list(self.ways)
        right = Curves("told apart", names, {"accuracy": [w.accuracy for w in self.ways.values()]}, {"chance": 0.5})
        apart = Curves("d′", names, {"d′": [w.apart for w in self.ways.values()]}, {}, bottom=0.0)
        return Drawing(self.title, [right, apart])
