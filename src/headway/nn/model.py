"""Whole models in outline: what is embedded, what it goes through, what is read off.

Axes:  B batch   T tokens   S source tokens   C width   V vocabulary
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from headway.nn.block import Plain
from headway.nn.context import EMPTY, Context
from headway.nn.frames import Shortening


class Trunk(nn.Module):
    """head(stack(embed(inputs))): a language model, an encoder, or the decoder of an encoder–decoder.

    `marks` are what the embedding takes besides: BERT's segments.
    """

    def __init__(self, embed: nn.Module, stack: nn.Module, head: nn.Module | None = None):
        super().__init__()
        self.embed, self.stack, self.head = embed, stack, head or Plain(nn.Identity())

    def forward(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        return self.head(self.features(inputs, ctx, *marks), self.inner(ctx))

    def features(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        """What the head reads: call the head only on the tokens that have a target."""
        return self.stack(self.embed(inputs, ctx, *marks), self.inner(ctx))

    def inner(self, ctx: Context) -> Context:
        """The context of what the stack sees: fewer tokens, where the embedding shortens its input."""
        return self.embed.shortened(ctx) if isinstance(self.embed, Shortening) else ctx


class EncoderDecoder(nn.Module):
    """decoder(target) while it looks at encoder(source)."""

    def __init__(self, encoder: Trunk, decoder: Trunk):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, source: Tensor, target: Tensor, source_ctx: Context = EMPTY, ctx: Context = EMPTY) -> Tensor:
        """B S, B T → B T V.  `source_ctx` tells of the source (its padding), `ctx` of the target."""
        return self.decoder(target, self.remember(source, source_ctx, ctx))

    def remember(self, source: Tensor, source_ctx: Context = EMPTY, ctx: Context = EMPTY) -> Context:
        """`ctx` with the encoded source as its memory: what every step of decoding is called with."""
        memory, seen = self.encoder(source, source_ctx), self.encoder.inner(source_ctx)
        return replace(ctx, memory=memory, memory_keep=seen.keep, memory_rows=seen.rows)


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """All that a file of a model holds: its parameters, each once, and what batch norms have gathered."""
    first: dict[Tensor, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        first.setdefault(tensor, name)
    return {name: tensor for tensor, name in first.items()}
