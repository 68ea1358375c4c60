"""GPT-2 and GPT-3: a causal decoder, pre-norm, GELU, learned positions, output tied to the embedding.

Radford et al. 2019, Brown et al. 2020.  GPT-Neo (Black et al. 2021) sees through a window in every second layer and
divides no scores; OPT (Zhang et al. 2022) takes ReLU, and its positions begin at row 2.  OPT-350m is post-norm, and its
words' vectors are narrower than the stream, at its beginning and at its end.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import BIASED, Biases, SelfAttention
from headway.nn.block import Block, Identity, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk
from headway.ops.attend import Dot
from headway.ops.pattern import Causal
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, decoder_top, named, normal, window_of


@dataclass(frozen=True)
class Config:
    vocab: int = 50_257
    context: int = 1024
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    act: str = "gelu_tanh"
    eps: float = 1e-5
    dropout: float = 0.1
    first: int = 0  # the row of the table that position 0 has; OPT: 2
    window: int | None = None
    local_layers: tuple[int, ...] | None = None  # those that have the window; all
    order: str = "pre"  # where the norms stand
    width: int | None = None  # of the words' vectors; dim
    score: float | None = None  # what scores are multiplied by; head_dim ** -0.5
    biases: str = "all"
    tied: bool = True
    attention_dropout: float = 0.1
    embed_dropout: float = 0.1
    top: str = "words"
    classes: int = 2  # where the top has some


VOCABULARY = VOCABULARY_AND_CONTEXT
SLOTS = {"post": "after", "pre": "before"}
BIASES = {"all": BIASED, "out": Biases(q=False, k=False, v=False)}


def build(c: Config) -> Trunk:
    norm = partial(nn.LayerNorm, c.dim, eps=c.eps)
    bias, slot = named("biases", c.biases, BIASES), named("order", c.order, SLOTS)
    width = c.dim if c.width is None else c.width

    def sublayer(body: nn.Module) -> Residual:
        return Residual(body, drop=c.dropout, **{slot: norm()})

    def block(layer: int) -> Block:
        pattern = Causal(window_of(layer, c.window, c.local_layers))
        score, dropout = Dot(c.score), c.attention_dropout
        attention = SelfAttention(c.dim, c.heads, bias=bias, pattern=pattern, score=score, dropout=dropout)
        return Block(
            attn=sublayer(attention),
            ffn=sublayer(FFN(c.dim, c.hidden, act=activation(c.act))),
        )

    position = LearnedPosition(c.first + c.context, c.dim, first=c.first)
    last, widen = norm() if slot == "before" else Identity(), None
    if width != c.dim:
        widen = nn.Linear(width, c.dim, bias=False)
        last = nn.Sequential(OrderedDict(norm=last, project=nn.Linear(c.dim, width, bias=False)))
    embed = TokenEmbed(c.vocab, width, position=position, widen=widen, dropout=c.embed_dropout)
    words = partial(LMHead, width, c.vocab, tied=embed.token if c.tied else None)
    stack = Stack([block(layer) for layer in range(c.layers)], last)
    model = Trunk(embed, stack, decoder_top(c.top, width, c.classes, words))
    normal(model, 0.02)
    return model
