"""Small models that several lessons are made of.

Axes:  B batch   T tokens   C width   V words
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk


def block(mixer: nn.Module, dim: int, norm: Callable[[int], nn.Module] = nn.LayerNorm) -> Block:
    """A pre-norm block: what mixes tokens, and a feed-forward layer."""
    return Block(mixer=Residual(mixer, before=norm(dim)), ffn=Residual(FFN(dim), before=norm(dim)))


def language_model(vocab: int, dim: int, blocks: Sequence[nn.Module], position: nn.Module | None = None) -> Trunk:
    """Words in, logits of words out, B T → B T V."""
    return Trunk(TokenEmbed(vocab, dim, position=position), Stack(blocks, nn.LayerNorm(dim)), LMHead(dim, vocab))
