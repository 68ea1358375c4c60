"""Small models of images and tables, and images for them."""

from __future__ import annotations

import io
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import torch
from PIL import Image

from headway.data.preprocess import ImagePreprocess
from headway.model import Model
from headway.zoo import clip, vit
from tests.cli.folders import words

SIGHT = ImagePreprocess((8, 8), None, 3, (0.5,) * 3, (0.25,) * 3)


def save_media(place: Path) -> dict[str, Path]:
    """One that names images, one that matches them with texts, and one that continues tables."""
    torch.manual_seed(0)
    config = vit.Config(image=8, patch=4, classes=3, dim=16, layers=1, heads=2)
    names = {"id2label": {"0": "cat", "1": "dog", "2": "bird"}}
    Model(vit.build(config).eval(), config, "vit", extra_config=names, preprocess=SIGHT).save(place / "seer")
    known = words("wordpiece", before=True, after=True)
    sizes: dict[str, Any] = {"dim": 16, "layers": 1, "heads": 2, "image_dim": 16, "image_layers": 1, "image_heads": 2}
    two = clip.Config(known.vocab, known.eos or 0, 30, image=8, patch=4, width=8, **sizes)
    Model(clip.build(two).eval(), two, "clip", "clip", tokenizer=known, preprocess=SIGHT).save(place / "clip")
    copytree(Path(__file__).parent.parent / "fixtures" / "before" / "forecaster", place / "forecaster")
    return {name: place / name for name in ("seer", "clip", "forecaster")}


def png(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(width).integers(0, 255, (height, width, 3), np.uint8)).save(out, "PNG")
    return out.getvalue()
