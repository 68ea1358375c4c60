"""What differs between runs, as one typed value: the recipe.

Sections `data`, `model` and `train`, and three settings of the whole.  A `None` is a choice that nobody made: the data,
the preset or the machine decide it before the run, and a resolved recipe says what they decided.  The text of a setting
is written here once, for `headway train --help` and for the comments of `headway init`.

Dotted names such as `train.steps` are those of the command line, of files and of messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headway.errors import UserError
from headway.train.setting import Setting, setting, settings_of

# what a field of an architecture's config holds
Size = int | float | str | bool | None | tuple[Any, ...] | list[Any] | dict[str, Any]

Kinds = Literal[
    "translation",
    "classification",
    "tagging",
    "language",
    "images",
    "captions",
    "sounds",
    "speech",
    "series",
    "sets",
    "forecast",
]


@dataclass(frozen=True)
class Data:
    """What is learned from."""

    path: tuple[str, ...] = setting((), "files or folders to learn from, or dates, the embedded data set")
    source: Path | None = setting(None, "a file of sources, whose lines belong to those of target")
    target: Path | None = setting(None, "the file of targets")
    validation: tuple[Path, ...] = setting(
        (),
        "what to measure on: a file, or two parallel ones, each by its own --validation; else a part is held out",
    )
    task: Kinds | None = setting(None, "what the data is for; null: recognised")
    objective: Literal["causal", "masked", "span", "contrastive", "text"] | None = setting(
        None,
        "how to learn: texts causal, masked or span; images masked or contrastive; captions text or contrastive; "
        "speech text, by a decoder; null: as the preset does",
    )
    columns: tuple[int | str, ...] | None = setting(None, "names or numbers of the columns to use; null: recognised")
    prefix: str = setting("", "a text put before every source, as T5's tasks have it")
    label_from: str | None = setting(
        None, "a pattern that finds the class, or the transcript, in names of images or sounds"
    )
    augment: tuple[str, ...] | None = setting(
        None,
        "what is changed by chance: crop, flip, randaugment, jitter, grey, blur, erase, mixup, cutmix; speed, noise, "
        "gain, specaugment; null: chosen",
    )
    skip_bad: bool = setting(False, "train without the records that headway check finds wrong, and count them")
    longest: int | None = setting(
        None, "tokens of a row at most; null: the model's context, or what the data has", least=1
    )
    held_out: float = setting(
        0.05, "the share of records that is held out where validation is not given", least=0, most=0.5
    )
    held_from: str | None = setting(
        None, "a pattern: images or sounds in whose names it is found are held out, and no others"
    )
    test_from: str | None = setting(
        None, "a pattern: images or sounds in whose names it is found are not read, but kept for a test by headway eval"
    )
    tokenizer: str | None = setting(
        None, "a level (bpe, wordpiece, unigram, characters, words) or a folder with a tokenizer; null: chosen"
    )
    target_tokenizer: str | None = setting(
        None, "the same for targets, where these are written in other signs than sources; null: chosen"
    )
    vocab: int | None = setting(None, "tokens of a vocabulary that is learned; null: by the size of the data", least=2)


@dataclass(frozen=True)
class Model:
    """What is trained.  `sizes` are fields of the architecture's own config, such as layers, dim and heads."""

    preset: str | None = setting(None, "an architecture at a size of headway list; null: by the data and the time")
    start: Path | None = setting(None, "a model folder to go on from", spelled="from")
    freeze: int | tuple[str, ...] | None = setting(
        None,
        "what stays as it is: the first so many layers, encoder (all but the head), or names such as embed*",
        least=0,
    )
    layer_decay: float = setting(1.0, "the rate of a layer as a share of the rate of the one above it", least=0, most=1)
    sizes: Mapping[str, Size] = field(default_factory=dict[str, Size])


@dataclass(frozen=True)
class Train:
    """How it is trained."""

    steps: int | None = setting(None, "updates of the weights; or epochs, or minutes; null: chosen", least=1)
    epochs: float | None = setting(None, "times through the data", least=0.001)
    minutes: float | None = setting(None, "the time to train, made into steps before the run", least=0.01)
    batch: int | None = setting(
        None, "tokens of a batch, padding not counted, or images, frames, rows; null: chosen", least=1
    )
    accumulate: int = setting(1, "batches of an update", least=1)
    optimiser: Literal["adamw", "adam", "adafactor", "muon"] = setting("adamw", "what makes an update of the gradients")
    rate: float | None = setting(None, "the highest learning rate; null: the preset's", least=0)
    schedule: Literal["cosine", "inverse", "paper", "wsd", "constant"] = setting(
        "cosine", "how the rate falls after warm-up; paper: the formula of Vaswani et al. 2017"
    )
    warmup: int | None = setting(None, "steps over which the rate rises; null: a share of all steps", least=0)
    floor: float = setting(0.0, "the share of the rate that is left at the end", least=0, most=1)
    weight_decay: float = setting(0.01, "the share of the rate by which weights shrink in an update", least=0)
    betas: tuple[float, float] = setting(
        (0.9, 0.98), "how slowly the optimiser's two averages forget", least=0, most=0.999999
    )
    eps: float = setting(1e-8, "what keeps the optimiser from dividing by nothing", least=0)
    clip: float = setting(1.0, "the largest norm of a gradient; 0: no limit", least=0)
    smoothing: float | None = setting(None, "label smoothing; null: the task's", least=0, most=0.99)
    dropout: float | None = setting(
        None, "the share of numbers dropped in training; null: the preset's", least=0, most=0.99
    )
    ema: float = setting(
        0.0, "how slowly an average of the weights over time forgets; 0: none is kept", least=0, most=0.999999
    )
    average: int = setting(1, "best checkpoints whose weights' mean is tried as the result", least=1)
    patience: int | None = setting(None, "evaluations without a better score after which to stop; null: go on", least=1)
    evaluate_every: int | None = setting(None, "steps from one evaluation to the next; null: chosen", least=1)
    checkpoint_every: int | None = setting(None, "steps from one checkpoint to the next; null: chosen", least=1)
    keep: int = setting(2, "newest checkpoints that are kept", least=1)
    best: int = setting(1, "best checkpoints that are kept", least=0)
    workers: int = setting(0, "processes that prepare batches beside the one that trains", least=0)
    threads: int | None = setting(None, "threads that compute; null: one for each core", least=1)
    log_every: int | None = setting(None, "steps from one line of metrics to the next; null: chosen", least=1)


@dataclass(frozen=True)
class Recipe:
    """A run, told: the same recipe on the same data and machine gives the same weights, bit for bit."""

    data: Data = Data()
    model: Model = field(default_factory=Model)
    train: Train = Train()
    seed: int = setting(0, "the number that all chance follows", least=0, most=2**63 - 1)
    out: Path | None = setting(None, "the folder of the run; null: named after the data")
    device: Literal["cpu"] = setting("cpu", "what computes")

    def __post_init__(self) -> None:
        """Refuses settings that contradict one another."""
        for rivals in RIVALS:
            given = [name for name in rivals if value_of(self, name) not in (None, ())]
            if len(given) > 1:
                raise UserError(f"{' and '.join(given)} are both given", do="give one of them")
        if (self.data.source is None) != (self.data.target is None):
            there, lacking = ("target", "source") if self.data.source is None else ("source", "target")
            raise UserError(f"data.{there} is given without data.{lacking}", do=f"give data.{lacking} too")


SECTIONS: dict[str, type] = {"data": Data, "model": Model, "train": Train}
# Of these only one is given; giving one in a stronger place takes back the others.
RIVALS = (
    ("train.steps", "train.epochs", "train.minutes"),
    ("data.path", "data.source"),
    ("data.path", "data.target"),
    ("data.validation", "data.held_from"),
)

SETTINGS: dict[str, Setting] = {
    **settings_of("", Recipe),
    **{name: one for section, kind in SECTIONS.items() for name, one in settings_of(section, kind).items()},
}


def flat(recipe: Recipe) -> dict[str, Any]:
    """The values of a recipe by dotted name, in the order of its fields; sizes are `model.layers` and so on."""
    values = {name: value_of(recipe, name) for name in SETTINGS}
    return {**values, **{f"model.{name}": size for name, size in recipe.model.sizes.items()}}


def from_flat(values: Mapping[str, Any]) -> Recipe:
    """The recipe of values by dotted name; what is not given keeps its default, what is not a setting is a size."""
    parts: dict[str, dict[str, Any]] = {"": {}, **{section: {} for section in SECTIONS}}
    sizes = {name.removeprefix("model."): value for name, value in values.items() if name not in SETTINGS}
    for name, value in values.items():
        if name in SETTINGS:
            parts[SETTINGS[name].section][SETTINGS[name].attribute] = value
    top = parts.pop("")
    return Recipe(Data(**parts["data"]), Model(**parts["model"], sizes=sizes), Train(**parts["train"]), **top)


def value_of(recipe: Recipe, name: str) -> Any:
    one = SETTINGS[name]
    return getattr(getattr(recipe, one.section) if one.section else recipe, one.attribute)
