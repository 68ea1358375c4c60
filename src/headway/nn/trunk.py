"""Whole models: embedding, stack and head (`Trunk`); encoder–decoder; forecaster; captioner.

In training, the last layer of a trunk is computed only at the tokens that the head reads, such as the class token or
masked words: these are the queries, all tokens are keys, and only these pass the feed-forward layer and the head.  Of
12 layers that saves a ViT 7 %.  The definition is the whole stack.  Models in evaluation mode are computed by it, so
that their outputs are bit-identical with and without a recording; the selection agrees with it up to rounding.

Axes:  B batch   T tokens or words   S source tokens, or places of a grid   C width   V vocabulary   F numbers of a row
       M chosen tokens   Ch channels   Y X rows and columns of the grid   H heads
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import TypeGuard

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.attention import SelfAttention
from headway.nn.block import Block, IgnoreContext, Residual, Stack, tokenwise
from headway.nn.context import EMPTY, Context, TokenSelection, owners_of
from headway.nn.frames import Shortening
from headway.nn.fused_linear import has_hooks
from headway.nn.head import MLMHead, SumPool, main_head, tokens_for_head
from headway.nn.state import State
from headway.ops.attention_map import Readable


class Trunk(nn.Module):
    """head(stack(embed(inputs))): a language model, an encoder, or the decoder of an encoder–decoder.

    `marks` are further inputs of the embedding: BERT's segments.  In training its last layer is computed only at the
    tokens that the head reads (`stack_at`).
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

    def features_at(self, index: Tensor, inputs: Tensor, ctx: Context, *marks: Tensor) -> Tensor:
        """features(inputs, ctx, *marks) at some of all tokens, row after row, M C; `index` is ascending."""
        x, inner = self.embed(inputs, ctx, *marks), self.inner(ctx)
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

    @property
    def segments(self) -> int:
        """Of how many segments its tokens may be; where that is 1 or none, it is not told of them."""
        table = getattr(self.embed, "segment", None)
        return table.num_embeddings if isinstance(table, nn.Embedding) else 0

    @property
    def fills_masks(self) -> bool:
        """Whether its words are those that masks stand for."""
        return isinstance(main_head(self.head), MLMHead)

    def hiding(self, hidden: Tensor, *marks: Tensor) -> tuple[Tensor, ...]:
        """Its further inputs where hidden tokens are to be predicted, which most models know by the mask's id."""
        return marks

    def readable(self, inputs: Tensor, ctx: Context) -> Context:
        """What the head may read."""
        return ctx

    def inner(self, ctx: Context) -> Context:
        """The context of what the stack sees: fewer tokens, where the embedding shortens its input."""
        return self.embed.shortened(ctx) if isinstance(self.embed, Shortening) else ctx


class PlacedTrunk(Trunk):
    """A trunk whose stack is told where each token stands: `places` makes positions of the inputs."""

    def __init__(self, embed: nn.Module, stack: nn.Module, head: nn.Module | None = None, *, places: nn.Module):
        super().__init__(embed, stack, head)
        self.places = places

    def forward(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        return super().forward(inputs, self.placed(inputs, ctx), *marks)

    def features(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        return super().features(inputs, self.placed(inputs, ctx), *marks)

    def features_at(self, index: Tensor, inputs: Tensor, ctx: Context, *marks: Tensor) -> Tensor:
        return super().features_at(index, inputs, self.placed(inputs, ctx), *marks)

    def placed(self, inputs: Tensor, ctx: Context) -> Context:
        return replace(ctx, positions=self.places(inputs))


class VotingTrunk(Trunk):
    """head(stack(embed(inputs))) + Σ votes(inputs): classes of a text, to which each word adds its own, B K."""

    def __init__(self, embed: nn.Module, stack: nn.Module, head: nn.Module, votes: nn.Embedding):
        super().__init__(embed, stack, head)
        self.votes, self.sum = votes, SumPool()

    def forward(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        return super().forward(inputs, ctx, *marks) + self.sum(self.votes(inputs), ctx)


class Forecaster(Trunk):
    """inputs + head(stack(embed(inputs))): forecasts the next row of numbers, B T F, as a change of the last."""

    def forward(self, inputs: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        return inputs + super().forward(inputs, ctx, *marks)

    def ahead(self, rows: Tensor, count: int, interrupt: Callable[[], None] = lambda: None) -> Tensor:
        """An autoregressive forecast of `count` rows; `interrupt` may raise before each.  B T F → B count F"""
        state, found = State(), list[Tensor]()
        for _ in range(count):
            interrupt()
            rows = self(rows, Context(state=state))[:, -1:]
            found.append(rows)
        return torch.cat(found, 1)


class EncoderDecoder(nn.Module):
    """decoder(target) with cross-attention to encoder(source)."""

    reads_pairs = True

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


class RereadingClassifier(nn.Module):
    """decoder(the source behind `start`) with cross-attention to encoder(source): BART's classes of a text, B T → B K.

    The decoder's head reads the last token, which has seen all others.
    """

    def __init__(self, encoder: Trunk, decoder: Trunk, start: int):
        super().__init__()
        self.encoder, self.decoder, self.start = encoder, decoder, start

    def forward(self, source: Tensor, ctx: Context = EMPTY) -> Tensor:
        memory = self.encoder(source, ctx)
        return self.decoder(
            self.shifted(source, ctx), replace(ctx, memory=memory, memory_keep=ctx.keep, memory_rows=ctx.rows)
        )

    @property
    def input_encoder(self) -> Trunk:
        return self.encoder

    def shifted(self, source: Tensor, ctx: Context = EMPTY) -> Tensor:
        """Each token in the place of the next, and `start` in the first of each row, B T or packed 1 N."""
        places = ctx.locate(self, source).at
        return source.roll(1, 1).masked_fill(places == 0, self.start)


class Captioner(EncoderDecoder):
    """decoder(words) with cross-attention to the cells of encoder(images): B Ch H W, B T → B T V.

    The places run row by row; each is `stride` pixels wide, and those at the far edges may be cut.  To write a caption,
    call `generate(model.decoder, [[begin]] * B, …, memory=model.remember(images))`.
    """

    def __init__(self, encoder: Trunk, decoder: Trunk, stride: int):
        super().__init__(encoder, decoder)
        self.stride = stride

    def grid(self, images: Tensor) -> tuple[int, int]:
        """The rows and columns of places that images (B Ch H W) have."""
        high, wide = images.shape[-2:]
        return -(-high // self.stride), -(-wide // self.stride)

    def maps(self, weights: Readable, images: Tensor) -> Tensor:
        """Where each word looked, B T Y X, the mean over heads: of a recorded attention at the memory, B H T S."""
        grid = self.grid(images)
        if weights.shape[3] != grid[0] * grid[1]:
            said = f"attention at {weights.shape[3]} places for images of {grid[0]}×{grid[1]}"
            raise UserError(said, do="record the decoder's attention at the memory, on these images")
        return weights.full().mean(1).unflatten(-1, grid)


class Places(nn.Module):
    """The cells of a grid as tokens, row by row: B Y X C → B (Y X) C; of tokens, all but the `first`: a class token."""

    def __init__(self, first: int = 0):
        super().__init__()
        self.first = first

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return x.flatten(1, -2)[:, self.first :]

    def extra_repr(self) -> str:
        return f"first={self.first}" if self.first else ""


def encoder_of(model: nn.Module) -> Trunk:
    """The part of a model that takes in its input."""
    found: object = getattr(model, "input_encoder", None)
    if not isinstance(found, Trunk):
        raise UserError(f"there is no way to look into a {type(model).__name__}")
    return found


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's weights."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a checkpoint: parameters, tied ones once, and buffers such as batch norm's running statistics."""
    first: dict[Tensor, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        first.setdefault(tensor, name)
    return {name: tensor for tensor, name in first.items()}


def stack_at(stack: nn.Module, chosen: TokenSelection, x: Tensor, ctx: Context) -> Tensor:
    """stack(x, ctx) at the selected tokens, 1 M C, where `can_select_tokens`."""
    assert isinstance(stack, Stack)
    *others, last = stack.blocks
    for block in others:
        x = block(x, ctx)
    looking, *rest = last.children()
    assert isinstance(looking, Residual)
    assert isinstance(looking.body, SelfAttention)
    few = Context(rows=chosen.rows)
    x = looking.combine(chosen.of(x), looking.body.at(chosen, looking.before(x), ctx), few)
    for sublayer in rest:
        x = sublayer(x, few)
    return stack.norm(x)


def can_select_tokens(stack: nn.Module, x: Tensor, ctx: Context) -> bool:
    """Whether a stack is in training, its last layer can be computed at single tokens, and nobody reads the others."""
    if not stack.training or type(stack) is not Stack or not len(stack.blocks):
        return False
    if x.dim() != 3 or x.is_meta or torch.compiler.is_compiling() or ctx.traces() or ctx.state is not None:
        return False
    if ctx.keep is not None and ctx.keep.shape[1] != 1:  # each query sees other keys
        return False
    last = stack.blocks[-1]
    if not tokenwise(stack.norm) or not mixes_once(last):
        return False
    return not any(map(has_hooks, (stack, stack.norm, *last.modules())))


def mixes_once(block: nn.Module) -> bool:
    """Whether a layer is self-attention and then works on tokens one by one."""
    parts = [part for part in block.children() if has_tokenwise_slots(part)]
    if type(block) is not Block or not parts or len(parts) < len(list(block.children())):
        return False
    attention, *others = (part.body for part in parts)
    return type(attention) is SelfAttention and all(map(tokenwise, others))


def has_tokenwise_slots(part: nn.Module) -> TypeGuard[Residual]:
    """Whether a part is a residual sublayer, and what stands around its body works on tokens one by one."""
    slots = (child for name, child in part.named_children() if name != "body")
    return type(part) is Residual and all(map(tokenwise, slots))
