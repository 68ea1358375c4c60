"""Swin and Swin-V2: published sizes, what their stages give, how far a cell sees, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway import Context, Trace, UserError
from headway.nn.block import StochasticDepth
from headway.nn.image import PatchMerge
from headway.ops.attention_map import Readable
from headway.zoo import swin, swinv2
from headway.zoo.build import build, config_of
from headway.zoo.cost import cost

SMALL = swin.Config(16, 1, 2, 8, layers=(2, 2), heads=(1, 2), windows=(4, 4), classes=5)
SMALL_V2 = swinv2.Config(16, 1, 2, 8, layers=(2, 2), heads=(1, 2), windows=(4, 4), classes=5)
both = pytest.mark.parametrize("config", [SMALL, SMALL_V2], ids=["swin", "swinv2"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("swin-t", 28_288_354),
        ("swin-s", 49_606_258),
        ("swin-b", 87_768_224),
        ("swin-l", 196_532_476),
        ("swinv2-t", 28_347_154),
        ("swinv2-s", 49_728_418),
        ("swinv2-b", 87_918_816),
        ("swin-nano", 303_580),
    ],
)
def test_published_sizes(name: str, parameters: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in build(name).parameters()) == parameters


@pytest.mark.slow
def test_costs_are_the_published_ones() -> None:
    costs = cost("swin-t")
    assert round(costs.total.flops / 2e9, 2) == 4.49  # multiplications; the paper says 4.5 G
    assert costs.layers["0"].attention == 2 * 3 * 153_664  # layers, heads, and 64 windows of 49 × 49


@both
def test_what_it_gives(config: swin.Config) -> None:
    x = torch.randn(2, 1, 16, 16)
    model = build(config).eval()
    trace = Trace(model, "*.out")
    assert model(x, Context(trace=trace)).shape == (2, 5)
    shapes = {name: tuple(value.shape) for name, [value] in trace.values.items()}
    assert shapes == {
        "embed.out": (2, 8, 8, 8),
        **dict.fromkeys(("0.0.out", "0.1.out", "0.out"), (2, 8, 8, 8)),
        **dict.fromkeys(("1.merge.out", "1.0.out", "1.1.out", "1.out"), (2, 4, 4, 16)),
    }
    assert build(replace(config, classes=0))(x).shape == (2, 4, 4, 16)


@both
def test_windows_shift_in_every_second_layer_unless_one_covers_the_grid(config: swin.Config) -> None:
    model = build(config).eval()
    trace = Trace(model, "*.weights")
    model(torch.randn(1, 1, 16, 16), Context(trace=trace))
    maps = [trace[f"{stage}.{layer}.attn.attention.weights"] for stage in (0, 1) for layer in (0, 1)]
    assert [m.shape for m in maps if isinstance(m, Readable)] == [(4, 1, 16, 16)] * 2 + [(1, 2, 16, 16)] * 2
    hidden = [int((m.full() == 0).sum()) for m in maps if isinstance(m, Readable)]
    assert hidden[0] == hidden[2] == hidden[3] == 0
    # of four windows the first is whole, two are cut into halves of 8, the last into four quarters
    assert hidden[1] == 2 * (256 - 2 * 64) + 256 - 4 * 16


@both
def test_how_far_a_cell_sees(config: swin.Config) -> None:
    """A cell of 8×8: its window of 4×4 after the first layer; after the second, shifted by two, these of its cells."""
    model = build(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    x = torch.randn(1, 1, 16, 16, requires_grad=True)
    trace = Trace(model, "*.out")
    model(x, Context(trace=trace))
    corner = seen_by(trace["0.0.out"], x)
    assert corner.nonzero().tolist() == [[y, z] for y in range(4) for z in range(4)]
    assert seen_by(trace["0.1.out"], x).tolist() == corner.tolist()  # cells 0 and 1 are a window of their own
    middle = seen_by(trace["0.1.out"], x, 3)
    assert middle.all()  # cells 2 to 5 see the four windows that they are of


def seen_by(value: object, x: Tensor, cell: int = 0) -> Tensor:
    """Which patches of 2×2 pixels a cell on the diagonal feels, 8 8."""
    assert isinstance(value, Tensor)
    [slope] = torch.autograd.grad(value[0, cell, cell].square().sum(), x, retain_graph=True)
    return slope[0, 0].abs().unflatten(0, (8, 2)).unflatten(2, (8, 2)).amax((1, 3)) > 0


def test_cells_are_merged_down_the_columns() -> None:
    merge = PatchMerge(1)
    merge.reduce.weight.data = torch.tensor([[1.0, 10.0, 100.0, 1000.0], [1.0, 0.0, 0.0, 0.0]])
    x = torch.tensor([[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]])[None, :, :, None]  # a third column, padded with zeros
    assert merge(x).tolist() == [[[[4231.0, 1.0], [65.0, 5.0]]]]


def test_the_second_version_begins_silent() -> None:
    model, x = build(SMALL_V2).eval(), torch.randn(2, 1, 16, 16)
    trace = Trace(model, "*.out")
    model(x, Context(trace=trace))
    assert_close(trace["0.out"], trace["embed.out"], atol=0, rtol=0)
    assert_close(trace["1.out"], trace["1.merge.out"], atol=0, rtol=0)


def test_windows_of_another_size_use_what_was_learned() -> None:
    """Offsets as shares of the pre-trained window: 4×4 cells of an 8×8 window are those of a 4×4 one."""
    small = swinv2.build(replace(SMALL_V2, layers=(1,), heads=(1,), windows=(4,)))
    large = swinv2.build(replace(SMALL_V2, layers=(1,), heads=(1,), windows=(8,), pretrained=(4,)))
    for parameter in small.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    large.load_state_dict(small.state_dict())
    x = torch.randn(2, 1, 8, 8)
    assert_close(small(x), large(x))
    other = swinv2.build(replace(SMALL_V2, layers=(1,), heads=(1,), windows=(8,)))
    other.load_state_dict(small.state_dict())
    assert not torch.allclose(small(x), other(x))


def test_layers_are_left_out_more_and_more_often() -> None:
    model = swin.build(replace(SMALL, depth_dropout=0.3))
    rates = [part.probability for part in model.modules() if isinstance(part, StochasticDepth)]
    assert rates == pytest.approx([0.0, 0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3])


@both
def test_every_parameter_learns(config: swin.Config) -> None:
    model = build(replace(config, depth_dropout=0.0))
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    model(torch.randn(2, 1, 16, 16)).square().sum().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # all logits of a query move alike with a bias of all keys, which softmax does not feel
    assert [name for name in still if not name.endswith(".k.bias")] == []


def test_only_the_first_version_has_biases_of_keys() -> None:
    first, second = ([name for name, _ in build(c).named_parameters()] for c in (SMALL, SMALL_V2))
    assert [name for name in first if name.endswith(".k.bias")]
    assert [name for name in second if name.endswith((".k.bias", "reduce.bias"))] == []
    assert [name for name in second if name.endswith((".q.bias", ".v.bias"))]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            replace(SMALL, layers=(2, 2, 2)),
            r"layers=\(2, 2, 2\), heads=\(1, 2\) and windows=\(4, 4\) are not of the same",
        ),
        (replace(SMALL, layers=(), heads=(), windows=()), "not of the same stages"),
        (replace(SMALL, windows=(4, 0)), r"windows=\(4, 0\) in a config; allowed: numbers from 1"),
        (replace(SMALL, heads=(1, 3)), "heads=3 does not divide dim=16"),
        (replace(SMALL, act="gelo"), "did you mean 'gelu'"),
        (replace(SMALL_V2, pretrained=(4,)), r"pretrained=\(4,\) for windows=\(4, 4\)"),
    ],
)
def test_mistakes_are_told(config: swin.Config, said: str) -> None:
    with pytest.raises(UserError, match=said):
        build(config)


def test_an_image_that_patches_do_not_divide_is_refused() -> None:
    with pytest.raises(UserError, match="does not divide into patches of 2"):
        build(SMALL)(torch.randn(1, 1, 15, 16))


def test_presets_take_other_sizes() -> None:
    config = config_of("swin-nano", classes=3, image=32)
    assert config == replace(config_of("swin-nano"), classes=3, image=32)  # pyright: ignore[reportArgumentType]
    assert build(config)(torch.randn(2, 1, 32, 32)).shape == (2, 3)
