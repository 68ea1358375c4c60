"""The last layer at selected tokens: only those that the head reads, such as the class token or masked words.

The outputs of the last layer at all other tokens are unused.  So only the selected tokens are queries, all tokens are
keys, and only the selected ones pass the feed-forward layer and the head.  Of 12 layers that saves a ViT 7 %.

The definition is the whole stack.  Models in evaluation mode are computed by it, so that their outputs are
bit-identical with and without a recording; the selection agrees with it up to rounding.

Axes:  B batch   T tokens   C width   M chosen tokens
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor, nn

from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.context import Context
from headway.nn.fused_linear import has_hooks
from headway.nn.packed import TokenSelection
from headway.nn.properties import tokenwise


def stack_at(stack: nn.Module, chosen: TokenSelection, x: Tensor, ctx: Context) -> Tensor:
    """stack(x, ctx) at the selected tokens, 1 M C, where `can_select_tokens`."""
    assert isinstance(stack, Stack)
    *others, last = stack.blocks
    for block in others:
        x = block(x, ctx)
    looking, *rest = last.children()
    assert isinstance(looking, Residual)
    assert isinstance(looking.body, SelfAttention)
    few = Context(rows=chosen.rows)
    x = looking.combine(chosen.of(x), looking.body.at(chosen, looking.before(x), ctx), few)
    for sublayer in rest:
        x = sublayer(x, few)
    return stack.norm(x)


def can_select_tokens(stack: nn.Module, x: Tensor, ctx: Context) -> bool:
    """Whether a stack is in training, its last layer can be computed at single tokens, and nobody reads the others."""
    if not stack.training or not isinstance(stack, Stack) or not len(stack.blocks):
        return False
    if x.dim() != 3 or x.is_meta or torch.compiler.is_compiling() or ctx.traces() or ctx.state is not None:
        return False
    if ctx.keep is not None and ctx.keep.shape[1] != 1:  # each query sees other keys
        return False
    last = stack.blocks[-1]
    if not tokenwise(stack.norm) or not mixes_once(last):
        return False
    return not any(map(has_hooks, (stack, stack.norm, *last.modules())))


def mixes_once(block: nn.Module) -> bool:
    """Whether a layer is self-attention and then works on tokens one by one."""
    parts = [part for part in block.children() if has_tokenwise_slots(part)]
    if type(block) is not Block or not parts or len(parts) < len(list(block.children())):
        return False
    attention, *others = (part.body for part in parts)
    return type(attention) is SelfAttention and all(map(tokenwise, others))


def has_tokenwise_slots(part: nn.Module) -> TypeGuard[Residual]:
    """Whether a part is a residual sublayer, and what stands around its body works on tokens one by one."""
    slots = (child for name, child in part.named_children() if name != "body")
    return type(part) is Residual and all(map(tokenwise, slots))
