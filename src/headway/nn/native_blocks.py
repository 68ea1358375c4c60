"""The blocks of an encoder in int8 as one call of the native library.

The definition is each block by itself (`Stack.forward`).  An encoder of int8 spends a tenth of its time between its
products: in Python, norms, sums and copies.  A sequence's result does not depend on the others of its batch.

Axes:  B rows   T tokens   C width
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from headway.native.library import is_plain
from headway.native.residual_sublayers import Int8Layer, ResidualSublayer, RowNorm, SublayerProgram
from headway.native.sequence_attention import MAX_KEYS, AttentionSizes, usable_library
from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Dropout, Identity, Residual, Stack, StochasticDepth
from headway.nn.context import Context
from headway.nn.ffn import FFN, activation_style
from headway.nn.fused_linear import has_hooks
from headway.nn.low_precision import Int8Linear
from headway.ops.attend import Dot
from headway.ops.pattern import Causal


class NotNativeError(Exception):
    """A part that the library has no call for."""


class NativeBlocks:
    """Residual sublayers that the library runs in one call, as long as their tensors are those that they were."""

    def __init__(self, sublayers: Sequence[Residual], watched: Sequence[nn.Module]):
        self.sublayers, self.watched = tuple(sublayers), tuple(watched)
        self.program: SublayerProgram | None = None
        self.tensors = tuple[object, ...]()

    @staticmethod
    def of(stack: Stack) -> NativeBlocks | None:
        """The blocks of a stack; None: they are for the modules themselves."""
        blocks = list(stack.blocks)
        sublayers = [part for block in blocks for part in block.children() if isinstance(part, Residual)]
        plain = all(type(block) is Block and len(list(block.children())) > 0 for block in blocks)
        if not plain or len(sublayers) != sum(len(list(block.children())) for block in blocks) or not sublayers:
            return None
        found = NativeBlocks(sublayers, [part for part in stack.blocks.modules() if not isinstance(part, Identity)])
        try:
            found.prepare()
        except NotNativeError:
            return None
        return found

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "program": None, "tensors": ()}  # a copy has tensors of its own

    def __call__(self, x: Tensor, ctx: Context) -> Tensor | None:
        """B T C → B T C; None: that is for the modules."""
        given = (ctx.state, ctx.keep, ctx.positions)
        if torch.is_grad_enabled() or x.dim() != 3 or ctx.traces() or any(one is not None for one in given):
            return None
        lengths = [x.shape[1]] * x.shape[0] if ctx.rows is None else ctx.rows.lengths
        library = usable_library(x) if max(lengths, default=0) <= MAX_KEYS else None
        if library is None or nn.modules.module._has_any_global_hook():  # pyright: ignore[reportPrivateUsage]
            return None
        if any(part.training or has_hooks(part) or "forward" in vars(part) for part in self.watched):
            return None
        program = self.prepare()
        return program.run(library, library.best, x, lengths) if x.shape[2] == program.width else None

    def prepare(self) -> SublayerProgram:
        """The program, written anew where a tensor was replaced."""
        tensors = tuple(tensors_of(self.watched))
        if self.program is None or any(a is not b for a, b in zip(tensors, self.tensors, strict=True)):
            self.program, self.tensors = lowered(self.sublayers), tensors
        return self.program


def tensors_of(parts: Iterable[nn.Module]) -> Iterator[object]:
    for part in parts:
        if isinstance(part, Int8Linear):
            yield part.panels
        yield from part._buffers.values()  # pyright: ignore[reportPrivateUsage]
        yield from part._parameters.values()  # pyright: ignore[reportPrivateUsage]


def lowered(sublayers: Sequence[Residual]) -> SublayerProgram:
    attentions = [part.body for part in sublayers if isinstance(part.body, SelfAttention)]
    sizes = {AttentionSizes(one.heads, one.kv_heads, one.head_dim) for one in attentions}
    given = [sublayer(part) for part in sublayers]
    width = given[0].last.panels.outputs
    require(len(sizes) < 2 and all(one.last.panels.outputs == one.first[0].inputs == width for one in given))
    return SublayerProgram(given, width, next(iter(sizes), None))


def sublayer(part: Residual) -> ResidualSublayer:
    require(type(part) is Residual and isinstance(part.skip, Identity) and isinstance(part.scale, Identity))
    require(all(isinstance(slot, Identity | Dropout | StochasticDepth) for slot in (part.inside, part.drop)))
    before, after, body = row_norm(part.before), row_norm(part.after), part.body
    if isinstance(body, SelfAttention):
        require(body.is_plain_dot() and isinstance(body.score, Dot))
        assert isinstance(body.score, Dot)
        first = tuple(int8_layer(layer) for layer in (body.q, body.k, body.v))
        scale = body.head_dim**-0.5 if body.score.scale is None else body.score.scale
        require(scale > 0.0)
        return ResidualSublayer(before, first, int8_layer(body.out), after, scale, isinstance(body.pattern, Causal))
    require(type(body) is FFN and isinstance(body.middle, Identity))
    assert isinstance(body, FFN)
    style = activation_style(body.act)
    require(style is not None)
    assert style is not None
    return ResidualSublayer(before, (int8_layer(body.up)._replace(style=style),), int8_layer(body.down), after)


def row_norm(part: nn.Module) -> RowNorm | None:
    if isinstance(part, nn.Identity):
        return None
    if type(part) is nn.LayerNorm:
        found = RowNorm(part.weight, part.bias, part.eps, centred=True)
    else:
        require(type(part) is nn.RMSNorm)
        assert isinstance(part, nn.RMSNorm)
        found = RowNorm(part.weight, None, torch.finfo(torch.float32).eps if part.eps is None else part.eps, False)
    require(len(part.normalized_shape) == 1 and all(is_plain(one) and is_dense(one) for one in found[:2]))
    return found


def int8_layer(layer: nn.Module) -> Int8Layer:
    require(type(layer) is Int8Linear)
    assert isinstance(layer, Int8Linear)
    require(is_plain(layer.scale) and is_plain(layer.bias) and is_dense(layer.scale) and is_dense(layer.bias))
    if layer.panels is None:
        raise NotNativeError
    return Int8Layer(layer.in_features, layer.panels, layer.scale, layer.bias)


def is_dense(tensor: Tensor | None) -> bool:
    return tensor is None or tensor.is_contiguous()


def require(condition: bool) -> None:
    if not condition:
        raise NotNativeError


def lower_stacks(model: nn.Module) -> None:
    """Lets the stacks of a model whose int8 weights are packed run natively, where they can."""
    for part in model.modules():
        if type(part) is Stack:
            part.native = NativeBlocks.of(part)
