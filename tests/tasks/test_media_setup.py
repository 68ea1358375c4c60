"""How images and numbers are made fit for a model: by all of them, whatever order their files are in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headway.data.text_lines import MediaLocation
from headway.data.transforms.geometry import Flip
from headway.recipe import DataSettings, Recipe
from headway.tasks.inputs import ImageInput
from headway.tasks.media_tasks import OPENED, PROBED, MediaReader, image_preprocess, series_setup, sound_setup
from headway.training.build import StepTiming, describe_plan
from headway.training.recipe_data import load_splits
from tests.data.files import put, wav
from tests.train.runs import data_in, planned

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


@pytest.mark.slow
def test_images_are_judged_by_all_classes(folders: Path) -> None:
    recipe = Recipe(DataSettings(path=(str(folders),), validation_split=0))
    ready = image_preprocess(recipe, load_splits(recipe), None)
    every = np.stack([np.asarray(Image.open(file)) for file in folders.glob("*/*.png")]) / 255
    assert ready.channels == 3
    assert ready.mean == pytest.approx(every.mean((0, 1, 2)), abs=0.05)
    assert ready.std == pytest.approx(every.std((0, 1, 2)), abs=0.05)
    assert image_preprocess(recipe, load_splits(recipe), None) == ready


@pytest.mark.slow
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


def test_sounds_are_read_at_the_rate_of_most(tmp_path: Path) -> None:
    """Whatever the first one has."""
    rates = [16_000, *[8000] * 7, 44_100, 16_000]
    put(tmp_path, {f"{'no' if at % 2 else 'yes'}/{at}.wav": wav(at, rate=rate) for at, rate in enumerate(rates)})
    recipe = Recipe(DataSettings(path=(str(tmp_path),), validation_split=0.2))
    found = sound_setup(recipe, load_splits(recipe), None).input
    assert found.mel.rate == 8000
    for at, length in ((1, 400), (9, 200), (8, 73)):
        place = MediaLocation(tmp_path / ("no" if at % 2 else "yes") / f"{at}.wav")
        assert len(found.wave(place.spelled())) == length


@pytest.mark.slow
@pytest.mark.parametrize("name", ["described", "clip"])
def test_what_texts_say_of_left_and_right_stays_true(name: str, tmp_path: Path) -> None:
    """No image with a text is flipped unless that is asked for; the plan says what is done, and how to change it."""
    with data_in(tmp_path):
        usual, asked, none = (planned(name, **more) for more in ({}, {"data.augment": "flip"}, {"data.augment": ""}))
    plans = [describe_plan(one, StepTiming(1.0, 1.0, 1)).splitlines() for one in (usual, asked, none)]
    lines = [next(line for line in lines if "augment" in line) for lines in plans]
    assert [line.split() for line in lines] == [
        ["augment", said, "--data.augment"] for said in ("crop", "flip", "none")
    ]
    for one, flips in ((usual, False), (asked, True), (none, False)):
        assert isinstance(one.task, MediaReader)
        assert isinstance(one.task.input, ImageInput)
        assert one.task.input.augment is not None
        assert any(isinstance(step, Flip) for step in one.task.input.augment.steps) == flips


@pytest.mark.slow
def test_a_plan_without_images_or_sounds_says_nothing_of_augmentation(tmp_path: Path) -> None:
    with data_in(tmp_path):
        assert "augment" not in describe_plan(planned("classes"), StepTiming(1.0, 1.0, 1))
