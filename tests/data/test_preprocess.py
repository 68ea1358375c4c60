"""Preprocessing that travels with a model: read back as it was written, and as transformers has it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.data.order import random_for
from headway.data.preprocess import (
    FILE,
    IMAGENET,
    ImagePreprocess,
    Preprocess,
    SoundPreprocess,
    read_preprocess,
    write_preprocess,
)
from headway.data.timm_preprocess import timm_preprocess, timm_told
from headway.data.transforms.compose import as_image
from headway.errors import UserError
from headway.ops.mel import WHISPER, LogMel
from tests.data.files import picture

HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
VALUES: list[Preprocess] = [
    ImagePreprocess((224, 224)),
    ImagePreprocess(256, (224, 192), mode="bilinear"),
    ImagePreprocess((28, 28), channels=1, mean=(0.286,), std=(0.353,)),
    SoundPreprocess(),
    SoundPreprocess(LogMel(8000, 40, 256, 200, 80, 20.0, 3800.0), 2.5),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_is_written_is_read(tmp_path: Path, value: Preprocess) -> None:
    write_preprocess(value, tmp_path)
    read = read_preprocess(tmp_path)
    if isinstance(value, SoundPreprocess) and isinstance(read, SoundPreprocess):
        assert read.mel.top == value.mel.top
        value = replace(value, mel=replace(value.mel, high=read.mel.high))
    assert read == value


def test_no_file_says_nothing(tmp_path: Path) -> None:
    assert read_preprocess(tmp_path) is None


def test_what_stands_within_a_processors_file_is_read(tmp_path: Path) -> None:
    value = ImagePreprocess((24, 24), None, 3, *HALF)
    told = {"processor_class": "SiglipProcessor", "image_processor": value.to_dict()}
    (tmp_path / "processor_config.json").write_text(json.dumps(told))
    assert read_preprocess(tmp_path) == value
    (tmp_path / "processor_config.json").write_text('{"processor_class": "Gemma3Processor"}')
    assert read_preprocess(tmp_path) is None


FOREIGN: dict[str, tuple[dict[str, Any], Preprocess]] = {
    "vit": (
        {
            "do_normalize": True,
            "do_resize": True,
            "image_mean": HALF[0],
            "image_std": HALF[1],
            "resample": 2,
            "size": 224,
            "feature_extractor_type": "ViTFeatureExtractor",
        },
        ImagePreprocess((224, 224), None, 3, *HALF, mode="bilinear"),
    ),
    "swin": (
        {"size": {"height": 256, "width": 256}, "resample": 3, "image_mean": IMAGENET[0], "image_std": IMAGENET[1]},
        ImagePreprocess((256, 256)),
    ),
    "clip": (
        {
            "crop_size": 224,
            "do_center_crop": True,
            "size": {"shortest_edge": 224},
            "resample": 3,
            "image_mean": HALF[0],
            "image_std": HALF[1],
            "do_convert_rgb": True,
        },
        ImagePreprocess(224, (224, 224), 3, *HALF),
    ),
    "deit": (
        {
            "crop_size": 224,
            "do_center_crop": True,
            "size": 256,
            "resample": 3,
            "image_mean": HALF[0],
            "image_std": HALF[1],
        },
        ImagePreprocess((256, 256), (224, 224), 3, *HALF),
    ),
    "convnext": (
        {"crop_pct": 0.875, "size": {"shortest_edge": 224}, "resample": 3, "image_mean": HALF[0], "image_std": HALF[1]},
        ImagePreprocess(256, (224, 224), 3, *HALF),
    ),
    "beit": (
        {
            "do_center_crop": False,
            "do_reduce_labels": False,
            "size": {"height": 224, "width": 224},
            "resample": 3,
            "image_mean": HALF[0],
            "image_std": HALF[1],
        },
        ImagePreprocess((224, 224), None, 3, *HALF),
    ),
    "dinov3": (
        {
            "data_format": "channels_first",
            "default_to_square": True,
            "size": {"height": 224, "width": 224},
            "resample": 2,
            "image_mean": IMAGENET[0],
            "image_std": IMAGENET[1],
        },
        ImagePreprocess((224, 224), mode="bilinear"),
    ),
    "whisper": (
        {
            "chunk_length": 30,
            "feature_size": 80,
            "hop_length": 160,
            "n_fft": 400,
            "sampling_rate": 16000,
            "nb_max_frames": 3000,
        },
        SoundPreprocess(seconds=30.0),
    ),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_published_files_are_read(tmp_path: Path, case: str) -> None:
    told, expected = FOREIGN[case]
    (tmp_path / FILE).write_text(json.dumps(told))
    assert read_preprocess(tmp_path) == expected


def test_frames_that_the_file_could_not_tell_are_not_promised() -> None:
    with pytest.raises(AssertionError, match="no file could tell it"):
        SoundPreprocess(WHISPER)


def test_timms_settings() -> None:
    told = {"input_size": [3, 224, 224], "interpolation": "bicubic", "crop_pct": 0.9, "mean": HALF[0], "std": HALF[1]}
    assert timm_preprocess(told) == ImagePreprocess(248, (224, 224), 3, *HALF)
    assert timm_preprocess({**told, "crop_mode": "squash"}) == ImagePreprocess((248, 248), (224, 224), 3, *HALF)
    assert timm_preprocess({**told, "crop_mode": "squash", "crop_pct": 1.0}) == ImagePreprocess(
        (224, 224), None, 3, *HALF
    )
    assert timm_preprocess({"input_size": [3, 224, 224], "mean": None}) == ImagePreprocess(256, (224, 224))


@pytest.mark.parametrize("mode", ["center", "squash"])
@pytest.mark.parametrize("share", [0.875, 0.9, 0.94, 0.95, 0.96, 0.965, 1.0])
def test_timms_settings_are_written_as_they_were_read(share: float, mode: str) -> None:
    told = {"input_size": [3, 224, 224], "crop_pct": share, "crop_mode": mode, "interpolation": "bilinear"}
    told |= {"mean": list(HALF[0]), "std": list(HALF[1])}
    assert timm_told(timm_preprocess(told)) == told


def test_what_timm_has_no_words_for_is_not_written() -> None:
    assert timm_told(ImagePreprocess((256, 224), (192, 192))) == {}


SIZE = {"size": 224, "image_mean": HALF[0], "image_std": HALF[1]}
REFUSED = {
    "an unknown step": (SIZE | {"do_flip_channel_order": True}, "do_flip_channel_order is not known"),
    "another scale": (SIZE | {"rescale_factor": 1 / 127.5}, "rescale_factor 0.00784"),
    "nearest": (SIZE | {"resample": 0}, "resample 0 is not known; allowed: 2 (bilinear) or 3 (bicubic)"),
    "any size": (SIZE | {"size": {"shortest_edge": 224}}, "images whose shorter side is 224 differ in size"),
    "a longest side": (SIZE | {"size": {"shortest_edge": 2, "longest_edge": 4}}, "a longest_edge in size is not known"),
    "no size": ({"image_mean": HALF[0]}, "size: None; allowed: a number, shortest_edge, or height and width"),
    "no deviation": (SIZE | {"image_std": [0.5, 0, 0.5]}, "a standard deviation of 0 divides by nothing"),
    "two means": (
        SIZE | {"image_mean": [0.5, 0.5]},
        "an image cannot have 2 channels, 2 means and 3 standard deviations",
    ),
    "another extractor of mels": (
        {"num_mel_bins": 80, "feature_size": 80, "sampling_rate": 16000},
        "feature_size 80 beside num_mel_bins is not known; allowed: 1, as of an AST",
    ),
    "no length": ({"num_mel_bins": 80, "max_length": 0}, "max_length: 0; allowed: whole numbers from 1 to 65,536"),
    "a wide hop": (
        {"sampling_rate": 8000, "feature_size": 40, "hop_length": 500, "n_fft": 400},
        "frames of 400 samples, 500 apart, by a transform of 400; allowed: 0 < hop ≤ window ≤ transform",
    ),
    "bands beyond": (
        {"sampling_rate": 8000, "feature_size": 40, "highest": 7600},
        "40 mels from 0 to 7600 hertz at 8,000 samples a second; allowed: 1 or more, and 0 ≤ lowest < highest ≤ 4000",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_change_an_image_unseen_is_refused(tmp_path: Path, case: str) -> None:
    told, said = REFUSED[case]
    (tmp_path / FILE).write_text(json.dumps(told))
    with pytest.raises(UserError) as caught:
        read_preprocess(tmp_path)
    assert said in str(caught.value)
    assert str(tmp_path / FILE) in str(caught.value)


@pytest.mark.parametrize("case", ["vit", "clip", "deit", "beit", "convnext"])
def test_images_come_out_as_from_transformers(case: str) -> None:
    """Within a level and a half of 255: theirs rounds to whole levels after each pass."""
    transformers = pytest.importorskip("transformers")
    name = {"vit": "ViT", "clip": "CLIP", "deit": "DeiT", "beit": "Beit", "convnext": "ConvNext"}[case]
    processor = getattr(transformers, f"{name}ImageProcessorPil")
    told, value = FOREIGN[case]
    assert isinstance(value, ImagePreprocess)
    # whose crops have a middle: where they have none, transformers' own backends take neighbouring rows
    image = picture(3, height=305, width=260)
    theirs = processor(**{k: v for k, v in told.items() if k != "feature_extractor_type"})(image, return_tensors="np")
    ours = value.chain()(as_image(np.asarray(image)), random_for(0)).numpy()
    assert np.abs(ours - theirs["pixel_values"][0]).max() < 1.6 / 255 / 0.5


def test_the_chain_ends_at_the_size() -> None:
    for value in VALUES:
        if isinstance(value, ImagePreprocess):
            image = as_image(np.asarray(picture(height=90, width=70)))[: value.channels]
            assert value.chain()(image, random_for(0)).shape == (value.channels, *value.size)
