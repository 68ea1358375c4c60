"""Convolutions: padding is nothing, wherever it stands; batch norm sees real frames only.

Axes:  B batch   T frames   F features   C width
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.block import IgnoreContext
from headway.nn.context import EMPTY, Context, PackedLengths, to_front
from headway.nn.convnet import BatchNorm, ConvModule, GridNorm
from headway.nn.frames import Subsample
from headway.nn.state import State

C, FEATURES, T = 6, 10, 13
close = {"atol": 5e-6, "rtol": 1e-5}

MODULES: dict[str, Callable[[], ConvModule]] = {
    "batch norm": lambda: ConvModule(C, kernel=5),
    "layer norm": lambda: ConvModule(C, kernel=7, norm=lambda dim: IgnoreContext(nn.LayerNorm(dim))),
    "wide": lambda: ConvModule(C, kernel=31),
    "pointwise": lambda: ConvModule(C, kernel=1),
}
FACTORS = [2, 4, 8]
modules = pytest.mark.parametrize("name", MODULES)
factors = pytest.mark.parametrize("factor", FACTORS)


def built(name: str) -> ConvModule:
    torch.manual_seed(1)
    module = MODULES[name]().eval()
    if isinstance(module.norm, BatchNorm):  # as after some training
        nn.init.normal_(module.norm.running_mean)  # type: ignore[arg-type]
        nn.init.uniform_(module.norm.running_var, 0.5, 2.0)  # type: ignore[arg-type]
        nn.init.normal_(module.norm.bias)
    return module


def subsample(factor: int) -> Subsample:
    torch.manual_seed(1)
    return Subsample(FEATURES, C, factor=factor, channels=3)


def frames(batch: int = 3, length: int = T, width: int = C) -> Tensor:
    return torch.randn(batch, length, width, generator=torch.Generator().manual_seed(2))


def keep_row(left: int, length: int) -> Tensor:
    """Row 1 of three has `length` frames after `left` of padding."""
    keep = torch.ones(3, 1, T, dtype=torch.bool)
    keep[1, :, :left] = keep[1, :, left + length :] = False
    return keep


# ---- the module of the Conformer


def test_a_module_by_hand() -> None:
    module, x = built("batch norm"), frames()
    norm = nn.BatchNorm1d(C).eval()
    norm.load_state_dict(module.norm.state_dict())
    y = F.glu(module.expand(x), -1)
    y = norm(module.depthwise(y.transpose(1, 2))).transpose(1, 2)
    assert_close(module(x), module.out(y * y.sigmoid()), **close)


@modules
def test_a_batch_is_its_rows(name: str) -> None:
    module, x = built(name), frames()
    assert_close(module(x), torch.cat([module(x[i : i + 1]) for i in range(3)]), atol=5e-6, rtol=0)


@modules
@pytest.mark.parametrize("length", [1, 6])
@pytest.mark.parametrize("left", [0, 2, 7])
def test_padding_on_either_side_changes_nothing(name: str, length: int, left: int) -> None:
    module, x, keep, here = built(name), frames(), keep_row(left, length), slice(left, left + length)
    y = module(x.masked_fill(~keep[:, 0, :, None], 9.0), Context(keep=keep))
    assert y.isfinite().all()
    assert_close(y[1:2, here], module(x[1:2, here]), **close)
    assert_close(y[::2], module(x)[::2], **close)


@pytest.mark.slow
@modules
@pytest.mark.parametrize("mode", ["train", "eval"])
@given(lengths=st.lists(st.integers(1, T), min_size=2, max_size=4))
@settings(max_examples=10)
def test_packed_is_padded(name: str, mode: str, lengths: list[int]) -> None:
    rows = PackedLengths.of(lengths)
    x = frames(len(lengths), rows.longest)
    a, b = (getattr(built(name), mode)() for _ in range(2))
    assert_close(a(rows.pack(x), Context(rows=rows)), rows.pack(b(x, Context(keep=rows.keep))), **close)
    assert_close(a.state_dict(), b.state_dict(), **close)


def test_batch_norm_sees_real_frames_only() -> None:
    ours, theirs, x, keep = BatchNorm(C), nn.BatchNorm1d(C), frames(), keep_row(2, 6)
    for _ in range(3):
        x = x * 1.5 + 1.0
        assert_close(ours(x, Context(keep=keep))[keep[:, 0]], theirs(x[keep[:, 0]]), **close)
    assert_close(ours.state_dict(), theirs.state_dict(), **close)
    ours.eval(), theirs.eval()
    assert_close(ours(x, Context(keep=keep))[keep[:, 0]], theirs(x[keep[:, 0]]), **close)


def test_one_frame_leaves_finite_statistics() -> None:
    norm = BatchNorm(C)
    y = norm(frames(1, 3), Context(keep=torch.tensor([[[True, False, False]]])))
    assert y[0, 0].abs().max() == 0
    assert all(value.isfinite().all() for value in norm.state_dict().values())


# ---- shorter sequences


@factors
def test_subsampling_by_hand(factor: int) -> None:
    part, x = subsample(factor), frames(width=FEATURES)
    y = x[:, None]
    for conv in part.convs:
        y = conv(y).relu()
    assert_close(part(x), part.project(y.transpose(1, 2).flatten(2)), **close)


@factors
@pytest.mark.parametrize("length", [1, 2, 5, 8, T])
def test_a_row_is_shortened_as_alone(factor: int, length: int) -> None:
    part, x = subsample(factor), frames(width=FEATURES)
    short = -(-length // factor)
    alone = part(x[1:2, :length])
    assert alone.shape == (1, short, C)
    for left in {0, 1, 2, T - length} & set(range(T - length + 1)):
        keep = keep_row(left, length)
        moved = x.clone()
        moved[1] = 9.0
        moved[1, left : left + length] = x[1, :length]
        y, ctx = part(moved, Context(keep=keep)), part.shortened(Context(keep=keep))
        assert_close(y[1:2, :short], alone, **close)
        assert ctx.keep is not None
        assert ctx.keep.shape == (3, 1, y.shape[1])
        assert ctx.keep[1, 0].tolist() == [t < short for t in range(y.shape[1])]
        assert_close(y[::2], part(x)[::2], **close)


@pytest.mark.slow
@factors
@given(lengths=st.lists(st.integers(1, T), min_size=1, max_size=4))
@settings(max_examples=10)
def test_packed_frames_are_shortened_as_padded(factor: int, lengths: list[int]) -> None:
    part, rows = subsample(factor), PackedLengths.of(lengths)
    x = frames(len(lengths), rows.longest, FEATURES)
    packed, padded = Context(rows=rows), Context(keep=rows.keep)
    after = part.shortened(packed).rows
    assert after is not None
    assert after.lengths == tuple(-(-length // factor) for length in lengths)
    assert_close(part(rows.pack(x), packed), after.pack(part(x, padded)), **close)
    assert_close(after.keep, part.shortened(padded).keep)


def test_a_context_without_padding_stays_so() -> None:
    ctx = subsample(4).shortened(Context(positions=torch.arange(T)[None]))
    assert ctx.keep is ctx.rows is ctx.positions is None


# ---- gradients, capture, errors


@modules
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("keep", [None, torch.tensor([[[1, 1, 1, 0]], [[0, 1, 1, 0]]]).bool()])
def test_gradients_of_a_module(name: str, mode: str, keep: Tensor | None) -> None:
    module = getattr(built(name).double(), mode)()
    check_gradients(module, frames(2, 4), Context(keep=keep))


@factors
@pytest.mark.parametrize("keep", [None, torch.tensor([[[1, 1, 1, 0]], [[0, 1, 1, 0]]]).bool()])
def test_gradients_of_subsampling(factor: int, keep: Tensor | None) -> None:
    check_gradients(subsample(factor).double(), frames(2, 4, FEATURES), Context(keep=keep))


def check_gradients(part: nn.Module, x: Tensor, ctx: Context) -> None:
    names = [name for name, _ in part.named_parameters()]
    leaves = [leaf.double().detach().requires_grad_() for leaf in (x, *part.parameters())]

    def call(x: Tensor, *weights: Tensor) -> Tensor:
        return torch.func.functional_call(part, dict(zip(names, weights, strict=True)), (x, ctx))

    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)


@pytest.mark.slow
@pytest.mark.parametrize("keep", [None, keep_row(2, 6)])
@pytest.mark.parametrize("mode", ["train", "eval"])
@modules
def test_a_module_is_captured_whole(name: str, mode: str, keep: Tensor | None) -> None:
    torch._dynamo.reset()
    module, twin = (getattr(built(name), mode)() for _ in range(2))
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    assert_close(compiled(frames(), Context(keep=keep)), twin(frames(), Context(keep=keep)), **close)


@pytest.mark.slow
@pytest.mark.parametrize("keep", [None, keep_row(2, 6)])
def test_subsampling_is_captured_whole(keep: Tensor | None) -> None:
    torch._dynamo.reset()
    part, x = subsample(4), frames(width=FEATURES)
    compiled = torch.compile(part, backend="eager", fullgraph=True)
    assert_close(compiled(x, Context(keep=keep)), part(x, Context(keep=keep)), **close)


def test_helpers_by_eye() -> None:
    real = torch.tensor([[0, 1, 1, 0], [1, 0, 1, 1]]).bool()
    assert to_front(real).tolist() == [[1, 2, 0, 3], [0, 2, 3, 1]]
    assert EMPTY.real(4) is None
    assert_close(Context(keep=real[:, None]).real(4), real)
    assert_close(Context(rows=PackedLengths.of([1, 2])).real(2), torch.tensor([[True, False], [True, True]]))


def test_errors_say_what_to_do() -> None:
    with pytest.raises(
        UserError, match="kernel=4\\) has no middle frame; allowed: an odd number of frames; try kernel=5"
    ):
        ConvModule(C, kernel=4)
    with pytest.raises(UserError, match="cannot be called in chunks; call it without a state"):
        ConvModule(C)(frames(), Context(state=State()))
    for factor in (0, 1, 3, 6, -4):
        with pytest.raises(UserError, match="allowed: 2, 4, 8"):
            Subsample(FEATURES, C, factor=factor)
    with pytest.raises(UserError, match="keep is 1×4×4 for 13 tokens; allowed: B 1 13, True at real tokens"):
        ConvModule(C)(frames(), Context(keep=torch.ones(1, 4, 4, dtype=torch.bool)))


@pytest.mark.parametrize("norm", [BatchNorm(4), GridNorm(4)], ids=["frames", "grid"])
def test_a_single_value_is_normed_by_what_was_gathered(norm: nn.Module) -> None:
    """In training too: it has no spread of its own, and torch refuses it."""
    shape = (1, 1, 4) if isinstance(norm, BatchNorm) else (1, 1, 1, 4)
    torch.manual_seed(0)
    with torch.no_grad():
        norm.running_mean.normal_()  # type: ignore[operator,union-attr]
    x = torch.randn(shape)
    told = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    assert_close(norm.train()(x), norm.eval()(x))
    assert_close(norm.state_dict(), told)
