"""timm's pretrained_cfg: how images are prepared for its models, both ways."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headway.data.preprocess import IMAGENET, MODES, ImagePreprocess, errors_named
from headway.errors import UserError

SHARE = 0.875  # of the shorter side that timm's crop is, where a file does not say
CROPS = ("center", "squash")  # timm's: of an image that keeps its shape, or of one that was made square
TIMM = ("interpolation", "crop_pct", "crop_mode", "mean", "std")  # with timm's defaults where they are missing


def read_timm(settings: Mapping[str, Any], size: tuple[int, int, int]) -> ImagePreprocess | None:
    """What timm's pretrained_cfg says of a model of images Ch H W; None where it says nothing of such images."""
    with errors_named("config.json: pretrained_cfg"):
        fits = len(settings.get("mean") or settings.get("std") or IMAGENET[0]) == size[0]
        found = fits and any(settings.get(name) for name in TIMM)
        return timm_preprocess({**settings, "input_size": size}) if found else None


def timm_preprocess(settings: Mapping[str, Any]) -> ImagePreprocess:
    """timm's pretrained_cfg: the image is resized so that the crop is the share `crop_pct` of its shorter side."""
    channels, height, width = settings["input_size"]
    mode, crop = settings.get("interpolation") or "bicubic", settings.get("crop_mode") or CROPS[0]
    if mode not in MODES.values():
        raise UserError(f"interpolation {mode!r} is not known", allowed=", ".join(MODES.values()))
    if crop not in CROPS:
        raise UserError(f"crop_mode {crop!r} is not known", allowed=", ".join(CROPS))
    high, wide = (math.floor(side / (settings.get("crop_pct") or SHARE)) for side in (height, width))
    mean, std = tuple(settings.get("mean") or IMAGENET[0]), tuple(settings.get("std") or IMAGENET[1])
    if crop == CROPS[0]:
        return ImagePreprocess(high, (height, width), channels, mean, std, mode)
    whole = (high, wide) == (height, width)
    return ImagePreprocess((high, wide), None if whole else (height, width), channels, mean, std, mode)


def timm_told(preprocess: ImagePreprocess) -> dict[str, Any]:
    """The same as timm's pretrained_cfg; nothing where that cannot express it."""
    resize = preprocess.resize
    settings = {
        "input_size": [preprocess.channels, *preprocess.size],
        "interpolation": preprocess.mode,
        "crop_pct": share(preprocess.size[0], resize if isinstance(resize, int) else resize[0]),
        "crop_mode": CROPS[0] if isinstance(resize, int) else CROPS[1],
        "mean": list(preprocess.mean),
        "std": list(preprocess.std),
    }
    return settings if timm_preprocess(settings) == preprocess else {}


def share(size: int, resized: int) -> float:
    """The share with the fewest digits by which timm comes from one size to the other: 0.9 from 224 to 248."""
    rounded = (size * 10**digits // resized / 10**digits for digits in range(1, 15))
    return next((x for x in (SHARE, *rounded) if x and math.floor(size / x) == resized), size / resized)
