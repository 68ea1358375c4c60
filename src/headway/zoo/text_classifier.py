"""A text classifier that can begin as naive Bayes: a pre-norm encoder whose states are summed into the logits.

Residual branches are 0 at first, so the states are the words' vectors, and the logits a sum over words.  `set_votes`
sets them to given votes of each word, such as those of naive Bayes; Wang and Manning 2012 begin a classifier by such
counts too.  What attention and feed-forward layers learn is added to that.  Positions are rotary: a position's own
vector would vote.

Axes:  V vocabulary   K classes   C width
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
from headway.nn.head import Classifier, SumPool
from headway.nn.trunk import Trunk
from headway.ops.rotary import Rotary
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, identity_branches, normal


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


def build(c: Config) -> Trunk:
    norm, rotary = partial(nn.LayerNorm, c.dim, eps=c.eps), Rotary(c.dim // c.heads)

    def block() -> Block:
        attention = SelfAttention(c.dim, c.heads, rotary=rotary, dropout=c.attention_dropout)
        return Block(
            attn=Residual(attention, before=norm(), drop=c.dropout),
            ffn=Residual(FFN(c.dim, c.hidden, act=activation(c.act)), before=norm(), drop=c.dropout),
        )

    embed = TokenEmbed(c.vocab, c.dim, dropout=c.dropout)
    model = Trunk(embed, Stack([block() for _ in range(c.layers)]), Classifier(c.dim, c.classes, pool=SumPool()))
    normal(model, 0.02)
    identity_branches(model)
    return model


def sums_votes(model: nn.Module) -> bool:
    """Whether the logits of a model begin as a sum over words."""
    return isinstance(model, Trunk) and isinstance(model.head, Classifier) and isinstance(model.head.pool, SumPool)


@torch.no_grad()
def set_votes(model: Trunk, votes: Tensor, bias: Tensor) -> None:
    """Sets the logits of a model as built to bias + Σ votes of the words: V K and K.

    The votes are factored into vectors of words and of classes; those of more classes than C + 1 are approximated.
    """
    embedding, out = model.embed.get_submodule("token"), model.head.get_submodule("out")
    assert isinstance(embedding, nn.Embedding)
    assert isinstance(out, nn.Linear)
    shared = votes.mean(1, keepdim=True)  # the same for every class
    left, scale, right = torch.linalg.svd((votes - shared).double(), full_matrices=False)
    rank = min(len(scale), embedding.embedding_dim)
    embedding.weight[:, :rank] = (left * scale)[:, :rank].float()
    out.weight.zero_()
    out.weight[:, :rank] = right[:rank].T.float()
    out.bias.copy_(bias)
