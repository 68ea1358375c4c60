"""AST, the Audio Spectrogram Transformer: a ViT with two class tokens on overlapping patches of a spectrogram.

Gong et al. 2021.  Every clip has the same number of frames, and the patches of one column are a moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from headway.nn.block import Stack
from headway.nn.head import Classifier, MeanPool
from headway.nn.image import DistilledClassToken, SpectrogramEmbed
from headway.nn.trunk import Trunk
from headway.zoo import vit
from headway.zoo.build import FROM_FIELDS, config_like
from headway.zoo.choices import named


@dataclass(frozen=True)
class Config:
    features: int = 128  # mels
    frames: int = 1024  # frames of every clip
    patch: int = 16
    strides: tuple[int, ...] = (10, 10)  # from patch to patch, in mels and in frames
    classes: int = 527  # where the top has some
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    top: str = "rows"
    act: str = "gelu"
    eps: float = 1e-12
    biased: bool = True  # queries, keys and values
    dropout: float = 0.0
    attention_dropout: float = 0.0


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    across, along = c.strides
    size, token = (c.frames, c.features), DistilledClassToken(c.dim)
    embed = SpectrogramEmbed(size, c.dim, c.patch, (across, along), token=token, dropout=c.dropout)
    tops: dict[str, Callable[[], nn.Module]] = {
        # of both tokens, normed again, B K
        "rows": lambda: Classifier(c.dim, c.classes, pool=MeanPool(last=2), norm=nn.LayerNorm(c.dim, eps=c.eps)),
        "none": vit.bare,  # B N C
    }
    stack = Stack(vit.blocks(config_like(vit.Config, c, top="none")), nn.LayerNorm(c.dim, eps=c.eps))
    model = Trunk(embed, stack, named("top of an AST", c.top, tops)())
    vit.dense_xavier(model)
    return model
