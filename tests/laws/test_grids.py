"""Attention on grids: each part equals attention over all cells with the mask and bias that define it.

Axes:  B batch   Y X rows and columns of the grid   C width   H heads   D head width   N tiles   T queries   S keys
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from headway.nn.attention import UNBIASED, SelfAttention, merge, split
from headway.nn.bias import ContinuousBias, DecomposedBias, NeighbourBias, WindowBias
from headway.nn.context import Context
from headway.nn.learned_score import CosineScore
from headway.nn.trace import Trace
from headway.nn.window_attention import LocalAttention, PooledAttention, Windowed, add_queries, cheapest_tile
from headway.ops.attend import attend
from headway.ops.attention_map import AttentionMap
from headway.ops.pattern import Positions
from headway.ops.window import Windows
from tests.laws.grids import DIM, HEADS, Grid, brute_local, cells, every_part, image, seen
from tests.laws.subjects import cases

# Windows


def brute_windows(grid: Grid, windows: Windows) -> tuple[Tensor, Tensor]:
    """Who sees whom among all cells of a grid (N N), and where each stands in its window (N), cell by cell."""

    def along(at: int, size: int, window: int, shift: int) -> tuple[tuple[int, bool], int]:
        if window >= size:
            return (0, False), at
        moved = (at - shift) % (-(-size // window) * window)
        return (moved // window, at < shift), moved % window

    where = [
        (along(y, grid[0], windows.rows, windows.shift_rows), along(x, grid[1], windows.cols, windows.shift_cols))
        for y, x in cells(grid)
    ]
    rooms = [(down[0], across[0]) for down, across in where]
    keep = torch.tensor([[a == b for b in rooms] for a in rooms])
    return keep, torch.tensor([down[1] * windows.cols + across[1] for down, across in where])


shapes = st.tuples(st.integers(1, 9), st.integers(1, 9))


@st.composite
def cut(draw: st.DrawFn) -> Windows:
    rows, cols = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    return Windows(rows, cols, draw(st.integers(0, rows - 1)), draw(st.integers(0, cols - 1)))


@pytest.mark.slow
@cases(60)
@given(grid=shapes, windows=cut())
def test_windowed_is_attention_over_all_cells_within_the_same_window(grid: Grid, windows: Windows) -> None:
    bias = WindowBias(HEADS, windows.rows, windows.cols)
    attention = SelfAttention(DIM, HEADS, logit_bias=bias)
    x = torch.randn(2, *grid, DIM)
    keep, place = brute_windows(grid, windows)
    # pairs in different windows may have any bias, as they do not see each other
    dy, dx = (place // windows.cols).float(), place % windows.cols
    index = (dy[:, None] - dy + windows.rows - 1) * (2 * windows.cols - 1) + dx[:, None] - dx + windows.cols - 1
    q, k, v = (split(part(x.flatten(1, 2)), HEADS) for part in (attention.q, attention.k, attention.v))
    y = attend(q, k, v, keep=keep[None], bias=bias.table[index.long()].permute(2, 0, 1)[None])
    expected = attention.out(merge(y)).view_as(x)
    assert_close(Windowed(attention, windows)(x), expected, atol=1e-5, rtol=1e-5)


@cases(25)
@given(grid=shapes, windows=cut(), data=st.data())
def test_a_change_reaches_just_the_cells_of_its_region(grid: Grid, windows: Windows, data: st.DataObject) -> None:
    model = Windowed(SelfAttention(DIM, HEADS), windows)
    x = torch.randn(1, *grid, DIM)
    cell = data.draw(st.integers(0, grid[0] * grid[1] - 1))
    other = x.clone()
    other.view(-1, DIM)[cell] += 1
    changed = (model(x) - model(other)).abs().amax(-1).flatten() > 1e-7
    assert changed.tolist() == brute_windows(grid, windows)[0][cell].tolist()


@pytest.mark.parametrize("windows", [Windows(4, 5), Windows(4, 5, 2, 2), Windows(9, 9, 4, 4)])
def test_a_window_that_covers_the_grid_is_plain_attention(windows: Windows) -> None:
    attention, x = SelfAttention(DIM, HEADS), torch.randn(2, 4, 5, DIM)
    assert_close(Windowed(attention, windows)(x), attention(x.flatten(1, 2)).view_as(x))


@pytest.mark.parametrize("make", [WindowBias, ContinuousBias])
def test_a_shrunk_window_keeps_the_bias_of_its_offsets(make: Callable[[int, int, int], nn.Module]) -> None:
    bias = make(HEADS, 5, 6)
    whole = Positions.run(0, 30)
    q = torch.zeros(1, HEADS, 30, DIM // HEADS)
    full = bias(q, q, whole, whole)
    model, x = Windowed(SelfAttention(DIM, HEADS, logit_bias=bias), Windows(5, 6)), torch.zeros(1, 2, 3, DIM)
    corner = torch.tensor([0, 1, 2, 6, 7, 8])  # 2×3 cells of the 5×6
    expected = full[0][:, corner][:, :, corner].softmax(-1)
    assert_close(seen(model, x, "attention.weights").full()[0], expected)


# Neighbours


LOCALS: dict[str, Callable[[int], LocalAttention]] = {
    "plain": lambda size: LocalAttention(DIM, HEADS, size),
    "with prior": lambda size: LocalAttention(DIM, HEADS, size, grid_bias=NeighbourBias(HEADS, size)),
    "shared keys": lambda size: LocalAttention(DIM, HEADS, size, kv_heads=1, bias=UNBIASED, qk_norm=nn.RMSNorm),
    "cosine": lambda size: LocalAttention(DIM, HEADS, size, score=CosineScore(HEADS)),
    "one-number keys": lambda size: LocalAttention(DIM, 4, size, head_dim=1),
    "with stride": lambda size: LocalAttention(
        DIM, HEADS, size, stride=2, grid_bias=NeighbourBias(HEADS, size, stride=2)
    ),
    "with stride 3": lambda size: LocalAttention(DIM, HEADS, size, stride=3),
}


@pytest.mark.parametrize("make", LOCALS.values(), ids=LOCALS)
@cases(20)
@given(grid=st.tuples(st.integers(1, 10), st.integers(1, 10)), size=st.sampled_from([1, 3, 5, 7]))
def test_local_is_attention_over_all_cells_in_the_neighbourhood(
    make: Callable[[int], LocalAttention], grid: Grid, size: int
) -> None:
    model, x = make(size), torch.randn(2, *grid, DIM)
    assert_close(model(x), brute_local(model, x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("make", LOCALS.values(), ids=LOCALS)
@pytest.mark.parametrize(("grid", "size"), [((1, 1), 7), ((2, 3), 7), ((9, 10), 3), ((17, 11), 5)])
def test_local_has_the_gradients_of_its_definition(
    make: Callable[[int], LocalAttention], grid: Grid, size: int
) -> None:
    model, x = make(size).double(), torch.randn(2, *grid, DIM, dtype=torch.double, requires_grad=True)
    wanted = (x, *model.parameters())
    direction = torch.randn(model(x).shape, dtype=torch.double)
    got, expected = (torch.autograd.grad((f * direction).sum(), wanted) for f in (model(x), brute_local(model, x)))
    assert_close(got, expected)


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes, in numbers of four bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else (made,):
            if isinstance(x, Tensor):
                self.numbers = max(self.numbers, x.untyped_storage().nbytes() // 4)
        return made


@pytest.mark.parametrize("size", [1, 3, 7, 11, 15, 21])
@pytest.mark.parametrize("prior", [False, True])
def test_memory_of_local_attention_does_not_grow_with_the_neighbourhood(size: int, prior: bool) -> None:
    model = LocalAttention(64, 2, size, grid_bias=NeighbourBias(2, size) if prior else None)
    x = torch.randn(2, 28, 28, 64, requires_grad=True)
    halo = cheapest_tile(size, (28, 28))
    copies = (halo.span / halo.tile) ** 2  # of the feature map, that the keys of all tiles are
    with Largest() as largest:
        model(x).sum().backward()
    # with a prior, a row of logits for each query and head: at most 64 / 32 the width of its keys
    assert largest.numbers <= 1.01 * (2 if prior else 1) * copies * x.numel()
    assert copies <= 4 or copies < size**2 / 15


# Pooling


def slow_pooled(model: PooledAttention, x: Tensor) -> Tensor:
    """As published: heads are folded into the batch to be pooled, and the whole matrix is built."""

    def pooled(name: str) -> tuple[Tensor, Grid]:
        y = getattr(model, name)(x).unflatten(-1, (model.heads, -1)).permute(0, 3, 4, 1, 2)  # B H D Y X
        conv = getattr(model, f"{name}_pool")
        if isinstance(conv, nn.Conv2d):
            y = torch.stack([F.conv2d(h, conv.weight, None, conv.stride, 1, groups=h.shape[1]) for h in y.unbind(1)], 1)
        return getattr(model, f"{name}_norm")(y.flatten(3).mT), (y.shape[3], y.shape[4])

    (q, (qh, qw)), (k, (kh, kw)), (v, _) = pooled("q"), pooled("k"), pooled("v")
    logits = (q * model.head_dim**-0.5) @ k.mT
    if isinstance(bias := model.grid_bias, DecomposedBias):
        r = q.unflatten(2, (qh, qw))
        down = torch.einsum("bhyxd,ykd->bhyxk", r, bias.rows[offsets(qh, kh)])
        along = torch.einsum("bhyxd,xkd->bhyxk", r, bias.cols[offsets(qw, kw)])
        logits = logits + (down[..., :, None] + along[..., None, :]).flatten(4).flatten(2, 3)
    y = logits.softmax(-1) @ v
    y = y + q if model.residual is add_queries else y
    return model.out(y.transpose(1, 2).flatten(2)).unflatten(1, (qh, qw))


def offsets(q: int, k: int) -> Tensor:
    at = torch.arange(q)[:, None] * max(k / q, 1.0) - torch.arange(k) * max(q / k, 1.0)
    return (at + (k - 1) * max(q / k, 1.0)).long()


def pooled_grid(grid: Grid, stride: int) -> Grid:
    return -(-grid[0] // stride), -(-grid[1] // stride)


@pytest.mark.slow
@cases(40)
@given(grid=shapes, stride_q=st.integers(1, 3), stride_kv=st.integers(1, 4), placed=st.booleans(), add=st.booleans())
def test_pooled_attention_is_the_published_one(
    grid: Grid, stride_q: int, stride_kv: int, placed: bool, add: bool
) -> None:
    grids = pooled_grid(grid, stride_q), pooled_grid(grid, stride_kv)
    model = PooledAttention(
        DIM,
        3,
        out_dim=12,
        stride_q=stride_q,
        stride_kv=stride_kv,
        grid_bias=DecomposedBias(4, *grids) if placed else None,
        residual=add_queries if add else None,
    )
    for norm in (model.q_norm, model.k_norm, model.v_norm):
        nn.init.normal_(norm.weight)
    x = torch.randn(2, *grid, DIM)
    assert model(x).shape == (2, *grids[0], 12)
    assert_close(model(x), slow_pooled(model, x), atol=1e-5, rtol=1e-5)


def test_without_a_pool_it_is_plain_attention() -> None:
    model, plain = PooledAttention(DIM, HEADS, kernel=1), SelfAttention(DIM, HEADS)
    plain.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 5, DIM)
    assert_close(model(x), plain(x.flatten(1, 2)).view_as(x))


# Laws of all parts on grids


@pytest.mark.long
@every_part
def test_gradients_are_right(make: Callable[[], nn.Module]) -> None:
    model, x = make().double(), image(1).double().requires_grad_()

    def some(x: Tensor, *_: Tensor) -> Tensor:
        return model(x)[:, ::2, ::2, ::3]

    assert torch.autograd.gradcheck(some, (x, *model.parameters()))


@pytest.mark.long
@every_part
@pytest.mark.parametrize(
    ("grid", "other"),
    [
        ((4, 5), (4, 5)),
        pytest.param((6, 7), (6, 7), marks=pytest.mark.proof),
        # rows and columns become symbols, whose expressions take dynamo up to half a minute
        pytest.param((4, 5), (6, 7), marks=pytest.mark.proof),
    ],
)
def test_it_is_captured_whole(make: Callable[[], nn.Module], grid: Grid, other: Grid) -> None:
    torch._dynamo.reset()
    model, x, more = make(), torch.randn(2, *grid, DIM), torch.randn(3, *other, DIM)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_close(compiled(x), model(x))
    assert_close(compiled(more), model(more))


@every_part
def test_reading_and_identity_edits_change_nothing(make: Callable[[], nn.Module]) -> None:
    model, x = make(), image()
    plain = model(x)
    assert_close(model(x, Context(trace=Trace(model, "*"))), plain, rtol=0, atol=0)
    assert_close(model(x, Context(trace=Trace(model, edit={"*weights": lambda w: w}))), plain)


@every_part
def test_what_is_read_is_what_was_used(make: Callable[[], nn.Module]) -> None:
    model, x = make(), image()
    trace = Trace(model, "*")
    model(x, Context(trace=trace))
    by_name = {name.rpartition(".")[2]: value for name, [value] in trace.values.items()}
    amap, values, heads = by_name["weights"], by_name["values"], by_name["heads"]
    assert isinstance(amap, AttentionMap)
    assert isinstance(values, Tensor)
    assert_close(amap.full() @ values, heads, atol=1e-5, rtol=1e-5)
    assert_close(amap.full().sum(-1), torch.ones(amap.shape[:3]))
    half = amap.shape[2] // 2
    assert_close(amap.rows(half, amap.shape[2]), amap.full()[:, :, half:])


@every_part
def test_an_edit_is_heard(make: Callable[[], nn.Module]) -> None:
    model, x = make(), image()
    assert not torch.allclose(model(x, Context(trace=Trace(model, edit={"*weights": torch.zeros_like}))), model(x))


@every_part
def test_images_do_not_see_each_other(make: Callable[[], nn.Module]) -> None:
    model, x = make(), image(3)
    assert_close(model(x), torch.cat([model(one) for one in x.split(1)]), atol=1e-6, rtol=1e-5)
