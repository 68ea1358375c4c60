"""One pass of a model that has shapes and no numbers, on the meta device, and what it tells of each layer.

What is counted as a FLOP is told in `cost`.

Axes:  B batch   H heads   T queries   S keys   D head width   E value width
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod

import torch
from torch import Tensor, nn

from headway.nn.attention import Attention, SelfAttention
from headway.nn.context import EMPTY, Context
from headway.nn.head import LMHead
from headway.nn.learned_score import BilinearScore
from headway.nn.moe import MoE
from headway.nn.recurrent import BidirectionalEncoder, RecurrentEncoder
from headway.nn.recurrent_attention import RecurrentDecoder
from headway.nn.state import State
from headway.nn.towers import TwoTowers
from headway.nn.trace import SILENT, Seen, Trace, sites_of
from headway.nn.trunk import EncoderDecoder
from headway.ops.attention_map import AttentionMap
from headway.ops.pattern import Full, Pattern


@dataclass
class Tally:
    """What one layer has, and takes for a whole batch: numbers, not bytes."""

    parameters: int = 0
    flops: int = 0
    cache: int = 0
    attention: int = 0


@torch.no_grad()
def tallied(model: nn.Module, given: tuple[Tensor, ...]) -> dict[str, Tally]:
    """The tally of each layer, in the order of the model, when it is called with what is `given`."""
    tallies: dict[str, Tally] = {}
    for path, parameter in model.named_parameters():
        tallies.setdefault(layer(path), Tally()).parameters += parameter.numel()
    patterns = settle(model)
    names = named_layers(model)
    for module, name in names.items():
        module.register_forward_hook(partial(add_products, tallies.setdefault(name, Tally())))
    attends = any(what == "weights" for _, what in sites_of(model).values())
    trace = Trace(model, *(["*.weights", "*.values"] if attends else []))
    state = State() if reads_tokens(given) and only_looks_back(model, patterns) else None
    call(model, given, trace, state)
    for (site, what), name in trace.names.items():
        if what == "weights":
            values = trace.all(name.removesuffix("weights") + "values")
            tally_maps(tallies[names[site]], patterns[site], trace.all(name), values)
    for owner, tensors in kept(state):
        tallies[names[owner]].cache += sum(x.numel() for x in tensors if x.is_floating_point())
    return {name: tally for name, tally in tallies.items() if tally != Tally()}


def named_layers(model: nn.Module) -> dict[nn.Module, str]:
    names = {module: layer(path) for path, module in model.named_modules()}
    units = {module: unit(module) for module in names if isinstance(module, RecurrentDecoder | RecurrentEncoder)}
    return names | {module: names[inner] for module, inner in units.items()}


def unit(module: RecurrentDecoder | RecurrentEncoder) -> nn.Module:
    return module.cell if isinstance(module, RecurrentDecoder) else module.rnn


def settle(model: nn.Module) -> dict[nn.Module, Pattern]:
    """Prepares a model for a pass without numbers, and tells what each attention may see.

    The first experts stand for a router's choice, since all cost alike; recurrent layers take no steps, and nothing is
    hidden from a query, since steps and pairs are counted and not computed.
    """
    patterns: dict[nn.Module, Pattern] = {}
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, MoE):
                setattr(parent, name, FirstExperts(child))
            if isinstance(child, nn.RNNBase):
                setattr(parent, name, Unrolled(child))
        if isinstance(parent, Attention):
            patterns[parent], parent.pattern = parent.pattern, Full()
    return patterns


class FirstExperts(nn.Module):
    """Every token to the first `top` experts."""

    def __init__(self, moe: MoE):
        super().__init__()
        self.router, self.experts, self.top = moe.router, moe.experts, moe.top

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        self.router(x)
        return torch.stack([expert(x, ctx) for expert in self.experts[: self.top]]).sum(0)


class Unrolled(nn.Module):
    """Layers of torch's recurrent units, by their shapes alone: the meta device takes 2 ms for each step of a layer."""

    def __init__(self, rnn: nn.RNNBase):
        super().__init__()
        self.rnn, self.width = rnn, rnn.hidden_size * (2 if rnn.bidirectional else 1)

    def forward(self, x: Tensor, hidden: object) -> tuple[Tensor, object]:
        return x.new_empty(*x.shape[:2], self.width), hidden


def reads_tokens(given: tuple[Tensor, ...]) -> bool:
    return not given[-1].is_floating_point()


def only_looks_back(model: nn.Module, patterns: dict[nn.Module, Pattern]) -> bool:
    """Whether the model writes word by word, and so has a cache; of an encoder–decoder, the decoder does."""
    writer = model.decoder if isinstance(model, EncoderDecoder) else model
    return not any(
        isinstance(m, BidirectionalEncoder) or (isinstance(m, SelfAttention) and patterns[m].looks_ahead())
        for m in writer.modules()
    )


def call(model: nn.Module, given: tuple[Tensor, ...], trace: Trace, state: State | None) -> None:
    ctx = Context(trace=trace, state=state)
    match model:
        case EncoderDecoder():
            model.decoder(given[-1], model.remember(given[0], Context(trace=trace), ctx))
        case TwoTowers():
            model(*given, ctx, ctx)
        case _:
            model(*given, ctx)


def add_products(tally: Tally, module: nn.Module, inputs: object, output: Tensor | tuple[Tensor, object]) -> None:
    """Adds the products of a module's own matrices with the vectors of one call."""
    out = output if isinstance(output, Tensor) else output[0]
    match module:
        case nn.Linear() | LMHead() | nn.Conv1d() | nn.Conv2d():
            tally.flops += 2 * out.numel() // module.weight.shape[0] * module.weight.numel()
        case RecurrentEncoder() | RecurrentDecoder():
            matrices = [p for p in unit(module).parameters() if p.dim() == 2]
            tally.flops += 2 * prod(out.shape[:-1]) * sum(p.numel() for p in matrices)
        case _:
            pass


def tally_maps(tally: Tally, pattern: Pattern, maps: Sequence[Seen], values: Sequence[Seen]) -> None:
    """Adds the products of attention, and the numbers that its matrices would have."""
    for amap, value in zip(maps, values, strict=True):
        assert isinstance(amap, AttentionMap)
        assert isinstance(value, Tensor)
        rows, heads, queries, keys = amap.shape
        pairs = rows * heads * visible(pattern, queries, keys)
        tally.flops += 2 * pairs * (amap.k.shape[-1] + value.shape[-1])
        if isinstance(amap.score, BilinearScore):
            tally.flops += 2 * rows * heads * queries * amap.score.weight.numel()
        tally.attention += prod(amap.shape)


@cache
def visible(pattern: Pattern, queries: int, keys: int) -> int:
    """How many pairs of a query and a key the pattern lets see each other, both counted from position 0."""
    if isinstance(pattern, Full):
        return queries * keys
    reached = ((max(a, 0), min(b, keys)) for at in range(queries) for a, b in pattern.reach((at, at + 1)))
    return sum(b - a for a, b in reached if a < b)


def kept(state: State | None) -> Iterator[tuple[nn.Module, tuple[Tensor, ...]]]:
    """All that a state holds, by owner."""
    if state is not None:
        yield from ((owner, filled.tensors) for owner, filled in state.seen.items())
        yield from state.kept.items()
        for child in state.children.values():
            yield from kept(child)


def layer(path: str) -> str:
    """The layer that a path belongs to, as sites are named: `decoder.3` for decoder.stack.blocks.3.attn.body.q"""
    words = [word for word in path.split(".") if word not in SILENT]
    side = 1 if words[:1] in (["encoder"], ["decoder"], ["image"], ["text"]) else 0
    return ".".join(words[: side + 1])
