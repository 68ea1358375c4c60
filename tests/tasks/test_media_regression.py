"""Regression of images, sounds and series: laws of the loss, the scores, folders, and transformers' own loss."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image
from torch.testing import assert_close

from headway.data.order import random_for
from headway.data.preprocess import ImagePreprocess, NumberPreprocess, SoundPreprocess
from headway.data.records import Record
from headway.data.text_lines import MediaLocation
from headway.errors import UserError
from headway.loading import load
from headway.metrics.baselines import mean_of_nearest
from headway.model import Model
from headway.ops.mel import LogMel
from headway.tasks.base import task_of
from headway.tasks.batches import Row, ids, to_device
from headway.tasks.inputs import ImageInput, MelInput, SeriesInput
from headway.tasks.media_classification import ImageClassification
from headway.tasks.media_regression import ImageRegression, SeriesRegression, SoundRegression
from headway.tasks.results import BaselineData
from headway.tasks.tracing import TraceOptions
from headway.zoo import conformer, vectors, vit
from headway.zoo.build import on_meta
from tests.cli.folders import made

SIGHT = ImagePreprocess((8, 8), None, 3, (0.5,) * 3, (0.25,) * 3)
SOUND = SoundPreprocess(LogMel(4000, 10, 128, 100, 40))
SIZES: dict[str, Any] = {"classes": 1, "dim": 16, "layers": 1, "heads": 2}
TASKS: dict[str, Any] = {
    "images": ImageRegression(ImageInput(SIGHT), 40.0, 9.0),
    "sounds": SoundRegression(MelInput(SOUND), 0.5, 0.25),
    "series": SeriesRegression(SeriesInput(NumberPreprocess((1.0,), (2.0,))), -3.0, 2.0, ("a", "b", "c", "d")),
}
CONFIGS: dict[str, Any] = {
    "images": ("vit", vit.Config(image=8, patch=4, **SIZES)),
    "sounds": (
        "conformer",
        conformer.Config(features=10, hidden=16, kernel=3, channels=4, factor=2, dropout=0.0, top="rows", **SIZES),
    ),
    "series": ("vectors", vectors.Config(features=1, hidden=16, order="series", **SIZES)),
}
every = pytest.mark.parametrize("name", TASKS)


@cache
def model_of(name: str) -> Model:
    architecture, config = CONFIGS[name]
    task = TASKS[name]
    found = made(architecture, config, None, dict(task.extra_config()), "vit" if name == "images" else None)
    return replace(found, preprocess=task.input.preprocess, task_name=task.name)


@pytest.fixture
def samples(tmp_path: Path) -> dict[str, list[Record]]:
    """Five of each medium, with numbers."""
    draw = np.random.default_rng(0)
    found: dict[str, list[Record]] = {name: [] for name in TASKS}
    for at in range(5):
        number, picture, tone = f"{at * 1.75:.2f}", tmp_path / f"{at}.png", tmp_path / f"{at}.wav"
        Image.fromarray(draw.integers(0, 255, (9 + at, 12, 3), np.uint8)).save(picture)
        soundfile.write(tone, draw.normal(0, 0.1, 900 + 333 * at), 4000)
        extents = {"images": (picture, (9 + at, 12)), "sounds": (tone, (900 + 333 * at, 4000))}
        for name, (file, extent) in extents.items():
            found[name].append(Record((str(at), number), file, 0, place=MediaLocation(file), extent=extent))
        series = "; ".join(map(str, draw.normal(size=4).round(3)))
        found["series"].append(Record((series, number), tmp_path / "a.csv", at + 1))
    return found


def rows_of(name: str, records: list[Record]) -> list[Row]:
    return [tuple(map(ids, row)) for row in TASKS[name].encode([one.handed for one in records])]


@every
def test_the_numbers_of_a_batch_are_those_of_the_data(samples: dict[str, list[Record]], name: str) -> None:
    """In standard deviations from the mean, exactly: eight bytes of a row hold a double."""
    task = TASKS[name]
    batch = task.collate(rows_of(name, samples[name]), random_for("unused"))
    numbers = torch.tensor([float(one.fields[1]) for one in samples[name]], dtype=torch.float64)
    assert torch.equal(batch.wanted, ((numbers - task.mean) / task.std).float())


@every
def test_a_batch_is_its_samples_one_by_one(samples: dict[str, list[Record]], name: str) -> None:
    task, model = TASKS[name], model_of(name).model
    rows = rows_of(name, samples[name])
    together, alone = (
        [task.collate(some, random_for("unused")) for some in several] for several in ([rows], [[row] for row in rows])
    )
    assert together[0].targets == 5
    assert together[0].tokens == sum(one.tokens for one in alone)
    with torch.inference_mode():
        apart = torch.stack([task.loss(model, one) for one in alone]).sum()
        assert_close(task.loss(model, together[0]), apart, atol=1e-4, rtol=1e-5)


@every
def test_a_loss_has_gradients_on_any_device(samples: dict[str, list[Record]], name: str) -> None:
    task, model = TASKS[name], on_meta(CONFIGS[name][1])
    batch = task.collate(rows_of(name, samples[name])[:1], random_for("unused"))  # packed rows have lengths, not shapes
    loss = task.loss(model, to_device(batch, torch.device("meta")))
    assert (loss.shape, loss.device.type) == (torch.Size(), "meta")
    loss.backward()
    assert all(one.grad is not None for one in model.parameters())


@every
def test_scores_are_of_what_predict_says_in_the_unit_of_the_data(samples: dict[str, list[Record]], name: str) -> None:
    metrics: Any = pytest.importorskip("sklearn.metrics")
    task, model, records = TASKS[name], model_of(name).model, samples[name]
    found = task.evaluate(model, records)
    said = [one.output for one in task.predict(model, [one.name for one in records])]
    wanted = [float(one.fields[1]) for one in records]
    assert len(set(said)) == 5
    numbers = found.scores.numbers
    assert (found.scores.count, found.scores.things) == (5, task.things)
    assert_close(numbers["rmse"], metrics.root_mean_squared_error(wanted, said), atol=1e-5, rtol=1e-5)
    assert_close(numbers["mae"], metrics.mean_absolute_error(wanted, said), atol=1e-5, rtol=1e-5)
    assert_close(numbers["r2"], metrics.r2_score(wanted, said), atol=1e-5, rtol=1e-5)
    loss = task.loss(model, task.batch(model, records)).item() / 5
    assert_close(numbers["rmse"], task.std * loss**0.5, atol=1e-4, rtol=1e-4)  # the loss is in deviations


@every
@pytest.mark.parametrize("layout", ["headway", "hf"])
def test_a_folder_answers_as_the_model_did(
    samples: dict[str, list[Record]], name: str, layout: str, tmp_path: Path
) -> None:
    model, task = model_of(name), TASKS[name]
    if layout == "hf" and name != "images":  # transformers has no such model
        with pytest.raises(UserError):
            model.save_hf(tmp_path / "model")
        return
    (model.save if layout == "headway" else model.save_hf)(tmp_path / "model")
    again = load(tmp_path / "model")
    if layout == "hf":
        config = json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))
        assert (config["problem_type"], len(config["id2label"])) == ("regression", 1)
    assert type(again.task) is type(task)
    assert again.task.extra_config() == task.extra_config()
    asked = [one.name for one in samples[name]]
    wanted = [one.to_dict() for one in task.predict(model.model, asked)]
    assert [one.to_dict() for one in again.predict(asked)] == wanted
    assert json.loads(json.dumps(wanted)) == wanted


@every
def test_a_trace_ends_with_the_number(samples: dict[str, list[Record]], name: str) -> None:
    task, model = TASKS[name], model_of(name).model
    asked = samples[name][0].name
    run = task.trace(model, asked, TraceOptions(max_tokens=8, context=64))
    with torch.inference_mode():
        found = run.call()
    assert run.reader.settled(found).outcome(found).text == next(iter(task.predict(model, [asked]))).to_text()


def test_a_model_of_classes_is_none_of_numbers() -> None:
    one = model_of("images")
    named = ImageClassification(ImageInput(SIGHT), ("a",)).extra_config()
    assert type(task_of(one)) is ImageRegression
    assert ImageClassification.from_model(one) is None
    several = replace(one, extra_config={**named, "problem_type": "single_label_classification"})
    assert ImageRegression.from_model(several) is None
    assert type(task_of(several)) is ImageClassification


def test_a_record_without_a_number_is_named(tmp_path: Path) -> None:
    record = Record(("1; 2; 3; 4", "much"), tmp_path / "a.csv", 7)
    with pytest.raises(UserError, match=r"a\.csv:7: 'much' is no number; give a number for each sample"):
        TASKS["series"].evaluate(model_of("series").model, [record])


@every
def test_baselines_know_the_training_data_alone(samples: dict[str, list[Record]], name: str) -> None:
    task, model, (first, *others) = TASKS[name], model_of(name).model, samples[name]
    data = BaselineData(others, [], [first], [])
    found = {one.name: one.scores.numbers["mae"] for one in task.baselines(model, data, task.evaluate(model, [first]))}
    numbers = [float(one.fields[1]) for one in others]
    assert list(found) == ["mean", "median", "mean of the 5 nearest"]
    assert_close(found["mean"], abs(np.mean(numbers) - float(first.fields[1])), check_dtype=False)
    assert_close(found["mean of the 5 nearest"], found["mean"])  # all four of them


def test_the_mean_of_the_nearest_by_hand() -> None:
    known = np.array([[0.0], [1.0], [10.0]], np.float32)
    assert mean_of_nearest(known, [1.0, 3.0, 50.0], np.array([[0.4], [9.0]], np.float32), 2) == [2.0, 26.5]


# ---- transformers


def test_logits_and_loss_are_those_of_transformers(tmp_path: Path) -> None:
    """A ViT with one output: its logits, and the mean squared error that `problem_type: regression` asks for."""
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=1, problem_type="regression")
    theirs = transformers.ViTForImageClassification(config).eval()
    with torch.no_grad():
        theirs.classifier.weight.mul_(20)
    theirs.save_pretrained(tmp_path / "vit")
    size = {"size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(size))
    draw, fields = np.random.default_rng(1), list[tuple[str, str, str]]()
    for at in range(4):
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8)).save(tmp_path / f"{at}.png")
        fields.append((MediaLocation(tmp_path / f"{at}.png").spelled(), "8 8", str(at * 2.5)))
    ours = load(tmp_path / "vit")
    task = ours.task
    assert isinstance(task, ImageRegression)
    assert (task.mean, task.std) == (0.0, 1.0)
    batch = task.collate([tuple(map(ids, row)) for row in task.encode(fields)], random_for("unused"))
    with torch.inference_mode():
        wanted = theirs(pixel_values=batch.read.inputs, labels=batch.wanted)
        assert_close(batch.numbers(ours.model), wanted.logits[:, 0], atol=1e-5, rtol=1e-5)
        assert_close(task.loss(ours.model, batch) / batch.targets, wanted.loss, atol=1e-5, rtol=1e-5)
    # and back
    replace(ours, extra_config=dict(task.extra_config())).save_hf(tmp_path / "again")
    back = transformers.ViTForImageClassification.from_pretrained(tmp_path / "again").eval()
    assert (back.config.num_labels, back.config.problem_type) == (1, "regression")
    with torch.inference_mode():
        again = back(pixel_values=batch.read.inputs, labels=batch.wanted)
    assert_close(again.loss, wanted.loss, atol=1e-5, rtol=1e-5)
