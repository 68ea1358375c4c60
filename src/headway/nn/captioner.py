"""Image captioning models: an encoder–decoder whose memory is the grid of image features.

Axes:  B batch   Ch channels   Y X rows and columns of the grid   S = Y·X places   T words   C width   H heads
"""

from __future__ import annotations

from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.lazy_map import Readable


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
