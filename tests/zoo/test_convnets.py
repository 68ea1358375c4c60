"""MViT, ResNet and LR-Net: published sizes, images of any size, and what makes each of them itself.

Axes:  B batch   Y X rows and columns of the grid   C width
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway import Context, Trace
from headway.errors import UserError
from headway.nn.window_attention import LocalRelation, PooledAttention
from headway.ops.attention_map import Readable
from headway.zoo import lrnet, resnet
from headway.zoo.build import build
from headway.zoo.cost import cost

PUBLISHED = {
    "mvit-b": 36_982_408,  # 37.0 M; without the class token's 96
    "mvitv2-t": 24_173_320,
    "mvitv2-s": 34_870_216,
    "mvitv2-b": 51_472_744,
    "resnet-18": 11_689_512,
    "resnet-26": 15_995_176,
    "resnet-50": 25_557_032,
    "lrnet-50": 23_346_752,
}
NANO = ["mvit-nano", "resnet-nano", "resnet-nano-attention", "lrnet-nano"]


def parameters(name: str, **sizes: object) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(name, **sizes).parameters())


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_published(name: str) -> None:
    assert parameters(name) == PUBLISHED[name]


@pytest.mark.slow
def test_what_is_added_is_counted() -> None:
    attention = sum(2 * c + 4 * (c * c + c) for c in (512, 1024))  # a norm and four projections after two stages
    assert parameters("resnet-50-attention") == PUBLISHED["resnet-50"] + attention
    maps = 8 + 3 * 13 + 4 * 25 + 6 * 50 + 3 * 100  # of the stem and of each bottleneck
    assert parameters("lrnet-50", prior=True) == PUBLISHED["lrnet-50"] + 49 * maps


@pytest.mark.parametrize("name", NANO)
def test_small_ones_are_for_small_grey_images(name: str) -> None:
    model = build(name)
    assert 200_000 <= sum(parameter.numel() for parameter in model.parameters()) <= 400_000
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("name", NANO)
@pytest.mark.parametrize("size", [(28, 28), (27, 30), (32, 17), (3, 5), (1, 1)])
@torch.no_grad()
def test_images_of_any_size_go(name: str, size: tuple[int, int]) -> None:
    model = build(name).eval()
    assert isinstance(model, nn.Module)
    x = torch.randn(2, 1, *size)
    y = model(x)
    assert y.shape == (2, 10)
    assert y.isfinite().all()
    assert_close(y[:1], model(x[:1]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NANO)
def test_a_side_that_cannot_be_halved_is_rounded_up(name: str) -> None:
    model: Any = build(name, classes=0).eval()
    first = tuple(model.features(torch.randn(1, 1, 28, 26)).shape[1:3])
    assert tuple(model.features(torch.randn(1, 1, 27, 25)).shape[1:3]) == first


@pytest.mark.slow
@pytest.mark.parametrize(("name", "unit"), [("resnet-nano", "image"), ("mvit-nano", "image"), ("lrnet-nano", "image")])
def test_costs_are_counted(name: str, unit: str) -> None:
    costs = cost(name)
    assert costs.unit == unit
    assert costs.total.parameters == parameters(name)
    assert costs.total.flops > 0


@pytest.mark.slow
def test_a_resnet_costs_what_is_published() -> None:
    assert cost("resnet-50").total.flops / 2 == pytest.approx(4.09e9, rel=0.01)  # multiplications with their additions


# ---- attention between the stages


def test_attention_adds_nothing_at_first() -> None:
    torch.manual_seed(0)
    plain = build("resnet-nano", widths=(8, 16, 24)).eval()
    more = build("resnet-nano", widths=(8, 16, 24), attention=(1, 3), heads=2).eval()
    kept = more.load_state_dict(plain.state_dict(), strict=False)
    assert kept.unexpected_keys == []
    assert {name.split(".attn.")[0] for name in kept.missing_keys} == {
        "stack.blocks.0.stack.blocks.1",
        "stack.blocks.2.stack.blocks.1",
    }
    x = torch.randn(2, 1, 12, 12)
    assert_close(more(x), plain(x))


def test_every_cell_sees_every_cell() -> None:
    model = build("resnet-nano", widths=(8, 16, 24), attention=(2,), heads=2).eval()
    trace = Trace(model, "*.weights")
    model(torch.randn(1, 1, 12, 8), Context(trace=trace))
    [amap] = [trace[name] for name in trace.values]
    assert isinstance(amap, Readable)
    assert amap.full().shape == (1, 2, 24, 24)


# ---- gradients reach everything, and statistics move


@pytest.mark.parametrize("name", NANO)
def test_all_parameters_learn(name: str) -> None:
    torch.manual_seed(0)
    model = build(name)
    for part in model.modules():
        if isinstance(part, PooledAttention):
            nn.init.normal_(part.out.weight, std=0.1)  # zero at first where it is added to a ResNet
    model(torch.randn(4, 1, 28, 28)).square().sum().backward()
    silent = [name for name, parameter in model.named_parameters() if not changes(parameter)]
    # a key's bias moves all logits of a query alike, and a norm behind it takes away the mean
    assert [name for name in silent if not name.endswith((".k.bias", ".k_norm.bias"))] == []


def changes(parameter: Tensor) -> bool:
    return parameter.grad is not None and bool(parameter.grad.abs().max() > 0)


# ---- mistakes


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            resnet.Config(layers=(1, 1)),
            "layers=(1, 1) and widths=(256, 512, 1024, 2048) are not of the same stages; "
            "allowed: as many numbers in each as there are stages",
        ),
        (resnet.Config(layers=(1, 0, 1, 1)), "layers=(1, 0, 1, 1) in a config; allowed: numbers from 1 to 1,024"),
        (resnet.Config(attention=(0, 5)), "attention after stage 0; allowed: stages 1 to 4"),
        (lrnet.Config(stem="smal"), "no stem of an LR-Net 'smal'; allowed: large, small; did you mean 'small'?"),
        (
            lrnet.Config(size=4),
            "Halo(size=4, tile=1, stride=2) has no middle; allowed: an odd size; tile and stride of 1 or more",
        ),
    ],
)
def test_sizes_that_cannot_be_are_told(config: object, told: str) -> None:
    with pytest.raises(UserError) as error:
        build(config)
    assert str(error.value).startswith(told)


def test_the_table_of_lrnet_50() -> None:
    """Stem and stages as published: widths of the local relations, their maps, and where they stride."""
    with torch.device("meta"):
        model = build("lrnet-50")
    found = [(part.kv_dim, part.heads, part.stride) for part in model.modules() if isinstance(part, LocalRelation)]
    stages = [((100, 13), 3), ((200, 25), 4), ((400, 50), 6), ((800, 100), 3)]
    expected = [(64, 8, 2)]
    for number, (sizes, blocks) in enumerate(stages):
        expected += [(*sizes, 2 if number and not block else 1) for block in range(blocks)]
    assert found == expected
