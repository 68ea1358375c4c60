"""One thing that a model may say, and which weights speak for it: the derivatives of its score by all of them.

Axes:  H heads   T queries   S keys   N steps   K choices
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from headway.app.inspect.cells import visible
from headway.errors import UserError, listed, nearest
from headway.look.attended import Attended, weights_of
from headway.look.outcome import Choices
from headway.look.placed import Placed
from headway.nn.trace import Edit, record
from headway.ops.reading import Weights


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


class Derived(NamedTuple):
    """The weights of a site, and the derivative of a score by each of them: H T S both."""

    weights: Tensor
    gradient: Tensor


def derivatives(read: Attended, target: Target, sites: Iterable[str]) -> dict[str, Derived]:
    """What the score of a target depends on at some sites, in the coordinates of the input; one run, and back."""
    sources = {name: read.sources[name] for name in sites}
    taps = {weights_of(source.spot): Tap() for source in sources.values()}
    edits: dict[str, Edit] = dict(taps)
    told = read.scene.told
    assert isinstance(told, Choices)
    with torch.enable_grad(), record(read.scene.model, *edits, edit=edits):
        told.head(read.scene.call()[target.step : target.step + 1])[0, target.choice].backward()
    found = dict[str, Derived]()
    for name, source in sources.items():
        both = taps[weights_of(source.spot)].calls[source.turn]
        if source.tiling is None:
            found[name] = Derived(both.weights[0], both.gradient[0])
        else:
            tiling = source.tiling
            found[name] = Derived(*(Placed(Weights(one), tiling).full()[0] for one in both))
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
    def calls(self) -> list[Derived]:
        """The weights and their gradients, call by call; zeros where the score does not depend on them."""
        return [Derived(w, torch.zeros_like(w) if zero.grad is None else zero.grad) for w, zero in self.seen]
