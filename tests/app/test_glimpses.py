"""Where models of images look: what is drawn is the attention that was used, put where it belongs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.testing import assert_close

from headway.app.report.glimpses import heads_seen, last_site, places_seen
from headway.app.report.pictures import Picture, drawn_picture
from headway.app.report.sight import NOTHING
from headway.data.preprocess import ImagePreprocess
from headway.look.observing import encoder_of
from headway.nn.attention import Attention
from headway.nn.trace import record, sites_of
from headway.observer import Observer
from headway.ops.reading import Readable
from headway.tasks.senses import Sight
from headway.zoo import clip, lrnet, mae, mvitv2, resnet, simmim, vit
from headway.zoo.build import build

PAIR: dict[str, Any] = {"image": 16, "patch": 4, "dim": 16, "layers": 2, "heads": 4}
PYRAMID: dict[str, Any] = {"image": 16, "patch": 2, "dim": 8, "layers": (1, 2), "heads": (1, 2), "windows": (3, 3)}
TOWERS: dict[str, Any] = {"image": 16, "patch": 4, "image_dim": 16, "image_layers": 1, "image_heads": 2, "width": 2}
BLOCKS: dict[str, Any] = {"image": 16, "stem": "small", "dim": 8, "layers": (1, 1), "widths": (8, 16), "classes": 3}
MODELS: dict[str, tuple[object, tuple[int, int, int]]] = {  # heads, rows and columns of what is looked at
    "vit": (vit.Config(classes=3, **PAIR), (4, 4, 4)),
    "mae": (mae.Config(decoder_dim=16, decoder_layers=1, decoder_heads=2, **PAIR), (4, 4, 4)),
    "simmim": (simmim.Config(simmim.Vit(**PAIR)), (4, 4, 4)),
    "simmim, swin": (simmim.Config(simmim.Swin(**PYRAMID)), (2, 4, 4)),
    "mvit": (mvitv2.Config(image=16, patch=2, dim=8, layers=(1, 1), heads=(1, 2), stride=2, classes=3), (2, 8, 8)),
    "resnet with attention": (resnet.Config(**BLOCKS, attention=(1, 2), heads=2), (2, 8, 8)),
    "clip": (clip.Config(vocab=9, end=2, context=8, dim=16, layers=1, heads=2, **TOWERS), (2, 4, 4)),
}


@pytest.fixture
def picture(tmp_path: Path) -> str:
    file = tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (16, 16, 3), np.uint8)).save(file)
    return str(file)


def observer(config: object) -> Observer:
    return Observer(build(config).eval(), Sight(ImagePreprocess((16, 16))))


def seen_by(watcher: Observer, picture: str) -> tuple[str, Tensor]:
    """The site that is drawn, and how much each of its heads looked at each place."""
    site = last_site(watcher, picture)
    assert site is not None
    return site.name, heads_seen(site, encoder_of(watcher.model))


def recorded(watcher: Observer, site: str, picture: str) -> Tensor:
    """The weights at a site as they are recorded there, B H T S."""
    with record(watcher.model, site) as trace, torch.no_grad():
        encoder_of(watcher.model).features(watcher.read([picture]).inputs)
        weights = trace[site]
        assert isinstance(weights, Readable)
        return weights.full()


@pytest.mark.parametrize("name", MODELS)
def test_every_place_has_its_light(name: str, picture: str) -> None:
    config, shape = MODELS[name]
    watcher = observer(config)
    site, heads = seen_by(watcher, picture)
    assert heads.shape == shape
    sights = places_seen(watcher, [(picture, "a title")])
    (strip,) = sights.figures
    assert isinstance(strip, Picture)
    assert strip.names == ("the image", "all heads", *(f"head {at + 1}" for at in range(min(3, shape[0]))))
    assert all(file.startswith(b"\x89PNG") for file in strip.files)
    assert f" {site}, the last layer" in sights.how


@pytest.mark.parametrize("name", MODELS)
def test_the_last_layer_of_the_eye_is_drawn(name: str, picture: str) -> None:
    watcher = observer(MODELS[name][0])
    eye = encoder_of(watcher.model)
    *_, last = (part for part in eye.modules() if isinstance(part, Attention))
    site, _ = seen_by(watcher, picture)
    assert sites_of(watcher.model)[f"{site}.weights"][0] is last


def test_a_class_is_read_from_its_token(picture: str) -> None:
    watcher = observer(MODELS["vit"][0])
    site, heads = seen_by(watcher, picture)
    assert_close(heads, recorded(watcher, site, picture)[0, :, 0, 1:].reshape(4, 4, 4))


def test_without_such_a_token_all_parts_look(picture: str) -> None:
    watcher = observer(MODELS["mae"][0])
    site, heads = seen_by(watcher, picture)
    seen = recorded(watcher, site, picture)
    assert seen.shape == (1, 4, 17, 17)  # all patches are visible
    assert_close(heads, seen[0].mean(1)[:, 1:].reshape(4, 4, 4))


def test_pooled_places_stand_in_their_rows(picture: str) -> None:
    watcher = observer(MODELS["mvit"][0])
    site, heads = seen_by(watcher, picture)
    assert_close(heads, recorded(watcher, site, picture)[0].mean(1).reshape(2, 8, 8))


def test_windows_are_laid_back_and_lose_nothing(picture: str) -> None:
    """Each of 4×4 cells gives away a sixteenth, also where windows of three shift and reach over the edge."""
    _, heads = seen_by(observer(MODELS["simmim, swin"][0]), picture)
    assert_close(heads.sum((1, 2)), torch.ones(2))


@pytest.mark.parametrize(
    "config", [resnet.Config(**BLOCKS), lrnet.Config(**BLOCKS, hidden=(8, 8))], ids=["resnet", "lrnet"]
)
def test_a_model_that_looks_nowhere_or_at_neighbours_shows_nothing(config: object, picture: str) -> None:
    assert places_seen(observer(config), [(picture, "")]) is NOTHING
    assert places_seen(observer(MODELS["vit"][0]), []) is NOTHING


def test_what_a_picture_is_stands_under_it() -> None:
    page = drawn_picture(Picture("<i>", (b"a", b"b"), ("the image", "␣<b>dog")))
    assert page.count("&lt;b&gt;dog</span>") == 1
    assert "<b>" not in page
    assert 'alt="the image"' in page
