"""Whole models in outline: what is embedded, what it goes through, what is read off.

Axes:  B batch   T tokens   S source tokens   C width   V vocabulary   F numbers of a row
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from headway.nn.asked import can_ask, stack_at
from headway.nn.block import Plain
from headway.nn.context import EMPTY, Context
from headway.nn.frames import Shortening
from headway.nn.head import tokens_read
from headway.nn.rows import Chosen, owners_of
from headway.nn.state import State


class Trunk(nn.Module):
    """head(stack(embed(inputs))): a language model, an encoder, or the decoder of an encoder–decoder.

    `marks` are what the embedding takes besides: BERT's segments.  While it learns, its last layer is asked only for
    the tokens that the head reads (`asked`).
    """

    def __init__(self, embed: nn.Module, stack: nn.Module, head: nn.Module | None = None):
        super().__init__()
        self.embed, self.stack, self.head = embed, stack, head or Plain(nn.Identity())

    def forward(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        x, inner = self.embed(inputs, ctx, *marks), self.inner(ctx)
        read = self.readable(inputs, inner)
        chosen = tokens_read(self.head, x, read) if can_ask(self.stack, x, inner) else None
        if chosen is None:
            return self.head(self.stack(x, inner), read)
        return self.head(stack_at(self.stack, chosen, x, inner), Context(rows=chosen.rows))

    def features(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        """What the head reads: call the head only on the tokens that have a target."""
        return self.stack(self.embed(inputs, ctx, *marks), self.inner(ctx))

    def features_at(self, index: Tensor, inputs: Tensor, ctx: Context) -> Tensor:
        """features(inputs, ctx) at some of all tokens, one row after the other, M C; `index` is ascending."""
        x, inner = self.embed(inputs, ctx), self.inner(ctx)
        chosen = Chosen.among(index, owners_of(x, inner.rows)) if can_ask(self.stack, x, inner) else None
        if chosen is None:
            return self.stack(x, inner).flatten(0, 1)[index]
        return stack_at(self.stack, chosen, x, inner)[0]

    def readable(self, inputs: Tensor, ctx: Context) -> Context:
        """What the head may read."""
        return ctx

    def inner(self, ctx: Context) -> Context:
        """The context of what the stack sees: fewer tokens, where the embedding shortens its input."""
        return self.embed.shortened(ctx) if isinstance(self.embed, Shortening) else ctx


class Forecaster(Trunk):
    """inputs + head(stack(embed(inputs))): of rows of numbers, B T F, those that come next, each as a change."""

    def forward(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        return inputs + super().forward(inputs, ctx, *marks)

    def ahead(self, rows: Tensor, count: int) -> Tensor:
        """The `count` rows that come next, each read in its turn.  B T F → B count F"""
        state, found = State(), list[Tensor]()
        for _ in range(count):
            rows = self(rows, Context(state=state))[:, -1:]
            found.append(rows)
        return torch.cat(found, 1)


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
