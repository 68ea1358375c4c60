"""How images and numbers are made fit for a model: by all of them, whatever order their files are in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headway.recipe import DataSettings, Recipe
from headway.tasks.media_tasks import OPENED, PROBED, image_preprocess, series_setup
from headway.training.dataset import load_splits

EACH = OPENED + 20


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Two classes, the first of them all dark and grey, the other bright and red."""
    draw = np.random.default_rng(0)
    for name, colour in (("a", (20, 20, 20)), ("b", (240, 120, 120))):
        (tmp_path / name).mkdir()
        for at in range(EACH):
            pixels = np.full((4, 4, 3), colour, np.uint8)
            pixels[at % 4, at // 4 % 4] = draw.integers(0, 9)  # so that no two are the same
            pixels[0, 0] = at
            Image.fromarray(pixels).save(tmp_path / name / f"{at:03}.png")
    return tmp_path


def test_images_are_judged_by_all_classes(folders: Path) -> None:
    recipe = Recipe(DataSettings(path=(str(folders),), validation_split=0))
    ready = image_preprocess(recipe, load_splits(recipe), None)
    every = np.stack([np.asarray(Image.open(file)) for file in folders.glob("*/*.png")]) / 255
    assert ready.channels == 3
    assert ready.mean == pytest.approx(every.mean((0, 1, 2)), abs=0.05)
    assert ready.std == pytest.approx(every.std((0, 1, 2)), abs=0.05)
    assert image_preprocess(recipe, load_splits(recipe), None) == ready


def test_numbers_are_judged_by_all_classes(tmp_path: Path) -> None:
    """The first `PROBED` rows are of one class."""
    draw = np.random.default_rng(0)
    classes = [0] * PROBED + [9] * PROBED
    rows = [",".join(f"{x:.3f}" for x in draw.normal(c, 1, 4)) + f",c{c}" for c in classes]
    (tmp_path / "a.csv").write_text("p,q,r,s,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    recipe = Recipe(DataSettings(path=(str(tmp_path / "a.csv"),), validation_split=0))
    ready = series_setup(load_splits(recipe), None).input.preprocess
    told = ready.to_dict()
    assert told["mean"] == pytest.approx([4.5], abs=0.5)
    assert told["deviation"] == pytest.approx([4.6], abs=0.3)
