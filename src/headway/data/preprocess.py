"""How images and sounds are prepared for a model, as the numbers in its folder: `preprocessor_config.json`.

The file has the names that transformers reads and writes; what they cannot express has names of ours beside them.  An
option that would change what a model sees and is not known here is refused by name.  Where a folder has no such file,
they are those within `processor_config.json`, where transformers 5 writes them for models that read text too.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import UserError, malformed
from headway.system import read_json, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from headway.data.transforms.compose import Compose
    from headway.ops.mel import LogMel

FILE, WITHIN = "preprocessor_config.json", "processor_config.json"
PROCESSORS = ("image_processor", "feature_extractor")
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and standard deviation of red, green and blue
MODES = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
MOMENTS = ("image_mean", "image_std")
KNOWN = frozenset({"do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb"})
MAX_SIDE, MAX_MELS, MAX_WINDOW, MAX_RATE, MAX_SECONDS = 2**12, 2**10, 2**16, 10**6, 3600
MAX_VALUE = 1e6  # of a mean or a standard deviation
FRAMES = ("n_fft", "win_length", "hop_length")
SOUND = ("sampling_rate", "feature_size")  # by which a file about sounds is known


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
        sides = (*(self.resize if isinstance(self.resize, tuple) else (self.resize,)), *(self.crop or ()))
        check_numbers("size", sides, 1, MAX_SIDE, whole=True)
        check_numbers("image_mean and image_std", (*self.mean, *self.std), -MAX_VALUE, MAX_VALUE)
        if not len(self.mean) == len(self.std) == self.channels:
            sizes = f"{self.channels} channels, {len(self.mean)} means and {len(self.std)} standard deviations"
            raise UserError(f"an image cannot have {sizes}")
        if min(self.std) <= 0:
            raise UserError(f"a standard deviation of {min(self.std)} divides by nothing")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of what the model sees."""
        size = self.crop or self.resize
        assert not isinstance(size, int)
        return size

    def chain(self) -> Compose:
        """What is done to an image C H W that a model is to judge."""
        from headway.data.transforms.compose import Compose, Normalise
        from headway.data.transforms.geometry import CentreCrop, Resize, ResizeShort

        size = self.resize
        first = ResizeShort(size, self.mode) if isinstance(size, int) else Resize(*size, self.mode)
        crop = () if self.crop is None else (CentreCrop(*self.crop),)
        return Compose((first, *crop, Normalise(self.mean, self.std)))

    def to_dict(self) -> dict[str, Any]:
        """The contents of the file."""
        size = {"shortest_edge": self.resize} if isinstance(self.resize, int) else sides(self.resize)
        return {
            "image_processor_type": "CLIPImageProcessor" if self.crop else "ViTImageProcessor",
            "do_resize": True,
            "size": size,
            "resample": next(number for number, mode in MODES.items() if mode == self.mode),
            "do_center_crop": self.crop is not None,
            **({} if self.crop is None else {"crop_size": sides(self.crop)}),
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
            "do_convert_rgb": self.channels == 3,
            "channels": self.channels,
        }


def sides(size: tuple[int, int]) -> dict[str, int]:
    return {"height": size[0], "width": size[1]}


def usual_mel() -> LogMel:
    """What transformers' feature extractors take where a file does not say."""
    from headway.ops.mel import LogMel  # late: texts do not need it

    return LogMel(n_fft=400)


@dataclass(frozen=True)
class SoundPreprocess:
    """Resampled to the rate of `mel` and turned into its frames, of which the file tells numbers and no other choice.

    `seconds`, where given, is the length to which every sound is padded or cut.
    """

    mel: LogMel = field(default_factory=usual_mel)
    seconds: float | None = None

    def length(self, frames: int) -> int:
        """How many frames a model reads of a clip that has so many."""
        return frames

    def fit(self, x: Tensor) -> Tensor:
        """Frames T M as a model reads them."""
        return x

    def __post_init__(self) -> None:
        of = self.mel
        check_sound(self.to_dict())
        assert of == type(of)(of.rate, of.mels, of.n_fft, of.window, of.hop, of.low, of.high), "no file could tell it"

    def to_dict(self) -> dict[str, Any]:
        return {
            "sampling_rate": self.mel.rate,
            "feature_size": self.mel.mels,
            "n_fft": self.mel.n_fft,
            "win_length": self.mel.window,
            "hop_length": self.mel.hop,
            "lowest": self.mel.low,
            "highest": self.mel.top,
            **({} if self.seconds is None else {"chunk_length": self.seconds}),
        }


@dataclass(frozen=True)
class FixedSoundPreprocess(SoundPreprocess):
    """Kaldi's frames of mels, so many `frames` of every clip, cut or filled with zeros, less `mean` and over `spread`.

    The Audio Spectrogram Transformer's.
    """

    mel: LogMel = field(default_factory=lambda: kaldi_mel(16_000, 128))
    frames: int = 1024
    mean: float = 0.0
    spread: float = 1.0

    def __post_init__(self) -> None:
        check_sound({"sampling_rate": self.mel.rate, "feature_size": self.mel.mels})
        check_numbers("max_length", (self.frames,), 1, MAX_WINDOW, whole=True)
        check_numbers("mean and std", (self.mean, self.spread), -MAX_VALUE, MAX_VALUE)
        if self.spread <= 0:
            raise UserError(f"a standard deviation of {self.spread} divides by nothing")
        assert self.mel == kaldi_mel(self.mel.rate, self.mel.mels), "no file could tell it"

    def length(self, frames: int) -> int:
        return self.frames

    def fit(self, x: Tensor) -> Tensor:
        fixed = x.new_zeros(self.frames, x.shape[1])
        fixed[: len(x)] = x[: self.frames]
        return (fixed - self.mean) / self.spread

    def to_dict(self) -> dict[str, Any]:
        return {
            "feature_extractor_type": "ASTFeatureExtractor",
            "sampling_rate": self.mel.rate,
            "feature_size": 1,
            "num_mel_bins": self.mel.mels,
            "max_length": self.frames,
            "do_normalize": True,
            "mean": self.mean,
            "std": self.spread / 2,  # they divide by twice of it
            "padding_side": "right",
            "padding_value": 0.0,
            "return_attention_mask": False,
        }


def kaldi_mel(rate: int, mels: int) -> LogMel:
    from headway.ops.mel import KaldiMel

    return KaldiMel(rate, mels, low=20.0)


@dataclass(frozen=True)
class NumberPreprocess:
    """Each number of a vector less its mean and divided by its deviation."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.deviation):
            raise UserError(f"{len(self.mean)} means and {len(self.deviation)} deviations")
        check_numbers("mean", self.mean, -math.inf, math.inf)
        check_numbers("deviation", self.deviation, 0, math.inf)

    def to_dict(self) -> dict[str, Any]:
        return {"mean": list(self.mean), "deviation": list(self.deviation)}


def check_numbers(name: str, values: Iterable[object], low: float, high: float, *, whole: bool = False) -> None:
    """Refuses what is no number, or none in the range, before an image or a filter bank of that size is made."""
    kinds = int if whole else int | float
    for value in values:
        if not isinstance(value, kinds) or isinstance(value, bool) or not low <= value <= high:
            noun = "whole numbers" if whole else "numbers"
            raise UserError(f"{name}: {value!r:.60}", allowed=f"{noun} from {low:,g} to {high:,g}")


def check_sound(settings: Mapping[str, object]) -> None:
    """Refuses numbers of a file about sounds by the name that they have in it."""
    sizes = {"sampling_rate": MAX_RATE, "feature_size": MAX_MELS} | dict.fromkeys(FRAMES, MAX_WINDOW)
    for name, high in sizes.items():
        check_numbers(name, (settings.get(name, 1),), 1, high, whole=True)
    for name, high in {"lowest": MAX_RATE, "highest": MAX_RATE, "chunk_length": MAX_SECONDS}.items():
        if settings.get(name) is not None:
            check_numbers(name, (settings[name],), 0, high)


def vector(name: str, values: object) -> tuple[Any, ...]:
    """The list that a file has under a name; its numbers are checked where their range is known."""
    if not isinstance(values, list | tuple):
        raise UserError(f"{name}: {values!r:.60}", allowed="a list of numbers")
    return tuple(values)


Preprocess = ImagePreprocess | SoundPreprocess | NumberPreprocess


def write_preprocess(preprocess: Preprocess, folder: Path) -> None:
    write_json(folder / FILE, preprocess.to_dict())


def read_preprocess(folder: Path) -> Preprocess | None:
    """What a model folder says; None where it says nothing."""
    settings = read_settings(folder)
    if settings is None:
        return None
    with errors_named(str(folder / (FILE if (folder / FILE).is_file() else WITHIN))):
        if "deviation" in settings:
            return NumberPreprocess(vector("mean", settings["mean"]), vector("deviation", settings["deviation"]))
        if "num_mel_bins" in settings:
            return fixed_sound_preprocess(settings)
        if all(name in settings for name in SOUND):
            return sound_preprocess(settings)
        return image_preprocess(settings)


def read_settings(folder: Path) -> Mapping[str, Any] | None:
    """The names and numbers of a folder's file."""
    if (folder / FILE).is_file():
        return read_json(folder / FILE)
    told = read_json(folder / WITHIN) if (folder / WITHIN).is_file() else {}
    found = (told.get(name) for name in PROCESSORS)
    return next((settings for settings in found if isinstance(settings, Mapping)), None)


@contextmanager
def errors_named(place: str) -> Generator[None]:
    """Errors that name the place that is read."""
    try:
        with malformed(place):
            yield
    except UserError as error:
        said = error.said if error.said.startswith(place) else f"{place}: {error.said}"
        raise UserError(said, allowed=error.allowed, do=error.do) from error.__cause__


def image_preprocess(settings: Mapping[str, Any]) -> ImagePreprocess:
    """The names of transformers' image processors."""
    unknown = [name for name in settings if name.startswith("do_") and settings[name] and name not in KNOWN]
    if unknown:
        raise UserError(f"{unknown[0]} is not known", allowed=", ".join(sorted(KNOWN)))
    if not settings.get("do_resize", True) or not settings.get("do_rescale", True):
        raise UserError("images that are not resized or not rescaled are not read")
    factor = settings.get("rescale_factor", 1 / 255)
    check_numbers("rescale_factor", (factor,), 0, 1)
    if not math.isclose(factor, 1 / 255, rel_tol=1e-6):
        raise UserError(f"rescale_factor {factor} is not known", allowed="1 / 255")
    mode = settings.get("resample", 2)
    if mode not in list(MODES):  # what cannot be hashed is none either
        raise UserError(f"resample {mode} is not known", allowed="2 (bilinear) or 3 (bicubic)")
    resize, crop = resize_and_crop(settings)
    normalised = settings.get("do_normalize", True)
    mean, std = (vector(name, settings.get(name)) for name in MOMENTS) if normalised else ((0.0,), (1.0,))
    channels = settings.get("channels", max(len(mean), 3 if settings.get("do_convert_rgb") else len(mean)))
    check_numbers("channels", (channels,), 1, MAX_SIDE, whole=True)
    spread = (values * (channels if len(values) == 1 else 1) for values in (mean, std))
    return ImagePreprocess(resize, crop, channels, *spread, mode=MODES[mode])


def resize_and_crop(settings: Mapping[str, Any]) -> tuple[int | tuple[int, int], tuple[int, int] | None]:
    size: Any = settings.get("size")
    short = size["shortest_edge"] if isinstance(size, Mapping) and "shortest_edge" in size else None
    if short is not None:
        check_numbers("size", (short,), 1, MAX_SIDE, whole=True)
        if "longest_edge" in size:
            raise UserError("a longest_edge in size is not known")
    resize = height_and_width(size) if short is None else short
    if settings.get("do_center_crop", "crop_size" in settings):
        return resize, height_and_width(settings.get("crop_size", size))
    share = settings.get("crop_pct")
    if short is None or share is None:
        return resize, None
    check_numbers("crop_pct", (share,), 0.01, 1)
    # ConvNeXt's way: below 384 pixels a crop of this share, from there on no crop and any shape made square
    return ((short, short), None) if short >= 384 else (int(short / share), (short, short))


def height_and_width(size: object) -> tuple[int, int]:
    """One number is both; that they are numbers is checked with the whole."""
    match size:
        case int(side) | {"shortest_edge": int(side)}:
            return side, side
        case {"height": height, "width": width}:
            return height, width
        case _:
            raise UserError(f"size: {size!r:.60}", allowed="a number, shortest_edge, or height and width")


def sound_preprocess(settings: Mapping[str, Any]) -> SoundPreprocess:
    """The names of transformers' feature extractors; Whisper's and others of log-mel bands."""
    usual = usual_mel()
    fft, seconds = settings.get("n_fft", usual.n_fft), settings.get("chunk_length")
    check_sound(settings)
    mel = replace(
        usual,
        rate=settings["sampling_rate"],
        mels=settings["feature_size"],
        n_fft=fft,
        window=settings.get("win_length", fft),
        hop=settings.get("hop_length", usual.hop),
        low=settings.get("lowest", usual.low),
        high=settings.get("highest"),
    )
    return SoundPreprocess(mel, None if seconds is None else float(seconds))


def fixed_sound_preprocess(settings: Mapping[str, Any]) -> FixedSoundPreprocess:
    """The names of transformers' extractor for the Audio Spectrogram Transformer, with its defaults."""
    rate, mels = settings.get("sampling_rate", 16_000), settings["num_mel_bins"]
    check_sound({"sampling_rate": rate, "feature_size": mels})
    for name, usual in {"feature_size": 1, "padding_value": 0.0}.items():
        if (found := settings.get(name, usual)) != usual:
            raise UserError(
                f"{name} {found!r:.60} beside num_mel_bins is not known", allowed=f"{usual:g}, as of an AST"
            )
    mean, std = (settings.get(name, usual) for name, usual in (("mean", -4.2677393), ("std", 4.5689974)))
    check_numbers("mean and std", (mean, std), -MAX_VALUE, MAX_VALUE)
    normalised = settings.get("do_normalize", True)
    moments = (float(mean), 2.0 * std) if normalised else (0.0, 1.0)
    return FixedSoundPreprocess(kaldi_mel(rate, mels), None, settings.get("max_length", 1024), *moments)
