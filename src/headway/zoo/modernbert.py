"""ModernBERT: an encoder, pre-norm without bias vectors, GEGLU, rotary positions, windows in two of three layers.

Warner et al. 2024.  Its first layer has no norm before its attention, since the embedding ends with one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import nn

from headway.nn.attention import UNBIASED, SelfAttention, share
from headway.nn.block import Block, Identity, IgnoreContext, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import GatedFFN, Hidden
from headway.nn.head import Classifier, FirstToken, MeanPool, MLMHead, Pool, TokenClassifier
from headway.nn.trunk import Trunk
from headway.ops.pattern import Full, Window
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, named, normal
from headway.zoo.llama import Frequencies

GLOBAL, LOCAL = Frequencies(160_000.0), Frequencies()


@dataclass(frozen=True)
class Config:
    vocab: int = 50_368
    context: int = 8192
    dim: int = 768
    layers: int = 22
    heads: int = 12
    hidden: int = 1152
    act: str = "gelu"
    eps: float = 1e-5
    rotary: Frequencies = GLOBAL
    local_rotary: Frequencies = LOCAL  # of the layers that have the window
    window: int = 64  # tokens on each side
    local_layers: tuple[int, ...] = tuple(layer for layer in range(22) if layer % 3)
    pool: str = "class"  # of whole texts
    dropout: float = 0.0
    attention_dropout: float = 0.0
    embed_dropout: float = 0.0
    class_dropout: float = 0.0
    top: str = "words"
    classes: int = 2  # where the top has some


VOCABULARY = VOCABULARY_AND_CONTEXT
POOLS: dict[str, type[Pool]] = {"class": FirstToken, "mean": MeanPool}


def build(c: Config) -> Trunk:
    norm = partial(nn.LayerNorm, eps=c.eps, bias=False)
    head_dim = share(c.dim, c.heads)

    def block(layer: int) -> Block:
        local = layer in c.local_layers
        attention = SelfAttention(
            c.dim,
            c.heads,
            bias=UNBIASED,
            pattern=Window(c.window) if local else Full(),
            rotary=(c.local_rotary if local else c.rotary).rotary(head_dim),
            dropout=c.attention_dropout,
        )
        ffn = GatedFFN(c.dim, c.hidden, act=activation(c.act), bias=False, dropout=c.dropout)
        before = norm(c.dim) if layer else Identity()
        return Block(
            attn=Residual(attention, before=before, drop=c.attention_dropout), ffn=Residual(ffn, before=norm(c.dim))
        )

    embed = TokenEmbed(c.vocab, c.dim, norm=norm(c.dim), dropout=c.embed_dropout)

    def inside() -> nn.Module:
        return nn.Sequential(Hidden(c.dim, F.gelu, bias=False), norm(c.dim))

    def rows() -> nn.Module:
        pool = named("way of pooling", c.pool, POOLS)()
        return Classifier(c.dim, c.classes, pool=pool, inside=inside(), dropout=c.class_dropout)

    tops: dict[str, Callable[[], nn.Module]] = {
        "none": lambda: IgnoreContext(nn.Identity()),  # B T C
        "words": partial(MLMHead, c.dim, c.vocab, norm=norm, bias=False, tied=embed.token),  # B T V
        "rows": rows,  # B K
        "tokens": lambda: TokenClassifier(c.dim, c.classes, inside=inside(), dropout=c.class_dropout),  # B T K
    }
    stack = Stack([block(layer) for layer in range(c.layers)], norm(c.dim))
    model = Trunk(embed, stack, named("top of a ModernBERT", c.top, tops)())
    normal(model, 0.02)
    return model
