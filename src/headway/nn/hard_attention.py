"""The parts of Show, Attend and Tell: gated attention, hard attention, and the deep output layer.

Xu et al. 2015.  Hard attention samples one position of the memory at each step, in proportion to its weights; in
training it emits what REINFORCE needs (`ops.losses.reinforce`), since no gradient passes through a choice.

Axes:  B batch   T steps   S places of the memory   C width of inputs   M width of memory   H hidden width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.attention import Keys
from headway.nn.block import Dropout
from headway.nn.context import Context
from headway.nn.recurrent_attention import Alignment, ContextReader, StepwiseAttention
from headway.ops.attend import Edit, Score
from headway.ops.attention_map import Weights
from headway.ops.pattern import Positions


class Gated(nn.Module):
    """σ(W s + b) · attention(s): a gate on the context vector.  B H → B M

    Shows the gate, B T.
    """

    emits = ("gate",)

    def __init__(self, body: Alignment, hidden: int):
        super().__init__()
        self.body, self.gate = body, nn.Linear(hidden, 1)

    def reader(self, x: Tensor, ctx: Context) -> GatedReader:
        return GatedReader(self, self.body.reader(x, ctx), ctx)


class GatedReader:
    def __init__(self, site: Gated, body: ContextReader, ctx: Context):
        self.site, self.body, self.ctx = site, body, ctx
        self.gates: list[Tensor] = []  # B 1

    def at(self, s: Tensor) -> Tensor:
        self.gates.append(self.ctx.edited(self.site, "gate", self.site.gate(s).sigmoid()))
        return self.gates[-1] * self.body.at(s)

    def show(self) -> None:
        self.body.show()
        self.ctx.show(self.site, "gate", torch.cat(self.gates, 1))


Choice = Callable[[Tensor], Tensor]  # of weights B H T S; gives those to use


@dataclass(frozen=True)
class ArgmaxChoice:
    """All weight on the position that has most."""

    def __call__(self, weights: Tensor) -> Tensor:
        return one_hot(weights.argmax(-1), weights)


@dataclass(frozen=True)
class SampledChoice:
    """All weight on one place, drawn in proportion to the weights by torch's own generator.

    The share `expected` of the draws is left out and the weights stay as they are, which makes the estimate of the
    gradient less noisy: the paper takes 0.5 while it learns.  No gradient passes through these either.
    """

    expected: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.expected < 1.0:
            raise UserError(f"SampledChoice(expected={self.expected:g})", allowed="a share from 0 up to, but not, 1")

    def __call__(self, weights: Tensor) -> Tensor:
        # w / Exp(1) is largest at place i with probability w_i; unlike torch.multinomial it takes a row without weight
        drawn = one_hot((weights / torch.empty_like(weights).exponential_()).argmax(-1), weights)
        if not self.expected:
            return drawn
        soft = torch.rand(weights.shape[:-1], device=weights.device) < self.expected
        return torch.where(soft[..., None], weights, drawn)


LIKELIEST, HALF_DRAWN = ArgmaxChoice(), SampledChoice(expected=0.5)


class HardAlignment(Alignment):
    """The memory at one place, chosen by softmax(score(q(s), k(memory))).  B T H → B T M

    `learns` chooses in training, `tells` in evaluation: the argmax, or SampledChoice().  Emits besides its weights the
    `chosen` ones (one-hot, B 1 T S), and for training the log-probability of each choice and the entropy of the
    weights, B T both.
    """

    emits = (*Alignment.emits, "chosen", "log_chance", "entropy")

    def __init__(
        self,
        memory_dim: int,
        *,
        q: nn.Module,
        k: nn.Module,
        score: Score,
        learns: Choice = HALF_DRAWN,
        tells: Choice = LIKELIEST,
    ):
        super().__init__(memory_dim, q=q, k=k, score=score)
        self.learns, self.tells = learns, tells

    def reader(self, x: Tensor, ctx: Context) -> HardStepwiseAttention:
        keys = self.keys(x, Positions.run(0, x.shape[1], x.device), ctx)
        return HardStepwiseAttention(self, keys._replace(v=ctx.emit(self, "values", keys.v)), ctx)

    def choose(self, weights: Tensor) -> Tensor:
        return (self.learns if self.training else self.tells)(weights)


class HardStepwiseAttention(StepwiseAttention):
    """Stepwise attention whose weights are replaced by a choice among them."""

    def __init__(self, site: HardAlignment, keys: Keys, ctx: Context):
        super().__init__(site, keys, ctx)
        self.chooser = site
        self.chances: list[Tensor] = []  # B 1 1 S
        self.chosen: list[Tensor] = []  # B 1 1 S

    def edit(self) -> Edit | None:
        return self.choose

    def choose(self, weights: Tensor) -> Tensor:
        change = super().edit()
        self.chances.append(weights if change is None else change(weights))
        self.chosen.append(self.chooser.choose(self.chances[-1]).detach())
        return self.chosen[-1]

    def show(self) -> None:
        super().show()
        if not self.ctx.traces():
            return
        chances, chosen = torch.cat(self.chances, 2), torch.cat(self.chosen, 2)  # B 1 T S
        logs = chances.clamp(min=torch.finfo(chances.dtype).tiny).log()  # a place that is not seen has no chance
        self.ctx.show(self.chooser, "chosen", Weights(chosen))
        self.ctx.show(self.chooser, "log_chance", (chosen * logs).sum(-1)[:, 0])
        self.ctx.show(self.chooser, "entropy", -(chances * logs).sum(-1)[:, 0])


class DeepOutput(nn.Module):
    """drop(y + W s + Z c): what the words are read off, out of the last word, the state and what was seen.

    … H, … M, … C → … C
    """

    def __init__(self, dim: int, hidden: int, memory_dim: int, *, dropout: float = 0.0):
        super().__init__()
        self.state, self.context = nn.Linear(hidden, dim), nn.Linear(memory_dim, dim, bias=False)
        self.drop = Dropout(dropout)

    def forward(self, s: Tensor, c: Tensor, y: Tensor) -> Tensor:
        return self.drop(y + self.state(s) + self.context(c))


def one_hot(place: Tensor, weights: Tensor) -> Tensor:
    """1 at `place` (B H T) and 0 elsewhere, B H T S; nothing where there is no weight at all."""
    here = torch.arange(weights.shape[-1], device=weights.device) == place[..., None]
    return (here & (weights.sum(-1, keepdim=True) > 0)).to(weights.dtype)
