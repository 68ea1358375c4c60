"""Whole models of images.

Axes:  B batch   Y X rows and columns of the grid   C width
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from headway.nn.context import EMPTY, Context
from headway.nn.trace import Trace
from headway.nn.trunk import Trunk
from headway.nn.window_attention import Windowed
from tests.laws.images import CLASSES, every_model, every_pyramid, images, windowed
from tests.laws.subjects import cases

sides = st.integers(1, 12).map(lambda patches: 2 * patches)


@pytest.mark.slow
@every_model
@cases(10)
@given(high=sides, wide=sides)
def test_images_of_any_size_do_not_see_each_other(make: Callable[[], Trunk], high: int, wide: int) -> None:
    model, x = make().double(), images(3, high, wide).double()  # logits of 1,000 are sums, rounded by chance in float32
    y = model(x)
    assert y.shape == (3, CLASSES)
    assert_close(y, torch.cat([model(one) for one in x.split(1)]), atol=1e-8, rtol=1e-8)


@pytest.mark.slow
@every_model
def test_reading_and_identity_edits_change_nothing(make: Callable[[], Trunk]) -> None:
    model, x = make(), images()
    plain = model(x)
    assert_close(model(x, Context(trace=Trace(model, "*"))), plain, rtol=0, atol=0)
    assert_close(model(x, Context(trace=Trace(model, edit={"*": lambda w: w}))), plain)


@every_model
def test_an_edit_of_any_layer_is_heard(make: Callable[[], Trunk]) -> None:
    model, x = make(), images()
    sites = [name for name in Trace(model, "*").names.values() if name.endswith("weights")]
    for site in sites:
        assert not torch.allclose(model(x, Context(trace=Trace(model, edit={site: torch.zeros_like}))), model(x))


@pytest.mark.long
@every_model
def test_gradients_are_right(make: Callable[[], Trunk]) -> None:
    model, x = make().double(), images(1, 8, 6).double().requires_grad_()

    def some(x: Tensor, *_: Tensor) -> Tensor:
        return model(x)

    assert torch.autograd.gradcheck(some, (x, *model.parameters()), fast_mode=True)


@pytest.mark.long
@every_model
@pytest.mark.parametrize("others", [(), pytest.param(((3, 12, 20),), marks=pytest.mark.proof)])
def test_it_is_captured_whole(make: Callable[[], Trunk], others: tuple[tuple[int, int, int], ...]) -> None:
    torch._dynamo.reset()
    model = make()
    # each size by itself: sizes as symbols, halved from stage to stage, take dynamo a minute
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=False)
    for x in (images(), *(images(*size) for size in others)):
        assert_close(compiled(x), model(x))


# Windows


class Everywhere(nn.Module):
    """All cells of a grid attend to all, each told where it stands.  B Y X C → B Y X C"""

    def __init__(self, part: Windowed):
        super().__init__()
        self.attention, self.cols = part.attention, part.windows.cols

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        y, z = torch.meshgrid(torch.arange(x.shape[1]), torch.arange(x.shape[2]), indexing="ij")
        return self.attention(x.flatten(1, 2), Context(positions=(y * self.cols + z).reshape(1, -1))).view_as(x)


@pytest.mark.slow
@every_pyramid
def test_one_window_over_the_grid_is_global_attention(make: Callable[[tuple[int, int]], Trunk]) -> None:
    for windows in ((8, 4), (9, 9)):
        model = make(windows)
        everywhere = deepcopy(model)
        for parent, name, part in windowed(everywhere):
            setattr(parent, name, Everywhere(part))
        for x in (images(), images(1, 12, 16), images(2, 6, 10)):
            assert_close(model(x), everywhere(x), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@every_pyramid
@cases(10)
@given(high=sides, wide=sides, side=st.integers(1, 5))
def test_padding_changes_nothing(make: Callable[[tuple[int, int]], Trunk], high: int, wide: int, side: int) -> None:
    """Whatever the slots hold that fill a grid up to whole windows."""
    model, x = make((side, side)), images(2, high, wide)
    plain = model(x)
    with patch("headway.ops.window.pad_to_tiles", rubbish):
        assert_close(model(x), plain, atol=1e-5, rtol=1e-4)


def rubbish(x: Tensor, rows: int, cols: int) -> Tensor:
    """`x` (B Y X C) filled up with other numbers than zero."""
    below, right = -x.shape[1] % rows, -x.shape[2] % cols
    if not x.is_floating_point():  # the mask of what is padding
        return F.pad(x, (0, 0, 0, right, 0, below))
    return F.pad(x, (0, 0, 0, right, 0, below), value=7.0)
