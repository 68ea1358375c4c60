"""SigLIP's image tower alone: what its learned query sees, or classes of the mean of its patches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.errors import UserError
from headway.nn.head import Classifier, MeanPool
from headway.nn.trunk import Trunk
from headway.zoo import siglip
from headway.zoo.build import FROM_FIELDS, config_like
from headway.zoo.choices import named


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
    top: str = "classes"
    act: str = "gelu_tanh"
    eps: float = 1e-6
    attention_dropout: float = 0.0


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    if c.channels != 3:
        raise UserError(f"SigLIP sees colours, and channels={c.channels}", allowed="channels=3")
    sizes = {"image_dim": c.dim, "image_layers": c.layers, "image_heads": c.heads, "image_hidden": c.hidden}
    tower = siglip.image_tower(config_like(siglip.Config, c, **sizes))
    tops: dict[str, Callable[[], nn.Module]] = {
        "classes": partial(Classifier, c.dim, c.classes, pool=MeanPool()),  # B K
        "vector": lambda: tower.head,  # B C
    }
    return Trunk(tower.embed, tower.stack, named("top of SigLIP's image tower", c.top, tops)())


def tower_config(c: siglip.Config) -> Config:
    """That of a SigLIP's own tower."""
    sizes = {"dim": c.image_dim, "layers": c.image_layers, "heads": c.image_heads, "hidden": c.image_hidden}
    return config_like(Config, c, **sizes)
