"""The gradient of one output's score with respect to the attention weights.

Axes:  H heads   T queries   S keys   N steps   K choices
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError, listed, nearest
from headway.figures import printable
from headway.look.grid_map import GridMap
from headway.look.recording import Recording
from headway.nn.trace import Edit, record
from headway.ops.lazy_map import Weights
from headway.tasks.outcome import Choices


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
        said = "this model gives a vector, and no class or token has a score"
        raise UserError(said, do="leave --gradient out")
    steps = recording.outcome.steps
    if outputs.kind == "next":
        step = len(steps) - 1
    else:
        step = next((at for at, one in enumerate(steps) if wanted in (one.said, one.said.strip())), 0)
    with torch.no_grad():
        count = outputs.head(recording.run.call()[step : step + 1]).shape[-1]
    labels = [outputs.label(choice) for choice in range(count)]
    for spelling in (wanted, f" {wanted}"):
        if spelling in labels:
            return OutputTarget(spelling.strip() or spelling, step, labels.index(spelling), outputs.at[step])
    stripped = [label.strip() for label in labels]
    if wanted.strip() in stripped:
        return OutputTarget(wanted.strip(), step, stripped.index(wanted.strip()), outputs.at[step])
    likely = [label for label, _ in steps[step].top]
    similar = [name for name in stripped if name[:1] == wanted.strip()[:1]]
    said = f"the model has no one class or token {printable(wanted)!r} to say"
    raise UserError(said, allowed=listed(map(repr, likely)), meant=nearest(wanted.strip(), similar))


class WeightGradient(NamedTuple):
    """The weights of a site, and the derivative of a score by each of them: H T S both."""

    weights: Tensor
    gradient: Tensor


def weight_gradients(recording: Recording, target: OutputTarget, sites: Iterable[str]) -> dict[str, WeightGradient]:
    """Weights and gradients at some sites, in the coordinates of the input; one forward and one backward pass."""
    sources = {name: recording.sources[name] for name in sites}
    taps = {source.site.weights_name: GradientTap() for source in sources.values()}
    edits: dict[str, Edit] = dict(taps)
    outputs = recording.run.reader
    assert isinstance(outputs, Choices)
    with torch.enable_grad(), record(recording.run.model, *edits, edit=edits):
        outputs.head(recording.run.call()[target.step : target.step + 1])[0, target.choice].backward()
    found = dict[str, WeightGradient]()
    for name, source in sources.items():
        both = taps[source.site.weights_name].calls[source.call]
        if source.tiling is None:
            found[name] = WeightGradient(both.weights[0], both.gradient[0])
        else:
            tiling = source.tiling
            found[name] = WeightGradient(*(GridMap(Weights(one), tiling).full()[0] for one in both))
    return found


class GradientTap:
    """An edit that changes nothing, and at which the gradient of the weights can be read."""

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, Tensor]] = []

    def __call__(self, weights: Tensor) -> Tensor:
        zero = torch.zeros_like(weights, requires_grad=True)
        self.seen.append((weights.detach(), zero))
        return weights + zero

    @property
    def calls(self) -> list[WeightGradient]:
        """The weights and their gradients, call by call; zeros where the score does not depend on them."""
        return [WeightGradient(w, torch.zeros_like(w) if zero.grad is None else zero.grad) for w, zero in self.seen]
