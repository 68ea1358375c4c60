"""DeiT: a ViT with a second token that learned from a teacher; its answer is the mean of what both tokens say.

Touvron et al. 2021.  What it is given to learn from here is said to that mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.block import Stack
from headway.nn.head import AuxHeads, Classifier, DistilledClassifier, Pooler
from headway.nn.image import DistilledClassToken, ImageEmbed, LearnedGridPosition, PatchEmbed
from headway.nn.trunk import Trunk
from headway.ops.patches import bicubic
from headway.zoo import vit
from headway.zoo.build import FROM_FIELDS, config_like
from headway.zoo.choices import named
from headway.zoo.vit import bare, blocks, dense_xavier, patches_across


@dataclass(frozen=True)
class Config:
    image: int = 224  # the side of the images that its positions are made for; others go too
    channels: int = 3
    patch: int = 16
    classes: int = 1000  # where the top has some
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    top: str = "two classes"
    act: str = "gelu"
    eps: float = 1e-12
    biased: bool = True  # queries, keys and values
    dropout: float = 0.0
    attention_dropout: float = 0.0
    depth_dropout: float = 0.0  # how often the last layer is left out; those before it less, the first never


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    side = patches_across(c.image, c.patch)
    embed = ImageEmbed(
        PatchEmbed(c.channels, c.dim, c.patch),
        LearnedGridPosition(side, side, c.dim, resample=bicubic),
        token=DistilledClassToken(c.dim),
        dropout=c.dropout,
    )
    tops: dict[str, Callable[[], nn.Module]] = {
        "two classes": partial(DistilledClassifier, c.dim, c.classes),  # B K
        "classes": partial(Classifier, c.dim, c.classes),  # B K, of the class token alone
        "none": bare,  # B T C
        "pooler": lambda: AuxHeads(bare(), pooler=Pooler(c.dim)),  # B T C
    }
    stack = Stack(blocks(config_like(vit.Config, c, top="none")), nn.LayerNorm(c.dim, eps=c.eps))
    model = Trunk(embed, stack, named("top of a DeiT", c.top, tops)())
    dense_xavier(model)
    return model
