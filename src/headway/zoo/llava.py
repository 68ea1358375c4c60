"""LLaVA: CLIP's patches, projected to the width of words, stand among the words of a Llama.

Liu et al. 2023; version 1.5 (2024) has two layers between them.  What CLIP says after its last layer but one is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.nn.block import Stack
from headway.nn.image_words import Illustrated, PatchProjector, PicturedEmbed, TappedStack
from headway.nn.towers import Projection
from headway.nn.trunk import Trunk
from headway.zoo import clip_image, llama
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, normal

EYE = clip_image.Config(image=336, patch=14, dim=1024, layers=24, heads=16, hidden=4096, top="vector")
WRITER = llama.Config(context=4096, hidden=11_008, eps=1e-5)


@dataclass(frozen=True)
class Config:
    vocab: int = 32_064  # of the decoder, whatever its own config says
    encoder: clip_image.Config = EYE
    decoder: llama.Config = WRITER
    image_token: int = 32_000  # which each patch of an image takes the place of
    taps: tuple[int, ...] = (23,)  # after which blocks of the encoder its states are read
    first: int = 1  # tokens of the encoder that are left out: its class token
    act: str = "gelu"  # between the two layers from the encoder to the decoder
    biased: bool = True  # these layers


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Illustrated:
    eye, dim = clip_image.build(replace(c.encoder, top="vector", width=None)), c.decoder.dim
    assert isinstance(eye.stack, Stack)
    assert isinstance(eye.head, Projection)
    width = len(c.taps) * c.encoder.dim
    projector = PatchProjector(width, dim, first=c.first, act=activation(c.act), bias=c.biased)
    normal(projector, 0.02)
    encoder = Trunk(eye.embed, TappedStack(eye.stack.blocks, eye.head.norm, c.taps), projector)
    words = PicturedEmbed(c.vocab, dim, image=c.image_token)
    return Illustrated(encoder, llama.decoder(replace(c.decoder, vocab=c.vocab, top="words"), words))
