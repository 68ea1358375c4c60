"""Small decoders drawn at random over every option that has a lowering, and sessions by torch alone."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headway.generate.session import DecodingSession
from headway.native.library import NativeLibrary, native_library
from headway.nn.attention import Biases, CrossAttention, SelfAttention
from headway.nn.bias import Alibi, T5Bias
from headway.nn.block import Block, Identity, Residual, Stack
from headway.nn.context import EMPTY, Context
from headway.nn.embed import LearnedPosition, SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN, GatedFFN, quick_gelu
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk
from headway.ops.attend import DOT, Dot
from headway.ops.pattern import Causal, Full
from headway.ops.relative import t5_bucket_backward
from headway.ops.rotary import HALVES, PAIRS, DynamicNtk, Linear, Rotary, Yarn

LIBRARY = native_library()
needs_library = pytest.mark.skipif(not isinstance(LIBRARY, NativeLibrary), reason=f"native library: {LIBRARY}")
VOCAB, CONTEXT = 29, 40
ACTS = (F.gelu, partial(F.gelu, approximate="tanh"), quick_gelu, F.relu, F.silu, torch.sigmoid)


def library() -> NativeLibrary:
    assert isinstance(LIBRARY, NativeLibrary)
    return LIBRARY


class RandomDecoder:
    """The draws of one decoder; `memory` is the width of what it reads, if anything."""

    def __init__(self, seed: int):
        self.draw = Random(seed)
        heads, self.kv_heads = self.draw.choice([(4, 4), (6, 2), (3, 1), (1, 1)])
        self.heads, self.head_dim = heads, self.draw.choice([6, 8, 12, 20, 72])
        self.dim = self.draw.choice([5, 16, 24, 37])
        self.memory = self.draw.choice([None, self.dim, 11])
        self.norm = partial(self.draw.choice([nn.LayerNorm, nn.RMSNorm]), eps=self.draw.choice([1e-5, 1e-6]))

    def model(self) -> Trunk:
        draw, dim = self.draw, self.dim
        width = draw.choice([dim, dim + 3])
        position = draw.choice(
            [None, LearnedPosition(CONTEXT + 2, width, first=draw.choice([0, 2]))]
            + ([SinusoidalPosition(width, layout=draw.choice([HALVES, PAIRS]))] if width % 2 == 0 else [])
        )
        project = None if width == dim else nn.Linear(width, dim)
        norm = draw.choice([None, nn.LayerNorm(width)])
        scale = draw.choice([1.0, 3.5])
        embed = TokenEmbed(VOCAB, width, position=position, scale=scale, norm=norm, project=project)
        blocks = [self.block() for _ in range(draw.choice([1, 3]))]
        head = LMHead(dim, VOCAB, bias=draw.random() < 0.5, scale=draw.choice([1.0, 0.4]))
        model = Trunk(embed, Stack(blocks, draw.choice([None, self.norm(dim)])), head)
        generator = torch.Generator().manual_seed(draw.randrange(1000))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.5, generator=generator)
        return model.eval()

    def block(self) -> Block:
        parts: dict[str, nn.Module] = {"attn": self.sublayer(self.self_attention())}
        if self.memory is not None:
            options = self.attention_options()
            parts["cross"] = self.sublayer(CrossAttention(self.dim, self.heads, kv_dim=self.memory, **options))
        ffn = self.draw.choice([FFN, GatedFFN])
        layers, bias = self.draw.choice([2, 3]), self.draw.random() < 0.5
        parts["ffn"] = self.sublayer(ffn(self.dim, 26, act=self.draw.choice(ACTS), layers=layers, bias=bias))
        return Block(**parts)

    def sublayer(self, body: nn.Module) -> Residual:
        slots = {name: self.norm(self.dim) for name in ("before", "inside", "after") if self.draw.random() < 0.5}
        return Residual(body, scale=self.draw.choice([1.0, 0.5]), **slots)

    def self_attention(self) -> SelfAttention:
        draw = self.draw
        turned = draw.choice([None, 2])
        scaling = draw.choice([Linear(1.0), DynamicNtk(2.0, 8), Yarn(4.0, 16)])
        rotary = Rotary(self.head_dim, turned=turned, layout=draw.choice([HALVES, PAIRS]), scaling=scaling)
        biases = [None, Alibi(self.heads), T5Bias(self.heads, 8, 16, t5_bucket_backward)]
        return SelfAttention(
            self.dim,
            self.heads,
            pattern=draw.choice([Causal(), Causal(window=3), Full()]),
            rotary=draw.choice([None, rotary]),
            logit_bias=draw.choice(biases),
            **self.attention_options(),
        )

    def attention_options(self) -> dict[str, object]:
        draw = self.draw
        return {
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "bias": Biases(*(draw.random() < 0.5 for _ in range(4))),
            "qk_norm": draw.choice([Identity, self.norm]),
            "score": draw.choice([DOT, Dot(scale=0.7)]),
        }

    def context(self, rows: int) -> Context:
        """A memory of a different length in each row."""
        if self.memory is None:
            return EMPTY
        generator = torch.Generator().manual_seed(rows)
        lengths = torch.tensor([self.draw.randint(1, 7) for _ in range(rows)])
        keep = (torch.arange(7) < lengths[:, None])[:, None]
        memory = torch.randn(rows, 7, self.memory, generator=generator)
        return Context(memory=memory, memory_keep=self.draw.choice([keep, None]))


def by_torch(session: DecodingSession) -> DecodingSession:
    """The same session without the library."""
    session.program = None
    return session
