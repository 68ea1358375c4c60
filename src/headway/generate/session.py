"""A decoding session: a batch of prompts of any lengths, then token after token, with a static KV cache.

Prompts are left-padded, so that all rows continue at the same index; where they are equally long there is neither
padding nor a mask.  torch reads the prompts; a step of few rows is one call of the native library where it was built,
can do what the model does, and nobody records or edits.

Axes:  B batch   T tokens   S room for tokens   C width   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headway.errors import UserError
from headway.generate.weight_layout import arrange_waiting
from headway.nn.context import EMPTY, Context, PackedLengths
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.state import FixedState
from headway.nn.trunk import EncoderDecoder, Trunk, device_of

if TYPE_CHECKING:
    from headway.generate.step_program import CacheRows, StepProgram

# above which torch is not slower.  Torch's time of a step ÷ the library's, GPT-2 and Marian: 64 rows 1.18 and 1.15,
# 128 rows of Marian 0.89; in int8 64 rows 1.23 and 1.47, 128 rows 1.07 and 1.28
NATIVE_ROWS, NATIVE_INT8_ROWS = 64, 128
Prompts = Sequence[Sequence[int]] | Tensor  # a tensor is B T without padding; see `unpadded`


class DecodingRows:
    """A model, its KV cache, and the batch rows that it continues."""

    def __init__(self, model: Trunk, state: FixedState, rows: int, ctx: Context):
        arrange_waiting(model)
        self.model, self.device = model, device_of(model)
        self.state, self.rows, self.ctx = state, rows, replace(ctx, state=state)

    def run_program(
        self, tokens: Tensor, slot: int, positions: Tensor | None, rows: CacheRows | None = None
    ) -> Tensor | None:
        """The logits after more tokens by one call of the native library; None: that is for torch."""
        if self.rows > self.native_rows or self.ctx.traces() or torch.is_autocast_enabled("cpu"):
            return None
        if self.program is None or self.model.training:
            return None
        return self.program.run(tokens, slot, positions, self.ctx, rows)

    @cached_property
    def native_rows(self) -> int:
        """How many rows the native library is faster with."""
        low = any(one.dtype == torch.int8 for one in self.model.buffers())
        return NATIVE_INT8_ROWS if low else NATIVE_ROWS

    @cached_property
    def program(self) -> StepProgram | None:
        from headway.generate.lowering import lower  # late: many rows are continued by torch

        return lower(self.model, self.state.capacity)

    @torch.no_grad()
    def head(self, features: Tensor) -> Tensor:
        """… C → … V, in float32 or better."""
        logits = self.model.head(features, self.ctx)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


class DecodingSession(DecodingRows):
    """Prompts and the tokens that follow them, all rows in step."""

    def __init__(self, model: Trunk, prompts: list[list[int]], more: int, *, memory: Context = EMPTY):
        """Room for the prompts and `more` tokens behind them."""
        longest = max(len(prompt) for prompt in prompts)
        super().__init__(model, FixedState(longest + more), len(prompts), padded_memory(memory))
        self.ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=self.device)  # B T
        self.read = 0
        self.native = False  # whether the last step was one of the library, which finds tokens where they stand
        self.positions: Tensor | None = None  # B S; None: in order
        if any(len(prompt) != longest for prompt in prompts):
            padding = torch.tensor([longest - len(prompt) for prompt in prompts], device=self.device)[:, None]
            at = torch.arange(self.state.capacity, device=self.device) - padding  # B S
            self.positions = at.clamp(min=0)
            self.ctx = replace(self.ctx, keep=(at >= 0)[:, None])
        if self.ctx.memory is not None and len(self.ctx.memory) != len(prompts):
            given = f"a memory of {len(self.ctx.memory)} rows for {len(prompts)} prompts"
            raise UserError(given, allowed="one row of memory for each prompt")

    def prompt(self, chunk: int | None = None) -> Tensor:
        """The logits after each prompt, B V, which is read in pieces of `chunk` tokens."""
        return self.head(self.features(self.ids, chunk)[:, 0])

    def step(self, tokens: Tensor) -> Tensor:
        """The logits after one more token in each row: B → B V."""
        logits = self.native_step(tokens)
        return self.head(self.features(tokens[:, None])[:, 0]) if logits is None else logits

    def native_step(self, tokens: Tensor) -> Tensor | None:
        """The same by the native library, on the same KV cache; None: that is for torch to do."""
        positions = None if self.positions is None else self.positions[:, self.read : self.read + 1]
        logits = self.run_program(tokens, self.read, positions)
        self.native = logits is not None
        self.read += self.native
        return logits

    @torch.no_grad()
    def features(self, ids: Tensor, chunk: int | None = None, last: int = 1) -> Tensor:
        """Appends `ids` (B T) to the cache and returns the features of the `last` of them, B last C."""
        pieces = ids.split(chunk or ids.shape[1], 1)
        found = self.advance(pieces[0])[:, -last:]
        for piece in pieces[1:]:
            found = torch.cat([found, self.advance(piece)], 1)[:, -last:]
        return found

    def advance(self, ids: Tensor) -> Tensor:
        first, self.read = self.read, self.read + ids.shape[1]
        positions = None if self.positions is None else self.positions[:, first : self.read]
        return self.model.features(ids, replace(self.ctx, positions=positions))

    @torch.no_grad()
    def select(self, rows: Tensor, sources: list[int] | None = None) -> None:
        """Row i goes on as row rows[i] was; a row may be taken several times, or not at all.

        With `sources` the rows are beams: as many for each of these rows of the memory, which they share if they can.
        """
        if rows.tolist() == list(range(self.rows)):
            return
        self.rows = len(rows)
        of_memory = None
        if sources is not None and self.shares:
            of_memory = torch.tensor(sources, device=self.device)
        (self.state.redirect if self.native else self.state.reorder)(rows, of_memory)
        if self.positions is not None:
            self.positions = self.positions[rows]
        memory, memory_keep = self.ctx.memory, self.ctx.memory_keep
        if of_memory is None or len(of_memory) != len(memory if memory is not None else ()):
            chosen = rows if of_memory is None else of_memory
            memory, memory_keep = (None if x is None else x[chosen] for x in (memory, memory_keep))
        keep = None if self.ctx.keep is None else self.ctx.keep[rows]
        self.ctx = replace(self.ctx, keep=keep, memory=memory, memory_keep=memory_keep)

    @cached_property
    def shares(self) -> bool:
        """Whether beams can look at one memory: nobody records it, and all that reads it is plain cross-attention."""
        parts = [part.shares_memory for part in self.model.modules() if hasattr(part, "shares_memory")]
        return bool(parts) and all(parts) and not self.ctx.traces()

    def rewind(self, length: int) -> None:
        """Truncates the KV cache to the first `length` tokens."""
        self.state.truncate(length)
        self.read = length


def padded_memory(memory: Context) -> Context:
    """A memory in its padded form, with a mask for each row, so that rows can be taken from it."""
    if memory.memory is None:
        return memory
    packed = memory.memory_rows
    found = memory.memory if packed is None else packed.pad(memory.memory)
    keep = memory.memory_keep if packed is None else packed.keep
    keep = None if keep is None else keep.expand(found.shape[0], -1, -1)
    return replace(memory, memory=found, memory_keep=keep, memory_rows=None)


def memory_row(memory: Context, row: int) -> Context:
    """A memory of one row alone."""
    wide = padded_memory(memory)
    found, keep = (None if x is None else x[row : row + 1] for x in (wide.memory, wide.memory_keep))
    return replace(wide, memory=found, memory_keep=keep)


@torch.no_grad()
def encode_sources(model: EncoderDecoder, sources: Prompts) -> Context:
    """The encoded `sources`, of any lengths, as the memory of a decoder."""
    arrange_waiting(model)
    rows = listed_prompts(sources)
    if any(not row for row in rows):
        raise UserError("an empty source", do="give each source at least its end token")
    lengths, device = [len(row) for row in rows], device_of(model)
    if len(set(lengths)) == 1:
        return model.remember(torch.tensor(rows, device=device))
    packed = torch.tensor([[token for row in rows for token in row]], device=device)
    return model.remember(packed, Context(rows=PackedLengths.of(lengths, device)))


def unpadded(ids: Tensor, keep: Tensor) -> list[list[int]]:
    """The prompts in `ids` (B T), padded on whichever side, where `keep` (B T) is True at their tokens."""
    if keep.dtype != torch.bool or keep.shape != ids.shape:
        given = f"keep is {keep.dtype} {tuple(keep.shape)} for ids {tuple(ids.shape)}"
        raise UserError(given, allowed="torch.bool of the same shape, True at tokens")
    return [row[real].tolist() for row, real in zip(ids, keep, strict=True)]


def listed_prompts(prompts: Prompts) -> list[list[int]]:
    if isinstance(prompts, Tensor):
        if prompts.dim() != 2:
            raise UserError(f"prompts of shape {tuple(prompts.shape)}", allowed="B T, or a list of lists of tokens")
        return prompts.tolist()
    return [list(prompt) for prompt in prompts]


def check_prompts(model: Trunk, prompts: list[list[int]], bos: int | None, context: int | None) -> list[list[int]]:
    """The prompts, `bos` in the place of an empty one; refuses those that the model cannot read."""
    if model.training:
        raise UserError("the model is in training mode, where dropout is on", do="call model.eval() first")
    rows = [row or ([] if bos is None else [bos]) for row in prompts]
    vocab = vocab_of(model)
    for index, row in enumerate(rows):
        if not row:
            raise UserError(f"prompt {index} is empty", do="pass bos=, the token that a text begins with")
        if context is not None and len(row) > context:
            given = f"prompt {index} has {len(row)} tokens and the model a context of {context}"
            raise UserError(given, do=f"shorten it to {context} tokens")
        unknown = [token for token in row if vocab is not None and not 0 <= token < vocab]
        if vocab is not None and unknown:
            given = f"prompt {index} holds the token {unknown[0]}"
            raise UserError(given, allowed=f"0 to {vocab - 1}", do="use the tokenizer that belongs to this model")
    return rows


def vocab_of(model: Trunk) -> int | None:
    """How many tokens a model can read, where it reads tokens."""
    return model.embed.token.num_embeddings if isinstance(model.embed, TokenEmbed) else None


def context_of(model: Trunk) -> int | None:
    """How many positions a model has, where it has a table of them; None: no limit of its own."""
    rooms = [part.room for part in model.embed.modules() if isinstance(part, LearnedPosition)]
    return min(rooms, default=None)
