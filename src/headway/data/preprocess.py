"""How images and sounds are prepared for a model, as the numbers in its folder: `preprocessor_config.json`.

The file has the names that transformers reads and writes; what they cannot express has names of ours beside them.  An
option that would change what a model sees and is not known here is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headway.errors import UserError
from headway.ops.mel import LogMel
from headway.system import read_json, write_json

if TYPE_CHECKING:
    from headway.data.transforms.compose import Compose

P = TypeVar("P")

FILE = "preprocessor_config.json"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and standard deviation of red, green and blue
MODES = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
SHARE = 0.875  # of the shorter side that timm's crop is, where a file does not say
CROPS = ("center", "squash")  # timm's: of an image that keeps its shape, or of one that was made square
TIMM = ("interpolation", "crop_pct", "crop_mode", "mean", "std")  # with timm's defaults where they are missing
KNOWN = frozenset({"do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb"})
SOUND = ("sampling_rate", "feature_size")  # by which a file about sounds is known
USUAL = LogMel(n_fft=400)  # what transformers' feature extractors take where a file does not say


@dataclass(frozen=True)
class ImagePreprocess:
    """Resized (a number is that of the shorter side), cropped in the middle where `crop` says so, and normalised."""

    resize: int | tuple[int, int]
    crop: tuple[int, int] | None = None
    channels: int = 3
    mean: tuple[float, ...] = IMAGENET[0]
    std: tuple[float, ...] = IMAGENET[1]
    mode: str = "bicubic"

    def __post_init__(self) -> None:
        if self.crop is None and isinstance(self.resize, int):
            said = f"images whose shorter side is {self.resize} differ in size"
            raise UserError(said, do="give a crop, or height and width")
        if not len(self.mean) == len(self.std) == self.channels:
            told = f"{self.channels} channels, {len(self.mean)} means and {len(self.std)} standard deviations"
            raise UserError(f"an image cannot have {told}")
        if min(self.std) <= 0:
            raise UserError(f"a standard deviation of {min(self.std)} divides by nothing")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of what the model sees."""
        return self.crop or self.exact

    @property
    def exact(self) -> tuple[int, int]:
        assert not isinstance(self.resize, int)
        return self.resize

    def chain(self) -> Compose:
        """What is done to an image C H W that a model is to judge."""
        from headway.data.transforms.compose import Compose, Normalise
        from headway.data.transforms.geometry import CentreCrop, Resize, ResizeShort

        size = self.resize
        first = ResizeShort(size, self.mode) if isinstance(size, int) else Resize(*size, self.mode)
        crop = () if self.crop is None else (CentreCrop(*self.crop),)
        return Compose((first, *crop, Normalise(self.mean, self.std)))

    def told(self) -> dict[str, Any]:
        """The contents of the file."""
        short = isinstance(self.resize, int)
        size = {"shortest_edge": self.resize} if short else dict(zip(("height", "width"), self.exact, strict=True))
        crop = {} if self.crop is None else {"crop_size": dict(zip(("height", "width"), self.crop, strict=True))}
        return {
            "image_processor_type": "CLIPImageProcessor" if self.crop else "ViTImageProcessor",
            "do_resize": True,
            "size": size,
            "resample": next(number for number, mode in MODES.items() if mode == self.mode),
            "do_center_crop": self.crop is not None,
            **crop,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
            "do_convert_rgb": self.channels == 3,
            "channels": self.channels,
        }


@dataclass(frozen=True)
class SoundPreprocess:
    """Resampled to the rate of `mel` and turned into its frames, of which the file tells numbers and no other choice.

    `seconds`, where given, is the length to which every sound is padded or cut.
    """

    mel: LogMel = USUAL
    seconds: float | None = None

    def __post_init__(self) -> None:
        of = self.mel
        assert of == LogMel(of.rate, of.mels, of.n_fft, of.window, of.hop, of.low, of.high), "no file could tell it"

    def told(self) -> dict[str, Any]:
        length = {} if self.seconds is None else {"chunk_length": self.seconds}
        return {
            "sampling_rate": self.mel.rate,
            "feature_size": self.mel.mels,
            "n_fft": self.mel.n_fft,
            "win_length": self.mel.window,
            "hop_length": self.mel.hop,
            "lowest": self.mel.low,
            "highest": self.mel.top,
            **length,
        }


@dataclass(frozen=True)
class NumberPreprocess:
    """Each number of a vector less its mean and divided by its deviation."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def told(self) -> dict[str, Any]:
        return {"mean": list(self.mean), "deviation": list(self.deviation)}


Preprocess = ImagePreprocess | SoundPreprocess | NumberPreprocess


def write_preprocess(preprocess: Preprocess, folder: Path) -> None:
    write_json(folder / FILE, preprocess.told())


def read_preprocess(folder: Path) -> Preprocess | None:
    """What a model folder says; None where it has no such file."""
    file = folder / FILE
    if not file.is_file():
        return None
    told = read_json(file)

    def read() -> Preprocess:
        if "deviation" in told:
            return NumberPreprocess(tuple(told["mean"]), tuple(told["deviation"]))
        return sound_preprocess(told) if all(name in told for name in SOUND) else image_preprocess(told)

    return understood(str(file), read)


def understood(place: str, read: Callable[[], P]) -> P:
    """What is read, or an error that names the place."""
    try:
        return read()
    except UserError as error:
        raise UserError(f"{place}: {error.said}", allowed=error.allowed, do=error.do) from None
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise UserError(f"{place} cannot be understood: {type(error).__name__} {error}") from None


def image_preprocess(told: Mapping[str, Any]) -> ImagePreprocess:
    """The names of transformers' image processors."""
    strange = next((name for name in told if name.startswith("do_") and told[name] and name not in KNOWN), None)
    if strange:
        raise UserError(f"{strange} is not known", allowed=", ".join(sorted(KNOWN)))
    if not told.get("do_resize", True) or not told.get("do_rescale", True):
        raise UserError("images that are not resized or not rescaled are not read")
    if not math.isclose(told.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-6):
        raise UserError(f"rescale_factor {told['rescale_factor']} is not known", allowed="1 / 255")
    if told.get("resample", 2) not in MODES:
        raise UserError(f"resample {told['resample']} is not known", allowed="2 (bilinear) or 3 (bicubic)")
    resize, crop = resize_of(told["size"]), None
    if told.get("do_center_crop", "crop_size" in told):
        crop = pair(told.get("crop_size", told["size"]))
    elif isinstance(resize, int):
        resize, crop = cropped(resize, told.get("crop_pct"))
    mean, std = ((0.0,), (1.0,)) if not told.get("do_normalize", True) else (told["image_mean"], told["image_std"])
    channels = told.get("channels", max(len(mean), 3 if told.get("do_convert_rgb") else len(mean)))
    spread = (tuple(values) * (channels if len(values) == 1 else 1) for values in (mean, std))
    return ImagePreprocess(resize, crop, channels, *spread, mode=MODES[told.get("resample", 2)])


def read_timm(told: Mapping[str, Any], size: tuple[int, int, int]) -> ImagePreprocess | None:
    """What timm's pretrained_cfg says of a model of images Ch H W; None where it says nothing of such images."""

    def read() -> ImagePreprocess | None:
        fits = len(told.get("mean") or told.get("std") or IMAGENET[0]) == size[0]
        return timm_preprocess({**told, "input_size": size}) if fits and any(told.get(x) for x in TIMM) else None

    return understood("config.json: pretrained_cfg", read)


def timm_preprocess(told: Mapping[str, Any]) -> ImagePreprocess:
    """timm's pretrained_cfg: the image is resized so that the crop is the share `crop_pct` of its shorter side."""
    channels, height, width = told["input_size"]
    mode, crop = told.get("interpolation") or "bicubic", told.get("crop_mode") or CROPS[0]
    if mode not in MODES.values():
        raise UserError(f"interpolation {mode!r} is not known", allowed=", ".join(MODES.values()))
    if crop not in CROPS:
        raise UserError(f"crop_mode {crop!r} is not known", allowed=", ".join(CROPS))
    high, wide = (math.floor(side / (told.get("crop_pct") or SHARE)) for side in (height, width))
    mean, std = tuple(told.get("mean") or IMAGENET[0]), tuple(told.get("std") or IMAGENET[1])
    if crop == "squash":
        whole = (high, wide) == (height, width)
        return ImagePreprocess((high, wide), None if whole else (height, width), channels, mean, std, mode)
    return ImagePreprocess(high, (height, width), channels, mean, std, mode)


def timm_told(ready: ImagePreprocess) -> dict[str, Any]:
    """The same as timm's pretrained_cfg tells it; nothing where that has no words for it."""
    short = isinstance(ready.resize, int)
    told = {
        "input_size": [ready.channels, *ready.size],
        "interpolation": ready.mode,
        "crop_pct": share(ready.size[0], ready.resize if isinstance(ready.resize, int) else ready.resize[0]),
        "crop_mode": CROPS[0] if short else CROPS[1],
        "mean": list(ready.mean),
        "std": list(ready.std),
    }
    return told if timm_preprocess(told) == ready else {}


def share(size: int, resized: int) -> float:
    """The share with the fewest digits by which timm comes from one size to the other: 0.9 from 224 to 248."""
    rounded = (size * 10**digits // resized / 10**digits for digits in range(1, 15))
    return next((x for x in (SHARE, *rounded) if x and math.floor(size / x) == resized), size / resized)


def sound_preprocess(told: Mapping[str, Any]) -> SoundPreprocess:
    """The names of transformers' feature extractors; Whisper's and others of log-mel bands."""
    fft, seconds = told.get("n_fft", USUAL.n_fft), told.get("chunk_length")
    mel = LogMel(
        rate=told["sampling_rate"],
        mels=told["feature_size"],
        n_fft=fft,
        window=told.get("win_length", fft),
        hop=told.get("hop_length", USUAL.hop),
        low=told.get("lowest", USUAL.low),
        high=told.get("highest"),
    )
    return SoundPreprocess(mel, None if seconds is None else float(seconds))


def resize_of(size: int | Mapping[str, int]) -> int | tuple[int, int]:
    if isinstance(size, Mapping) and "shortest_edge" in size:
        if "longest_edge" in size:
            raise UserError("a longest_edge in size is not known")
        return size["shortest_edge"]
    return pair(size)


def pair(size: int | Mapping[str, int]) -> tuple[int, int]:
    """Height and width; one number is both."""
    if isinstance(size, int):
        return size, size
    if "shortest_edge" in size:
        return size["shortest_edge"], size["shortest_edge"]
    return size["height"], size["width"]


def cropped(edge: int, share: float | None) -> tuple[int | tuple[int, int], tuple[int, int] | None]:
    """ConvNeXt's way: below 384 pixels a crop of this share, from there on no crop and any shape made square."""
    if share is None or edge >= 384:
        return (edge, edge) if share is not None else edge, None
    return int(edge / share), (edge, edge)
