"""XLNet: an encoder, post-norm, GELU, whose scores know distances and whether two tokens are of one text.

Yang et al. 2019.  These layers are the content stream; with hidden tokens, from which words are predicted, they are the
query stream, too.  The memory of former segments is left out, as it is where models are fine-tuned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.block import Block, Dropout, IgnoreContext, Residual, Stack
from headway.nn.ffn import FFN
from headway.nn.head import Classifier, LastToken, LMHead, TanhLayer, TokenClassifier
from headway.nn.segments import HiddenTokenEmbed, SegmentAttention, SegmentTrunk
from headway.zoo.build import ONE_VOCABULARY
from headway.zoo.choices import activation, named, normal


@dataclass(frozen=True)
class Config:
    vocab: int = 32_000
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    act: str = "gelu"
    eps: float = 1e-12
    dropout: float = 0.1
    top: str = "words"
    classes: int = 2  # where the top has some
    attention_dropout: float = 0.1
    class_dropout: float | None = None  # before the classes of a text; as `dropout`


VOCABULARY = ONE_VOCABULARY


def build(c: Config) -> SegmentTrunk:
    norm = partial(nn.LayerNorm, c.dim, eps=c.eps)

    def block() -> Block:
        attention = SegmentAttention(c.dim, c.heads, dropout=c.attention_dropout)
        ffn = FFN(c.dim, c.hidden, act=activation(c.act), dropout=c.dropout)
        return Block(
            attn=Residual(attention, after=norm(), drop=c.dropout), ffn=Residual(ffn, after=norm(), drop=c.dropout)
        )

    embed = HiddenTokenEmbed(c.vocab, c.dim, dropout=c.dropout)
    before = c.dropout if c.class_dropout is None else c.class_dropout
    rows = partial(Classifier, c.dim, c.classes, pool=LastToken(), inside=TanhLayer(c.dim), dropout=before)
    tops: dict[str, Callable[[], nn.Module]] = {
        "none": lambda: IgnoreContext(nn.Identity()),  # B T C
        "words": partial(LMHead, c.dim, c.vocab, bias=True, tied=embed.token),  # B T V
        "rows": rows,  # B K
        "tokens": partial(TokenClassifier, c.dim, c.classes),  # B T K
    }
    stack = Stack([block() for _ in range(c.layers)], Dropout(c.dropout))
    model = SegmentTrunk(embed, stack, named("top of an XLNet", c.top, tops)())
    normal(model, 0.02)
    return model
