"""`headway train` and the commands around it, as the command line declares them.

Every setting of a recipe is an option; its name, text and default come from the recipe itself.  An option that is not
given is None here, so that only what was given reaches the recipe.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from headway.app.cli_options import Debug, Heads, Unsafe
from headway.app.settings.places import ELSEWHERE, SHORT, Flag
from headway.train.recipe import SETTINGS
from headway.train.setting import Setting, kinds_of

GROUPS = {
    "": Group("Run", sort_key=1),
    "data": Group("Data", sort_key=2),
    "model": Group("Model", sort_key=3),
    "train": Group("Training", sort_key=4),
}


SHARED = (  # what models that are compared have in common, and can be told
    "data.path",
    "data.source",
    "data.target",
    "data.validation",
    "data.columns",
    "data.skip_bad",
    "data.longest",
    "data.tokenizer",
    "train.steps",
    "train.minutes",
    "train.batch",
    "train.threads",
    "seed",
    "out",
)


def option(setting: Setting) -> Parameter:
    """A setting as an option, under its dotted name and, where it has one, its short name."""
    names = [f"--{setting.name.replace('_', '-')}"]
    if setting.name in SHORT:
        names.insert(0, SHORT[setting.name])
    text = setting.text[0].upper() + setting.text[1:].replace("null:", "unless given:")
    default = "" if spoken(setting.default) in ("None", "False", "") else f" [default: {spoken(setting.default)}]"
    return Parameter(
        name=names,
        group=GROUPS[setting.section],
        help=f"{text}.{default}",
        metavar=metavar(setting),
        show=setting.name != "data.path",  # which is the argument DATA
    )


def spoken(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def metavar(setting: Setting) -> str:
    first = kinds_of(setting.kind)[0]
    names = {int: "N", float: "X", Path: "PATH", tuple[Path, ...]: "PATH", str: "TEXT", bool: ""}
    return "|".join(setting.choices) or names.get(first, "A,B")


def hint(setting: Setting) -> Any:
    """Options come as the words that were typed; only a list of paths may be given several times."""
    if setting.kind is bool:
        return bool | None
    return tuple[str, ...] | None if setting.kind in (tuple[Path, ...], tuple[str, ...]) else str | None


def declared(name: str, settings: Iterable[Setting]) -> type:
    """A dataclass with an option for each setting, None until it is given."""
    fields = [(one.key, Annotated[hint(one), option(one)], field(default=None)) for one in settings]
    made = make_dataclass(name, fields, frozen=True, kw_only=True, namespace={"__module__": __name__})
    return Parameter(name="*")(made)


if TYPE_CHECKING:
    Options = Shared = object  # what is made at run time has no fields that a type checker could know
else:
    Options = declared("Options", SETTINGS.values())
    Shared = declared("Shared", [SETTINGS[name] for name in SHARED])

SIZES = Parameter(
    name="--model",
    group=GROUPS["model"],
    help="Sizes of the architecture, as in --model.layers 4 --model.dim 128; headway list --json shows what there is.",
)


def train(
    *data: str,
    options: Options = None,
    sizes: Annotated[dict[str, str] | None, SIZES] = None,
    config: Path | None = None,
    resume: bool = False,
    dry_run: bool = False,
    print_config: bool = False,
    debug: Debug = False,
) -> int:
    """Train a model on your data: texts, images, recordings or numbers.

    Options win over HEADWAY_* variables (HEADWAY_TRAIN_STEPS=500), those over the
    file of --config, and that over the preset.  What is not given is chosen, and
    said before the run begins.  None leaves a choice open again.

    Parameters
    ----------
    data
        Tables and texts (.tsv, .csv, .jsonl, .txt, each also .gz); a folder or .tar of images or sounds, in a folder
        for each class or with a table beside them; IDX files; or dates, the embedded data set.
    config
        A recipe, as headway init and --print-config write it.
    resume
        Go on with the run in --out from its newest checkpoint.
    dry_run
        Say what would be done, and touch nothing.
    print_config
        Print the recipe with every choice made, and train nothing.
    """
    from headway.app.settings.recipe import ask

    asked = ask(given(data, options, sizes or {}), config)  # a mistake is told before torch is imported
    from headway.app.train import train

    return train(asked, resume=resume, dry_run=dry_run, print_config=print_config)


def bottleneck(
    *data: str,
    options: Shared = None,
    presets: str = "rnn-small,rnnsearch-small,transformer-tiny",
    json: bool = False,
    debug: Debug = False,
) -> int:
    """Compare models with attention and without: quality against the length of the source.

    Each preset is trained on the same pairs, in the same order, for the same
    number of steps; with --minutes, for as many as the slowest does in that time.
    The same command again goes on where it was interrupted.

    Parameters
    ----------
    data
        Files of two columns, as for headway train, or dates, the embedded data set.
    presets
        The models, of headway list.
    json
        Print the numbers as JSON, and all else to standard error.
    """
    from headway.app.settings.recipe import ask

    words = given(data, options, {})  # a mistake is told before torch is imported
    asks = [ask({**words, "model.preset": name.strip()}) for name in presets.split(",")]
    from headway.app.bottleneck import bottleneck

    return bottleneck(asks, json=json)


def given(data: tuple[str, ...], options: object, sizes: dict[str, str]) -> dict[str, Any]:
    """The words of the options that were given, by dotted name."""
    words = {name: getattr(options, one.key, None) for name, one in SETTINGS.items()}
    words["data.path"] = (*data, *(words["data.path"] or ())) or None
    words |= {f"model.{name.replace('-', '_')}": word for name, word in sizes.items()}
    return {name: word for name, word in words.items() if word is not None}


def known_elsewhere(word: str) -> str | None:
    """The option that other trainers' name for it means here."""
    name = ELSEWHERE.get(word.lstrip("-").replace("-", "_"))
    return Flag().spelled(name) if name else None


# what a recipe tells as either
TestFrom = Annotated[str | None, Parameter(name=["--test-from", "--held-from"])]


def check(
    *data: Path,
    source: Path | None = None,
    target: Path | None = None,
    validation: tuple[Path, ...] = (),
    task: str | None = None,
    columns: str | None = None,
    label_from: str | None = None,
    test_from: TestFrom = None,
    longest: int | None = None,
    json: bool = False,
    debug: Debug = False,
) -> int:
    """Look through data for what would spoil a training, line by line.

    Parameters
    ----------
    data
        Files or folders, as for headway train.
    source
        A file of sources, whose lines belong to those of --target.
    target
        The file of targets.
    validation
        What to measure on, to be compared with the data: a file, or two parallel ones.
    task
        What the data is for, as for headway train: translation, images, speech …; recognised unless given.
    columns
        Names or numbers of the columns to use, as in en,de; recognised unless given.
    label_from
        A pattern that finds the class, or the transcript, in names of images or sounds.
    test_from
        A pattern: images or sounds in whose names it is found are what to measure on, compared with the others.
    longest
        Letters of a text, beyond which it is called too long.
    json
        Print what was found as JSON, and nothing else.
    """
    from headway.app.check import check
    from headway.data.records import LONGEST

    return check(
        data,
        source=source,
        target=target,
        validation=validation,
        task=task,
        columns=columns,
        label_from=label_from,
        test_from=test_from,
        longest=LONGEST if longest is None else longest,
        json=json,
    )


def evaluate(
    model: Path,
    /,
    *data: Path,
    source: Path | None = None,
    target: Path | None = None,
    task: str | None = None,
    columns: str | None = None,
    label_from: str | None = None,
    test_from: TestFrom = None,
    beam: int | None = None,
    json: bool = False,
    heads: Heads = None,
    unsafe: Unsafe = False,
    debug: Debug = False,
) -> int:
    """Measure a model on data, by what it is for.

    Texts: BLEU, chrF, exact match, accuracy, F1, perplexity, also by length.  Classes of images, sounds and numbers:
    accuracy, top 5, F1 and confusion.  Captions: CIDEr, BLEU-1 to 4.  Speech: errors of words and letters.  Images and
    texts: recall among all.  Forecasts: error against repeating the row before.

    Parameters
    ----------
    model
        A model folder, such as headway train leaves.
    data
        Files or folders, as for headway train.
    source
        A file of sources, whose lines belong to those of --target.
    target
        The file of targets.
    task
        What the data is for, as for headway train: translation, images, speech …; recognised unless given.
    columns
        Names or numbers of the columns to use, as in en,de; recognised unless given.
    label_from
        A pattern that finds the class, or the transcript, in names of images or sounds.
    test_from
        A pattern: only images or sounds in whose names it is found are measured on.
    beam
        Search with this many beams.
    json
        Print the numbers as JSON, and nothing else.
    """
    from headway.app.evaluate import evaluate

    return evaluate(
        model,
        data,
        source=source,
        target=target,
        task=task,
        columns=columns,
        label_from=label_from,
        test_from=test_from,
        beam=beam,
        json=json,
        heads=heads,
        unsafe=unsafe,
    )


def init(preset: str | None = None, /) -> None:
    """Print a recipe with every setting and its meaning, to be kept in a file for headway train --config.

    Parameters
    ----------
    preset
        One of headway list; left to be chosen unless given.
    """
    from headway.app.init import init

    print(init(preset), end="")


def doctor(*, json: bool = False) -> None:
    """Look at this machine: versions, cores, memory, disk, extras and speed, with a remedy for what is amiss.

    Parameters
    ----------
    json
        Print what was found as JSON, and nothing else.
    """
    from headway.app.doctor import doctor

    print(doctor(json=json))
