"""Swin: a pyramid of grids, attention within windows that shift in every second layer, relative positions in each.

Liu et al. 2021.  Images of any size that the patches divide: a grid that is no multiple of the window is padded, and
its cells never see the padding; one that is no larger than the window is one window, and attention is global.  The
other libraries agree where nothing is padded and differ where something is, from each other too: in `transformers` and
timm cells see padding as if it were black, and timm shifts before it pads, so that cells see across the seam.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import nn

from headway.errors import UserError
from headway.nn.attention import SelfAttention
from headway.nn.bias import WindowBias
from headway.nn.block import Block, Identity, IgnoreContext, Residual, Stack, StochasticDepth
from headway.nn.ffn import FFN
from headway.nn.head import Classifier, MeanPool
from headway.nn.image import PatchEmbed, PatchMerge
from headway.nn.trunk import Trunk
from headway.nn.window_attention import Windowed
from headway.ops.window import Windows
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, normal


@dataclass(frozen=True)
class Config:
    image: int = 224  # the side of the images it is made for; others go too
    channels: int = 3
    patch: int = 4
    dim: int = 96  # of the first stage, and twice as much in each further one
    layers: tuple[int, ...] = (2, 2, 6, 2)  # of each stage, and so the next two
    heads: tuple[int, ...] = (3, 6, 12, 24)
    windows: tuple[int, ...] = (7, 7, 7, 7)  # their sides, in cells
    ratio: float = 4.0  # hidden / dim
    act: str = "gelu"
    classes: int = 1000  # 0: none, it gives its features, B Y X C
    attention_dropout: float = 0.0
    depth_dropout: float = 0.1  # how often the last layer is left out; those before it less, the first never


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    norm = nn.LayerNorm

    def block(stage: int, windows: Windows, rate: float) -> Block:
        dim, heads = c.dim * 2**stage, c.heads[stage]
        bias = WindowBias(heads, windows.rows, windows.cols)
        attention = SelfAttention(dim, heads, logit_bias=bias, dropout=c.attention_dropout)
        ffn = FFN(dim, int(c.ratio * dim), act=activation(c.act))
        return Block(
            attn=Residual(Windowed(attention, windows), before=norm(dim), drop=StochasticDepth(rate)),
            ffn=Residual(ffn, before=norm(dim), drop=StochasticDepth(rate)),
        )

    embed = PatchEmbed(c.channels, c.dim, c.patch, norm=norm(c.dim))
    stages = pyramid(c, block, lambda dim: PatchMerge(dim, before=norm(4 * dim)))
    width = c.dim * 2 ** (len(stages) - 1)
    model = Trunk(embed, Stack(stages, norm(width)), head(width, c.classes))
    normal(model, 0.02)
    return model


def pyramid(c: Config, block: Callable[[int, Windows, float], Block], merge: Callable[[int], nn.Module]) -> list[Block]:
    """The stages, of `block(stage, windows, rate)`: all but the first begin with a merge; every second layer shifts."""
    if not len(c.layers) == len(c.heads) == len(c.windows) > 0:
        said = f"layers={c.layers}, heads={c.heads} and windows={c.windows} are not of the same stages"
        raise UserError(said, allowed="as many numbers in each as there are stages")
    rates = rising(c.depth_dropout, sum(c.layers))

    def made(stage: int) -> Block:
        side = c.windows[stage]
        shifts = [side // 2 * (layer % 2) for layer in range(c.layers[stage])]
        blocks = [block(stage, Windows(side, side, shift, shift), next(rates)) for shift in shifts]
        return Block(merge=merge(c.dim * 2 ** (stage - 1)) if stage else Identity(), stack=Stack(blocks))

    return [made(stage) for stage in range(len(c.layers))]


def head(width: int, classes: int) -> nn.Module:
    return Classifier(width, classes, pool=MeanPool()) if classes else IgnoreContext(nn.Identity())


def rising(last: float, layers: int) -> Iterator[float]:
    """The rates of stochastic depth, from none in the first layer to `last`."""
    return (last * layer / max(layers - 1, 1) for layer in range(layers))
