"""Convolutions over a waveform: each clip has its own tokens, in a batch as alone; norms are torch's.

Axes:  B batch   N samples   T tokens   K channels   C width
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.block import Identity
from headway.nn.context import Context, PackedLengths
from headway.nn.frames import ChannelNorm, ConvWindow, TimeNorm, WaveEmbed
from tests.laws.subjects import cases

DIM, SAMPLES = 6, 60
NORMS: dict[str, Callable[[], list[nn.Module]]] = {
    "over channels": lambda: [ChannelNorm(4), ChannelNorm(5), ChannelNorm(3)],
    "over time": lambda: [TimeNorm(4), Identity(), Identity()],
}
norms = pytest.mark.parametrize("norm", NORMS)


def built(norm: str) -> WaveEmbed:
    torch.manual_seed(1)
    windows = [ConvWindow(4, 5, 3, Identity()), ConvWindow(5, 3, 2, Identity()), ConvWindow(3, 2, 1, Identity())]
    chosen = zip(windows, NORMS[norm](), strict=True)
    return WaveEmbed(DIM, [window._replace(norm=part) for window, part in chosen], bias=True).double().eval()


def sound(batch: int, samples: int = SAMPLES) -> Tensor:
    draw = torch.Generator().manual_seed(2)
    return torch.randn(batch, samples, 1, generator=draw, dtype=torch.float64)


@norms
@given(lengths=st.lists(st.integers(17, SAMPLES), min_size=1, max_size=4), left=st.booleans())
@cases(10)
def test_a_clip_is_the_same_alone_padded_and_packed(norm: str, lengths: list[int], left: bool) -> None:
    embed, rows = built(norm), PackedLengths.of(lengths)
    waves = sound(len(lengths), rows.longest)
    keep = rows.keep.flip(2) if left else rows.keep
    padded, ctx = embed(waves, Context(keep=keep)), embed.shortened(Context(keep=keep))
    packed = embed(rows.pack(waves), Context(rows=rows))
    inner = embed.shortened(Context(rows=rows)).rows
    assert inner is not None
    assert ctx.keep is not None
    for row, length in enumerate(lengths):
        clip = waves[row : row + 1, -length:] if left else waves[row : row + 1, :length]
        alone = embed(clip)
        assert alone.shape[1] == embed.length(length) == int(ctx.keep[row].sum()) == inner.lengths[row]
        assert_close(padded[row : row + 1, : alone.shape[1]], alone)
        assert_close(inner.pad(packed)[row : row + 1, : alone.shape[1]], embed(waves[row : row + 1, :length]))


def test_the_norm_over_time_is_a_group_norm_of_single_channels() -> None:
    ours, theirs, x = TimeNorm(4), nn.GroupNorm(4, 4), sound(2)[..., 0].view(2, 4, 15).float()
    for norm in (ours, theirs):
        nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(3))
        nn.init.normal_(norm.bias, generator=torch.Generator().manual_seed(4))
    assert_close(ours(x, torch.tensor([15])), theirs(x))
    assert_close(ours(x, torch.tensor([15, 9]))[1:, :, :9], theirs(x[1:, :, :9]))


def test_one_token_is_made_of_the_least() -> None:
    embed = built("over time")
    assert embed.least() == 17
    assert embed(sound(1, 17)).shape == embed(sound(1, 22)).shape == (1, 1, DIM)
    with pytest.raises(UserError, match="too short for one token; allowed: 17 samples or more"):
        embed(sound(1, 16))
    with pytest.raises(UserError, match="too short for one token"):
        embed(sound(1, 36), Context(rows=PackedLengths.of([20, 16])))
    with pytest.raises(UserError, match="one or more, with channels, kernel and stride"):
        WaveEmbed(DIM, [ConvWindow(4, 0, 1, Identity())])
    with pytest.raises(UserError, match="one or more, with channels, kernel and stride"):
        WaveEmbed(DIM, [])
