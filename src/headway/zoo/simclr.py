"""SimCLR: two views of an image shall have the same vector, and other images another.

Chen et al. 2020.  Over any encoder of images: what is compared is a small network's reading of its features, which is
left out once the encoder is used for something else.  The views come with the batch: nothing is drawn here.  To learn:
`nt_xent(model(views), model(other_views), c.temperature)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F

from headway.nn.ffn import Hidden
from headway.nn.towers import Projection
from headway.nn.trunk import Trunk
from headway.zoo.build import FROM_FIELDS
from headway.zoo.encoders import image_encoder


@dataclass(frozen=True)
class Config:
    encoder: str = "resnet-50"  # a preset of images
    image: int = 224
    channels: int = 3
    width: int = 128  # of the vectors that are compared
    temperature: float = 0.5


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    """B Ch H W → B width; its features are the encoder's, of which the class token is read where there is one."""
    eye = image_encoder(c.encoder, c.image, c.channels)
    head = Projection(eye.dim, c.width, pool=eye.pool(), inside=Hidden(eye.dim, F.relu, bias=True))
    return eye.under(head)
