"""Tasks on what is sensed: a sample is read the same alone and in a batch, and chance comes from outside alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image
from torch.testing import assert_close

from headway.data.order import random_for
from headway.data.preprocess import ImagePreprocess, NumberPreprocess, SoundPreprocess
from headway.data.text_lines import MediaLocation
from headway.data.transforms.compose import Compose, Gain, Mixup, Normalise, SpecAugment, Speed
from headway.data.transforms.geometry import RandomResizedCrop
from headway.errors import UserError
from headway.ops.mel import LogMel
from headway.tasks.batches import Row, ids
from headway.tasks.ctc_speech import CTC, symbol_log_probs
from headway.tasks.inputs import ImageInput, Input, MelInput, SeriesInput, WaveformInput
from headway.tasks.media_classification import ImageClassification, MediaClassification, SetClassification
from headway.zoo import conformer, vectors, vit
from tests.tasks.learners import LETTERS

SIGHT = ImagePreprocess((8, 8), None, 3, (0.5,) * 3, (0.25,) * 3)
SOUND = SoundPreprocess(LogMel(4000, 10, 128, 100, 40))
VIT = vit.Config(image=8, patch=4, classes=3, dim=16, layers=1, heads=2)
CONFORMER = conformer.Config(
    features=10, dim=16, layers=1, heads=2, hidden=16, kernel=3, channels=4, factor=2, dropout=0.0
)


@pytest.fixture
def images(tmp_path: Path) -> list[tuple[str, str, str]]:
    draw = np.random.default_rng(0)
    for at in range(5):
        Image.fromarray(draw.integers(0, 255, (9 + at, 12, 3), np.uint8)).save(tmp_path / f"{at}.png")
    return [(MediaLocation(tmp_path / f"{at}.png").spelled(), f"{9 + at} 12", "abc"[at % 3]) for at in range(5)]


@pytest.fixture
def sounds(tmp_path: Path) -> list[tuple[str, str, str]]:
    draw, found = np.random.default_rng(0), []
    for at, text in enumerate(["ab", "b", "aab", "ba"]):
        samples = 900 + 333 * at
        soundfile.write(tmp_path / f"{at}.wav", draw.normal(0, 0.1, samples), 4000)
        found.append((MediaLocation(tmp_path / f"{at}.wav").spelled(), f"{samples} 4000", text))
    return found


def rows_of(task: MediaClassification | CTC, fields: list[tuple[str, str, str]]) -> list[Row]:
    return [tuple(map(ids, row)) for row in task.encode(fields)]


def test_images_are_read_as_their_preprocessing_says(images: list[tuple[str, str, str]]) -> None:
    task = ImageClassification(ImageInput(SIGHT), ("a", "b", "c"))
    batch = task.collate(rows_of(task, images), random_for("x"))
    assert batch.read.inputs.shape == (5, 3, 8, 8)
    assert batch.wanted.tolist() == [0, 1, 2, 0, 1]
    assert_close(batch.shares, torch.eye(3)[batch.wanted])
    assert (batch.targets, batch.tokens) == (5, 5)
    logits = batch.logits(vit.build(VIT))
    assert logits.shape == (5, 3)


def test_chance_is_what_is_handed_in(images: list[tuple[str, str, str]]) -> None:
    chain = Compose((RandomResizedCrop(8, 8, (0.3, 1.0)), Normalise(SIGHT.mean, SIGHT.std)))
    task = ImageClassification(ImageInput(SIGHT, chain), ("a", "b", "c"), 0.1, Mixup())
    rows = rows_of(task, images)
    one, again, other = (task.collate(rows, random_for(key)) for key in ("x", "x", "y"))
    assert torch.equal(one.read.inputs, again.read.inputs)
    assert torch.equal(one.shares, again.shares)
    assert not torch.equal(one.read.inputs, other.read.inputs)
    assert_close(one.shares.sum(1), torch.ones(5))
    plain = task.without_augmentation()
    assert torch.equal(
        plain.collate(rows, random_for("x")).read.inputs, plain.collate(rows, random_for("y")).read.inputs
    )


SENSES: list[Input] = [MelInput(SOUND), MelInput(SOUND, Compose((Speed(), Gain())), Compose((SpecAugment(),)))]


@pytest.mark.parametrize("sense", SENSES, ids=["plain", "changed"])
def test_the_size_of_a_sound_is_its_frames(sense: MelInput, sounds: list[tuple[str, str, str]]) -> None:
    task = CTC(sense.without_augmentation(), LETTERS, 2)
    for row, field in zip(rows_of(task, sounds), sounds, strict=True):
        sample = sense.without_augmentation().load(field[0], random_for("x"))
        assert row[1].tolist() == [len(sample)]
        assert sense.load(field[0], random_for("x")).shape[1] == 10


def test_a_sound_is_heard_the_same_alone_and_among_others(sounds: list[tuple[str, str, str]]) -> None:
    torch.manual_seed(0)
    task, model = (
        CTC(MelInput(SOUND), LETTERS, 2),
        conformer.build(replace(CONFORMER, vocab=LETTERS.vocab + 1)).eval(),
    )
    rows = rows_of(task, sounds)
    together, frames = symbol_log_probs(model, task.collate(rows, random_for("x")).read)
    for at, row in enumerate(rows):
        alone, [count] = symbol_log_probs(model, task.collate([row], random_for("x")).read)
        assert count == frames[at]
        assert_close(together[at, :count], alone[0], atol=1e-5, rtol=1e-5)
    whole = task.loss(model, task.collate(rows, random_for("x")))
    parts = sum(task.loss(model, task.collate([row], random_for("x"))) for row in rows)
    assert_close(whole, torch.as_tensor(parts), atol=1e-4, rtol=1e-5)


def test_a_transcript_that_does_not_fit_its_sound_is_refused(sounds: list[tuple[str, str, str]]) -> None:
    place, _, _ = sounds[0]
    with pytest.raises(UserError, match="has 40 symbols, and its sound is"):
        CTC(MelInput(SOUND), LETTERS, 2).encode([(place, "900 4000", "a" * 40)])


def test_the_advice_on_a_long_transcript_is_true(sounds: list[tuple[str, str, str]]) -> None:
    """900 samples are 23 frames: 6 tokens of 4, 12 of 2, 23 of 1."""
    place, _, _ = sounds[0]

    def said(text: str, factor: int, sense: Input) -> str:
        with pytest.raises(UserError) as caught:
            CTC(sense, LETTERS, factor).encode([(place, "900 4000", text)])
        return caught.value.do or ""

    for text, factor, helps in (("ab" * 5, 4, 2), ("ab" * 10, 4, 1), ("ab" * 10, 2, 1), ("ab" * 3 + "b", 8, 2)):
        assert said(text, factor, MelInput(SOUND)).endswith(f"with model.factor {helps}")
        CTC(MelInput(SOUND), LETTERS, helps).encode([(place, "900 4000", text)])
    without = "shorten the transcript, or leave the recording out"
    for factor in (1, 2, 4):
        assert said("ab" * 12, factor, MelInput(SOUND)) == without
    assert said("ab" * 3, 320, WaveformInput(SOUND)) == without  # its frames are made by the model


def test_vectors_are_brought_to_one_scale_and_a_set_has_no_order() -> None:
    torch.manual_seed(0)
    task = SetClassification(SeriesInput(NumberPreprocess((1.0, 2.0), (2.0, 4.0))), ("a", "b"))
    rows = [
        tuple(map(ids, row)) for row in task.encode([("1 2; 3 6; 5 -2", "a"), ("5 -2; 1 2; 3 6", "b"), ("1 2", "b")])
    ]
    batch = task.collate(rows, random_for("x"))
    assert batch.tokens == 7
    assert_close(batch.read.inputs[0, :3], torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, -1.0]]))
    model = vectors.build(vectors.Config(features=2, dim=16, layers=2, heads=2, order="set")).eval()
    first, second, third = batch.logits(model)
    assert_close(first, second)
    assert not torch.allclose(first, third)
    series = vectors.build(vectors.Config(features=2, dim=16, layers=2, heads=2, order="series")).eval()
    assert not torch.allclose(batch.logits(series)[0], batch.logits(series)[1])
