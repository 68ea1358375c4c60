"""ViT: its published counts, what it is equal to, images of other sizes, and mistakes in its sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway import Context, record
from headway.errors import UserError
from headway.nn.image import ImageEmbed, MaskedPatches
from headway.nn.trunk import Trunk
from headway.ops.attention_map import AttentionMap
from headway.ops.patches import patchify
from headway.zoo.build import build
from headway.zoo.vit import Config
from headway.zoo.vit import build as build_vit

SMALL = Config(image=12, channels=2, patch=4, classes=5, dim=16, layers=2, heads=2)
PUBLISHED = {"vit-b16": 86_567_656, "vit-l16": 304_326_632, "vit-h14": 632_045_800, "vit-nano": 205_066}


def small(**sizes: object) -> Trunk:
    torch.manual_seed(0)
    model = build(SMALL, **sizes)
    assert isinstance(model, Trunk)
    return model.eval()


def images(batch: int = 2, high: int = 12, wide: int = 12) -> Tensor:
    return torch.randn(batch, 2, high, wide, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_published(name: str) -> None:
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in build(name).parameters()) == PUBLISHED[name]


def test_a_class_token_costs_itself_and_its_position() -> None:
    counts = [sum(p.numel() for p in small(pool=pool).parameters()) for pool in ("class", "mean", "mean, norm")]
    assert counts == [counts[1] + 2 * 16, counts[1], counts[1]]


@pytest.mark.parametrize("pool", ["class", "mean", "mean, norm"])
@pytest.mark.parametrize(("high", "wide"), [(12, 12), (8, 12), (24, 16), (4, 4)])
def test_images_of_any_size_that_patches_divide(pool: str, high: int, wide: int) -> None:
    assert small(pool=pool)(images(3, high, wide)).shape == (3, 5)


def test_an_image_of_more_patches_has_positions_between_the_old_ones() -> None:
    """A table that grows evenly from row to row still does, laid on twice as many."""
    model = small(top="none")
    embed = model.embed
    assert isinstance(embed, ImageEmbed)
    nn.init.zeros_(embed.patches.project.weight)
    table = embed.position.table
    assert isinstance(table, nn.Parameter)
    table.data.copy_(torch.arange(3.0)[:, None, None].expand_as(table))
    marks = embed(images(1, 24, 12))[0, 1:].unflatten(0, (6, 3))
    assert bool((marks.diff(dim=0) > 0).all())
    assert marks.diff(dim=1).abs().max() < 1e-5


@pytest.mark.parametrize("pool", ["class", "mean", "mean, norm"])
def test_it_is_the_plain_encoder_written_out(pool: str) -> None:
    model, x = small(pool=pool), images()
    embed, head = model.embed, model.head
    assert isinstance(embed, ImageEmbed)
    kernel = embed.patches.project.weight.permute(2, 3, 1, 0).flatten(0, 2)
    tokens = patchify(x, 4) @ kernel + embed.patches.project.bias + embed.position.table.flatten(0, 1)
    if pool == "class":
        first = embed.token.token + embed.token.position
        tokens = torch.cat([first.expand(2, -1, -1), tokens], 1)
    for block in model.stack.blocks:
        tokens = tokens + block.attn.body(block.attn.before(tokens))
        tokens = tokens + block.ffn.body(block.ffn.before(tokens))
    norm = nn.functional.layer_norm
    expected = {
        "class": lambda: model.stack.norm(tokens)[:, 0],
        "mean": lambda: model.stack.norm(tokens).mean(1),
        "mean, norm": lambda: norm(tokens.mean(1), (16,), head.norm.weight, head.norm.bias, 1e-6),
    }[pool]()
    assert_close(model(x), head.out(expected), atol=1e-5, rtol=1e-5)


def test_with_patches_of_a_pixel_it_is_the_transformer_on_pixels() -> None:
    """Each pixel is a token: its colours projected, and where it stands; every one sees every other."""
    model, x = small(image=4, patch=1, pool="mean", top="none"), images(2, 4, 4)
    embed = model.embed
    assert isinstance(embed, ImageEmbed)
    project = embed.patches.project
    tokens = x.flatten(2).mT @ project.weight[:, :, 0, 0].T + project.bias + embed.position.table.flatten(0, 1)
    assert_close(model(x), model.stack(tokens), atol=1e-5, rtol=1e-5)
    with record(model) as trace:
        model(x)
    amap = trace["1.attn"]
    assert isinstance(amap, AttentionMap)
    assert amap.shape == (2, 2, 16, 16)
    assert amap.full().min() > 0


def test_without_positions_it_would_not_know_where_a_patch_is() -> None:
    model = small(pool="mean")
    patches = images().unflatten(3, (3, 4))  # columns of patches
    swapped = patches.flip(3).flatten(3)
    assert not torch.allclose(model(swapped), model(images()), atol=1e-3)
    model.embed.position.table.data.zero_()
    assert_close(model(swapped), model(images()), atol=1e-5, rtol=1e-5)


def test_every_layer_can_be_read() -> None:
    model = small()
    with record(model, "*") as trace:
        model(images(2, 8, 16))
    assert trace["embed.out"].shape == (2, 9, 16)
    assert [trace[f"{layer}.attn"].shape for layer in (0, 1)] == [(2, 2, 9, 9)] * 2


def test_what_is_dropped_is_dropped_only_while_it_learns() -> None:
    model, x = small(dropout=0.5, depth_dropout=0.5, patch_dropout=0.5), images()
    assert_close(model(x), small()(x))
    assert not torch.allclose(model.train()(x), model(x))


@pytest.mark.parametrize(("share", "seen"), [(0.5, 4), (0.25, 7), (0.99, 1)])
def test_an_image_of_which_patches_are_left_out_is_that_image_of_fewer_tokens(share: float, seen: int) -> None:
    """The class token and some patches, each with its own position, in their order, and others in each image."""
    model, x = small(patch_dropout=share), images(64)
    whole, part = model.embed(x), model.train().embed(x)
    assert part.shape == (64, 1 + seen, 16)
    assert_close(part[:, 0], whole[:, 0], rtol=0, atol=0)
    same = (part[:, 1:, None] == whole[:, None, 1:]).all(-1)  # B V N
    assert same.sum(-1).eq(1).all()
    places = same.long().argmax(-1)
    assert places.diff().gt(0).all()
    counts = places.flatten().bincount(minlength=9)
    assert counts.gt(0).all()
    assert counts.max() < 3 * counts.float().mean()


def test_the_first_layer_is_never_left_out_and_the_last_as_often_as_told() -> None:
    rates = [block.attn.drop.probability for block in small(layers=3, depth_dropout=0.2).stack.blocks]
    assert rates == [0.0, 0.1, 0.2]


def test_a_hidden_patch_may_hold_anything() -> None:
    part = MaskedPatches(2, 8, 4)
    x, hidden = images(), torch.zeros(2, 9, dtype=torch.bool)
    hidden[0, 4] = hidden[1, 0] = True
    other = x.clone()
    other[0, :, 4:8, 4:8] += 1
    other[1, :, :4, :4] += 1
    assert_close(part(x, Context(), hidden), part(other, Context(), hidden), rtol=0, atol=0)
    assert not torch.equal(part(x), part(other))
    assert_close(part(x, Context(), hidden)[0, 1, 1], part.token[0, 0])


MISTAKES = [
    (lambda: build_vit(Config(image=30)), r"image=30 does not divide into patches of 16; try image=32"),
    (lambda: small(pool="clas"), r"no way of pooling 'clas'; .*did you mean 'class'\?"),
    (lambda: small(top="clases"), r"no top of a ViT 'clases'; .*did you mean 'classes'\?"),
    (lambda: small()(torch.zeros(1, 3, 12, 12)), "images are 1×3×12×12; allowed: B 2 H W"),
    (lambda: small()(torch.zeros(2, 12, 12)), "images are 2×12×12; allowed: B 2 H W"),
    (lambda: small()(images(1, 10, 12)), "an image of 10×12 does not divide into patches of 4"),
    (lambda: MaskedPatches(2, 8, 4)(images(), Context(), torch.zeros(2, 8).bool()), "hidden patches are 2×8 of bool"),
    (lambda: MaskedPatches(2, 8, 4)(images(), Context(), torch.zeros(2, 9)), "hidden patches are 2×9 of float32"),
]


@pytest.mark.parametrize(("mistake", "told"), MISTAKES)
def test_mistakes_are_told(mistake: object, told: str) -> None:
    assert callable(mistake)
    with pytest.raises(UserError, match=told):
        mistake()
