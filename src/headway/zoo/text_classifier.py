"""A text classifier that can begin as naive Bayes: a pre-norm encoder, beside votes of each word for each class.

Wide and deep learning (Cheng et al. 2016): the logits are a sum of votes over all words, plus what the encoder makes of
them.  The encoder's last matrix is 0 at first, and `set_votes` sets the votes, to those of naive Bayes for one: Wang
and Manning 2012 let a classifier begin with such counts too.  What the encoder learns of the order of words is added.

Axes:  V vocabulary   K classes
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import Classifier, MeanPool
from headway.nn.trunk import VotingTrunk
from headway.ops.rotary import Rotary
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, normal


@dataclass(frozen=True)
class Config:
    vocab: int = 16_000
    context: int = 256
    dim: int = 128
    layers: int = 2
    heads: int = 2
    hidden: int | None = None  # 4 · dim
    classes: int = 2
    act: str = "gelu"
    eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> VotingTrunk:
    norm, rotary = partial(nn.LayerNorm, c.dim, eps=c.eps), Rotary(c.dim // c.heads)

    def block() -> Block:
        attention = SelfAttention(c.dim, c.heads, rotary=rotary, dropout=c.attention_dropout)
        return Block(
            attn=Residual(attention, before=norm(), drop=c.dropout),
            ffn=Residual(FFN(c.dim, c.hidden, act=activation(c.act)), before=norm(), drop=c.dropout),
        )

    embed = TokenEmbed(c.vocab, c.dim, norm=norm(), dropout=c.dropout)
    head = Classifier(c.dim, c.classes, pool=MeanPool(), dropout=c.dropout)
    model = VotingTrunk(
        embed, Stack([block() for _ in range(c.layers)], norm()), head, nn.Embedding(c.vocab, c.classes)
    )
    normal(model, 0.02)
    nn.init.zeros_(head.out.weight)
    nn.init.zeros_(model.votes.weight)
    return model


@torch.no_grad()
def set_votes(model: VotingTrunk, votes: Tensor, bias: Tensor) -> None:
    """Sets the logits of a model as built to bias + Σ votes of the words: V K and K."""
    assert isinstance(model.head, Classifier)
    model.votes.weight.copy_(votes)
    model.head.out.bias.copy_(bias)
