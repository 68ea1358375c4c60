"""From tokens, images and frames to vectors, each against its formula."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from headway import Context, FixedState, Rows, State
from headway.nn.embed import LearnedPosition, SinusoidalPosition, TokenEmbed
from headway.nn.frames import FrameEmbed
from headway.nn.image import ClassToken, GridPosition, LearnedGridPosition, PatchEmbed
from headway.ops.rotary import HALVES

DIM = 8
TOKENS = torch.tensor([[3, 1, 4], [1, 5, 2]])


def test_tokens_are_scaled_marked_and_normed() -> None:
    position, norm = LearnedPosition(6, DIM), nn.LayerNorm(DIM)
    part = TokenEmbed(7, DIM, position=position, segments=2, scale=DIM**0.5, norm=norm)
    segments = torch.tensor([[0, 0, 1], [0, 1, 1]])
    assert part.segment is not None
    expected = part.token(TOKENS) * DIM**0.5 + position.table(torch.arange(3)) + part.segment(segments)
    assert_close(part(TOKENS, segments=segments), norm(expected))
    assert_close(part(TOKENS), part(TOKENS, segments=torch.zeros_like(TOKENS)))


def test_positions_may_begin_later() -> None:
    """RoBERTa's first token stands at 2, after the padding index."""
    part = LearnedPosition(6, DIM, first=2)
    assert_close(part(torch.zeros(1, 3, DIM))[0], part.table(torch.tensor([2, 3, 4])))


def test_the_papers_sinusoids() -> None:
    """sin and cos of position / 10000^(2i / C), at position 1 and 2 of width 4."""
    marks = SinusoidalPosition(4)(torch.zeros(1, 3, 4))[0]
    expected = torch.tensor(
        [[0.0, 1.0, 0.0, 1.0], [0.84147, 0.54030, 0.01000, 0.99995], [0.90930, -0.41615, 0.02, 0.9998]]
    )
    assert_close(marks, expected, atol=1e-5, rtol=0)


def test_fairseqs_sinusoids() -> None:
    """All sines first, C/2 − 1 steps, the first position 2."""
    marks = SinusoidalPosition(4, layout=HALVES, steps=1, first=2)(torch.zeros(1, 1, 4))[0, 0]
    expected = torch.cat([torch.tensor([2.0, 2e-4]).sin(), torch.tensor([2.0, 2e-4]).cos()])
    assert_close(marks, expected)


@pytest.mark.parametrize("make", [State, lambda: FixedState(5)])
@pytest.mark.parametrize("part", [LearnedPosition(5, DIM), SinusoidalPosition(DIM)])
def test_positions_go_on_with_a_state(part: nn.Module, make: type[State]) -> None:
    state, x = make(), torch.zeros(2, 5, DIM)
    chunks = [part(chunk, Context(state=state)) for chunk in x.split([2, 1, 2], 1)]
    assert_close(torch.cat(chunks, 1), part(x))


def test_patches_are_squares_projected() -> None:
    part, image = PatchEmbed(3, DIM, 4), torch.randn(2, 3, 8, 12)
    grid = part(image)
    assert grid.shape == (2, 2, 3, DIM)
    square = image[1, :, 4:8, 8:12].flatten()
    assert_close(grid[1, 1, 2], part.project.weight.flatten(1) @ square + part.project.bias, atol=1e-5, rtol=1e-5)


def test_a_class_token_stands_in_front() -> None:
    part, x = ClassToken(DIM), torch.randn(2, 3, DIM)
    assert_close(part(x)[:, 1:], x)
    assert_close(part(x)[:, 0], part.token[0].expand(2, -1))


def test_grid_positions_tell_rows_from_columns() -> None:
    marks = GridPosition()(torch.zeros(1, 4, 5, 16))[0].flatten(0, 1)
    apart = torch.cdist(marks, marks) + torch.eye(20) * 9
    assert apart.min() > 0.1
    learned = LearnedGridPosition(2, 3, DIM)
    assert_close(learned(torch.zeros(1, 2, 3, DIM))[0], learned.table)


def test_frames_side_by_side_make_a_token() -> None:
    part, frames = FrameEmbed(3, DIM, factor=2), torch.randn(1, 5, 3)
    y = part(frames)
    assert y.shape == (1, 3, DIM)
    assert_close(y[0, 1], part.project(frames[0, 2:4].flatten()))
    assert_close(y[0, 2], part.project(torch.cat([frames[0, 4], torch.zeros(3)])))


@pytest.mark.slow
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 4), st.booleans())
def test_frames_of_a_batch_are_those_of_its_rows(lengths: list[int], factor: int, left: bool) -> None:
    """Padding on either side, or packed rows: the tokens of each row are its own."""
    rows, part = Rows.of(lengths), FrameEmbed(3, DIM, factor=factor)
    frames = torch.randn(len(lengths), rows.longest, 3)
    keep = rows.keep.flip(2) if left else rows.keep
    y, shorter = part(frames, Context(keep=keep)), part.shortened(Context(keep=keep))
    for row, own in enumerate(frames):
        alone = part(own[keep[row, 0]][None])
        assert shorter.keep is not None
        assert_close(y[row][shorter.keep[row, 0]], alone[0], atol=1e-5, rtol=1e-5)
    if not left:
        packed, inner = part(rows.pack(frames), Context(rows=rows)), part.shortened(Context(rows=rows))
        assert inner.rows is not None
        assert_close(packed, inner.rows.pack(y), atol=1e-5, rtol=1e-5)
