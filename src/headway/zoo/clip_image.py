"""CLIP's image tower alone: with its projection or without, or with classes on top.

Classes are what a trained CLIP is cut down to when it is to tell images apart.  Names are those of the tower.  The
class token is normed as CLIP norms it before its projection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.errors import UserError
from headway.nn.head import Classifier, FirstToken
from headway.nn.trunk import Trunk
from headway.zoo import clip
from headway.zoo.build import FROM_FIELDS, config_like
from headway.zoo.choices import named


@dataclass(frozen=True)
class Config:
    image: int = 224  # the side of the images that its positions are made for; others go too
    channels: int = 3
    patch: int = 32
    classes: int = 1000  # where the top has some
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    top: str = "classes"
    width: int | None = None  # of its vector, where that is projected
    act: str = "quick_gelu"
    attention_dropout: float = 0.0


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    if c.channels != 3:
        raise UserError(f"CLIP sees colours, and channels={c.channels}", allowed="channels=3")
    sizes = {"image_dim": c.dim, "image_layers": c.layers, "image_heads": c.heads, "image_hidden": c.hidden}
    tower = clip.image_tower(config_like(clip.Config, c, **sizes), c.width)
    tops: dict[str, Callable[[], nn.Module]] = {
        "classes": partial(Classifier, c.dim, c.classes, pool=FirstToken(), norm=nn.LayerNorm(c.dim)),  # B K
        "vector": lambda: tower.head,  # B width, or B C
    }
    return Trunk(tower.embed, tower.stack, named("top of CLIP's image tower", c.top, tops)())


def tower_config(c: clip.Config) -> Config:
    """That of a CLIP's own tower."""
    sizes = {"dim": c.image_dim, "layers": c.image_layers, "heads": c.image_heads, "hidden": c.image_hidden}
    return config_like(Config, c, **sizes, width=None)
