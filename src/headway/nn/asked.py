"""The last layer, only where somebody reads it: at the class token, at the words that are masked.

What all other tokens become in the last layer goes nowhere.  So only the chosen ones ask, all are seen, and the chosen
ones alone go on through its feed-forward layer to the head.  Of 12 layers that spares a ViT 7 %.

The definition is the whole stack, and it is what a model that has learned is asked by: its answers are then the same
with and without a recording, to the bit, where these are the same to rounding.

Axes:  B batch   T tokens   C width   M chosen tokens
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor, nn

from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Dropout, LayerScale, Residual, Scale, Stack, StochasticDepth
from headway.nn.context import Context
from headway.nn.ffn import FFN
from headway.nn.joined import hooked
from headway.nn.rows import Chosen

SINGLE = (nn.Identity, nn.LayerNorm, nn.RMSNorm, Dropout, Scale, LayerScale, StochasticDepth)  # mix no tokens


def stack_at(stack: nn.Module, chosen: Chosen, x: Tensor, ctx: Context) -> Tensor:
    """stack(x, ctx) at the chosen tokens, 1 M C, where it can be asked for them."""
    assert isinstance(stack, Stack)
    *others, last = stack.blocks
    for block in others:
        x = block(x, ctx)
    looking, *rest = last.children()
    assert isinstance(looking, Residual)
    assert isinstance(looking.body, SelfAttention)
    few = Context(rows=chosen.rows)
    x = looking.added(chosen.of(x), looking.body.at(chosen, looking.before(x), ctx), few)
    for sublayer in rest:
        x = sublayer(x, few)
    return stack.norm(x)


def can_ask(stack: nn.Module, x: Tensor, ctx: Context) -> bool:
    """Whether a stack learns, can be asked at single tokens, and nobody waits for the others."""
    if not stack.training or not isinstance(stack, Stack) or not len(stack.blocks):
        return False
    if x.dim() != 3 or x.is_meta or torch.compiler.is_compiling() or ctx.traces() or ctx.state is not None:
        return False
    if ctx.keep is not None and ctx.keep.shape[1] != 1:  # each query sees other keys
        return False
    last = stack.blocks[-1]
    return mixes_once(last) and not any(map(hooked, (stack, stack.norm, *last.modules())))


def mixes_once(block: nn.Module) -> bool:
    """Whether a layer is attention and then works on tokens one by one."""
    parts = list(block.children())
    if type(block) is not Block or not parts:
        return False
    look, *others = parts
    single = all(is_single(part) and isinstance(part.body, FFN) for part in others)
    return single and is_single(look) and type(look.body) is SelfAttention


def is_single(part: nn.Module) -> TypeGuard[Residual]:
    """Whether what stands around a sublayer's body works on tokens one by one."""
    if type(part) is not Residual:
        return False
    slots = (part.before, part.inside, part.after, part.skip, part.scale, part.drop)
    return all(isinstance(slot, SINGLE) for slot in slots)
