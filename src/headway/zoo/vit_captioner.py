"""ViT → Transformer: an image's patches are the memory of a decoder that writes its caption.

The encoder is ViT's without a class token (or any preset of images named as `encoder`), the decoder the 2017
Transformer's, pre-norm, with words that are one table on both ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.trunk import Captioner, Places, Trunk
from headway.ops.pattern import Causal
from headway.zoo import vit
from headway.zoo.build import FROM_FIELDS, config_like
from headway.zoo.choices import activation, xavier
from headway.zoo.encoders import ImageConfig, ImageEncoder, image_encoder


@dataclass(frozen=True)
class Config:
    vocab: int = 10_000
    image: int = 224  # the side of the images that its positions are made for; others go too
    channels: int = 3
    patch: int = 16
    encoder: str | ImageConfig = ""  # a preset of images, or a config of one; none: a ViT of the sizes below
    dim: int = 512
    layers: int = 6
    decoder_layers: int | None = None  # as many as the encoder has
    heads: int = 8
    hidden: int | None = None  # 4 · dim
    act: str = "gelu"
    eps: float = 1e-6
    dropout: float = 0.1
    attention_dropout: float = 0.0


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Captioner:
    if c.encoder:
        eye = image_encoder(c.encoder, c.image, c.channels)
    else:
        eye = ImageEncoder(vit.build(config_like(vit.Config, c, pool="mean", top="none")), c.dim, c.patch)
    embed = TokenEmbed(c.vocab, c.dim, position=SinusoidalPosition(c.dim), scale=c.dim**0.5, dropout=c.dropout)
    decoder = Trunk(embed, writer(c, eye.dim), LMHead(c.dim, c.vocab, tied=embed.token))
    xavier(decoder)
    nn.init.normal_(embed.token.weight, std=c.dim**-0.5)  # as wide as its positions once it is scaled
    return Captioner(eye.under(Places(eye.first)), decoder, eye.stride)


def writer(c: Config, memory: int) -> Stack:
    """The blocks that write, each with a look at a memory of this width."""

    def sublayer(body: nn.Module) -> Residual:
        return Residual(body, before=nn.LayerNorm(c.dim, eps=c.eps), drop=c.dropout)

    def block() -> Block:
        ffn = FFN(c.dim, c.hidden, act=activation(c.act))
        return Block(
            attn=sublayer(SelfAttention(c.dim, c.heads, pattern=Causal(), dropout=c.attention_dropout)),
            cross=sublayer(CrossAttention(c.dim, c.heads, kv_dim=memory, dropout=c.attention_dropout)),
            ffn=sublayer(ffn),
        )

    layers = c.layers if c.decoder_layers is None else c.decoder_layers
    return Stack([block() for _ in range(layers)], nn.LayerNorm(c.dim, eps=c.eps))
