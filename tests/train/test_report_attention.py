"""Where models of images look: what is drawn is the attention that was used, put where it belongs."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.testing import assert_close

from headway.data.preprocess import ImagePreprocess
from headway.look.recording import RecordedSite
from headway.nn.attention import Attention
from headway.nn.trace import record, sites_of
from headway.ops.attention_map import Readable
from headway.tasks.embedding import MediaEmbedding
from headway.tasks.inputs import ImageInput, encoder_of
from headway.tasks.results import PictureStrip, TracedInput
from headway.tasks.tracing import InputImage, TokenAxis
from headway.training.report_attention import (
    NO_ATTENTION,
    AttentionExamples,
    attention_examples,
    heads_seen,
    picture_strip,
    recorded,
    weight_map,
)
from headway.training.report_page import picture_figure
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


TASK = MediaEmbedding(ImageInput(ImagePreprocess((16, 16))))


def built(name: str) -> nn.Module:
    return build(MODELS[name][0]).eval()


def last_site(model: nn.Module, picture: str) -> RecordedSite:
    [(_, recording)] = recorded(TASK, model, [TracedInput("a title", picture)], "model", None)
    return list(recording.sites.values())[-1]


def seen_by(model: nn.Module, picture: str) -> tuple[str, Tensor]:
    """The site that is drawn, and how much each of its heads attends to each cell."""
    site = last_site(model, picture)
    return site.name, heads_seen(site, encoder_of(model))


def examples(model: nn.Module, *pictures: str) -> AttentionExamples:
    inputs = [TracedInput("a title", picture) for picture in pictures]
    return attention_examples(recorded(TASK, model, inputs, "model", None), model)


def weights_at(model: nn.Module, site: str, picture: str) -> Tensor:
    """The weights at a site as they are recorded there, B H T S."""
    with record(model, f"{site}.weights") as trace, torch.no_grad():
        encoder_of(model).features(TASK.read(model, [picture]).inputs)
        weights = trace[f"{site}.weights"]
        assert isinstance(weights, Readable)
        return weights.full()


@pytest.mark.parametrize("name", MODELS)
def test_every_cell_has_its_light(name: str, picture: str) -> None:
    model, shape = built(name), MODELS[name][1]
    site, heads = seen_by(model, picture)
    assert heads.shape == shape
    found = examples(model, picture)
    (strip,) = found.figures
    assert isinstance(strip, PictureStrip)
    assert strip.names == ("the image", "mean over heads", *(f"head {at}" for at in range(min(3, shape[0]))))
    assert all(file.startswith(b"\x89PNG") for file in strip.files)
    assert f" {site}, the last layer" in found.description


def test_a_picture_is_brightest_where_the_weight_is_largest() -> None:
    file = BytesIO()
    Image.fromarray(np.full((8, 8, 3), 200, np.uint8)).save(file, "PNG")
    weights = torch.tensor([[[0.0, 0.0], [0.0, 0.5]]])
    strip = picture_strip("", InputImage(file.getvalue(), 8, 8), weights, ["a"])
    light = np.asarray(Image.open(BytesIO(strip.files[1])))[..., 0]
    assert (light[0, 0], light[7, 7]) == (30, 200)
    assert light[7, 7] == light.max()


def test_a_map_that_is_cut_says_so() -> None:
    short, long = TokenAxis("a", ("x",) * 40), TokenAxis("b", ("y",) * 41)
    for rows, columns, title in (
        (short, short, "a title"),
        (short, long, "a title (the first 40 of 41 tokens)"),
        (long, long, "a title (the first 40 of 41 tokens)"),
    ):
        drawn = weight_map("a title", rows, columns, torch.rand(len(rows), len(columns)))
        assert (drawn.title, len(drawn.rows), len(drawn.columns)) == (title, 40, 40)
        assert {len(row) for row in drawn.weights} == {40} == {len(drawn.weights)}


@pytest.mark.parametrize("name", MODELS)
def test_the_last_layer_of_the_encoder_is_drawn(name: str, picture: str) -> None:
    model = built(name)
    *_, last = (part for part in encoder_of(model).modules() if isinstance(part, Attention))
    site, _ = seen_by(model, picture)
    assert sites_of(model)[f"{site}.weights"][0] is last


def test_a_class_is_read_from_its_token(picture: str) -> None:
    model = built("vit")
    site, heads = seen_by(model, picture)
    assert_close(heads, weights_at(model, site, picture)[0, :, 0, 1:].reshape(4, 4, 4))


def test_without_such_a_token_all_patches_attend(picture: str) -> None:
    model = built("mae")
    site, heads = seen_by(model, picture)
    seen = weights_at(model, site, picture)
    assert seen.shape == (1, 4, 17, 17)  # all patches are visible
    assert_close(heads, seen[0].mean(1)[:, 1:].reshape(4, 4, 4))


def test_pooled_cells_stand_in_their_rows(picture: str) -> None:
    model = built("mvit")
    site, heads = seen_by(model, picture)
    assert_close(heads, weights_at(model, site, picture)[0].mean(1).reshape(2, 8, 8))


def test_windows_are_laid_back_and_lose_nothing(picture: str) -> None:
    """Each of 4×4 cells gives away a sixteenth, also where windows of three shift and reach over the edge."""
    _, heads = seen_by(built("simmim, swin"), picture)
    assert_close(heads.sum((1, 2)), torch.ones(2))


@pytest.mark.parametrize(
    "config", [resnet.Config(**BLOCKS), lrnet.Config(**BLOCKS, hidden=(8, 8))], ids=["resnet", "lrnet"]
)
def test_a_model_without_attention_or_only_to_neighbours_shows_nothing(config: object, picture: str) -> None:
    assert examples(build(config).eval(), picture) is NO_ATTENTION
    assert examples(built("vit")) is NO_ATTENTION


def test_what_a_picture_is_stands_under_it() -> None:
    page = picture_figure(PictureStrip("<i>", (b"a", b"b"), ("the image", "␣<b>dog")))
    assert page.count("&lt;b&gt;dog</span>") == 1
    assert "<b>" not in page
    assert 'alt="the image"' in page
