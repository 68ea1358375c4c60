"""CLIP over any eye: an encoder of images and CLIP's tower of texts, that learn which text belongs to which image.

As in CLIP's own models with a ResNet; what an image is compared by is the mean of its cells, or its class token where
there is one, projected to the space of the texts.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from headway.nn.towers import Projection, TwoTowers
from headway.zoo import clip
from headway.zoo.build import FROM_FIELDS, config_like
from headway.zoo.encoders import image_encoder


@dataclass(frozen=True)
class Config:
    encoder: str = "resnet-50"  # a preset of images
    image: int = 224
    vocab: int = 49_408
    end: int = 49_407  # the token that ends a text
    context: int = 77
    dim: int = 512  # of the texts' tower, as all below
    layers: int = 12
    heads: int = 8
    hidden: int | None = None  # 4 · dim
    width: int = 512  # of the vectors that are compared
    act: str = "quick_gelu"
    attention_dropout: float = 0.0


VOCABULARY = FROM_FIELDS


def build(c: Config) -> TwoTowers:
    eye = image_encoder(c.encoder, c.image, channels=3)
    head = clip.projected(Projection(eye.dim, c.width, pool=eye.pool(), norm=nn.LayerNorm(eye.dim)))
    texts = clip.text_tower(config_like(clip.Config, c), c.width)
    return TwoTowers(eye.under(head), texts)
