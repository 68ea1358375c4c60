"""Dual encoders (CLIP, SigLIP): the vectors of images and texts, or of two views of an image, compared by cosine.

Axes:  B batch   T tokens   N images   M texts   C width   P width of the vectors that are compared
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context, padded, to_front
from headway.nn.head import RowHead
from headway.nn.trunk import Trunk
from headway.ops.losses import cosines, info_nce, sigmoid_pairs
from headway.ops.pattern import both


class TwoTowers(nn.Module):
    """scale · cosine(image tower, text tower): how well each image and each text belong together.

    N Ch H W, M T → N M.  The scale is learned as its logarithm from 1 / 0.07, and while it learns held at `most`, as
    CLIP's is.
    """

    reads_pairs = True

    def __init__(self, image: Trunk, text: Trunk, *, start: float = 1 / 0.07, most: float = 100.0):
        super().__init__()
        if not 0 < start <= most:
            raise UserError(f"TwoTowers(start={start:g}, most={most:g}) could not learn", allowed="0 < start ≤ most")
        self.image, self.text, self.most = image, text, most
        self.log_scale = nn.Parameter(torch.tensor(log(start)))

    @property
    def input_encoder(self) -> Trunk:
        return self.image

    def forward(self, images: Tensor, texts: Tensor, image_ctx: Context = EMPTY, text_ctx: Context = EMPTY) -> Tensor:
        return self.scale * cosines(self.image(images, image_ctx), self.text(texts, text_ctx))

    @property
    def scale(self) -> Tensor:
        """The inverse temperature."""
        return (self.log_scale.clamp(max=log(self.most)) if self.training else self.log_scale).exp()

    def probabilities(self, images: Tensor, texts: Tensor) -> Tensor:
        """How likely each image belongs to each of the texts, from their vectors: N P, M P → N M."""
        return (self.scale * cosines(images, texts)).softmax(-1)

    def loss(self, images: Tensor, texts: Tensor, owners: Tensor | None = None) -> Tensor:
        """That of a batch of pairs, from their vectors, N P each; see `info_nce`."""
        return info_nce(images, texts, self.scale, owners)


class SigmoidTowers(TwoTowers):
    """scale · cosine(image tower, text tower) + bias, which a sigmoid makes the probability of each pair: SigLIP's."""

    def __init__(self, image: Trunk, text: Trunk, *, start: float = 10.0, bias: float = -10.0):
        super().__init__(image, text, start=start, most=inf)
        self.bias = nn.Parameter(torch.tensor(bias))

    def forward(self, images: Tensor, texts: Tensor, image_ctx: Context = EMPTY, text_ctx: Context = EMPTY) -> Tensor:
        return super().forward(images, texts, image_ctx, text_ctx) + self.bias

    def probabilities(self, images: Tensor, texts: Tensor) -> Tensor:
        """Of each pair by itself: those of an image need not sum to 1."""
        return (self.scale * cosines(images, texts) + self.bias).sigmoid()

    def loss(self, images: Tensor, texts: Tensor, owners: Tensor | None = None) -> Tensor:
        return sigmoid_pairs(images, texts, self.scale, self.bias, owners)


class EndingTrunk(Trunk):
    """A trunk of texts that end with the token `end`: what stands behind the first of a row is padding to its head."""

    def __init__(self, embed: nn.Module, stack: nn.Module, head: nn.Module, end: int):
        super().__init__(embed, stack, head)
        self.end = end

    def readable(self, inputs: Tensor, ctx: Context) -> Context:
        if ctx.rows is not None:
            return ctx
        ends = inputs == self.end
        before = ends.cumsum(1) - ends.long() == 0  # B T: no end stands before the token
        return replace(ctx, keep=both(ctx.keep, before[:, None]))


class FilledTrunk(Trunk):
    """A trunk of texts that it fills up to `context` with the token `pad`, which counts like any other: SigLIP's."""

    def __init__(self, embed: nn.Module, stack: nn.Module, head: nn.Module, context: int, pad: int):
        super().__init__(embed, stack, head)
        self.context, self.pad = context, pad

    def forward(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        return super().forward(self.filled(inputs, ctx), Context(trace=ctx.trace), *marks)

    def features(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        return super().features(self.filled(inputs, ctx), Context(trace=ctx.trace), *marks)

    def filled(self, inputs: Tensor, ctx: Context) -> Tensor:
        """The real tokens of each row, B T or packed, and then the filling: B context."""
        tokens = padded(inputs, ctx.rows)
        real = ctx.real(tokens.shape[1])
        if real is not None:
            tokens = tokens.masked_fill(~real, self.pad).take_along_dim(to_front(real.expand_as(tokens)), 1)
        return F.pad(tokens, (0, max(self.context - tokens.shape[1], 0)), value=self.pad)


class Projection(RowHead):
    """W inside(norm(pool(x))): one vector of a whole row, to be compared with others.  B T C or B Y X C → B P

    Without a width there is no W, and P is C: a tower of CLIP's before its projection.  SigLIP's W has a bias.
    """

    def __init__(
        self,
        dim: int,
        width: int | None,
        *,
        pool: nn.Module,
        norm: nn.Module | None = None,
        inside: nn.Module | None = None,
        bias: bool = False,
    ):
        super().__init__(pool)
        self.norm, self.inside = norm or nn.Identity(), inside or nn.Identity()
        self.out = nn.Identity() if width is None else nn.Linear(dim, width, bias)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.out(self.inside(self.norm(self.pool(x, ctx))))
