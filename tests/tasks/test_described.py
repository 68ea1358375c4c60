"""Texts about samples: an image is seen once for all its captions, and a batch is its captions one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image
from torch import Tensor, nn
from torch.testing import assert_close

from headway.data.order import random_for
from headway.data.preprocess import ImagePreprocess, SoundPreprocess
from headway.data.text_lines import MediaLocation
from headway.data.transforms.compose import Compose, Normalise
from headway.data.transforms.geometry import RandomResizedCrop
from headway.nn.towers import TwoTowers
from headway.ops.losses import Baseline, info_nce
from headway.ops.mel import LogMel
from headway.tasks.batches import Row, ids
from headway.tasks.caption_batches import caption_predictions, hard_loss, has_hard_attention, has_soft_attention
from headway.tasks.captioning import Captioning, TextsAboutMedia
from headway.tasks.image_text import ImageTextContrastive
from headway.tasks.inputs import ImageInput, Input, MelInput
from headway.zoo import captioner, clip, conformer, vit_captioner
from tests.tasks.learners import LETTERS, words

SIGHT = ImagePreprocess((8, 8), None, 3, (0.5,) * 3, (0.25,) * 3)
CHANGED = Compose((RandomResizedCrop(8, 8, (0.3, 1.0)), Normalise(SIGHT.mean, SIGHT.std)))
SOUND = SoundPreprocess(LogMel(4000, 10, 128, 100, 40))
FRAMED = words(before=True)
END = LETTERS.eos or 0
TEXTS = [("the cat sat", "a cat"), ("on a mat",), ("dog", "the dog ran", "a dog")]
close: dict[str, Any] = {"atol": 1e-9, "rtol": 1e-9}
recurrent: dict[str, Any] = {"widths": (8, 8), "dim": 8, "hidden": 12, "align": 8, "dropout": 0.0}
shape: dict[str, Any] = {"vocab": LETTERS.vocab, "dim": 16, "heads": 2, "layers": 1, "dropout": 0.0}


def built(name: str) -> nn.Module:
    torch.manual_seed(0)
    match name:
        case "soft" | "hard":
            model = captioner.build(captioner.Config(LETTERS.vocab, 8, attention=name, **recurrent))
        case "vit":
            model = vit_captioner.build(vit_captioner.Config(image=8, patch=4, **shape))
        case _:
            model = conformer.build(
                conformer.Config(
                    features=10, hidden=16, kernel=3, channels=4, factor=2, decoder_layers=1, top="decoder", **shape
                )
            )
    return model.double().eval()


@pytest.fixture
def images(tmp_path: Path) -> list[tuple[str, ...]]:
    draw = np.random.default_rng(0)
    for at in range(3):
        Image.fromarray(draw.integers(0, 255, (9, 12, 3), np.uint8)).save(tmp_path / f"{at}.png")
    return [(MediaLocation(tmp_path / f"{at}.png").spelled(), "9 12", *texts) for at, texts in enumerate(TEXTS)]


@pytest.fixture
def sounds(tmp_path: Path) -> list[tuple[str, ...]]:
    draw = np.random.default_rng(0)
    for at in range(3):
        soundfile.write(tmp_path / f"{at}.wav", draw.normal(0, 0.1, 900 + 333 * at), 4000)
    return [(MediaLocation(tmp_path / f"{at}.wav").spelled(), f"{900 + 333 * at} 4000", *TEXTS[at]) for at in range(3)]


def captions(sense: Input, **more: Any) -> Captioning:
    return Captioning(sense, LETTERS, 30, LETTERS.bos or 0, **more)


def rows_of(task: TextsAboutMedia, fields: list[tuple[str, ...]]) -> list[Row]:
    return [tuple(map(ids, row)) for row in task.encode(fields)]


def apart(fields: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """A record for each text, as a table has it that names an image on several lines."""
    return [(place, extent, text) for place, extent, *texts in fields for text in texts]


def loss_of(task: Captioning, model: nn.Module, rows: list[Row]) -> Tensor:
    batch = task.collate(rows, random_for("x"))
    doubled = batch.seen._replace(inputs=batch.seen.inputs.double())
    return task.loss(model, type(batch)(doubled, batch.owners, batch.read, batch.wanted, batch.tokens))


def test_an_image_is_opened_once_for_all_its_captions(images: list[tuple[str, ...]]) -> None:
    task = captions(ImageInput(SIGHT, CHANGED))
    whole = task.collate(rows_of(task, images), random_for("x"))
    assert whole.seen.inputs.shape == (3, 3, 8, 8)
    assert whole.owners.tolist() == [0, 0, 1, 2, 2, 2]
    assert (whole.tokens, whole.targets) == (3, sum(len(text) + 1 for texts in TEXTS for text in texts))
    lines = task.collate(rows_of(task, apart(images)), random_for("x"))
    assert torch.equal(lines.seen.inputs, whole.seen.inputs)
    for one, other in ((lines.owners, whole.owners), (lines.wanted, whole.wanted), (lines.read.ids, whole.read.ids)):
        assert torch.equal(one, other)


def test_what_is_read_begins_and_what_is_wanted_ends(images: list[tuple[str, ...]]) -> None:
    task = captions(ImageInput(SIGHT))
    batch = task.collate(rows_of(task, images[1:2]), random_for("x"))
    text = LETTERS.plain("on a mat")
    assert batch.read.ids.tolist() == [[LETTERS.bos, *text]]
    assert batch.wanted.tolist() == [*text, END]
    assert task.extra_config() == {"decoder_start_token_id": LETTERS.bos, "eos_token_id": END}
    short = Captioning(ImageInput(SIGHT), LETTERS, 4, LETTERS.bos or 0)
    assert rows_of(short, images[1:2])[0][2].tolist() == [*text[:3], END]


@pytest.mark.parametrize("name", ["soft", "hard", "vit"])
def test_a_batch_is_the_sum_of_its_captions(name: str, images: list[tuple[str, ...]]) -> None:
    model, task = built(name), captions(ImageInput(SIGHT), evenness=0.7)
    assert (has_soft_attention(model), has_hard_attention(model)) == (name == "soft", name == "hard")
    parts = [loss_of(task, model, [row]) for row in rows_of(task, apart(images))]
    assert_close(loss_of(task, model, rows_of(task, images)), torch.stack(parts).sum(), **close)
    assert loss_of(task.without_augmentation(), model, rows_of(task, images)) < loss_of(
        task, model, rows_of(task, images)
    )


@pytest.mark.slow
def test_so_is_a_batch_of_sounds(sounds: list[tuple[str, ...]]) -> None:
    """Of different lengths, and one of them with several texts."""
    model, task = built("conformer"), captions(MelInput(SOUND))
    parts = [loss_of(task, model, [row]) for row in rows_of(task, apart(sounds))]
    assert_close(loss_of(task, model, rows_of(task, sounds)), torch.stack(parts).sum(), **close)
    assert task.memory(model) is None


@pytest.mark.slow
def test_a_captioner_that_draws_remembers_how_good_it_was(images: list[tuple[str, ...]]) -> None:
    model, task = built("hard").float().train(), captions(ImageInput(SIGHT))
    memory = task.memory(model)
    assert memory is not None
    batch, known = task.collate(rows_of(task, images), random_for("x")), Baseline()
    for _ in range(3):
        torch.manual_seed(1)
        loss, memory = task.loss_after(model, batch, memory)
        torch.manual_seed(1)
        assert isinstance(model, captioner.Captioner)
        expected, known = hard_loss(model, batch, known, smoothing=0.1)
        assert loss.item() == expected.item()
        assert (memory["value"].item(), int(memory["batches"])) == (known.value, known.batches)
    assert task.memory(built("soft")) is None
    assert caption_predictions(model, batch).losses().shape == batch.wanted.shape


# ---- images and texts


def towers() -> TwoTowers:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"dim": 16, "layers": 1, "heads": 2, "image_dim": 16, "image_layers": 1, "image_heads": 2}
    return clip.build(clip.Config(FRAMED.vocab, FRAMED.eos or 0, 30, image=8, patch=4, width=8, **sizes)).eval()


def test_pairs_are_told_apart_but_for_those_of_one_image(images: list[tuple[str, ...]]) -> None:
    task, model = ImageTextContrastive(ImageInput(SIGHT), FRAMED, 30), towers()
    batch = task.collate(rows_of(task, apart(images)), random_for("x"))
    assert batch.owners.tolist() == [0, 0, 1, 2, 2, 2]
    assert (batch.targets, batch.tokens, len(batch.seen.inputs)) == (6, 6, 3)
    texts = [text for known in TEXTS for text in known]
    vectors = torch.cat([model.text(torch.tensor([FRAMED.encode(text)])) for text in texts])
    seen = model.image(batch.seen.inputs)[batch.owners]
    assert_close(task.loss(model, batch), info_nce(seen, vectors, model.scale, batch.owners), atol=1e-4, rtol=1e-5)
    assert task.loss(model, batch) < info_nce(seen, vectors, model.scale)


def test_one_text_of_an_image_is_drawn_each_time(images: list[tuple[str, ...]]) -> None:
    task = ImageTextContrastive(ImageInput(SIGHT), FRAMED, 30)
    rows = rows_of(task, images)
    drawn = [read_texts(task, rows, key) for key in range(20)]
    assert drawn[0] == read_texts(task, rows, 0)
    for at, known in enumerate(TEXTS):
        assert {texts[at] for texts in drawn} == set(known)


def read_texts(task: ImageTextContrastive, rows: list[Row], key: int) -> list[str]:
    texts = task.collate(rows, random_for("x", key)).texts
    parts = [texts.ids[0]] if texts.rows is None else texts.ids[0].split(texts.rows.lengths)
    return [FRAMED.decode(part.tolist()) for part in parts]
