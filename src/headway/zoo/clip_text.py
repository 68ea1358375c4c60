"""CLIP's tower of texts alone, with its projection or without: a causal Transformer, read at its end token.

Diffusion models are conditioned by such towers.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.nn.towers import EndingTrunk
from headway.zoo import clip
from headway.zoo.build import VOCABULARY_AND_CONTEXT, config_like


@dataclass(frozen=True)
class Config:
    vocab: int = 49_408
    end: int = 49_407  # the token that ends a text
    context: int = 77
    dim: int = 512
    layers: int = 12
    heads: int = 8
    hidden: int | None = None  # 4 · dim
    width: int | None = None  # of its vector, where that is projected
    act: str = "quick_gelu"
    attention_dropout: float = 0.0


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> EndingTrunk:
    return clip.text_tower(config_like(clip.Config, c), c.width)
