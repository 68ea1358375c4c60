"""Images without classes: what is hidden and what is seen are all there is, and chance comes from outside alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.testing import assert_close

from headway.data.order import random_for
from headway.data.preprocess import ImagePreprocess
from headway.data.text_lines import MediaLocation
from headway.data.transforms.compose import Compose, Normalise
from headway.data.transforms.geometry import Flip, RandomResizedCrop
from headway.errors import UserError
from headway.nn.masked_autoencoder import MaskedAutoencoder
from headway.ops.losses import nt_xent
from headway.ops.patches import patch_grid, patchify, unpatchify
from headway.tasks.batches import Row, ids
from headway.tasks.inputs import ImageInput
from headway.tasks.masked_image import (
    MaskedImage,
    MaskedImageBatch,
    concealed,
    hidden_cells,
    restored,
    spread,
    visible_patches,
)
from headway.tasks.simclr import SimCLR, ViewBatch
from headway.zoo import mae, simmim, vit
from headway.zoo.build import build

READY = ImagePreprocess((16, 16), None, 3, (0.5,) * 3, (0.25,) * 3)
CHANGED = Compose((RandomResizedCrop(16, 16, (0.3, 1.0)), Flip(), Normalise(READY.mean, READY.std)))
SWIN = simmim.Swin(image=16, patch=2, dim=8, layers=(1, 1), heads=(1, 2), windows=(2, 2), depth_dropout=0.0)

MODELS = {
    "mae": lambda: mae.build(
        mae.Config(image=16, patch=4, dim=16, layers=1, heads=2, decoder_dim=16, decoder_layers=1, decoder_heads=2)
    ),
    "simmim, vit": lambda: simmim.build(simmim.Config(simmim.Vit(image=16, patch=4, dim=16, layers=1, heads=2))),
    "simmim, swin": lambda: simmim.build(simmim.Config(SWIN)),
}
HIDDEN = {"mae": 12, "simmim, vit": 10, "simmim, swin": 40}  # of 16, 16 and 64 patches, by hand


@pytest.fixture
def fields(tmp_path: Path) -> list[tuple[str, ...]]:
    """The places of images; one of them has a class, which is not read."""
    draw, found = np.random.default_rng(0), list[tuple[str, ...]]()
    for at in range(5):
        Image.fromarray(draw.integers(0, 255, (16 + at, 20, 3), np.uint8)).save(tmp_path / f"{at}.png")
        found.append((MediaLocation(tmp_path / f"{at}.png").spelled(), f"{16 + at} 20", *(["a"] if at == 3 else [])))
    return found


def rows_of(task: MaskedImage | SimCLR, fields: list[tuple[str, ...]]) -> list[Row]:
    return [tuple(map(ids, row)) for row in task.encode(fields)]


def part_of(batch: MaskedImageBatch, at: int) -> MaskedImageBatch:
    return MaskedImageBatch(batch.images[at : at + 1], batch.draws[at : at + 1])


@pytest.mark.parametrize("name", MODELS)
def test_hidden_and_visible_are_complements_in_every_image(name: str, fields: list[tuple[str, ...]]) -> None:
    model, task = MODELS[name](), MaskedImage(ImageInput(READY))
    batch = task.collate(rows_of(task, fields), random_for("x"))
    found = concealed(model, batch)
    assert found.hidden.sum(1).tolist() == [HIDDEN[name]] * 5
    assert len({tuple(row) for row in found.hidden.tolist()}) > 1  # each image has its own
    if isinstance(model, MaskedAutoencoder):
        for seen, hidden in zip(found.told.tolist(), found.hidden.tolist(), strict=True):
            assert seen == [at for at, one in enumerate(hidden) if not one]
    else:
        assert torch.equal(found.told, found.hidden)


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_of_a_batch_is_the_sum_over_its_images(name: str, fields: list[tuple[str, ...]]) -> None:
    torch.manual_seed(0)
    model, task = MODELS[name]().eval(), MaskedImage(ImageInput(READY))
    batch = task.collate(rows_of(task, fields), random_for("x"))
    parts = [task.loss(model, part_of(batch, at)) for at in range(5)]
    assert_close(task.loss(model, batch), torch.stack(parts).sum())
    assert (batch.targets, batch.tokens) == (5, 5)
    said, hidden = model(batch.images[:1], concealed(model, part_of(batch, 0)).told), concealed(model, batch).hidden[0]
    patches = patchify(batch.images[:1], model.patch)
    error = (said - model.target(patches)).square() if isinstance(model, MaskedAutoencoder) else (said - patches).abs()
    assert_close(parts[0], error[0, hidden].mean())


@pytest.mark.parametrize("name", MODELS)
def test_only_hidden_patches_are_changed_when_images_are_restored(name: str, fields: list[tuple[str, ...]]) -> None:
    model, task = MODELS[name]().eval(), MaskedImage(ImageInput(READY))
    batch = task.collate(rows_of(task, fields), random_for("x"))
    shown, said = (patchify(one, model.patch) for one in restored(model, batch))
    hidden, real = concealed(model, batch).hidden, patchify(batch.images, model.patch)
    assert (shown[hidden] == 0).all()
    assert torch.equal(shown[~hidden], real[~hidden])
    assert torch.equal(said[~hidden], real[~hidden])
    assert not torch.isclose(said[hidden], real[hidden]).all(-1).any()


@pytest.mark.parametrize("name", MODELS)
def test_what_is_restored_does_not_depend_on_what_is_hidden(name: str, fields: list[tuple[str, ...]]) -> None:
    """Not even on its brightness and contrast, which a model that predicts normalised patches does not know."""
    model, task = MODELS[name]().eval(), MaskedImage(ImageInput(READY))
    batch = task.collate(rows_of(task, fields), random_for("x"))
    hidden, patches = concealed(model, batch).hidden, patchify(batch.images, model.patch)
    other = patches.masked_fill(hidden[..., None], 0.0) + hidden[..., None] * (3 * patches.roll(1, 1) + 2)
    images = unpatchify(other, patch_grid(batch.images, model.patch), model.patch)
    one, two = (patchify(restored(model, found).said, model.patch) for found in (batch, replace(batch, images=images)))
    assert_close(one, two)
    assert not torch.isclose(images, batch.images).all()


def test_what_is_hidden_is_drawn_outside_and_image_by_image(fields: list[tuple[str, ...]]) -> None:
    task = MaskedImage(ImageInput(READY, CHANGED))
    rows = rows_of(task, fields)
    torch.manual_seed(1)
    one = task.collate(rows, random_for("x"))
    torch.manual_seed(2)
    again, other = (task.collate(rows, random_for(key)) for key in "xy")
    assert torch.equal(one.images, again.images)
    assert torch.equal(one.draws, again.draws)
    assert not torch.equal(one.images, other.images)
    assert not torch.equal(one.draws, other.draws)
    plain = [task.without_augmentation().collate(rows, random_for(key)) for key in "xy"]
    assert torch.equal(plain[0].images, plain[1].images)
    assert not torch.equal(plain[0].draws, plain[1].draws)


def test_the_lowest_draws_decide() -> None:
    drawn = torch.tensor([[0.9, 0.1, 0.5, 0.3, 0.7, 0.2, 0.8, 0.6]])
    assert visible_patches(drawn, 0.75).tolist() == [[1, 5]]
    assert hidden_cells(drawn, 0.6).int().tolist() == [[0, 1, 1, 1, 0, 1, 0, 1]]
    assert spread(torch.tensor([[True, False]]), (1, 2), 2).int().tolist() == [[1, 1, 0, 0, 1, 1, 0, 0]]


def test_a_single_patch_and_other_models_are_refused() -> None:
    batch = MaskedImageBatch(torch.zeros(1, 3, 4, 4), torch.zeros(1, 4, 4))
    with pytest.raises(UserError, match="an image of one patch has nothing that could be hidden"):
        MaskedImage(ImageInput(READY)).loss(MODELS["mae"](), batch)
    with pytest.raises(UserError, match="a Trunk does not say hidden patches; take a preset mae-"):
        MaskedImage(ImageInput(READY)).loss(vit.build(vit.Config(image=16, patch=4, dim=16, layers=1, heads=2)), batch)


@pytest.mark.slow
def test_two_views_are_drawn_of_each_image_and_compared(fields: list[tuple[str, ...]]) -> None:
    torch.manual_seed(0)
    task = SimCLR(ImageInput(READY, CHANGED), temperature=0.2)
    rows = rows_of(task, fields)
    batch, again = (task.without_augmentation().collate(rows, random_for("x")) for _ in range(2))
    assert torch.equal(batch.one, again.one)
    assert torch.equal(batch.other, again.other)
    assert all(not torch.equal(a, b) for a, b in zip(batch.one, batch.other, strict=True))
    alone = task.collate(rows[:1], random_for("x"))
    assert alone.one.shape == (1, 3, 16, 16)
    model = build("simclr-nano", image=16, channels=3)
    with torch.no_grad():
        both = model(torch.cat([batch.one, batch.other]))
        loss = task.loss(model, batch)
    assert_close(loss, nt_xent(both[:5], both[5:], 0.2))
    assert not torch.isclose(loss, replace(task, temperature=0.5).loss(model, batch))
    assert batch.targets == 5


def test_views_of_one_image_that_look_alike_are_what_is_wanted() -> None:
    """Vectors that tell images apart and views not have the least loss."""

    class Apart(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.eye(4)[x[:, 0, 0, 0].long()]

    task, image = SimCLR(ImageInput(READY), 0.1), torch.arange(4.0)[:, None, None, None].expand(4, 1, 2, 2)
    right = task.loss(Apart(), ViewBatch(image, image))
    wrong = task.loss(Apart(), ViewBatch(image, image.roll(1, 0)))
    assert right < 0.01 * wrong
