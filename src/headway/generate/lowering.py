"""Lowering: a model of headway.nn as a program for the library, part by part.

Each kind of part has one function in one of two tables, `PARTS` and `SLOTS`, by its exact class, so that a subclass,
which may do something else, is not mistaken for it.  A part, or an option of it, without a lowering makes the whole
model take the torch path: `lower` gives None.

Axes:  B rows   C width   F hidden width   G kv-heads   H heads   D head width   S room for tokens
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from headway.generate.step_program import OpKind, Register, StepProgram
from headway.native.library import NativeLibrary, is_plain, native_library
from headway.nn.attention import Attention, CrossAttention, SelfAttention
from headway.nn.block import Block, Dropout, Identity, Residual, Scale, Stack, StochasticDepth
from headway.nn.embed import LearnedPosition, MarkedPosition, NoPosition, SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN, Activation, GatedFFN, Hidden, activation_style
from headway.nn.fused_linear import fuse_in_place, has_hooks
from headway.nn.head import LMHead, MLMHead
from headway.nn.low_precision import Int8Hidden, Int8Linear, Int8LMHead, Int8Weights
from headway.nn.trunk import Trunk
from headway.ops.attend import Dot
from headway.ops.pattern import Causal, Full, Positions
from headway.ops.rotary import HALVES, PAIRS, Rotary

T = TypeVar("T")
LAYOUTS = {HALVES: 0, PAIRS: 1}


class LoweringError(Exception):
    """A part of a model that the library has no operation for."""


def lower(model: nn.Module, capacity: int) -> StepProgram | None:
    """A step of `model` with a KV cache of `capacity` tokens; None: that is for the torch path."""
    library = native_library()
    if not isinstance(library, NativeLibrary) or type(model) is not Trunk:
        return None
    hooked = nn.modules.module._has_any_global_hook()  # pyright: ignore[reportPrivateUsage]
    if hooked or any(part.training or has_hooks(part) or "forward" in vars(part) for part in model.modules()):
        return None
    program = StepProgram(library, capacity)
    try:
        lower_trunk(program, model)
    except LoweringError:
        return None
    return program


def lower_trunk(program: StepProgram, model: Trunk) -> None:
    x = lower_part(program, model.stack, embedded(program, model.embed))
    program.add(OpKind.SELECT, x, x)
    head = model.head
    if type(head) is MLMHead:
        x, head = lower_narrowed(program, head, x), head.words
    head = exactly(LMHead, head, Int8LMHead)
    if (scale := exactly(Scale, head.multiplier)).factor != 1.0:
        program.add(OpKind.SCALE, x, x, number=scale.factor)
    multiply(program, x, program.register("logits", len(head.weight)), head)


def lower_narrowed(program: StepProgram, part: MLMHead, x: Register) -> Register:
    hidden = lower_linear(program, part.dense, x, "dense")
    program.add(OpKind.ACTIVATE, hidden, hidden, style=style_of(part.act))
    return lower_slot(program, part.norm, hidden, hidden)


def lower_part(program: StepProgram, part: nn.Module, x: Register) -> Register:
    """The register that holds part(x); x itself may be written over by containers, not by what stands in them."""
    if type(part) not in PARTS:
        raise LoweringError
    return PARTS[type(part)](program, part, x)


def lower_slot(program: StepProgram, part: nn.Module, x: Register, target: Register, heads: int = 1) -> Register:
    """The register that holds part(x): `target`, or x where the slot is empty.  `heads` are normed one by one."""
    kind = type(part)
    if kind in (Identity, nn.Identity):
        return x
    if kind is nn.LayerNorm:
        norm, op = exactly(nn.LayerNorm, part), OpKind.LAYER_NORM
        eps, bias = norm.eps, vector(norm.bias)
    else:
        norm, op = exactly(nn.RMSNorm, part), OpKind.RMS_NORM
        eps, bias = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps, None
    width = x.width // heads
    require(norm.normalized_shape == (width,))
    program.add(op, x, target, outputs=width, heads=heads, number=eps, weight=vector(norm.weight), bias=bias)
    return target


def embedded(program: StepProgram, part: nn.Module) -> Register:
    part = exactly(TokenEmbed, part)
    require(part.segment is None and type(part.widen) is nn.Identity)
    x = program.register("embedded", part.token.embedding_dim)
    positions, factor = position_table(program, part.position), exactly(Scale, part.scale).factor
    program.embed(x, table(part.token), positions, factor)
    lower_slot(program, part.norm, x, x)
    if type(part.project) is nn.Identity:
        return x
    return lower_linear(program, part.project, x, "projected")


def table(part: nn.Embedding) -> Tensor:
    require(exactly(nn.Embedding, part).max_norm is None)
    return floats(part.weight)


def position_table(program: StepProgram, part: nn.Module) -> Tensor | None:
    """A vector for each position, S C; None: the embedding marks none."""
    if type(part) is NoPosition:
        return None
    if type(part) not in (LearnedPosition, SinusoidalPosition):
        raise LoweringError
    assert isinstance(part, MarkedPosition)
    program.owners.append(part)
    if isinstance(part, LearnedPosition):
        program.positions = min(program.positions, part.room)
        return table(part.table)[part.first :].contiguous()
    return floats(part.marks(each_alone(program))).flatten(1).contiguous()


def each_alone(program: StepProgram) -> Positions:
    """All positions, S 1: as rows of one token, since that is what a step has."""
    return Positions(torch.arange(program.capacity)[:, None])


def lower_stack(program: StepProgram, part: nn.Module, x: Register) -> Register:
    assert isinstance(part, Stack)
    for block in part.blocks:
        x = lower_part(program, block, x)
    return lower_slot(program, part.norm, x, x)


def lower_block(program: StepProgram, part: nn.Module, x: Register) -> Register:
    for sublayer in part.children():
        x = lower_part(program, sublayer, x)
    return x


def lower_residual(program: StepProgram, part: nn.Module, x: Register) -> Register:
    assert isinstance(part, Residual)
    require(type(part.skip) is Identity and type(part.drop) in (Dropout, StochasticDepth))
    require(type(part.scale) in (Identity, Scale))
    change = lower_part(program, part.body, lower_slot(program, part.before, x, program.register("before", x.width)))
    require(change.width == x.width)
    change = lower_slot(program, part.inside, change, change)
    program.add(OpKind.ADD, change, x, number=part.scale.factor if isinstance(part.scale, Scale) else 1.0)
    return lower_slot(program, part.after, x, x)


def lower_ffn(program: StepProgram, part: nn.Module, x: Register) -> Register:
    assert isinstance(part, FFN)
    exactly(Dropout, part.drop)
    hidden, other = lower_linear(program, part.up, x, "up"), -1
    if isinstance(part, GatedFFN):
        hidden, other = lower_linear(program, part.gate, x, "gate"), hidden.index
    program.add(OpKind.ACTIVATE, hidden, hidden, style=style_of(part.act), second=other)
    if type(part.middle) is not Identity:
        middle = exactly(Hidden, part.middle, Int8Hidden)
        hidden = product(program, middle, hidden, "middle")
        program.add(OpKind.ACTIVATE, hidden, hidden, style=style_of(middle.act))
    return lower_linear(program, part.down, hidden, "change")


def style_of(act: Activation) -> int:
    style = activation_style(act)
    if style is None:
        raise LoweringError
    return style


def lower_self_attention(program: StepProgram, part: nn.Module, x: Register) -> Register:
    assert isinstance(part, SelfAttention)
    q, k, v = projections(program, part, x)
    lower_slot(program, part.k_norm, k, k, part.kv_heads)
    lower_rotary(program, part.rotary, k, part.kv_heads)
    cache = program.keys_of(part, memory=False)
    program.owners.append(part)
    sizes = {"kv_heads": part.kv_heads, "head_dim": part.head_dim, "cache": cache}
    program.add(OpKind.APPEND, k, k, second=v.index, **sizes)
    require(type(part.pattern) in (Causal, Full))
    program.causal = program.causal and type(part.pattern) is Causal
    window = part.pattern.window if isinstance(part.pattern, Causal) else None
    return lower_queries(program, part, q, cache, window, bias_table(program, part))


def projections(program: StepProgram, part: SelfAttention, x: Register) -> list[Register]:
    """Queries, keys and values; by one product where their weights lie side by side (`arrange`): long runs of memory
    are read faster."""
    layers = [exactly(nn.Linear, layer, Int8Linear) for layer in (part.q, part.k, part.v)]
    whole = fuse_in_place(layers)
    if whole is None:
        return [product(program, layer, x, name) for layer, name in zip(layers, "qkv", strict=True)]
    joined, first = program.register("joined", sum(whole.widths)), 0
    program.linear(x, joined, matrix(whole.weight), vector(whole.bias))
    found = list[Register]()
    for name, width in zip("qkv", whole.widths, strict=True):
        found.append(program.register(name, width))
        program.add(OpKind.SCALE, joined, found[-1], number=1.0, column=first)
        first += width
    return found


def lower_cross_attention(program: StepProgram, part: nn.Module, x: Register) -> Register:
    assert isinstance(part, CrossAttention)
    require(part.shares_memory)
    q = lower_linear(program, part.q, x, "q")
    return lower_queries(program, part, q, program.keys_of(part, memory=True), None, None)


def lower_queries(
    program: StepProgram, part: Attention, q: Register, cache: int, window: int | None, bias: Tensor | None
) -> Register:
    """out(softmax(q k + bias) v), the keys and values being in the cache."""
    score = exactly(Dot, part.score)
    lower_slot(program, part.q_norm, q, q, part.heads)
    lower_rotary(program, part.rotary, q, part.heads)
    seen = program.register("heads", q.width)
    scale = part.head_dim**-0.5 if score.scale is None else score.scale
    sizes = {"heads": part.heads, "kv_heads": part.kv_heads, "head_dim": part.head_dim, "cache": cache}
    program.add(OpKind.ATTEND, q, seen, number=scale, window=window or 0, bias=bias, row=program.capacity, **sizes)
    return lower_linear(program, part.out, seen, "change")


def bias_table(program: StepProgram, part: Attention) -> Tensor | None:
    """What the logits of each head are moved by, for each distance to a key behind it, H S."""
    bias = part.logit_bias
    if bias is None:
        return None
    from headway.nn.bias import Alibi, T5Bias

    if not isinstance(bias, T5Bias | Alibi) or type(bias) not in (T5Bias, Alibi):
        raise LoweringError
    (values,) = program.table(bias, lambda: (bias.values(-torch.arange(program.capacity)),))
    return values


def lower_rotary(program: StepProgram, rotary: Rotary | None, x: Register, heads: int) -> None:
    if rotary is None:
        return
    require(exactly(Rotary, rotary).layout in LAYOUTS)
    cos, sin = program.table(rotary, lambda: rotary.waves(each_alone(program).at))  # S 1 1 F
    sizes = {"heads": heads, "head_dim": rotary.head_dim, "turned": rotary.width, "style": LAYOUTS[rotary.layout]}
    program.add(OpKind.ROTARY, x, x, weight=cos, scale=sin, **sizes)


def lower_linear(program: StepProgram, layer: nn.Module, x: Register, name: str) -> Register:
    """layer(x) in the register of this name."""
    return product(program, exactly(nn.Linear, layer, Int8Linear), x, name)


def product(program: StepProgram, layer: nn.Linear, x: Register, name: str) -> Register:
    """x Wᵀ + b"""
    require(layer.in_features == x.width)
    target = program.register(name, layer.out_features)
    multiply(program, x, target, layer)
    return target


def multiply(program: StepProgram, x: Register, target: Register, layer: nn.Linear | LMHead) -> None:
    """target = x Wᵀ + b, by the integers of a layer that has such."""
    if isinstance(layer, Int8Weights):
        if layer.panels is None or not is_plain(layer.scale) or not is_plain(layer.bias):
            raise LoweringError
        program.linear_int8(x, target, layer.panels, layer.scale, layer.bias)
    else:
        program.linear(x, target, matrix(layer.weight), vector(layer.bias))


def matrix(weight: Tensor) -> Tensor:
    """Weights of which one axis is dense."""
    require(1 in weight.stride())
    return floats(weight)


def vector(values: Tensor | None) -> Tensor | None:
    return None if values is None else floats(values).contiguous()


def floats(x: Tensor) -> Tensor:
    """Numbers that the library can read where they are."""
    require(x.dtype == torch.float32 and x.device.type == "cpu" and type(x) in (Tensor, nn.Parameter))
    return x.detach()


def exactly(kind: type[T], part: object, *low: type[T]) -> T:
    """The part, if it is of this very class, or of that of the same part in low precision."""
    if not isinstance(part, kind) or type(part) not in (kind, *low):
        raise LoweringError
    return part


def require(condition: bool) -> None:
    if not condition:
        raise LoweringError


PARTS: Mapping[type[nn.Module], Callable[[StepProgram, nn.Module, Register], Register]] = {
    Stack: lower_stack,
    Block: lower_block,
    Residual: lower_residual,
    FFN: lower_ffn,
    GatedFFN: lower_ffn,
    SelfAttention: lower_self_attention,
    CrossAttention: lower_cross_attention,
}
