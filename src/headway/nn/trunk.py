"""Whole models: embedding, stack and head (`Trunk`); encoder–decoder; forecaster.

Axes:  B batch   T tokens   S source tokens   C width   V vocabulary   F numbers of a row
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.block import IgnoreContext
from headway.nn.context import EMPTY, Context
from headway.nn.frames import Shortening
from headway.nn.head import tokens_for_head
from headway.nn.last_layer_at import can_select_tokens, stack_at
from headway.nn.packed import TokenSelection, owners_of
from headway.nn.state import State


class Trunk(nn.Module):
    """head(stack(embed(inputs))): a language model, an encoder, or the decoder of an encoder–decoder.

    `marks` are further inputs of the embedding: BERT's segments.  In training its last layer is computed only at the
    tokens that the head reads (`last_layer_at`).
    """

    def __init__(self, embed: nn.Module, stack: nn.Module, head: nn.Module | None = None):
        super().__init__()
        self.embed, self.stack, self.head = embed, stack, head or IgnoreContext(nn.Identity())

    def forward(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        x, inner = self.embed(inputs, ctx, *marks), self.inner(ctx)
        read = self.readable(inputs, inner)
        chosen = tokens_for_head(self.head, x, read) if can_select_tokens(self.stack, x, inner) else None
        if chosen is None:
            return self.head(self.stack(x, inner), read)
        return self.head(stack_at(self.stack, chosen, x, inner), Context(rows=chosen.rows))

    def features(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        """What the head reads: call the head only on the tokens that have a target."""
        return self.stack(self.embed(inputs, ctx, *marks), self.inner(ctx))

    def features_at(self, index: Tensor, inputs: Tensor, ctx: Context) -> Tensor:
        """features(inputs, ctx) at some of all tokens, one row after the other, M C; `index` is ascending."""
        x, inner = self.embed(inputs, ctx), self.inner(ctx)
        chosen = (
            TokenSelection.among(index, owners_of(x, inner.rows)) if can_select_tokens(self.stack, x, inner) else None
        )
        if chosen is None:
            return self.stack(x, inner).flatten(0, 1)[index]
        return stack_at(self.stack, chosen, x, inner)[0]

    @property
    def input_encoder(self) -> Trunk:
        """The part of a model that takes in its input."""
        return self

    def readable(self, inputs: Tensor, ctx: Context) -> Context:
        """What the head may read."""
        return ctx

    def inner(self, ctx: Context) -> Context:
        """The context of what the stack sees: fewer tokens, where the embedding shortens its input."""
        return self.embed.shortened(ctx) if isinstance(self.embed, Shortening) else ctx


class Forecaster(Trunk):
    """inputs + head(stack(embed(inputs))): forecasts the next row of numbers, B T F, as a change of the last."""

    def forward(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        return inputs + super().forward(inputs, ctx, *marks)

    def ahead(self, rows: Tensor, count: int) -> Tensor:
        """An autoregressive forecast of `count` rows.  B T F → B count F"""
        state, found = State(), list[Tensor]()
        for _ in range(count):
            rows = self(rows, Context(state=state))[:, -1:]
            found.append(rows)
        return torch.cat(found, 1)


class EncoderDecoder(nn.Module):
    """decoder(target) with cross-attention to encoder(source)."""

    def __init__(self, encoder: Trunk, decoder: Trunk):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, source: Tensor, target: Tensor, source_ctx: Context = EMPTY, ctx: Context = EMPTY) -> Tensor:
        """B S, B T → B T V.  `source_ctx` tells of the source (its padding), `ctx` of the target."""
        return self.decoder(target, self.remember(source, source_ctx, ctx))

    @property
    def input_encoder(self) -> Trunk:
        return self.encoder

    def remember(self, source: Tensor, source_ctx: Context = EMPTY, ctx: Context = EMPTY) -> Context:
        """`ctx` with the encoded source as its memory: what every step of decoding is called with."""
        memory, seen = self.encoder(source, source_ctx), self.encoder.inner(source_ctx)
        return replace(ctx, memory=memory, memory_keep=seen.keep, memory_rows=seen.rows)


def encoder_of(model: nn.Module) -> Trunk:
    """The part of a model that takes in its input."""
    found: object = getattr(model, "input_encoder", None)
    if not isinstance(found, Trunk):
        raise UserError(f"there is no way to look into a {type(model).__name__}")
    return found


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a checkpoint: parameters, tied ones once, and buffers such as batch norm's running statistics."""
    first: dict[Tensor, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        first.setdefault(tensor, name)
    return {name: tensor for tensor, name in first.items()}
