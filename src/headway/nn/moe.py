"""Mixture of experts: each token goes to the few experts that its router prefers.

Axes:  B batch   T tokens   N = B·T   C width   E experts   K experts of a token
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context


class MoE(nn.Module):
    """Σ over a token's `top` experts of gate · expert(x); `routing` picks these and gives their gates.

    Shows the router's `probs` (N E), the `load` of each expert (E: its share of the tokens) and two losses for training
    to add: `balance` (`load_balance`, K when perfectly even) and `z` (mean squared log-sum-exp of the logits).
    """

    tokenwise = False  # its losses count all tokens
    in_float32 = ("router",)  # its near ties would flip in int8

    emits = ("probs", "load", "balance", "z")

    def __init__(
        self,
        expert: Callable[[], nn.Module],
        dim: int,
        experts: int,
        *,
        top: int = 2,
        bias: bool = False,
        routing: nn.Module | None = None,
    ):
        super().__init__()
        if not 1 <= top <= experts:
            said, do = f"MoE(top={top}) with {experts} experts", "give top as many as there are, or fewer"
            raise UserError(said, allowed=f"top from 1 to {experts}", do=do)
        self.top = top
        self.router, self.routing = nn.Linear(dim, experts, bias), routing or TopSoftmax()
        self.experts = nn.ModuleList(expert() for _ in range(experts))

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        tokens = x.flatten(0, -2)  # N C
        logits = self.router(tokens)  # N E
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # near ties flip in bf16
        gates, picks = self.routing(logits, self.top)  # N K
        gates = gates.to(x.dtype)
        self.show(logits, picks, visible_tokens(x, ctx), ctx)
        # data decides how many tokens an expert gets, and compiled code cannot: there all experts see all tokens
        mix = self.dense if torch.compiler.is_compiling() else self.shapes if x.is_meta else self.dispatched
        return mix(tokens, gates, picks, ctx).view_as(x)

    def dense(self, tokens: Tensor, gates: Tensor, picks: Tensor, ctx: Context = EMPTY) -> Tensor:
        """The definition: every expert on every token, weighed by its gate, which is 0 where it was not picked."""
        weights = gates.new_zeros(tokens.shape[0], len(self.experts)).scatter(1, picks, gates)  # N E
        return torch.stack([expert(tokens, ctx) for expert in self.experts], -1).mul(weights[:, None]).sum(-1)

    def dispatched(self, tokens: Tensor, gates: Tensor, picks: Tensor, ctx: Context = EMPTY) -> Tensor:
        """The same, each expert on its own tokens alone: (token, expert) pairs are sorted by expert and cut."""
        order = picks.flatten().argsort(stable=True)  # N·K
        owners = order // self.top
        counts = picks.flatten().bincount(minlength=len(self.experts)).tolist()
        shares = tokens[owners].split(counts)
        outs = [expert(share, ctx) for expert, share in zip(self.experts, shares, strict=True) if len(share)]
        weighed = torch.cat([*outs, tokens[:0]]) * gates.flatten()[order][:, None]
        return torch.zeros_like(tokens).index_add(0, owners, weighed)

    def shapes(self, tokens: Tensor, gates: Tensor, picks: Tensor, ctx: Context = EMPTY) -> Tensor:
        """The same without numbers: the first experts stand for the router's choice, since all cost alike."""
        return torch.stack([expert(tokens, ctx) for expert in self.experts[: self.top]]).sum(0)

    def show(self, logits: Tensor, picks: Tensor, real: Tensor | None, ctx: Context) -> None:
        """Emits what training and readers need, over real tokens alone."""
        if not ctx.traces():
            return
        if real is not None:
            logits, picks = logits[real], picks[real]
        probs = logits.softmax(-1)
        load = torch.zeros_like(probs).scatter(1, picks, 1.0).mean(0)  # E
        ctx.emit(self, "probs", probs)
        ctx.emit(self, "load", load)
        ctx.emit(self, "balance", load_balance(load, probs))
        ctx.emit(self, "z", logits.logsumexp(-1).square().mean())


class SharedExpert(nn.Module):
    """σ(gate(x)) · expert(x): an expert that sees every token, each of which says how much it takes, … C → … C."""

    tokenwise = True
    in_float32 = ("gate",)  # one row of numbers for each layer

    def __init__(self, expert: nn.Module, dim: int):
        super().__init__()
        self.expert, self.gate = expert, nn.Linear(dim, 1, bias=False)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.gate(x).sigmoid() * self.expert(x, ctx)


class TopSoftmax(nn.Module):
    """The experts of the `top` largest logits (N E), with the softmax over these as gates: N K each."""

    def forward(self, logits: Tensor, top: int) -> tuple[Tensor, Tensor]:
        chosen, picks = logits.topk(top, -1)
        return chosen.softmax(-1), picks


class GroupedSoftmax(nn.Module):
    """factor · softmax(logits) of the likeliest experts within `kept` of `groups` groups: DeepSeek-V2's.

    Kept are the groups whose likeliest expert is likeliest.
    """

    best = 1  # experts by whose sum a group is chosen

    def __init__(self, groups: int, kept: int, factor: float):
        super().__init__()
        if not 1 <= kept <= groups:
            raise UserError(f"routing to {kept} of {groups} groups of experts", allowed=f"1 to {groups}")
        self.groups, self.kept, self.factor = groups, kept, factor

    def forward(self, logits: Tensor, top: int) -> tuple[Tensor, Tensor]:
        scores = self.scores(logits)
        picks = self.within_groups(self.ranks(scores)).topk(top, -1).indices
        return self.gates(scores.gather(-1, picks)) * self.factor, picks

    def scores(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    def ranks(self, scores: Tensor) -> Tensor:
        """What experts are chosen by."""
        return scores

    def gates(self, chosen: Tensor) -> Tensor:
        return chosen

    def within_groups(self, ranks: Tensor) -> Tensor:
        """−∞ outside the groups that are kept, N E."""
        grouped = ranks.unflatten(-1, (self.groups, -1))
        chosen = grouped.topk(min(self.best, grouped.shape[-1]), -1).values.sum(-1).topk(self.kept, -1).indices
        inside = torch.zeros_like(grouped[..., 0], dtype=torch.bool).scatter(-1, chosen, True)  # N groups
        return grouped.masked_fill(~inside[..., None], float("-inf")).flatten(-2)


class GroupedSigmoid(GroupedSoftmax):
    """factor · σ(logits), made to sum to 1 over a token's experts; these are ranked by σ + correction: DeepSeek-V3's.

    The correction (E) balances the load and has no gradient: training adds to it where an expert gets too little.
    Kept are the groups whose two best experts are best.
    """

    best = 2

    def __init__(self, experts: int, groups: int, kept: int, factor: float):
        super().__init__(groups, kept, factor)
        self.register_buffer("correction", torch.zeros(experts))
        self.correction: Tensor

    def scores(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def ranks(self, scores: Tensor) -> Tensor:
        return scores + self.correction

    def gates(self, chosen: Tensor) -> Tensor:
        return chosen / (chosen.sum(-1, keepdim=True) + 1e-20)


def load_balance(load: Tensor, probs: Tensor) -> Tensor:
    """E Σ load · mean probability, over the experts (Switch Transformer)."""
    return len(load) * (load * probs.mean(0)).sum()


def visible_tokens(x: Tensor, ctx: Context) -> Tensor | None:
    """Which of the N tokens are not padding, by the mask: those that some query may see."""
    if ctx.keep is None or ctx.state is not None or ctx.rows is not None:
        return None
    return ctx.keep.any(1).expand(x.shape[0], x.shape[1]).flatten()
