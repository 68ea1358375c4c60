"""Regression of images, sounds and series is learned: how light, how high, how strong, far better than by the mean."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from headway.training.recipe_sources import read_layers
from headway.training.run import train
from tests.train.runs import SMALL

pytestmark = pytest.mark.slow
COUNT, RATE = 160, 4000
Draw = np.random.Generator


def light(folder: Path, draw: Draw) -> list[str]:
    """Noise around a level that differs from image to image; the number is the mean of all pixels."""
    lines = ["file,light"]
    for at in range(COUNT):
        pixels = (draw.uniform(30, 220) + draw.normal(0, 20, (8, 8, 3))).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{at}.png")
        lines.append(f"{at}.png,{pixels.mean():.3f}")
    return lines


def pitch(folder: Path, draw: Draw) -> list[str]:
    """A sine of any phase; the number is its frequency."""
    lines = ["file,pitch"]
    for at in range(COUNT):
        frequency, time = draw.uniform(200, 1800), np.arange(800) / RATE
        soundfile.write(folder / f"{at}.wav", 0.5 * np.sin(2 * np.pi * (frequency * time + draw.uniform())), RATE)
        lines.append(f"{at}.wav,{frequency:.2f}")
    return lines


def strength(folder: Path, draw: Draw) -> list[str]:
    """A sine of any phase, eight numbers long; the number is its amplitude."""
    lines = ["a,b,c,d,e,f,g,h,target"]
    for _ in range(COUNT):
        amplitude = draw.uniform(0.5, 5)
        wave = amplitude * np.sin(0.8 * np.arange(8) + draw.uniform(0, 2 * np.pi))
        lines.append(",".join(f"{number:.4f}" for number in [*wave, amplitude]))
    return lines


NARROW = {"model.preset": "resnet-nano", "model.widths": "[8, 16]", "model.layers": "[1, 1]", "model.dim": "8"}
HEARING = {"model.preset": "conformer-nano", "model.hidden": "32", "model.channels": "8", "model.kernel": "7"}
CASES: dict[str, tuple[Callable[[Path, Draw], list[str]], dict[str, str], str]] = {
    "light": (light, {**NARROW, "train.batch": "16", "train.steps": "60"}, "image-regression"),
    "pitch": (pitch, {**HEARING, **SMALL, "train.batch": "400", "train.steps": "150"}, "sound-regression"),
    "strength": (strength, {**SMALL, "train.batch": "256", "train.steps": "150"}, "series-regression"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_number_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write, settings, task = CASES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    lines = write(tmp_path, np.random.default_rng(5))
    (tmp_path / "all.csv").write_text("\n".join([*lines, ""]))
    fixed = {"data.path": ("all.csv",), "out": "run", "train.threads": "1", "train.lr": "0.004", "seed": "1"}
    made, end = train(read_layers({**fixed, **settings}, environ={}), out=io.StringIO())
    assert made.task.name == task
    assert end.found is not None
    numbers, simple = end.found.scores.numbers, {one.name: one.scores.numbers for one in end.found.baselines}
    assert numbers["rmse"] < simple["mean"]["rmse"] / 2
    assert numbers["r2"] > 0.75
    assert simple["mean"]["r2"] <= 0.0
    assert end.found.scores.intervals["rmse"].high < simple["mean"]["rmse"]
