"""Parts on grids: their shapes and parameters, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.attention import SelfAttention, merge, split
from headway.nn.bias import NeighbourBias
from headway.nn.context import EMPTY, Context, PackedLengths
from headway.nn.state import State
from headway.nn.window_attention import LocalAttention, PooledAttention, Windowed, cheapest_tile
from headway.ops.attend import attend
from headway.ops.window import Windows
from tests.laws.grids import DIM, HEADS, PARTS, Grid, Pictured, brute_local, image, seen

ATTENTIONS = {name: make for name, make in PARTS.items() if not isinstance(make(), Pictured)}  # no whole models
every_attention = pytest.mark.parametrize("make", ATTENTIONS.values(), ids=ATTENTIONS)


def test_values_may_be_wider_than_keys() -> None:
    """As in LR-Net: 13 heads with keys of one number share the 100 channels of the values, 8 to a head."""
    model = LocalAttention(100, 13, 3, head_dim=1)
    model.v, model.out = nn.Sequential(nn.Linear(100, 100), nn.ZeroPad1d((0, 4))), nn.Identity()
    x = torch.randn(2, 5, 6, 100)
    assert_close(model(x), brute_local(model, x), atol=1e-5, rtol=1e-5)
    assert model(x).shape == (2, 5, 6, 104)


@pytest.mark.parametrize(
    ("grid", "tile"), [((1, 1), 1), ((4, 4), 4), ((7, 7), 7), ((8, 8), 8), ((14, 14), 7), ((16, 32), 8), ((28, 28), 7)]
)
def test_tiles_fit_the_grid(grid: Grid, tile: int) -> None:
    assert cheapest_tile(7, grid).tile == tile


@pytest.mark.parametrize(("stride", "copied", "tile"), [(1, 9, 4), (2, 9, 2), (1, 64, 7)])
def test_tiles_are_smaller_where_little_is_copied(stride: int, copied: int, tile: int) -> None:
    assert cheapest_tile(7, (28, 28), stride, copied).tile == tile


def test_queries_may_be_left_as_they_are() -> None:
    """As in MViT, which pools them only where the grid is halved."""
    model, x = PooledAttention(DIM, HEADS, stride_kv=2, kernel_q=1), image()
    assert not list(model.q_pool.parameters())
    q = split(model.q(x).flatten(1, 2), HEADS)
    k, v = (
        norm(split(pool(project(x)).flatten(1, 2), HEADS))
        for project, pool, norm in ((model.k, model.k_pool, model.k_norm), (model.v, model.v_pool, model.v_norm))
    )
    assert_close(model(x), model.out(merge(attend(q, k, v))).view_as(x))


def test_heads_share_their_pool() -> None:
    names = dict(PooledAttention(DIM, HEADS, stride_q=2).named_parameters())
    assert names["q_pool.weight"].shape == (DIM // HEADS, 1, 3, 3)
    assert names["v_norm.weight"].shape == (DIM // HEADS,)


@every_attention
def test_all_parameters_learn(make: Callable[[], nn.Module]) -> None:
    model = make()
    model(image()).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_shapes_of_the_maps() -> None:
    x = torch.randn(2, 8, 8, DIM)
    assert seen(Windowed(SelfAttention(DIM, HEADS), Windows(4, 4)), x).shape == (2 * 4, HEADS, 16, 16)
    assert seen(LocalAttention(DIM, HEADS, 7), x).shape == (2 * 4, HEADS, 16, 10 * 10)
    assert seen(PooledAttention(DIM, HEADS, stride_kv=4), x).shape == (2, HEADS, 64, 4)


SEQUENCES = {
    "keep": Context(keep=torch.ones(1, 1, 20, dtype=torch.bool)),
    "positions": Context(positions=torch.arange(20)[None]),
    "state": Context(state=State()),
    "rows": Context(rows=PackedLengths.of([2, 3])),
}


@every_attention
@pytest.mark.parametrize("name", SEQUENCES)
def test_what_belongs_to_sequences_is_refused(make: Callable[[], nn.Module], name: str) -> None:
    with pytest.raises(UserError) as error:
        make()(image(), SEQUENCES[name])
    assert str(error.value) == (
        f"attention on a grid was given {name} in its context; "
        "these are for sequences: call it with Context(trace=ctx.trace)"
    )


@every_attention
@pytest.mark.parametrize("shape", [(2, 20, DIM), (2, DIM, 4, 5), (2, 0, 5, DIM)])
def test_what_is_no_grid_is_refused(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError) as error:
        make()(torch.randn(shape), EMPTY)
    assert str(error.value) == (
        f"attention on a grid was given {'×'.join(map(str, shape))}; allowed: B Y X 8; "
        "an image as B C Y X goes in as x.permute(0, 2, 3, 1), tokens as x.unflatten(1, (Y, X))"
    )


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: LocalAttention(DIM, HEADS, 4),
            "Halo(size=4, tile=1, stride=1) has no middle; allowed: an odd size; tile and stride of 1 or more",
        ),
        (
            lambda: LocalAttention(DIM, HEADS, 5, grid_bias=NeighbourBias(HEADS, 3))(torch.randn(1, 4, 4, DIM)),
            "a bias for 3×3 neighbours was given 8×8 keys; allowed: 6×6; make it of the size of its attention",
        ),
        (
            lambda: PooledAttention(DIM, HEADS, kernel=2),
            "a pool with kernel=2 and stride=1; allowed: an odd kernel and a stride of 1 or more",
        ),
        (
            lambda: PooledAttention(DIM, HEADS, stride_kv=0),
            "a pool with kernel=3 and stride=0; allowed: an odd kernel and a stride of 1 or more",
        ),
        (
            lambda: PooledAttention(DIM, 3),
            "heads=3 does not divide dim=8; allowed: heads of 1, 2, 4, 8; try heads=2 or dim=9",
        ),
    ],
)
def test_mistakes_are_told(call: Callable[[], object], told: str) -> None:
    with pytest.raises(UserError) as error:
        call()
    assert str(error.value) == told
