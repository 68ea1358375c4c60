"""Longformer: BERT's encoder with windows instead of whole attention, for texts of thousands of tokens.

Beltagy et al. 2020.  Where a text is classified, its first token sees all others and is seen by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.errors import UserError
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import MLMHead
from headway.nn.latent_attention import GlobalTokenAttention
from headway.nn.trunk import Trunk
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, normal, top


@dataclass(frozen=True)
class Config:
    vocab: int = 50_265
    context: int = 4096
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    segments: int = 1  # 0: none
    first: int = 2  # the row of the table that position 0 has, behind the padding's
    window: int | tuple[int, ...] = 256  # tokens that are seen on each side, in all layers or in each
    act: str = "gelu"
    eps: float = 1e-5
    dropout: float = 0.1
    top: str = "words"
    classes: int = 2  # where the top has some
    attention_dropout: float = 0.1


VOCABULARY = VOCABULARY_AND_CONTEXT
GLOBAL_TOKENS = {"rows": 1}  # the first ones, by what stands on top; of others none


def build(c: Config) -> Trunk:
    norm = partial(nn.LayerNorm, eps=c.eps)

    def block(window: int) -> Block:
        tokens = GLOBAL_TOKENS.get(c.top, 0)
        attention = GlobalTokenAttention(c.dim, c.heads, tokens=tokens, radius=window, dropout=c.attention_dropout)
        return Block(
            attn=Residual(attention, after=norm(c.dim), drop=c.dropout),
            ffn=Residual(FFN(c.dim, c.hidden, act=activation(c.act)), after=norm(c.dim), drop=c.dropout),
        )

    embed = TokenEmbed(
        c.vocab,
        c.dim,
        position=LearnedPosition(c.first + c.context, c.dim, first=c.first),
        segments=c.segments,
        norm=norm(c.dim),
        dropout=c.dropout,
    )
    words = partial(MLMHead, c.dim, c.vocab, norm=norm, tied=embed.token)
    stack = Stack([block(window) for window in windows_of(c.window, c.layers)])
    model = Trunk(embed, stack, top(c.top, c.dim, c.classes, c.dropout, words))
    normal(model, 0.02)
    return model


def windows_of(window: int | tuple[int, ...], layers: int) -> tuple[int, ...]:
    """The window of each layer."""
    windows = (window,) * layers if isinstance(window, int) else window
    if len(windows) != layers:
        raise UserError(f"window={window!r:.60} for {layers} layers", allowed="a number, or one for each layer")
    return windows
