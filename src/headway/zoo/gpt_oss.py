"""GPT-OSS: a Mixtral whose heads may look at nothing, by learned sinks, and whose every other layer has a window.

OpenAI 2025.  Its experts are gated and clamped, and its linear layers have biases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import ClampedGatedFFN
from headway.nn.head import LMHead
from headway.nn.latent_attention import SinkAttention
from headway.nn.moe import MoE
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal
from headway.ops.rotary import Yarn
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import normal, window_of
from headway.zoo.llama import Frequencies

FREQUENCIES = Frequencies(150_000.0, Yarn(32.0, 4096, whole=False))


@dataclass(frozen=True)
class Config:
    vocab: int = 201_088
    context: int = 131_072
    dim: int = 2880
    layers: int = 24
    heads: int = 64
    kv_heads: int = 8
    head_dim: int = 64
    hidden: int = 2880  # of each expert
    experts: int = 32
    top: int = 4  # experts of a token
    limit: float = 7.0  # of what an expert multiplies
    eps: float = 1e-5
    rotary: Frequencies = FREQUENCIES
    window: int | None = 128
    local_layers: tuple[int, ...] | None = tuple(range(0, 24, 2))  # those that have the window; None: all
    tied: bool = False
    attention_dropout: float = 0.0


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> Trunk:
    norm, expert = partial(nn.RMSNorm, c.dim, eps=c.eps), partial(ClampedGatedFFN, c.dim, c.hidden, limit=c.limit)

    def block(layer: int) -> Block:
        attention = SinkAttention(
            c.dim,
            c.heads,
            kv_heads=c.kv_heads,
            head_dim=c.head_dim,
            pattern=Causal(window_of(layer, c.window, c.local_layers)),
            rotary=c.rotary.rotary(c.head_dim),
            dropout=c.attention_dropout,
        )
        mixture = MoE(expert, c.dim, c.experts, top=c.top, bias=True)
        return Block(attn=Residual(attention, before=norm()), ffn=Residual(mixture, before=norm()))

    embed = TokenEmbed(c.vocab, c.dim)
    stack = Stack([block(layer) for layer in range(c.layers)], norm())
    model = Trunk(embed, stack, LMHead(c.dim, c.vocab, tied=embed.token if c.tied else None))
    normal(model, 0.02)
    return model
