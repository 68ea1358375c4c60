"""Swin-V2: Swin with norms after its sublayers, cosine attention, and positions told by a small network.

Liu et al. 2022.  What a window learns goes on in a larger one: offsets are spaced by logarithm, and `pretrained` are
the sides of the windows that they were first learned in.  Sizes of images as in `swin`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from headway.errors import UserError
from headway.nn.attention import Biases, SelfAttention
from headway.nn.bias import ContinuousBias
from headway.nn.block import Block, Residual, Stack, StochasticDepth
from headway.nn.ffn import FFN
from headway.nn.image import PatchEmbed, PatchMerge
from headway.nn.learned_score import CosineScore
from headway.nn.trunk import Trunk
from headway.nn.window_attention import Windowed
from headway.ops.window import Windows
from headway.zoo import swin
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, normal
from headway.zoo.swin import head, pyramid


@dataclass(frozen=True)
class Config(swin.Config):
    image: int = 256
    windows: tuple[int, ...] = (8, 8, 8, 8)
    pretrained: tuple[int, ...] | None = None  # as `windows`, which stand for it where there is none


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    norm = nn.LayerNorm
    learned = c.windows if c.pretrained is None else c.pretrained

    def block(stage: int, windows: Windows, rate: float) -> Block:
        dim, heads = c.dim * 2**stage, c.heads[stage]
        attention = SelfAttention(
            dim,
            heads,
            bias=Biases(k=False),  # a shift of all keys would change their angles
            score=CosineScore(heads),
            logit_bias=ContinuousBias(heads, windows.rows, windows.cols, pretrained=(learned[stage], learned[stage])),
            dropout=c.attention_dropout,
        )
        ffn = FFN(dim, int(c.ratio * dim), act=activation(c.act))
        return Block(
            attn=Residual(Windowed(attention, windows), inside=norm(dim), drop=StochasticDepth(rate)),
            ffn=Residual(ffn, inside=norm(dim), drop=StochasticDepth(rate)),
        )

    if len(learned) != len(c.windows):
        raise UserError(f"pretrained={learned} for windows={c.windows}", allowed="as many numbers as windows, or none")
    embed = PatchEmbed(c.channels, c.dim, c.patch, norm=norm(c.dim))
    stages = pyramid(c, block, lambda dim: PatchMerge(dim, after=norm(2 * dim)))
    width = c.dim * 2 ** (len(stages) - 1)
    model = Trunk(embed, Stack(stages, norm(width)), head(width, c.classes))
    normal(model, 0.02)
    silence(model)
    return model


def silence(model: nn.Module) -> None:
    """Every sublayer adds nothing at first, its norm being zero: deep stacks then begin to learn from the top."""
    for part in model.modules():
        if isinstance(part, Residual) and isinstance(part.inside, nn.LayerNorm):
            nn.init.zeros_(part.inside.weight)
