"""Attention rollout over one input: how much of each input token reaches the position where the output is read.

Along each set of tokens that attends to itself, and from a decoder across to its encoder; by the attention weights
alone (`WeightRollout`), or weighted by the gradient of one output's score (`GradientRollout`), which takes one forward
and one backward pass.  The formulas are in `ops/attention_rollout.py`.

Axes:  H heads   T tokens, of a target where there are two   S tokens of a source
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import UserError, listed, nearest
from headway.figures import HeatMap, Panel, Plot, printable
from headway.inspect.presentation import LazyModel, Result, format_number, resolve, table
from headway.look.recording import MAX_ROLLOUT_ROWS, Recording
from headway.look.relevance import WeightGradient, weight_gradients
from headway.ops import attention_rollout
from headway.ops.attention_rollout import (
    CrossLayer,
    Reach,
    SelfLayer,
    gradient_rollout,
    gradient_rollout_across,
    identity,
    rollout_across,
)
from headway.tasks.tracing import Axis, Choices, GridAxis

MAX_ROWS = 12  # tokens in a table
READ_AT = {"next": "text", "fill": "text", "tags": "text", "written": "prefix", "heard": "frames"}  # axes of outputs
LAST_STEP = ("next", "fill", "written")  # outputs whose last step is shown unless another is asked for


def rollout(model: LazyModel, text: str, *, gradient: str | None = None, row: int | None = None) -> RolloutResult:
    """Attention rollout of one input: a text, or the name of an image or sound file.

    With `gradient`, a class or a token, weighted by the gradient of its score.  `row` is the token whose row is shown;
    by default the one at which the output is read.
    """
    recording = resolve(model).attend(text, most=1)
    families = self_attention(recording)
    cross = cross_attention(recording, families)
    target, method, label = None, WeightRollout(recording), recording.outcome.text
    if gradient is not None:
        target = find_target(recording, gradient)
        sites = [*(site for family in families.values() for site in family), *(cross.across if cross else ())]
        method, label = (
            GradientRollout(recording, weight_gradients(recording, target.step, target.choice, sites)),
            target.label,
        )
    streams = list(follow(method, families, cross, partial(row_shown, recording, target, row)))
    return RolloutResult(recording.title, recording.input, label, target, streams)


def self_attention(recording: Recording) -> dict[Axis, list[str]]:
    """The self-attention sites along each axis; refuses a model without any, and axes that are too long."""
    found = recording.self_attention()
    if not found:
        raise UserError("this model has no self-attention to roll out", do="see headway inspect heads")
    longest = max(map(len, found))
    if longest > MAX_ROLLOUT_ROWS:
        said = f"the input has {longest:,} tokens, and a rollout of them is a matrix of their square for each layer"
        raise UserError(
            said, allowed=f"up to {MAX_ROLLOUT_ROWS:,} tokens", do="shorten it; headway inspect heads takes any length"
        )
    return found


@dataclass(frozen=True, eq=False)
class CrossSites:
    """The sites of a decoder in their order: self-attention over `rows`, and cross-attention (`across`) to an encoder.

    `hidden` is the number of leading encoder tokens that the decoder does not attend to: a class token.
    """

    rows: Axis
    columns: Axis
    sites: tuple[str, ...]
    across: frozenset[str]
    hidden: int

    def layers(self, weights: Callable[[str], Tensor]) -> list[SelfLayer | CrossLayer]:
        """Weights, or their gradients, of each site; those on the memory as on all tokens of the encoder."""
        return [
            CrossLayer(F.pad(weights(site), (self.hidden, 0))) if site in self.across else SelfLayer(weights(site))
            for site in self.sites
        ]


def cross_attention(recording: Recording, families: Mapping[Axis, Sequence[str]]) -> CrossSites | None:
    """The sites of a decoder with self- and cross-attention; None where there is none.

    A memory without self-attention of its own, such as that of a convolutional encoder, is not followed further.
    """
    axes = recording.run.axes
    rows, memory = axes.streams.get("decoder"), axes.memory
    across = [name for name, site in recording.sites.items() if site.rows == axes.written and site.columns == memory]
    if rows is None or memory is None or rows not in families or not across:
        return None

    def holds_memory(axis: Axis) -> bool:
        """Also where a grid has other tokens before its cells, which alone are the memory."""
        if not (isinstance(axis, GridAxis) and isinstance(memory, GridAxis)):
            return axis == memory
        return axis == memory or (axis.grid == memory.grid and memory.first == 0)

    columns = next(filter(holds_memory, families), memory)
    sites = tuple(name for name in recording.sites if name in (*families[rows], *across))
    return CrossSites(rows, columns, sites, frozenset(across), len(columns) - len(memory))


# ---- the target of a gradient


class OutputTarget(NamedTuple):
    """A class or token of one step of the model's output."""

    label: str
    step: int
    choice: int
    at: int | None  # the row of the axis at which the step is read


def find_target(recording: Recording, wanted: str) -> OutputTarget:
    """The class or token `wanted`, at the last step of a continuation, else at the step that predicted it."""
    outputs = recording.run.reader
    if not isinstance(outputs, Choices):
        raise UserError("this model gives a vector, and no class or token has a score", do="leave gradient= out")
    steps, bare = recording.outcome.steps, wanted.strip()
    if outputs.kind == "next":
        step = len(steps) - 1
    else:
        step = next((at for at, one in enumerate(steps) if wanted in (one.said, one.said.strip())), 0)
    with torch.no_grad():
        count = outputs.head(recording.run.call()[step : step + 1]).shape[-1]
    labels = [outputs.label(choice) for choice in range(count)]
    stripped = [label.strip() for label in labels]
    for spelling, names in ((wanted, labels), (f" {wanted}", labels), (bare, stripped)):
        if spelling in names:
            return OutputTarget(spelling.strip() or spelling, step, names.index(spelling), outputs.at[step])
    likely = [label for label, _ in steps[step].top]
    similar = [name for name in stripped if name[:1] == bare[:1]]
    said = f"the model has no one class or token {printable(wanted)!r} to say"
    raise UserError(said, allowed=listed(map(repr, likely)), meant=nearest(bare, similar))


# ---- rollout


@dataclass(frozen=True, eq=False)
class WeightRollout:
    """By the attention weights (Abnar and Zuidema 2020)."""

    recording: Recording

    def along(self, sites: Sequence[str]) -> list[Tensor]:
        """T T after each of some self-attention sites over the same tokens."""
        return attention_rollout.rollout([self.recording.mean(site) for site in sites])

    def across(self, cross: CrossSites, memory: Tensor) -> list[Reach]:
        """What reaches a decoder's tokens after each of its sites; `memory` (S S) is the rollout of its encoder."""
        return rollout_across(cross.layers(self.recording.mean), memory)

    def within(self, rolled: Tensor) -> Tensor:
        """What is shown of a rollout of tokens among themselves, T T."""
        return rolled


@dataclass(frozen=True, eq=False)
class GradientRollout(WeightRollout):
    """Weighted by the gradient of a target (Chefer, Gur and Wolf 2021), without each token's relevance to itself."""

    sites: Mapping[str, WeightGradient]

    def along(self, sites: Sequence[str]) -> list[Tensor]:
        return gradient_rollout(*zip(*(self.sites[site] for site in sites), strict=True))

    def across(self, cross: CrossSites, memory: Tensor) -> list[Reach]:
        gradients = cross.layers(lambda site: self.sites[site].gradient)
        layers = cross.layers(lambda site: self.sites[site].weights)
        return gradient_rollout_across(layers, [one.weights for one in gradients], memory)

    def within(self, rolled: Tensor) -> Tensor:
        return rolled - identity(rolled)


def follow(
    method: WeightRollout,
    families: Mapping[Axis, Sequence[str]],
    cross: CrossSites | None,
    row_of: Callable[[Axis], int | None],
) -> Iterator[RolloutStream]:
    """What reaches a decoder from source and target, where there is one; then the rollout along each other axis."""
    along = {axis: method.along(sites) for axis, sites in families.items() if not cross or axis != cross.rows}
    if cross is not None:
        memory = along[cross.columns][-1] if cross.columns in along else torch.eye(len(cross.columns))
        reached = method.across(cross, memory)
        at, sites = row_of(cross.rows), cross.sites
        yield RolloutStream(cross.rows, cross.columns, at, sites, [reach.source for reach in reached])
        yield RolloutStream(cross.rows, cross.rows, at, sites, [method.within(reach.target) for reach in reached])
    for axis, layers in along.items():
        at = row_of(axis) if cross is None else None  # `row` is a token of the target
        yield RolloutStream(axis, axis, at, tuple(families[axis]), [method.within(layer) for layer in layers])


def row_shown(recording: Recording, target: OutputTarget | None, row: int | None, axis: Axis) -> int | None:
    """The row of an axis: `row`; where the target or the last token is read; the class token of a classifier.

    None, for the mean of all rows, where the output is read at each of them, or from their mean.
    """
    if row is not None:
        if not 0 <= row < len(axis):
            raise UserError(f"row={row}", allowed=f"0 to {len(axis) - 1}")
        return row
    kind, steps = recording.outcome.kind, recording.outcome.steps
    at = target.at if target is not None else steps[-1].at if kind in LAST_STEP and steps else None
    if at is not None and axis.name == READ_AT.get(kind):
        return at
    return 0 if kind == "classes" and 0 in axis.special else None


@dataclass(frozen=True, eq=False)
class RolloutStream:
    """How much of each token of `axis` is in the tokens of `rows` after each layer, and the row to show (None: mean).

    The two axes differ only where they are a decoder's and its source's.
    """

    rows: Axis
    axis: Axis
    row: int | None
    sites: tuple[str, ...]
    layers: Sequence[Tensor]

    def values(self) -> list[list[float]]:
        """How much of each token is in the row after each layer."""
        return [(layer.mean(0) if self.row is None else layer[self.row]).tolist() for layer in self.layers]

    @property
    def place(self) -> str:
        of = "" if self.rows == self.axis else f" of the {self.rows.name}"
        return (
            f"the mean of all{of}"
            if self.row is None
            else f"{self.row}{of} ({printable(self.rows.labels[self.row], 16)})"
        )

    def data(self) -> dict[str, Any]:
        layers = [{"site": site, "weights": row} for site, row in zip(self.sites, self.values(), strict=True)]
        fields = {"axis": self.axis.name, "tokens": self.axis.labels, "rows": self.rows.name, "row": self.row}
        return {**fields, "layers": layers}

    def to_text(self) -> str:
        last = self.values()[-1]
        order = sorted(range(len(last)), key=lambda at: -last[at])[:MAX_ROWS]
        rows = [(printable(self.axis.labels[at]), at, format_number(last[at], ".4f")) for at in order]
        return f"{self.axis.name}, after {self.sites[-1]}, at {self.place}\n" + table(("token", "at", "weight"), rows)

    def panel(self) -> Panel:
        title = f"{self.axis.name}, at {self.place}"
        if not isinstance(self.axis, GridAxis):
            return HeatMap(title, self.values(), self.sites, self.axis.labels, "layer")
        down, along = self.axis.grid
        last = self.values()[-1][self.axis.first :]
        cells = [last[y * along : (y + 1) * along] for y in range(down)]
        return HeatMap(title, cells, [str(y + 1) for y in range(down)], [str(x + 1) for x in range(along)])


@dataclass(frozen=True, eq=False)
class RolloutResult(Result):
    """`said` is the model's output, or the target of the gradient."""

    model: str
    input: str
    said: str
    target: OutputTarget | None
    streams: Sequence[RolloutStream]

    def data(self) -> dict[str, Any]:
        fields = {"model": self.model, "input": self.input, "said": self.said, "gradient": self.target}
        return {**fields, "streams": [stream.data() for stream in self.streams]}

    def blocks(self) -> Iterator[str]:
        yield self.title
        yield "rollout" if self.target is None else f"gradient-weighted rollout of {printable(self.said)!r}"
        yield from (stream.to_text() for stream in self.streams)

    @property
    def title(self) -> str:
        return f"{self.model}: {printable(self.input, 60)}"

    def plot(self) -> Plot:
        return Plot(self.title, [stream.panel() for stream in self.streams], columns=2)
