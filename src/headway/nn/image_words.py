"""Images among the words of a text: an encoder's states, made as wide as words, and the places in a text they take.

Axes:  B batch   T tokens   S patches of an image   C width   N tokens of all packed rows
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.block import Stack
from headway.nn.context import EMPTY, Context, padded
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import Activation
from headway.nn.image import ClassToken, ImageEmbed
from headway.nn.trunk import EncoderDecoder


class TappedStack(Stack):
    """The states after some of the blocks side by side, B T C → B T (taps · C).

    `taps` count blocks from 1, 0 is the input.  Blocks behind the last of them, and the norm, are the rest of a
    published tower, which nobody reads: the norm is not computed, and these blocks only for a recording.
    """

    def __init__(self, blocks: Iterable[nn.Module], norm: nn.Module, taps: tuple[int, ...]):
        super().__init__(blocks, norm)
        if not taps or not 0 <= min(taps) <= max(taps) <= len(self.blocks):
            raise UserError(f"states after blocks {taps} of {len(self.blocks)}", allowed=f"0 to {len(self.blocks)}")
        self.taps = taps

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        states = [x]
        for block in self.blocks if ctx.traces() else islice(self.blocks, max(self.taps)):
            states.append(block(states[-1], ctx))
        return torch.cat([states[tap] for tap in self.taps], -1)

    def extra_repr(self) -> str:
        return f"taps={self.taps}"


class PatchProjector(nn.Module):
    """out(act(inside(x))) of all tokens but the `first`, a class token: B T C → B S dim, patches as wide as words."""

    def __init__(self, width: int, dim: int, *, first: int, act: Activation, bias: bool = True):
        super().__init__()
        self.first, self.act = first, act
        self.inside, self.out = nn.Linear(width, dim, bias), nn.Linear(dim, dim, bias)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.out(self.act(self.inside(x[:, self.first :])))


class PicturedEmbed(TokenEmbed):
    """Words, where each token `image` of a row is the next row of the memory in place of its own vector, B T → B T C.

    The memory of a row is the patches of its images, one image after the other, as wide as words.  A row that holds
    more of these tokens than the memory has patches keeps the vectors of the others; a state counts those of earlier
    calls.
    """

    def __init__(self, vocab: int, dim: int, *, image: int):
        super().__init__(vocab, dim)
        if not 0 <= image < vocab:
            raise UserError(f"the token {image} stands for images", allowed=f"0 to {vocab - 1}")
        self.image = image

    def vectors(self, tokens: Tensor, ctx: Context, segments: Tensor | None = None) -> Tensor:
        words = super().vectors(tokens, ctx, segments)
        if ctx.memory is None and ctx.state is None:
            return words
        here = padded(tokens == self.image, ctx.rows) & self.real(ctx, tokens)
        before = self.before(here, tokens, ctx)  # without a memory, too: a later call may have one
        if ctx.memory is None:
            return words
        memory = padded(ctx.memory, ctx.memory_rows)  # B S C
        if len(here) % len(memory):
            said = f"a memory of {len(memory)} images for {len(here)} rows of tokens"
            raise UserError(said, allowed="one image for each row")
        nth = here.cumsum(1) - 1 + before
        rows = torch.arange(len(here), device=here.device) // (len(here) // len(memory))  # beams share a memory
        patches = memory[rows[:, None], nth.clamp(0, memory.shape[1] - 1)].to(words.dtype)
        placed = here & (nth < memory.shape[1])
        if ctx.rows is not None:
            placed, patches = ctx.rows.pack(placed), ctx.rows.pack(patches)
        return torch.where(placed[..., None], patches, words)

    def real(self, ctx: Context, tokens: Tensor) -> Tensor:
        """Which of these tokens are not padding, B|1 T."""
        if ctx.keep is None or ctx.rows is not None or ctx.keep.shape[1] != 1:
            return torch.ones(1, 1, dtype=torch.bool, device=tokens.device)
        if ctx.state is None:
            return ctx.keep[:, 0]
        start = ctx.state.next_positions(self, tokens.shape[1], tokens.device).at[:, :1]
        slots = start + torch.arange(tokens.shape[1], device=tokens.device)
        return ctx.keep[:, 0].expand(len(tokens), -1).gather(1, slots.expand(len(tokens), -1))

    def before(self, here: Tensor, tokens: Tensor, ctx: Context) -> Tensor | int:
        """How many image tokens each row had in earlier calls, B 1."""
        if ctx.state is None:
            return 0
        order = ctx.state.next_positions(self, tokens.shape[1], tokens.device)  # of calls, whatever padding there is
        seen = ctx.state.append(self, order, here[:, None, :, None].long())
        flags = seen.tensors[0][:, 0, :, 0] if seen.keep is None else seen.tensors[0][:, 0, :, 0] * seen.keep[:, 0]
        return flags.sum(1, keepdim=True) - here.sum(1, keepdim=True)


class Illustrated(EncoderDecoder):
    """decoder(words) with the patches of encoder(images) in the places of image tokens: B Ch H W, B T → B T V."""

    @property
    def image(self) -> int:
        """The token that a patch takes the place of."""
        assert isinstance(self.decoder.embed, PicturedEmbed)
        return self.decoder.embed.image

    def patches(self, size: tuple[int, int]) -> int:
        """How many places an image of a height and a width takes."""
        embed, head = self.encoder.embed, self.encoder.head
        assert isinstance(embed, ImageEmbed)
        assert isinstance(embed.token, ClassToken)
        assert isinstance(head, PatchProjector)
        high, wide = (side // embed.patches.patch for side in size)
        return high * wide + len(embed.token.names) - head.first
