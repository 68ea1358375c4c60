"""Transforms: laws that all of them obey, and Pillow's results where it has the same."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor
from torch.testing import assert_close

from headway.data.order import random_for
from headway.data.transforms import colour, geometry
from headway.data.transforms.colour import Blur, ColourJitter, Grey, RandAugment
from headway.data.transforms.compose import (
    AddedNoise,
    Compose,
    CutMix,
    Gain,
    Mixing,
    Mixup,
    Normalise,
    OneOf,
    RandomApply,
    SpecAugment,
    Speed,
    Transform,
    as_image,
    generators,
    soft_targets,
)
from headway.data.transforms.geometry import (
    CentreCrop,
    Flip,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    ResizeShort,
)
from tests.data.files import picture

PICTURE = picture(height=40, width=56)
IMAGE = as_image(np.asarray(PICTURE))

IMAGES: dict[str, Transform] = {
    "resize": Resize(24, 20),
    "short": ResizeShort(30),
    "centre": CentreCrop(24, 24),
    "crop": RandomCrop(32, 32, border=4),
    "part": RandomResizedCrop(16, 24),
    "flip": Flip(),
    "jitter": ColourJitter(0.4, 0.4, 0.4, 0.1),
    "grey": RandomApply(Grey(), 0.5),
    "blur": Blur(),
    "augment": RandAugment(3, 9),
    "erase": RandomErasing(chance=0.8),
    "normalise": Normalise((0.5, 0.4, 0.3), (0.2, 0.2, 0.3)),
}
IMAGES["chain"] = Compose(tuple(IMAGES[name] for name in ("part", "flip", "augment", "normalise", "erase")))
SOUNDS: dict[str, Transform] = {"speed": Speed(), "noise": AddedNoise(), "gain": Gain()}
EVERY = [
    *((name, step, IMAGE) for name, step in IMAGES.items()),
    *((name, step, torch.randn(300)) for name, step in SOUNDS.items()),
    ("bands", SpecAugment(), torch.randn(120, 40)),
]


@pytest.mark.parametrize(("step", "x"), [one[1:] for one in EVERY], ids=[one[0] for one in EVERY])
def test_a_transform_is_pure(step: Transform, x: Tensor) -> None:
    """The same random numbers give the same result, and what is given stays as it was."""
    before = x.clone()
    for sample in range(6):
        one, two = (step(x, random_for("image", 3, 1, sample)) for _ in range(2))
        assert_close(one, two, rtol=0, atol=0)
        assert one.isfinite().all()
        assert one.dtype == x.dtype
    assert_close(x, before, rtol=0, atol=0)
    assert pickle.loads(pickle.dumps(step)) == step
    assert hash(step) == hash(pickle.loads(pickle.dumps(step)))


@pytest.mark.parametrize("name", ["crop", "part", "flip", "jitter", "grey", "blur", "augment", "erase", "chain"])
def test_samples_differ(name: str) -> None:
    made = [IMAGES[name](IMAGE, random_for("image", sample)) for sample in range(8)]
    assert any(not torch.equal(made[0], other) for other in made[1:])


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("channels", [1, 3])
def test_any_channels_and_any_size(name: str, channels: int) -> None:
    if channels == 1 and name in ("normalise", "chain"):
        return
    for height, width in ((1, 1), (2, 70), (70, 2), (33, 31)):
        made = IMAGES[name](torch.rand(channels, height, width), random_for(height))
        assert made.isfinite().all()
        assert len(made) == channels
    if name not in ("normalise", "erase", "chain"):
        made = IMAGES[name](torch.rand(channels, 33, 31), random_for(0))
        assert made.min() >= -1e-6
        assert made.max() <= 1 + 1e-6


def test_samples_of_a_batch_have_streams_of_their_own() -> None:
    one, two = (generators(random_for("batch", 5), 4) for _ in range(2))
    one[0].random(1000)
    assert [g.random() for g in one[1:]] == [g.random() for g in two[1:]]
    assert len({g.random() for g in two}) == 4


def level(x: Tensor) -> np.ndarray:
    return (x * 255).numpy()


def against(made: Tensor, pillow: Image.Image, tolerance: float) -> None:
    assert np.abs(level(made) - np.asarray(pillow).astype(float).transpose(2, 0, 1)).max() <= tolerance


@pytest.mark.parametrize("size", [(20, 28), (80, 100), (13, 200), (40, 56)])
@pytest.mark.parametrize(
    ("mode", "pillow"), [("bilinear", Image.Resampling.BILINEAR), ("bicubic", Image.Resampling.BICUBIC)]
)
def test_resizing_is_pillows(size: tuple[int, int], mode: str, pillow: Image.Resampling) -> None:
    """Within one level and a half: Pillow rounds twice."""
    against(Resize(*size, mode)(IMAGE, random_for(0)), PICTURE.resize(size[::-1], pillow), 1.5)


FACTORS = [0.0, 0.3, 1.0, 1.7]
ENHANCED: dict[str, tuple[Callable[[Tensor, float], Tensor], Callable[[Image.Image], ImageEnhance._Enhance]]] = {
    "brightness": (colour.brightness, ImageEnhance.Brightness),
    "contrast": (colour.contrast, ImageEnhance.Contrast),
    "saturation": (colour.saturation, ImageEnhance.Color),
    "sharpness": (colour.sharpness, ImageEnhance.Sharpness),
}


@pytest.mark.parametrize("name", ENHANCED)
@pytest.mark.parametrize("factor", FACTORS)
def test_colours_are_pillows(name: str, factor: float) -> None:
    ours, theirs = ENHANCED[name]
    against(ours(IMAGE, factor), theirs(PICTURE).enhance(factor), 2)


def test_operations_are_pillows() -> None:
    dull = ImageEnhance.Contrast(PICTURE).enhance(0.5)
    against(colour.autocontrast(as_image(np.asarray(dull))), ImageOps.autocontrast(dull), 1.01)
    against(colour.equalised(IMAGE), ImageOps.equalize(PICTURE), 0.01)
    against(colour.solarised(IMAGE, 128 / 255), ImageOps.solarize(PICTURE, 128), 0.01)
    for bits in (1, 4, 8):
        against(colour.posterised(IMAGE, bits), ImageOps.posterize(PICTURE, bits), 0.01)


@pytest.mark.parametrize("matrix", [(1.0, 0.2, 3.0, -0.1, 0.9, 2.0), (1.0, 0.0, 5.0, 0.0, 1.0, -3.0)])
def test_warps_are_pillows(matrix: tuple[float, float, float, float, float, float]) -> None:
    """Pillow counts from a corner, and does not know what lies beyond the border."""
    a, b, c, d, e, f = matrix
    height, width = IMAGE.shape[-2:]
    x, y = width / 2, height / 2
    corner = (a, b, c + x - a * x - b * y, d, e, f + y - d * x - e * y)
    made = level(geometry.warped(IMAGE, matrix))
    pillow = PICTURE.transform((width, height), Image.Transform.AFFINE, corner, Image.Resampling.BILINEAR)
    theirs = np.asarray(pillow).astype(float).transpose(2, 0, 1)
    across, down = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    from_x = corner[0] * across + corner[1] * down + corner[2]
    from_y = corner[3] * across + corner[4] * down + corner[5]
    inside = (from_x > 0.5) & (from_x < width - 0.5) & (from_y > 0.5) & (from_y < height - 0.5)
    outside = (from_x < -0.5) | (from_x > width + 0.5) | (from_y < -0.5) | (from_y > height + 0.5)
    assert inside.mean() > 0.5
    assert np.abs(made - theirs)[:, inside].max() < 1.5
    assert np.abs(made[:, outside] - 127.5).max() < 0.01


def test_a_turn_and_its_opposite_undo_each_other() -> None:
    back = colour.rotated(colour.rotated(IMAGE, 0.5), -0.5)
    assert (back - IMAGE)[:, 15:25, 20:36].abs().max() < 0.08
    turned = colour.turned(colour.turned(IMAGE * 0.4 + 0.3, 0.1), -0.1)
    assert_close(turned, IMAGE * 0.4 + 0.3, atol=1e-4, rtol=0)
    assert_close(
        colour.lightness(colour.turned(IMAGE * 0.4 + 0.3, 0.25)), colour.lightness(IMAGE * 0.4 + 0.3), atol=1e-3, rtol=0
    )


def test_strength_zero_changes_nothing_much() -> None:
    for change in (colour.rotated, colour.sheared_across, colour.moved_down):
        assert_close(change(IMAGE, 0.0), IMAGE, atol=1e-4, rtol=0)
    assert ColourJitter(0, 0, 0, 0)(IMAGE, random_for(0)).sub(IMAGE).abs().max() < 1e-5


def test_crops_by_eye() -> None:
    x = torch.arange(12.0).view(1, 3, 4) / 12
    assert_close(CentreCrop(1, 2)(x, random_for(0)), x[:, 1:2, 1:3])
    assert CentreCrop(5, 4)(x, random_for(0))[0, 0].tolist() == [0, 0, 0, 0]
    assert_close(CentreCrop(5, 4)(x, random_for(0))[:, 1:4], x)
    assert_close(Flip(1.0)(x, random_for(0)), x.flip(-1))
    places = {tuple(RandomCrop(2, 2)(x, random_for(at)).flatten().tolist()) for at in range(60)}
    assert len(places) == 6
    assert ResizeShort(6)(torch.rand(1, 3, 4), random_for(0)).shape == (1, 6, 8)
    assert ResizeShort(6)(torch.rand(1, 4, 3), random_for(0)).shape == (1, 8, 6)


@pytest.mark.parametrize("turned", [False, True])
def test_the_middle_of_a_strip_is_made_without_the_rest(turned: bool) -> None:
    """A strip of a million pixels would have 9 GB at a height of 28; what is cropped from it is the same."""
    x = torch.rand(3, 600, 2) if turned else torch.rand(3, 2, 600)
    whole = geometry.resized(x, *((2400, 8) if turned else (8, 2400)), geometry.BICUBIC)
    found = ResizeShort(8)(x, random_for(0))
    assert max(found.shape) == 800
    crop = CentreCrop(8, 8)
    assert_close(crop(found, random_for(0)), crop(whole, random_for(0)))
    assert max(ResizeShort(28)(torch.rand(3, 1, 100_000), random_for(0)).shape) == 2800
    assert RandomResizedCrop(28, 28)(torch.rand(3, 1, 100_000), random_for(0)).shape == (3, 28, 28)


@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 1000))
def test_parts_lie_inside_and_have_the_right_area(height: int, width: int, seed: int) -> None:
    step = RandomResizedCrop(8, 8, area=(0.2, 0.5))
    top, left, h, w = step.box(height, width, random_for(seed))
    assert top >= 0 <= left
    assert h > 0 < w
    assert top + h <= height
    assert left + w <= width
    if min(height, width) > 40 and 0.8 < width / height < 1.25:
        assert 0.15 < h * w / (height * width) < 0.55


def test_erasing_leaves_the_rest() -> None:
    x = torch.zeros(3, 40, 40)
    made = [RandomErasing(1.0)(x, random_for(at)) for at in range(20)]
    shares = [(one != 0).any(0).float().mean().item() for one in made]
    assert all(0.01 < share < 0.4 for share in shares)
    assert len(set(shares)) > 10
    assert RandomErasing(0.0)(x, random_for(0)) is x


BATCH, KINDS = torch.rand(6, 3, 10, 12), soft_targets(torch.tensor([0, 1, 2, 3, 0, 1]), 4)


@pytest.mark.parametrize(
    "mix", [Mixup(), CutMix(), OneOf(), OneOf(chance=0.0)], ids=["mixup", "cutmix", "either", "none"]
)
def test_targets_are_mixed_as_images_are(mix: Mixing) -> None:
    """Where each image is one colour of its own, its mean says what share of whom is in it."""
    plain = torch.eye(6)[:, :, None, None].expand(6, 6, 10, 12)
    for seed in range(20):
        images, targets = mix(plain, torch.eye(6), random_for(seed))
        assert_close(images.mean((2, 3)), targets, atol=1e-5, rtol=0)
        assert_close(targets.sum(1), torch.ones(6))
        again, _ = mix(plain, torch.eye(6), random_for(seed))
        assert torch.equal(again, images)


def test_mixing_keeps_what_it_is_given() -> None:
    before = BATCH.clone()
    for mix in (Mixup(), CutMix()):
        mix(BATCH, KINDS, random_for(1))
    assert torch.equal(before, BATCH)
    assert_close(soft_targets(torch.tensor([1]), 4, 0.2), torch.tensor([[0.05, 0.85, 0.05, 0.05]]))


def test_speed_changes_the_length() -> None:
    sound = torch.randn(990)
    lengths = {len(Speed()(sound, random_for(at))) for at in range(30)}
    assert lengths == {1100, 990, 900}


def test_noise_is_as_loud_as_it_should_be() -> None:
    sound = torch.sin(torch.arange(20_000) / 5)
    noise = AddedNoise((20.0, 20.0))(sound, random_for(0)) - sound
    assert 10 * torch.log10(sound.square().mean() / noise.square().mean()) == pytest.approx(20, abs=0.3)
    assert Gain((6.0, 6.0))(sound, random_for(0)).abs().max() == pytest.approx(10**0.3, rel=1e-3)


@given(st.integers(1, 60), st.integers(1, 40), st.integers(0, 100))
def test_spans_are_hidden_and_nothing_else_changes(frames: int, bands: int, seed: int) -> None:
    x = torch.randn(frames, bands, dtype=torch.float64)
    step = SpecAugment(band_spans=1, bands=5, frame_spans=1, longest=10, most=0.5)
    changed = step(x, random_for(seed)) != x
    whole_frames, whole_bands = changed.all(1), changed.all(0)
    assert torch.equal(changed, whole_frames[:, None] | whole_bands) or changed.all()
    assert whole_frames.sum() <= max(10, frames * whole_bands.all())
    assert frames < 2 or whole_bands.all() or whole_bands.sum() <= 5
