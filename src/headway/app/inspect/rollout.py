"""`headway inspect rollout`: what of the input reaches the place where the answer is read, through all layers.

Axes:  H heads   T tokens   N steps   K choices
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headway.app.inspect.cells import digits, number, table, visible
from headway.app.inspect.figures import Drawing, Heat, Panel
from headway.app.inspect.told import Found
from headway.checkpoint import Loaded
from headway.errors import UserError, listed, nearest
from headway.inspect.rollout import gradient_rollout, identity, rollout
from headway.look.attended import LONG, Attended, weights_of
from headway.look.axis import Axis, Cells
from headway.look.outcome import Choices
from headway.look.placed import Placed
from headway.nn.trace import Edit, record
from headway.ops.reading import Weights

FIRST = 12  # tokens that a table tells
WORDS = ("next", "fill", "written")  # outcomes that are read at a token
READ = ("text", "prefix", "frames")  # axes of these tokens


def follow(given: str, wanted: str | None, row: int | None) -> Callable[[Loaded], Followed]:
    """Rolls attention out over one input; `wanted` is the class or the token whose score is followed back.

    `row` is the place that it is read at; unless given, it is where the model's answer is read.
    """

    def look(loaded: Loaded) -> Followed:
        read = loaded.attend(given, most=1)
        families = shared_axes(read)
        if wanted is None:
            target = None
            found = {
                axis: rollout([read.sites[name].map.full()[0] for name in names]) for axis, names in families.items()
            }
        else:
            target = target_of(read, wanted)
            found = followed_back(read, families, target)
        streams = [
            Stream(axis, place_of(axis, row, read, target), tuple(families[axis]), layers)
            for axis, layers in found.items()
        ]
        return Followed(read.title, read.input, read.outcome.text if target is None else target.label, target, streams)

    return look


def shared_axes(read: Attended) -> dict[Axis, list[str]]:
    """The sites of self-attention along each axis, the first layer first."""
    found: dict[Axis, list[str]] = {}
    for name, site in read.sites.items():
        if site.rows == site.columns:
            found.setdefault(site.rows, []).append(name)
    if not found:
        raise UserError("this model has no self-attention to roll out", do="see headway inspect heads")
    longest = max(map(len, found))
    if longest > LONG:
        said = f"the input has {longest:,} tokens, and a rollout of them is a matrix of their square for each layer"
        raise UserError(said, allowed=f"up to {LONG:,} tokens", do="shorten it; headway inspect heads takes any length")
    return found


class Target(NamedTuple):
    """A choice of one step of what the model says."""

    label: str
    step: int
    choice: int
    at: int | None  # the row of the axis at which the step is read


def target_of(read: Attended, wanted: str) -> Target:
    """The class, or the token, as the model may say it: where it said so, and else where it said anything last."""
    told = read.scene.told
    if not isinstance(told, Choices):
        said = "this model gives a vector, and no class or token has a score"
        raise UserError(said, do="leave --gradient out")
    steps = read.outcome.steps
    said_so = [at for at, step in enumerate(steps) if wanted in (step.said, step.said.strip())]
    step = said_so[0] if said_so and told.kind != "next" else len(steps) - 1 if told.kind == "next" else 0
    with torch.no_grad():
        count = told.head(read.scene.call()[step : step + 1]).shape[-1]
    labels = [told.label(choice) for choice in range(count)]
    for meant in (wanted, f" {wanted}"):
        if meant in labels:
            return Target(meant.strip() or meant, step, labels.index(meant), told.at[step])
    bare = [label.strip() for label in labels]
    if wanted.strip() in bare:
        return Target(wanted.strip(), step, bare.index(wanted.strip()), told.at[step])
    likely = [label for label, _ in steps[step].top]
    alike = [name for name in bare if name[:1] == wanted.strip()[:1]]
    said = f"the model has no one class or token {visible(wanted)!r} to say"
    raise UserError(said, allowed=listed(map(repr, likely)), meant=nearest(wanted.strip(), alike))


def followed_back(read: Attended, families: Mapping[Axis, Sequence[str]], target: Target) -> dict[Axis, list[Tensor]]:
    """Gradient-weighted rollout along each axis, from the score of the target, beyond what each token is to itself."""
    sites = {name: read.sources[name] for names in families.values() for name in names}
    taps = {weights_of(source.spot): Tap() for source in sites.values()}
    edits: dict[str, Edit] = dict(taps)
    told = read.scene.told
    assert isinstance(told, Choices)
    with torch.enable_grad(), record(read.scene.model, *edits, edit=edits):
        told.head(read.scene.call()[target.step : target.step + 1])[0, target.choice].backward()

    def laid(name: str) -> tuple[Tensor, Tensor]:
        """A site's weights and their gradients, H T T each, in the coordinates of the input."""
        source = sites[name]
        both = taps[weights_of(source.spot)].calls[source.turn]
        if source.tiling is None:
            return both[0][0], both[1][0]
        tiling = source.tiling
        weights, gradients = (Placed(Weights(one), tiling).full()[0] for one in both)
        return weights, gradients

    found: dict[Axis, list[Tensor]] = {}
    for axis, names in families.items():
        maps, gradients = zip(*map(laid, names), strict=True)
        found[axis] = [layer - identity(layer) for layer in gradient_rollout(maps, gradients)]
    return found


class Tap:
    """An edit that changes nothing, and through which the gradient of weights can be read."""

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, Tensor]] = []

    def __call__(self, weights: Tensor) -> Tensor:
        nothing = torch.zeros_like(weights, requires_grad=True)
        self.seen.append((weights.detach(), nothing))
        return weights + nothing

    @property
    def calls(self) -> list[tuple[Tensor, Tensor]]:
        """The weights and their gradients, call by call; zeros where the score does not depend on them."""
        return [(w, torch.zeros_like(w) if zero.grad is None else zero.grad) for w, zero in self.seen]


def place_of(axis: Axis, row: int | None, read: Attended, target: Target | None) -> int | None:
    """The row that is told: as asked; where the target, or the last word, is read; the class token of a class.

    None, the mean of all rows, where the answer is read at each of them, or is itself a mean.
    """
    if row is not None:
        if not 0 <= row < len(axis):
            raise UserError(f"--row {row}", allowed=f"0 to {len(axis) - 1}")
        return row
    kind, steps = read.outcome.kind, read.outcome.steps
    at = target.at if target is not None else steps[-1].at if kind in WORDS and steps else None
    if at is not None and axis.name in READ:
        return at
    return 0 if kind == "classes" and 0 in axis.special else None


@dataclass(frozen=True, eq=False)
class Stream:
    """Rollouts along one axis, T T after each layer, and the row of them that is told (None: the mean)."""

    axis: Axis
    row: int | None
    sites: tuple[str, ...]
    layers: Sequence[Tensor]

    def told(self) -> list[list[float]]:
        """What of each token is in the row after each layer."""
        return [(layer.mean(0) if self.row is None else layer[self.row]).tolist() for layer in self.layers]

    @property
    def place(self) -> str:
        return "the mean of all" if self.row is None else f"{self.row} ({visible(self.axis.labels[self.row], 16)})"

    def plain(self) -> dict[str, Any]:
        layers = [
            {"site": site, "weights": [number(value) for value in row]}
            for site, row in zip(self.sites, self.told(), strict=True)
        ]
        return {"axis": self.axis.name, "tokens": list(self.axis.labels), "row": self.row, "layers": layers}

    def shown(self) -> str:
        last = self.told()[-1]
        order = sorted(range(len(last)), key=lambda at: -last[at])[:FIRST]
        rows = [(visible(self.axis.labels[at]), str(at), digits(last[at], ".4f")) for at in order]
        return f"{self.axis.name}, after {self.sites[-1]}, at {self.place}\n" + table(("token", "at", "weight"), rows)

    def panels(self) -> list[Panel]:
        title = f"{self.axis.name}, at {self.place}"
        if not isinstance(self.axis, Cells):
            return [Heat(title, self.told(), self.sites, self.axis.labels, "layer")]
        down, along = self.axis.grid
        last = self.told()[-1][self.axis.first :]
        cells = [last[y * along : (y + 1) * along] for y in range(down)]
        return [Heat(title, cells, [str(y + 1) for y in range(down)], [str(x + 1) for x in range(along)])]


@dataclass(frozen=True, eq=False)
class Followed(Found):
    """`said` is the model's answer, or the target whose score was followed."""

    model: str
    input: str
    said: str
    target: Target | None
    streams: Sequence[Stream]

    def plain(self) -> dict[str, Any]:
        target = None if self.target is None else self.target._asdict()
        told = {"model": self.model, "input": self.input, "said": self.said, "gradient": target}
        return {**told, "streams": [stream.plain() for stream in self.streams]}

    def shown(self) -> str:
        how = "rollout" if self.target is None else f"gradient-weighted rollout of {visible(self.said)!r}"
        return "\n\n".join([self.title, how, *(stream.shown() for stream in self.streams)])

    @property
    def title(self) -> str:
        return f"{self.model}: {visible(self.input, 60)}"

    def drawn(self) -> Drawing:
        return Drawing(self.title, [panel for stream in self.streams for panel in stream.panels()], abreast=2)
