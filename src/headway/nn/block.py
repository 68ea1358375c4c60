"""Containers of sublayers: residual connections, parallel sublayers, blocks, stacks, shared layers; dropout.

A sublayer is called with (x, ctx) and returns a change of x in the same shape.  Empty slots are identities, so each
`forward` reads like its equation.

A part declares two properties in its class, and tables below declare them for torch's own modules:

- `tokenwise`: its output at a token depends on its input at that token alone.  Declared by every part that stands in a
  `Residual`, as its body or in a slot, and by the norm of a `Stack`.
- `weight_decay`: its matrices shrink under weight decay.  Declared by every part that holds parameters of two or more
  dimensions.  Decay pulls towards zero, which means nothing for a value that is only added or multiplied: biases,
  norms.

The nearest class that declares a property decides.  A module that declares nothing, such as one of a user's own, is
taken to mix tokens and to decay; a test asserts that every part of an architecture declares both.

Axes:  B batch   T tokens   C width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context
from headway.ops.attend import drop


class Residual(nn.Module):
    """after(skip(x) + scale · drop(inside(body(before(x), ctx))))

    A norm in `before` makes it pre-norm, in `after` post-norm, in `before` and `inside` sandwich; scale=0.5 is
    macaron's half step; `skip` reshapes the residual path where the body changes the shape.  `scale` and `drop` take
    a number, or a part: `LayerScale`, `StochasticDepth`.
    """

    def __init__(
        self,
        body: nn.Module,
        *,
        before: nn.Module | None = None,
        inside: nn.Module | None = None,
        after: nn.Module | None = None,
        skip: nn.Module | None = None,
        scale: float | nn.Module = 1.0,
        drop: float | nn.Module = 0.0,
    ):
        super().__init__()
        self.before, self.body = before or Identity(), body
        self.inside, self.after = inside or Identity(), after or Identity()
        self.skip = skip or Identity()
        self.scale = scale if isinstance(scale, nn.Module) else Identity() if scale == 1.0 else Scale(scale)
        self.drop = drop if isinstance(drop, nn.Module) else Dropout(drop)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.combine(x, self.body(self.before(x), ctx), ctx)

    def combine(self, x: Tensor, change: Tensor, ctx: Context) -> Tensor:
        """The residual connection around the body's output `change`."""
        return self.after(self.skip(x) + self.weighed(change, ctx))

    def weighed(self, change: Tensor, ctx: Context = EMPTY) -> Tensor:
        """What is added to x for the body's output `change`."""
        return self.scale(self.drop(self.inside(change), ctx))


class Parallel(nn.Module):
    """The sum of several sublayers of the same input."""

    tokenwise = False

    def __init__(self, **sublayers: nn.Module):
        super().__init__()
        add_modules(self, sublayers)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return torch.stack([sublayer(x, ctx) for sublayer in self.children()]).sum(0)


class Block(nn.Module):
    """Sublayers in turn, each under its own name."""

    emits = ("out",)

    def __init__(self, **sublayers: nn.Module):
        super().__init__()
        add_modules(self, sublayers)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        for sublayer in self._modules.values():  # `children` would look for doubles at every step
            assert sublayer is not None
            x = sublayer(x, ctx)
        return ctx.emit(self, "out", x)


class ParallelBlock(Block):
    """x + the changes of all its residual sublayers, each of which reads x: GPT-J's layer, and PaLM's.

    Sublayers that share a norm hold the same one in `before`.
    """

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        y = x
        for part in self.children():
            assert isinstance(part, Residual)
            y = y + part.weighed(part.body(part.before(x), ctx), ctx)
        return ctx.emit(self, "out", y)


class Stack(nn.Module):
    """Blocks in turn, then a norm.

    `native` runs all blocks in one call (`native_blocks.lower_stacks`), or says that this call is for the blocks.
    """

    tokenwise = False

    native: Callable[[Tensor, Context], Tensor | None] | None = None

    def __init__(self, blocks: Iterable[nn.Module], norm: nn.Module | None = None):
        super().__init__()
        self.blocks, self.norm = nn.ModuleList(blocks), norm or Identity()

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        y = None if self.native is None or torch.compiler.is_compiling() else self.native(x, ctx)
        if y is not None:
            return self.norm(y)
        for block in self.blocks:
            x = block(x, ctx)
        return self.norm(x)


class Repeat(nn.Module):
    """The same block several times in turn: layers that share their parameters."""

    def __init__(self, block: nn.Module, times: int):
        super().__init__()
        self.block, self.times = block, times

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        for turn in range(self.times):
            state = None if ctx.state is None else ctx.state.child(turn)
            x = self.block(x, replace(ctx, state=state))
        return x


class IgnoreContext(nn.Module):
    """Lets a module of x alone stand where a sublayer of (x, ctx) is expected."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.body(x)


class Identity(nn.Identity):
    """x: an empty slot.  A decoding step calls a hundred of them, so they skip torch's hooks."""

    def __call__(self, x: Tensor, *given: object) -> Tensor:
        return x


class Scale(nn.Module):
    """x · factor"""

    tokenwise = True

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x if self.factor == 1.0 else x * self.factor

    def extra_repr(self) -> str:
        return f"{self.factor:g}"


class LayerScale(nn.Module):
    """x · a learned factor for each channel, small at first."""

    tokenwise = True

    def __init__(self, dim: int, start: float = 1e-5):
        super().__init__()
        self.factor = nn.Parameter(torch.full((dim,), start))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Dropout(nn.Dropout):
    """Dropout of single values.  In evaluation mode it skips torch's hooks like `Identity`."""

    def __call__(self, input: Tensor, ctx: Context = EMPTY) -> Tensor:
        return super().__call__(input, ctx) if self.training else input

    def forward(self, input: Tensor, ctx: Context = EMPTY) -> Tensor:
        return drop(input, self.p)


class TrainingOnly(nn.Module):
    """Something that is dropped while training, with `probability` below 1."""

    def __init__(self, probability: float):
        super().__init__()
        if not 0.0 <= probability < 1.0:
            said = f"{type(self).__name__}({probability})"
            raise UserError(said, allowed="a probability from 0 up to, but not, 1")
        self.probability = probability

    def extra_repr(self) -> str:
        return f"{self.probability:g}"


class StochasticDepth(TrainingOnly):
    """While training, drops a row's whole change with `probability`, and scales the others by 1 / (1 − probability)."""

    tokenwise = True

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        if not self.training or self.probability == 0.0:
            return x
        kept = 1.0 - self.probability
        rows = x.shape[0] if ctx.rows is None else len(ctx.rows.lengths)
        factor = torch.bernoulli(torch.full((rows,), kept, device=x.device)).to(x.dtype) / kept
        if ctx.rows is not None:
            return x * factor[ctx.rows.owners][None, :, None]
        return x * factor.view(-1, *[1] * (x.dim() - 1))


def add_modules(parent: nn.Module, children: dict[str, nn.Module]) -> None:
    for name, child in children.items():
        parent.add_module(name, child)


def tokenwise(part: nn.Module) -> bool | None:
    return declared(type(part), "tokenwise", TOKENWISE)


def weight_decay(part: nn.Module) -> bool | None:
    return declared(type(part), "weight_decay", WEIGHT_DECAY)


def declared(kind: type, name: str, table: Mapping[type[nn.Module], bool]) -> bool | None:
    """What the nearest class says in its own body or in the table; None: none of them says anything."""
    for base in kind.__mro__:
        if name in vars(base):
            return vars(base)[name]
        if base in table:
            return table[base]
    return None


NORMALISATIONS = (nn.GroupNorm, nn.modules.batchnorm._NormBase)  # pyright: ignore[reportPrivateUsage]
TOKENWISE: dict[type[nn.Module], bool] = {
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.LayerNorm, nn.RMSNorm, nn.Linear, nn.ReLU), True),
    **dict.fromkeys((*NORMALISATIONS, nn.MaxPool2d, nn.Sequential), False),
}
WEIGHT_DECAY: dict[type[nn.Module], bool] = {
    **dict.fromkeys((nn.LayerNorm, nn.RMSNorm, *NORMALISATIONS), False),
    **dict.fromkeys((nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.RNNBase), True),
}
