"""The recipe: everything that differs between two training runs, as one typed value.

It has the sections `data`, `model` and `train`, and three top-level settings.  `None` means not decided yet: the data,
the preset or the machine decide it before the run, and the resolved recipe holds the result.  The help text of each
setting is written here once, for `headway train --help` and for the comments of `headway init`.

Dotted names such as `train.lr` are those of the command line, of recipe files and of messages.  Settings that had
another name in an earlier version are still read under that name: `ALIASES` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headway.errors import UserError
from headway.setting import Setting, setting, settings_of
from headway.system import check_device

MAX_TOKENS, MAX_STEPS = 2**24, 10**12


# Value of a field of an architecture's config
Size = int | float | str | bool | None | tuple[Any, ...] | list[Any] | dict[str, Any]


@dataclass(frozen=True)
class DataSettings:
    """Training and validation data, and how they are tokenized."""

    path: tuple[str, ...] = setting((), "training data: files or folders, or dates, the built-in data set")
    source: Path | None = setting(None, "file of source texts, line by line parallel to target")
    target: Path | None = setting(None, "file of target texts")
    validation: tuple[Path, ...] = setting(
        (),
        "validation data: one file, or two parallel files, each with its own --validation; otherwise a validation "
        "split of the training data",
    )
    test: tuple[Path, ...] = setting(
        (), "test data: a file, or two parallel files, each with its own --test; scored once, after training"
    )
    task: str | None = setting(
        None, "task of the data, by its kind or by its own name, such as masked-lm; null: recognised from the data"
    )
    objective: Literal["causal", "masked", "span", "contrastive", "text"] | None = setting(
        None,
        "training objective: causal, masked or span for texts; masked or contrastive for images; text or contrastive "
        "for captions; text (by a decoder) for speech; null: the preset's",
    )
    columns: tuple[int | str, ...] | None = setting(None, "names or numbers of table columns to use; null: recognised")
    header: Literal["yes", "no"] | None = setting(
        None, "whether the first line of each table is a header: yes or no; null: recognised"
    )
    prefix: str = setting("", "text prepended to every source, such as a task prefix of T5")
    label_from: str | None = setting(
        None, "regular expression that finds the class label, or the transcript, in names of images or audio files"
    )
    augment: tuple[str, ...] | None = setting(
        None,
        "data augmentation: crop, flip, randaugment, jitter, grey, blur, erase, mixup, cutmix; speed, noise, gain, "
        "specaugment; '': none; null: chosen",
    )
    skip_bad: bool = setting(False, "skip the records that headway check reports as errors, and count them")
    max_length: int | None = setting(
        None,
        "maximum sequence length in tokens; null: the model's context length, or that of the data",
        min_value=2,
        limit=MAX_TOKENS,
    )
    validation_split: float | None = setting(
        None,
        "validation split: fraction of the records held out if no validation data is given; null: 0.05, and up to 0.2 "
        "of fewer than 800 records",
        min_value=0,
        max_value=0.5,
    )
    stratify: bool = setting(
        True,
        "stratified validation split: that fraction of every class; false, and in a recipe file with validation_split "
        "alone: as earlier versions split",
    )
    folds: int | None = setting(
        None,
        "cross-validation, k-fold: number of folds; a model is trained for each, with that fold held out, and at last "
        "one on all records; minutes are those of all of them; null: one model and a validation split",
        min_value=2,
        max_value=1000,
    )
    fold: int | None = setting(
        None,
        "the fold of data.folds that is held out, to train its model alone; null: all of them in turn",
        min_value=1,
        max_value=1000,
    )
    weights: tuple[float, ...] | None = setting(
        None,
        "sampling weights: how often the records of each file or folder are drawn in an epoch, as in 3,1; null: once",
        min_value=0.001,
        max_value=1000,
    )
    group: str | None = setting(
        None, "column whose values are groups (speakers, patients), each on one side of the validation split"
    )
    group_from: str | None = setting(None, "regular expression that finds a group in names of images or audio files")
    validation_from: str | None = setting(
        None, "regular expression: images or audio files with matching names are the validation split"
    )
    test_from: str | None = setting(
        None,
        "regular expression: images or audio files with matching names are left out, as test data for headway eval",
    )
    tokenizer: str | None = setting(
        None,
        "tokenizer to train (bpe, wordpiece, unigram, characters, words), or a folder with a trained one; null: chosen",
    )
    target_tokenizer: str | None = setting(
        None, "tokenizer of the targets, where they are written in another script than the sources; null: chosen"
    )
    vocab: int | None = setting(
        None,
        "vocabulary size of a tokenizer to train, in tokens; null: chosen by the size of the data",
        min_value=2,
        limit=MAX_TOKENS,
    )


@dataclass(frozen=True)
class ModelSettings:
    """The model to train.  `sizes` are fields of the architecture's own config, such as layers, dim and heads."""

    preset: str | None = setting(
        None, "architecture and size, one of headway list; null: chosen by the data and the time"
    )
    start: Path | None = setting(
        None, "model folder to fine-tune; for captions also an image classifier, whose encoder is taken", spelled="from"
    )
    freeze: int | tuple[str, ...] | None = setting(
        None,
        "parameters to freeze: the first N layers, encoder (all but the head), or name patterns such as embed*",
        min_value=0,
        limit=10**6,
    )
    lora: tuple[int | str, ...] | None = setting(
        None,
        "LoRA: train low-rank parts beside the weights of model.from, which stay as they are: rank=8, and perhaps "
        "alpha=16, dropout=0.1, targets=q+v (names of layers), dora=true (DoRA); null: train the weights themselves",
    )
    layer_decay: float = setting(
        1.0,
        "layer-wise learning rate decay: learning rate of a layer relative to the layer above it",
        min_value=0,
        max_value=1,
    )
    sizes: Mapping[str, Size] = field(default_factory=dict[str, Size])


@dataclass(frozen=True)
class TrainSettings:
    """Length of the run, optimisation, evaluation and checkpoints."""

    steps: int | None = setting(
        None,
        "training steps (updates of the weights); or give epochs or minutes; 0: the first weights are kept; null: "
        "chosen",
        min_value=0,
        limit=MAX_STEPS,
    )
    epochs: float | None = setting(None, "epochs: passes over the training data", min_value=0.001, limit=1e9)
    minutes: float | None = setting(
        None,
        "training time in minutes, converted to steps before the run and adjusted in its first tenth",
        min_value=0.01,
        limit=1e9,
    )
    batch: int | None = setting(
        None,
        "batch size in tokens without padding, or in images, frames or rows; null: chosen",
        min_value=1,
        limit=2**31 - 1,
    )
    grad_accumulation: int = setting(1, "gradient accumulation: batches per update", min_value=1, limit=10**6)
    optimiser: Literal["adamw", "adam", "adafactor", "muon"] = setting("adamw", "optimiser (optimizer)")
    lr: float | None = setting(
        None, "peak learning rate; null: chosen by the width of the model", min_value=1e-12, limit=1e30
    )
    schedule: Literal["cosine", "inverse", "paper", "wsd", "constant"] = setting(
        "cosine",
        "learning rate schedule after warm-up; inverse: inverse square root; paper: Vaswani et al. 2017 (Noam); "
        "wsd: warm-up, stable, decay",
    )
    warmup_steps: int | None = setting(
        None,
        "warm-up steps, in which the learning rate rises linearly; null: a fraction of all steps",
        min_value=0,
        limit=MAX_STEPS,
    )
    min_lr_ratio: float = setting(0.0, "final learning rate as a fraction of the peak", min_value=0, max_value=1)
    weight_decay: float = setting(0.01, "weight decay, decoupled from the gradient", min_value=0, limit=1e6)
    betas: tuple[float, float] = setting(
        (0.9, 0.98), "Adam's beta1 and beta2: decay rates of its moving averages", min_value=0, max_value=0.999999
    )
    eps: float = setting(1e-8, "Adam's epsilon, for numerical stability of the division", min_value=0, limit=1)
    max_grad_norm: float = setting(1.0, "gradient clipping: maximum norm; 0: no clipping", min_value=0, limit=1e30)
    label_smoothing: float | None = setting(None, "label smoothing; null: the task's", min_value=0, max_value=0.99)
    class_weights: Literal["balanced"] | None = setting(
        None, "class weights of the loss; balanced: a rare class counts for as much as a frequent one; null: all alike"
    )
    dropout: float | None = setting(None, "dropout probability; null: the preset's", min_value=0, max_value=0.99)
    teacher: Path | None = setting(
        None,
        "distillation: folder of a trained model whose probabilities of tokens or classes are learned, too; a new "
        "model takes its tokenizer, or its preprocessing of images or sounds",
    )
    teacher_temperature: float | None = setting(
        None,
        "temperature that divides the logits of model and teacher; null: 2 with a teacher",
        min_value=0.01,
        limit=1e6,
    )
    teacher_weight: float | None = setting(
        None, "share of the teacher in the loss; null: 0.5 with a teacher", min_value=0, max_value=1
    )
    ema_decay: float = setting(
        0.0,
        "decay of the exponential moving average (EMA) of the weights; 0: no EMA",
        min_value=0,
        max_value=0.999999,
    )
    average: int = setting(
        1,
        "checkpoint averaging: number of best checkpoints whose mean weights are tried as the result",
        min_value=1,
        limit=1000,
    )
    patience: int | None = setting(
        None,
        "early stopping patience: evaluations without a better score before the run stops; null: no early stopping",
        min_value=1,
        limit=MAX_STEPS,
    )
    evaluate_every: int | None = setting(
        None, "steps between evaluations on the validation data; null: chosen", min_value=1, limit=MAX_STEPS
    )
    checkpoint_every: int | None = setting(
        None, "steps between checkpoints; null: chosen", min_value=1, limit=MAX_STEPS
    )
    keep_last: int = setting(2, "number of latest checkpoints to keep", min_value=1, limit=10**6)
    keep_best: int = setting(1, "number of best checkpoints to keep", min_value=0, limit=10**6)
    workers: int = setting(
        0, "data loader workers: processes that prepare batches beside the training", min_value=0, limit=256
    )
    dtype: Literal["auto", "fp32", "bf16", "fp16"] = setting(
        "auto",
        "mixed precision over float32 weights: bf16, or fp16 with loss scaling on accelerators alone; auto: bf16 where "
        "the CPU has instructions for it and steps timed before the run are faster",
    )
    recompute: bool | None = setting(
        None,
        "activation checkpointing: true recomputes the activations of each block in the backward pass, which takes "
        "less memory and about a third more time; null: only where the memory does not suffice without",
    )
    parallel: Literal["ddp", "fsdp"] = setting(
        "ddp", "engine of several processes: ddp, each has the whole model; fsdp, each has a part of every parameter"
    )
    replicas: int = setting(
        1, "with fsdp: groups of processes that share out a whole model each (HSDP)", min_value=1, limit=2**16
    )
    tensor_parallel: int = setting(
        1, "processes that share every attention and feed-forward layer, beside ddp or fsdp", min_value=1, limit=2**16
    )
    threads: int | None = setting(None, "CPU threads of the computation; null: one per core", min_value=1, limit=1024)
    log_every: int | None = setting(None, "steps between lines of metrics; null: chosen", min_value=1, limit=MAX_STEPS)


@dataclass(frozen=True)
class Recipe:
    """A training run: the same recipe on the same data and machine gives the same weights, bit for bit."""

    data: DataSettings = DataSettings()
    model: ModelSettings = field(default_factory=ModelSettings)
    train: TrainSettings = TrainSettings()
    seed: int = setting(
        0,
        "random seed of initialisation, data order, dropout and augmentation",
        min_value=0,
        max_value=2**63 - 1,
    )
    out: Path | None = setting(None, "output folder of the run; null: named after the data")
    device: str = setting("cpu", "device: auto, cpu, cuda, cuda:N, mps or xpu; only cpu was run, others are simulated")

    def __post_init__(self) -> None:
        """Refuses settings that contradict each other, and a device that has no such name."""
        check_device(self.device)
        for rivals in EXCLUSIVE:
            given = [name for name in rivals if value_of(self, name) not in (None, ())]
            if len(given) > 1:
                raise UserError(f"{' and '.join(given)} are both given", do="give one of them")
        if (self.data.source is None) != (self.data.target is None):
            there, lacking = ("target", "source") if self.data.source is None else ("source", "target")
            raise UserError(f"data.{there} is given without data.{lacking}", do=f"give data.{lacking} too")


SECTIONS: dict[str, type] = {"data": DataSettings, "model": ModelSettings, "train": TrainSettings}
# Only one of each group may be given; giving one in a stronger source overrides the others.
EXCLUSIVE = (
    ("train.steps", "train.epochs", "train.minutes"),
    ("data.path", "data.source"),
    ("data.path", "data.target"),
    ("data.validation", "data.validation_from"),
    ("data.test", "data.test_from"),
    ("data.folds", "data.validation"),
    ("data.folds", "data.validation_from"),
    ("data.folds", "data.validation_split"),
    ("data.group", "data.group_from"),
    ("model.freeze", "model.lora"),
)

SETTINGS: dict[str, Setting] = {
    **settings_of("", Recipe),
    **{name: one for section, kind in SECTIONS.items() for name, one in settings_of(section, kind).items()},
}

# Names of earlier versions, still accepted as options, variables, keys of a recipe file and from Python; help and
# messages show the new ones.
ALIASES: dict[str, str] = {
    "data.longest": "data.max_length",
    "data.held_out": "data.validation_split",
    "data.held_from": "data.validation_from",
    "train.accumulate": "train.grad_accumulation",
    "train.rate": "train.lr",
    "train.warmup": "train.warmup_steps",
    "train.floor": "train.min_lr_ratio",
    "train.clip": "train.max_grad_norm",
    "train.smoothing": "train.label_smoothing",
    "train.ema": "train.ema_decay",
    "train.keep": "train.keep_last",
    "train.best": "train.keep_best",
}


def canonical(name: str) -> str:
    """The current name of a setting that may be given by an earlier one."""
    return ALIASES.get(name, name)


def flat(recipe: Recipe) -> dict[str, Any]:
    """The values of a recipe by dotted name, in the order of its fields; sizes are `model.layers` and so on."""
    values = {name: value_of(recipe, name) for name in SETTINGS}
    return {**values, **{f"model.{name}": size for name, size in recipe.model.sizes.items()}}


def from_flat(values: Mapping[str, Any]) -> Recipe:
    """The recipe of values by dotted name; a name that is not a setting is a field of the model's config."""
    parts: dict[str, dict[str, Any]] = {"": {}, **{section: {} for section in SECTIONS}}
    sizes: dict[str, Any] = {}
    for given, value in values.items():
        name = canonical(given)
        if name in SETTINGS:
            parts[SETTINGS[name].section][SETTINGS[name].attribute] = value
        else:
            sizes[name.removeprefix("model.")] = value
    model = ModelSettings(**parts["model"], sizes=sizes)
    return Recipe(DataSettings(**parts["data"]), model, TrainSettings(**parts["train"]), **parts[""])


def value_of(recipe: Recipe, name: str) -> Any:
    one = SETTINGS[name]
    return getattr(getattr(recipe, one.section) if one.section else recipe, one.attribute)
