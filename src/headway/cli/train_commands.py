"""`headway train` and the commands around it, as the command line declares them.

Every setting of a recipe is an option; its name, text and default come from the recipe itself.  An option that is not
given is None here, so that only what was given reaches the recipe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import field, make_dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from headway.cli.options import TYPED, Debug, check_data, import_torch
from headway.cli.standard_input import DASH, spooled
from headway.console import phase, progress_on
from headway.errors import UserError
from headway.recipe import ALIASES, EXCLUSIVE, SETTINGS
from headway.setting import Setting, kinds_of
from headway.tasks.registry import DATA_WORDS
from headway.training.setting_origins import SHORT_OPTIONS, TRAINER_OPTIONS, CommandLineOption, setting_called

GROUPS = {
    "": Group("Run", sort_key=1),
    "data": Group("Data", sort_key=2),
    "model": Group("Model", sort_key=3),
    "train": Group("Training", sort_key=4),
}


SHARED = (  # settings that compared models have in common
    "data.path",
    "data.source",
    "data.target",
    "data.validation",
    "data.columns",
    "data.header",
    "data.skip_bad",
    "data.max_length",
    "data.tokenizer",
    "train.steps",
    "train.minutes",
    "train.batch",
    "train.threads",
    "seed",
    "out",
)


def option(setting: Setting) -> Parameter:
    """A setting as an option, under its dotted name and its short name, if it has one."""
    names = [f"--{setting.name.replace('_', '-')}"]
    if setting.name in SHORT_OPTIONS:
        names.insert(0, SHORT_OPTIONS[setting.name])
    names = [*TRAINER_OPTIONS.get(setting.name, ())[:1], *names]
    text = setting.text[0].upper() + setting.text[1:].replace("null:", "by default:")
    default = "" if spoken(setting.default) in ("None", "False", "") else f" [default: {spoken(setting.default)}]"
    return Parameter(
        name=names,
        group=GROUPS[setting.section],
        help=f"{text}.{default}",
        metavar=metavar(setting),
        alias=TRAINER_OPTIONS.get(setting.name, ())[1:],
        show=setting.name != "data.path",  # which is the argument DATA
    )


def spoken(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def metavar(setting: Setting) -> str:
    if setting.name == "data.task":
        return " | ".join(DATA_WORDS)  # in which a line can break
    if setting.kind is bool:  # a flag
        return ""
    first = kinds_of(setting.kind)[0]
    names = {int: "N", float: "X", Path: "PATH", tuple[Path, ...]: "PATH", str: "TEXT", bool: "true | false"}
    return " | ".join(setting.choices) or names.get(first, "A,B")


def hint(setting: Setting) -> Any:
    """The type of an option: the text as typed; only lists of paths may be given several times."""
    if setting.kind is bool:
        return bool | None
    return tuple[str, ...] | None if setting.kind in (tuple[Path, ...], tuple[str, ...]) else str | None


def declared(name: str, settings: Iterable[Setting]) -> type:
    """A dataclass with an option for each setting, None unless given; names of earlier versions are hidden options."""
    options = {one.name: (one, option(one)) for one in settings}
    hidden = {
        old: (options[new][0], Parameter(name=f"--{old.replace('_', '-')}", show=False))
        for old, new in ALIASES.items()
        if new in options
    }
    fields = [
        (name.replace(".", "_"), Annotated[hint(one), parameter], field(default=None))
        for name, (one, parameter) in {**options, **hidden}.items()
    ]
    made = make_dataclass(name, fields, frozen=True, kw_only=True, namespace={"__module__": __name__})
    return Parameter(name="*")(made)


if TYPE_CHECKING:
    Options = Shared = object  # classes made at run time have no fields that a type checker knows
else:
    Options = declared("Options", SETTINGS.values())
    Shared = declared("Shared", [SETTINGS[name] for name in SHARED])
NONE_GIVEN, NO_SHARED = Options(), Shared()  # cyclopts lets pydantic check defaults, where that is loaded

SIZES = Parameter(
    name="--model",
    group=GROUPS["model"],
    help="Sizes of the architecture, as in --model.layers 4 --model.dim 128; headway list --json shows what there is.",
)


def train(
    *data: str,
    options: Options = NONE_GIVEN,
    sizes: Annotated[dict[str, str] | None, SIZES] = None,
    config: Path | None = None,
    resume: bool = False,
    dry_run: bool = False,
    print_config: bool = False,
    processes: int = 1,
    supervise: bool = False,
    debug: Debug = False,
) -> int:
    """Train a model on your data: texts, images, recordings or numbers.

    Options override HEADWAY_* variables (HEADWAY_TRAIN_STEPS=500), which override
    the file of --config, which overrides the preset.  Settings that are not given
    are chosen, and printed before the run; the value none leaves one to be chosen.

    Parameters
    ----------
    data
        Tables and texts (.tsv, .csv, .jsonl, .json, .txt, .md, also .gz; .parquet, .arrow, .xlsx); words with tags
        (.conll: a word and its tag on each line, a blank line after each sentence); a folder or .tar of images or
        sounds, in a folder per class or with a table beside them; IDX files; or dates, the built-in data set.
        - is standard input: texts, lines of JSON, or lines with tabs.
    config
        A recipe, as headway init and --print-config write it.
    resume
        Resume the run in --out from its latest checkpoint; with --minutes +10 or --train.steps +500 make it longer,
        also where it is finished.
    dry_run
        Print what would be done, and write nothing.
    print_config
        Print the resolved recipe, and do not train.
    processes
        Number of processes on this machine that train one model together, each on its share of every step; torchrun
        starts them on several machines.
    supervise
        Start the training again from its last checkpoint where a process is killed or does not answer any more;
        needs --out.
    """
    from headway.training.recipe_sources import read_layers

    words = given(data, options, sizes or {})
    if DASH in (paths := words.get("data.path", ())):
        words["data.path"] = with_standard_input(paths, several=processes != 1 or supervise)
    extension = next((name for name in EXCLUSIVE[0] if str(words.get(name, "")).startswith("+")), None)
    more = None if extension is None else words.pop(extension)
    if more is not None and (not resume or dry_run or print_config or supervise):
        said = (
            f"{extension} {more} makes a run longer: with resume=, and without dry_run=, print_config= and supervise="
        )
        raise UserError(said, do="leave out the +, or give resume=")
    asked, splits = read_layers(words, config), None
    from headway.training.recipe_sources import preflight, run_to_resume

    if processes != 1 or supervise:
        from headway.distributed.launcher import launch

        if dry_run or print_config:
            raise UserError("a run that is only described needs one process", do="leave out processes=")
        if processes != 1 and asked.value("data.folds") and not asked.value("data.fold"):
            do = "leave processes= out; or train each fold by itself, by data.fold"
            raise UserError(f"data.folds trains its models in one process, not in {processes}", do=do)
        return launch(TYPED.get(), processes, asked.value("out") if supervise else None, supervise=supervise)
    from headway.distributed.world import joined

    with joined() as world, nullcontext() if print_config else progress_on(sys.stdout):  # a recipe is printed alone
        if extension is not None and more is not None and world.first:
            from headway.training.resuming import extend

            print(extend(asked, extension, more))
        if resume and run_to_resume(asked) is None:
            resume = False
            print(f"{asked.value('out')} holds no run yet, so it starts")
        if world.first and not resume:  # what is wrong, and what the data is, is told before torch is imported
            splits = preflight(asked, None if print_config else sys.stdout)
        import_torch()
        from headway.training.cross_validation import dry_run as describe_run
        from headway.training.cross_validation import resolved_yaml, train
        from headway.training.run import finished_in

        if finished := world.told(str((finished_in(asked) if resume and world.first else None) or "")):
            print(f"the run in {finished} is finished: nothing is left to do")
        elif print_config:
            print(resolved_yaml(asked, resume=resume, splits=splits), end="")
        elif dry_run:
            describe_run(asked, resume=resume, splits=splits)
        else:
            _, end = train(asked, resume=resume, splits=splits, world=world)
            return 0 if end.signal is None else 128 + end.signal
    return 0


def with_standard_input(paths: tuple[str, ...], *, several: bool) -> tuple[str, ...]:
    """Files, with the one that holds standard input in the place of its dash."""
    if several or os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
        raise UserError("standard input is read by one process alone", do="save it to a file, and name that")
    if paths.count(DASH) > 1:
        raise UserError("standard input is named twice", do="give one -")
    if sys.stdin.isatty():
        raise UserError("nothing is piped in", do="headway train FILE, or cat FILE | headway train -")
    with progress_on(sys.stdout), phase("reading standard input", moving=True):
        file = spooled(sys.stdin.buffer)
    return tuple(str(file) if path == DASH else path for path in paths)


def bottleneck(
    *data: str,
    options: Shared = NO_SHARED,
    presets: str = "rnn-small,rnnsearch-small,transformer-tiny",
    json: bool = False,
    debug: Debug = False,
) -> int:
    """Compare models with and without attention: quality against source length.

    Each preset is trained on the same pairs, in the same order, for the same
    number of steps; with --minutes, for as many as the slowest does in that time.
    The same command again resumes an interrupted comparison.

    Parameters
    ----------
    data
        Files of two columns, as for headway train, or dates, the built-in data set.
    presets
        The models to compare, of headway list.
    json
        Print the numbers as JSON, and everything else to standard error.
    """
    from headway.training.recipe_sources import read_layers

    words = given(data, options, {})  # a mistake is told before torch is imported
    asks = [read_layers({**words, "model.preset": name.strip()}) for name in presets.split(",")]
    for path in words.get("data.path", ()):
        check_data(Path, Path(path))
    import_torch()
    from headway.training.bottleneck import BottleneckResult, bottleneck

    found = bottleneck(asks, out=sys.stderr if json else None)
    if not isinstance(found, BottleneckResult):
        return 128 + (found.signal or 0)
    print(dumps(found.to_dict(), indent=1, ensure_ascii=False) if json else found.to_text())
    return 0


def compare(
    *choices: str,
    data: Annotated[tuple[str, ...], Parameter(name="--data", group=GROUPS["data"], negative=())] = (),
    options: Shared = NO_SHARED,
    sizes: Annotated[dict[str, str] | None, SIZES] = None,
    preset: str = "workbench",
    seeds: int = 3,
    json: bool = False,
    debug: Debug = False,
) -> int:
    """Compare choices of a Transformer: norm=layer,rms ffn=mlp,swiglu positions=…

    Every combination of the choices is trained on the same batches, with as many
    parameters, for as many steps; with --minutes (of each training), for as many
    as the slowest does in that time.  The same command again goes on with an
    interrupted comparison.

    Parameters
    ----------
    choices
        An axis and its choices: norm=layer,rms; arrangement=pre,post,sandwich; ffn=mlp,gelu,swiglu,geglu,moe;
        positions=none,sinusoidal,learned,rotary,alibi,t5; mixer=attention,convolution,gru,lstm,rnn; numbers of heads,
        layers, dim, window, kernel and experts.  Words without = are texts to learn from.
    data
        Texts to learn from: a file or a folder.
    preset
        What all variants are otherwise: workbench or workbench-nano.
    seeds
        Trainings of each variant.
    json
        Print the numbers as JSON, and everything else to standard error.
    """
    from headway.training.recipe_sources import read_layers

    axes = dict(word.split("=", 1) for word in choices if "=" in word)
    files = (*(word for word in choices if "=" not in word), *data)
    asked = read_layers({**given(files, options, sizes or {}), "model.preset": preset})
    for path in files:
        check_data(Path, Path(path))
    import_torch()
    from headway.training.comparison import compare_recipe

    found = compare_recipe(
        asked, {axis: words.split(",") for axis, words in axes.items()}, seeds, out=sys.stderr if json else None
    )
    print(dumps(found.to_dict(), indent=1, ensure_ascii=False) if json else found.to_text())
    return 0


def given(data: tuple[str, ...], options: object, sizes: dict[str, str]) -> dict[str, Any]:
    """The text of the options that were given, by dotted name."""
    words = {name: getattr(options, name.replace(".", "_"), None) for name in (*SETTINGS, *ALIASES)}
    words["data.path"] = (*data, *(words["data.path"] or ())) or None
    words |= {f"model.{name.replace('-', '_')}": word for name, word in sizes.items()}
    return {name: word for name, word in words.items() if word is not None}


def known_elsewhere(word: str) -> str | None:
    """The option for a name that other trainers use, or that lacks its section."""
    name = setting_called(word.lstrip("-").replace("-", "_"))
    return CommandLineOption().spell(name) if name else None


def init(preset: str | None = None, /) -> None:
    """Print a commented recipe (YAML) with every setting, for headway train --config.

    Parameters
    ----------
    preset
        One of headway list; by default it is left to be chosen.
    """
    from headway.training.recipe_template import commented_yaml

    print(commented_yaml(preset), end="")


def demo() -> int:
    """Train a translator of dates in 44 languages, in about three minutes, and show its attention."""
    from headway.cli.demo import demo

    return demo()
