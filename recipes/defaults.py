"""The defaults on small real data: `python recipes/defaults.py` trains, measures and writes docs/DEFAULTS.md.

Each data set is drawn from ../shared/data.  It is trained on with nothing but `--minutes` and `--seed`; then, for the
first of the minutes, with one setting at a time changed: the small search that the defaults are compared with.  Every
model is measured on records of their own by `headway eval`.  All trainings run on one thread, one after the other.

A training that is done is kept in recipes/defaults.jsonl, with the commit that it was measured on, and not repeated, so
that the command can be stopped and started again, on another machine too.  The table says which trainings are older
than the last commit that changed the code; `--again` repeats those.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import time
import wave
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from headway.loading import load
from headway.metrics.scores import MEASURES
from headway.recipe import flat
from headway.tasks.results import BaselineData, BaselineResult, EvalResult
from headway.training.plan import plan
from headway.training.recipe_sources import from_yaml, read_layers
from headway.training.run import BASELINE_RECORDS, epoch

ROOT = Path(__file__).parents[1]
SHARED = Path("../shared/data")
TRIALS, TABLE = Path("recipes/defaults.jsonl"), Path("docs/DEFAULTS.md")
CODE = "src/headway"  # a training is of an older version where this has changed since
FIRST_COMMIT = "de3bfd4"  # of trials that were kept without one
SEARCH = (("train.lr", 1 / 3), ("train.lr", 3.0), ("train.batch", 1 / 3), ("train.batch", 3.0))


@dataclass(frozen=True)
class DataSet:
    """Records to learn from and others to measure on; `metric` is a key of what `headway eval --json` prints."""

    name: str
    make: Callable[[Path, int], tuple[str, str]]  # in a folder, by a seed: paths of training and test
    metric: str
    lower_is_better: bool = False
    label_from: str = ""

    def gain(self, score: float, other: float) -> float:
        """By how much a score is better than another."""
        return other - score if self.lower_is_better else score - other

    def counted(self, trial: Trial) -> str:
        """How many records a score is of; of a language model's loss tokens, and texts in trials of de3bfd4."""
        unit = "" if self.metric != "loss" else " text" if trial.commit == FIRST_COMMIT else " tokens"
        return f"{trial.count:,}{unit}"


@dataclass(frozen=True)
class Trial:
    """One training: `setting` times `factor`, or the defaults alone."""

    data: str
    minutes: float
    seed: int
    setting: str
    factor: float
    score: float
    count: int
    preset: str
    chosen: dict[str, float]
    baselines: dict[str, float]
    processor: float  # seconds of the training's processor time, for each second that it took
    commit: str = FIRST_COMMIT

    @property
    def key(self) -> tuple[str, float, int, str, float]:
        return (self.data, self.minutes, self.seed, self.setting, round(self.factor, 4))


def main() -> None:
    os.chdir(ROOT)
    torch.set_num_threads(1)
    options = ArgumentParser(description="Train on small real data with the defaults and write docs/DEFAULTS.md.")
    options.add_argument("names", nargs="*", help=f"data sets; all unless given: {', '.join(one.name for one in DATA)}")
    options.add_argument("--minutes", type=float, nargs="+", default=[1.0, 5.0])
    options.add_argument("--seeds", type=int, default=3, help="trainings of the defaults; the search has one seed")
    options.add_argument("--search-seeds", type=int, default=1)
    options.add_argument("--search-minutes", type=float, nargs="*", help="of the search; the first of --minutes alone")
    options.add_argument("--again", action="store_true", help="repeat trainings of an older version")
    options.add_argument("--table", action="store_true", help="write the table of the trials there are, and end")
    given = options.parse_args()
    if not SHARED.is_dir():
        sys.exit(f"error: {SHARED} is not there; recipes/README.md says where to get the data")
    if unknown := set(given.names) - {one.name for one in DATA}:
        options.error(f"no data set {min(unknown)!r}; allowed: {', '.join(one.name for one in DATA)}")
    if given.table:
        return write_table()
    version = changed_commit()
    searched = given.minutes[:1] if given.search_minutes is None else given.search_minutes
    for data in DATA:
        for minutes in given.minutes if not given.names or data.name in given.names else ():
            for seed in range(1, given.seeds + 1):
                wanted = version if given.again else None
                default = done_or_run(data, minutes, seed, wanted=wanted)
                for setting, factor in SEARCH if minutes in searched and seed <= given.search_seeds else ():
                    done_or_run(data, minutes, seed, setting, factor, default.chosen[setting], wanted=wanted)
            write_table()


def write_table() -> None:
    TABLE.write_text(table(list(trials()), changed_commit()), encoding="utf-8")


def trials(path: Path = TRIALS) -> Iterator[Trial]:
    """Each training once, as it was measured last."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [Trial(**json.loads(line)) for line in lines]
    return iter({trial.key: trial for trial in found}.values())


def changed_commit() -> str:
    """The last commit that changed the code."""
    command = ["git", "log", "-1", "--format=%h", "--abbrev=7", "--", CODE]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def done_or_run(
    data: DataSet,
    minutes: float,
    seed: int,
    setting: str = "",
    factor: float = 1.0,
    usual: float = 0.0,
    *,
    wanted: str | None = None,
) -> Trial:
    """The trial that was done, of the commit that is wanted, or else a training."""
    key = (data.name, minutes, seed, setting, round(factor, 4))
    done = (trial for trial in trials() if trial.key == key and wanted in (None, trial.commit))
    if found := next(done, None):
        return found
    value = usual * factor if setting == "train.lr" else max(1, round(usual * factor))
    trial = run(data, minutes, seed, setting, factor, [f"--{setting}", f"{value:.6g}"] if setting else [])
    with TRIALS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(trial)) + "\n")
    said = f"{data.name:18} {minutes:g} min, seed {seed}, {setting or 'defaults':11} × {factor:<5.3g} {trial.score:.4f}"
    print(f"{said}, {trial.processor:.0%} of a processor", flush=True)
    return trial


def run(data: DataSet, minutes: float, seed: int, setting: str, factor: float, options: Sequence[str]) -> Trial:
    with TemporaryDirectory() as scratch:
        train, test = data.make(Path(scratch), seed)
        model = Path(scratch, "model")
        pattern = {"data.label_from": data.label_from} if data.label_from else {}
        words = [word for name, value in pattern.items() for word in (f"--{name.replace('_', '-')}", value)]
        asked = ("--minutes", f"{minutes:g}", "--seed", f"{seed}", "--out", str(model), *words, *options)
        processor = headway("train", train, *asked)
        query: dict[str, Any] = {name.partition(".")[2]: value for name, value in pattern.items()}
        found = load(model).evaluate(test, **query)
        simple = baselines(model, {"data.path": (train,), "data.validation": (test,), **pattern}, found)
        recipe = from_yaml(model / "recipe.yaml")
    chosen = {name: flat(recipe)[name] for name, _ in SEARCH}
    score = found.scores.numbers[data.metric]
    baseline = {one.name: one.scores.numbers[data.metric] for one in simple if data.metric in one.scores.numbers}
    preset = str(recipe.model.preset)
    known = (data.name, minutes, seed, setting, factor, score, found.scores.count, preset, chosen, baseline)
    return Trial(*known, processor, changed_commit())


def baselines(model: Path, data: Mapping[str, object], found: EvalResult) -> list[BaselineResult]:
    """Simple methods that learned from the training file, on the records that the model was evaluated on."""
    layers = read_layers({**data, "out": model.with_name("none")}, model / "recipe.yaml", environ={})
    made = plan(layers, model.with_name("encoded"))
    asked = BaselineData(
        made.splits.some(BASELINE_RECORDS), epoch(made), list(made.splits.validation()), made.encoded.validation
    )
    return list(made.task.without_augmentation().baselines(load(model).model, asked, found))


# seconds of processor time in the place of those of the clock: on a busy machine a minute is a minute all the same
COMMAND = "import sys, time; time.perf_counter = time.process_time; from headway.cli import main; sys.exit(main.main())"


def headway(*words: str) -> float:
    """Runs a command on one thread; the share of a processor that it got."""
    before, start = os.times(), time.perf_counter()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", COMMAND, *words], env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: headway {' '.join(words)} failed:\n{done.stderr}")
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used / (time.perf_counter() - start)


def shuffled(rows: Sequence[Any], count: int, seed: int = 0) -> list[Any]:
    return random.Random(seed).sample(list(rows), count)


def always(make: Callable[[Path], tuple[str, str]]) -> Callable[[Path, int], tuple[str, str]]:
    """The same records for all seeds."""
    return lambda folder, _: make(folder)


def polarity(count: int) -> Callable[[Path, int], tuple[str, str]]:
    """Reviews that each seed draws anew: naive Bayes itself differs by points from one draw of 200 to another."""

    def make(folder: Path, seed: int) -> tuple[str, str]:
        head, *rows = (SHARED / "sentence_polarity/train.tsv").read_text(encoding="utf-8").splitlines()
        path = folder / "reviews.tsv"
        path.write_text("\n".join([head, *shuffled(rows, count, seed)]) + "\n", encoding="utf-8")
        return str(path), str(SHARED / "sentence_polarity/test.tsv")

    return make


def written_pairs(folder: Path, pairs: Sequence[str], count: int, test: int = 500) -> tuple[str, str]:
    """Lines `source TAB target`; no source is in both files."""
    by_source = {pair.partition("\t")[0]: pair for pair in pairs}
    drawn = shuffled(sorted(by_source.values()), count + test)
    for name, some in (("pairs", drawn[:count]), ("test", drawn[count:])):
        (folder / f"{name}.tsv").write_text("".join(f"{pair}\n" for pair in some), encoding="utf-8")
    return str(folder / "pairs.tsv"), str(folder / "test.tsv")


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def tatoeba(count: int) -> Callable[[Path], tuple[str, str]]:
    pairs = SHARED / "tatoeba_de_en/pairs.en-de.tsv.gz"
    return lambda folder: written_pairs(folder, lines(pairs)[:40_000], count)


def pronunciations(count: int) -> Callable[[Path], tuple[str, str]]:
    return lambda folder: written_pairs(folder, lines(SHARED / "cmudict/cmudict.tsv.gz"), count)


def tagged(count: int) -> Callable[[Path], tuple[str, str]]:
    """English words in lower case, each tagged with the case and the punctuation that it had."""

    def tags_of(line: str) -> dict[str, list[str]]:
        words = line.partition("\t")[0].split()
        bare = [re.sub(r"\W+$", "", word) for word in words]
        ends = [
            mark if (mark := word[len(stem) :][:1]) in set(",.;:?!") else "-"
            for word, stem in zip(words, bare, strict=True)
        ]
        tags = [("Upper" if stem[:1].isupper() else "lower") + end for stem, end in zip(bare, ends, strict=True)]
        return {"words": [stem.lower() or "-" for stem in bare], "tags": tags}

    def make(folder: Path) -> tuple[str, str]:
        verses = [line.split("\t")[1] for line in lines(SHARED / "bible/bible.en-de-es.tsv.gz")]
        drawn = shuffled([verse for verse in verses if 3 < len(verse.split()) < 30], count + 500)
        for name, some in (("tagged", drawn[:count]), ("test", drawn[count:])):
            text = "".join(f"{json.dumps(tags_of(line))}\n" for line in some)
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        return str(folder / "tagged.jsonl"), str(folder / "test.jsonl")

    return make


def split_text(folder: Path, text: str) -> tuple[str, str]:
    """The last tenth is for the test."""
    cut = text.rindex("\n", 0, len(text) * 9 // 10) + 1
    (folder / "book.txt").write_text(text[:cut], encoding="utf-8")
    (folder / "test.txt").write_text(text[cut:], encoding="utf-8")
    return str(folder / "book.txt"), str(folder / "test.txt")


def shakespeare(characters: int) -> Callable[[Path], tuple[str, str]]:
    text = SHARED / "tinyshakespeare/input.txt"
    return lambda folder: split_text(folder, text.read_text(encoding="utf-8")[:characters])


def verses(count: int) -> Callable[[Path], tuple[str, str]]:
    def make(folder: Path) -> tuple[str, str]:
        texts = [line.split("\t")[1] for line in lines(SHARED / "bible/bible.en-de-es.tsv.gz")]
        return split_text(folder, "".join(f"{verse}\n" for verse in texts[:count]))

    return make


def fashion(count: int) -> Callable[[Path], tuple[str, str]]:
    """The first images, and a thousand of the test, as IDX files."""

    def part(folder: Path, prefix: str, many: int) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        for name, head, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            with gzip.open(SHARED / f"fashion_mnist/{prefix}-{name}-ubyte.gz") as file:
                data = file.read(head + many * size)
            with gzip.open(folder / f"{prefix}-{name}-ubyte.gz", "wb") as file:
                file.write(data[:4] + many.to_bytes(4, "big") + data[8:])
        return str(folder)

    return lambda folder: (part(folder / "photos", "train", count), part(folder / "test", "t10k", 1000))


def recordings(*, test: bool) -> list[Path]:
    """Spoken digits; those numbered 0 to 4 are the official test."""
    paths = sorted((SHARED / "fsdd/recordings").glob("*.wav"))
    return [path for path in paths if (int(path.stem.split("_")[2]) < 5) == test]


def digits(count: int) -> Callable[[Path], tuple[str, str]]:
    def make(folder: Path) -> tuple[str, str]:
        for name, paths in (("sounds", shuffled(recordings(test=False), count)), ("test", recordings(test=True))):
            (folder / name).mkdir(parents=True)
            for path in paths:
                shutil.copy(path, folder / name / path.name)
        return str(folder / "sounds"), str(folder / "test")

    return make


def loudness(path: Path, step: int) -> list[float]:
    """The logarithm of the energy in each `step` samples of a recording."""
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float64)
    frames = samples[: len(samples) // step * step].reshape(-1, step)
    return [round(float(value), 3) for value in np.log(frames.std(1) + 1)]


def digit_series(count: int) -> Callable[[Path], tuple[str, str]]:
    """A recording as 24 numbers, its loudness over time, labelled with the digit."""

    def make(folder: Path) -> tuple[str, str]:
        for name, paths in (("series", shuffled(recordings(test=False), count)), ("test", recordings(test=True))):
            rows: list[str] = []
            for path in paths:
                values = (loudness(path, 100) + [0.0] * 24)[:24]
                rows.append(",".join([*map(str, values), f"digit {path.stem[0]}"]))
            (folder / f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        return str(folder / "series.csv"), str(folder / "test.csv")

    return make


def speech_loudness(rows: int) -> Callable[[Path], tuple[str, str]]:
    """Loudness of Hebrew speech, 25 ms a row, recording after recording."""

    def make(folder: Path) -> tuple[str, str]:
        values = [value for path in sorted((SHARED / "yesno").glob("*.wav")) for value in loudness(path, 200)]
        for name, some in (("speech", values[:rows]), ("test", values[rows : rows + 1000])):
            lines = [f"{step},{value}" for step, value in enumerate(some)]
            (folder / f"{name}.csv").write_text("\n".join(["time,loudness", *lines]) + "\n", encoding="utf-8")
        return str(folder / "speech.csv"), str(folder / "test.csv")

    return make


DATA = (
    DataSet("reviews-200", polarity(200), "accuracy"),
    DataSet("reviews-2000", polarity(2000), "accuracy"),
    DataSet("reviews-9595", polarity(9595), "accuracy"),
    DataSet("tags-1000", always(tagged(1000)), "token_accuracy"),
    DataSet("pairs-1000", always(tatoeba(1000)), "chrf"),
    DataSet("pairs-10000", always(tatoeba(10_000)), "chrf"),
    DataSet("spelling-4000", always(pronunciations(4000)), "word_error_rate", lower_is_better=True),
    DataSet("shakespeare-4000", always(shakespeare(110_000)), "loss", lower_is_better=True),
    DataSet("verses-3000", always(verses(3000)), "loss", lower_is_better=True),
    DataSet("fashion-300", always(fashion(300)), "accuracy"),
    DataSet("fashion-5000", always(fashion(5000)), "accuracy"),
    DataSet("digits-500", always(digits(500)), "accuracy", label_from="^([0-9])_"),
    DataSet("digits-2700", always(digits(2700)), "accuracy", label_from="^([0-9])_"),
    DataSet("series-2000", always(digit_series(2000)), "accuracy"),
    DataSet("loudness-4000", always(speech_loudness(4000)), "error", lower_is_better=True),
)


def table(found: Sequence[Trial], version: str) -> str:
    """docs/DEFAULTS.md: a line for each data set and time; `version` is the commit of the code as it is."""
    lines, below, behind = [HEAD], list[str](), list[str]()
    for data in DATA:
        for minutes in sorted({trial.minutes for trial in found if trial.data == data.name}):
            some = comparable([trial for trial in found if (trial.data, trial.minutes) == (data.name, minutes)])
            lines.append(table_line(data, minutes, some, version))
            if is_below(data, [trial for trial in some if not trial.setting]):
                below.append(f"{data.name} ({minutes:g} min)")
            if is_behind(data, some):
                behind.append(f"{data.name} ({minutes:g} min)")
    if below:
        said = "The mean of the defaults is below the baseline, by more than the standard error of the difference,"
        lines.append(f"\n{said} on {', '.join(below)}.")
    if behind:
        lines.append(
            f"\nThe search was better by more than 2 points, or 3 % of a loss or an error, on {', '.join(behind)}."
        )
    return "\n".join(lines) + "\n"


def comparable(some: Sequence[Trial]) -> list[Trial]:
    """Without trainings whose setting is a multiple of what was the default in an earlier version."""
    usual = {trial.seed: trial.chosen for trial in some if not trial.setting}

    def is_multiple(trial: Trial) -> bool:
        expected = trial.factor * usual.get(trial.seed, {}).get(trial.setting, math.inf)
        return math.isclose(trial.chosen[trial.setting], expected, rel_tol=0.05)

    return [trial for trial in some if not trial.setting or is_multiple(trial)]


def is_below(data: DataSet, defaults: Sequence[Trial]) -> bool:
    """Whether a simple method is better by more than the standard error of the difference over seeds."""
    return any(
        fmean(gains) < -(stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0)
        for name in defaults[0].baselines
        if (gains := [data.gain(trial.score, trial.baselines[name]) for trial in defaults])
    )


def mean_baselines(defaults: Sequence[Trial]) -> dict[str, float]:
    """The mean score of each simple method over seeds, which may draw other records."""
    return {name: fmean(trial.baselines[name] for trial in defaults) for name in defaults[0].baselines}


@dataclass(frozen=True)
class Search:
    """Trainings with one setting changed, one for each seed, and those of the defaults with the same seeds."""

    changed: Sequence[Trial]
    defaults: Sequence[Trial]

    @property
    def score(self) -> float:
        return fmean(trial.score for trial in self.changed)

    @property
    def default(self) -> float:
        return fmean(trial.score for trial in self.defaults)


def best_of_search(data: DataSet, some: Sequence[Trial]) -> Search | None:
    """The setting that gained most over the defaults; one more seed is worth more than one more setting."""
    defaults = {trial.seed: trial for trial in some if not trial.setting}
    found = defaultdict[tuple[str, float], list[Trial]](list)
    for trial in some:
        if trial.setting:
            found[trial.setting, round(trial.factor, 4)].append(trial)
    seeds = max((len(trials) for trials in found.values()), default=0)
    searched = (
        Search(trials, [defaults[trial.seed] for trial in trials]) for trials in found.values() if len(trials) == seeds
    )
    return max(searched, key=lambda one: data.gain(one.score, one.default), default=None)


def is_behind(data: DataSet, some: Sequence[Trial]) -> bool:
    """Whether the search was better by more than 2 points of a scale that has an end, or else by more than 3 %."""
    found, top = best_of_search(data, some), MEASURES[data.metric].top
    if found is None:
        return False
    return data.gain(found.score, found.default) > (0.03 * found.default if top is None else 0.02 * top)


def table_line(data: DataSet, minutes: float, some: Sequence[Trial], version: str) -> str:
    defaults = [trial for trial in some if not trial.setting]
    scores, chosen = [trial.score for trial in defaults], defaults[0].chosen
    better = min if data.lower_is_better else max
    search = best_of_search(data, some)
    name, score = better(mean_baselines(defaults).items(), key=lambda item: item[1], default=("", None))
    mean = fmean(scores)
    spread = "1 seed" if len(scores) == 1 else f"{min(scores):.4g} to {max(scores):.4g}, {len(scores)} seeds"
    return (
        "| "
        + " | ".join(
            [
                data.name,
                data.metric + (" (lower is better)" if data.lower_is_better else ""),
                f"{minutes:g}",
                f"{defaults[0].preset}, batch {chosen['train.batch']:,}, lr {chosen['train.lr']:.2g}",
                f"{mean:.4g} ({spread}, n = {data.counted(defaults[0])})",
                ""
                if search is None
                else f"{search.score:.4g} ({search.changed[0].setting} × {search.changed[0].factor:.2g}, best of "
                f"{len(some) - len(defaults)}{seeds_of(search.changed)}; defaults {search.default:.4g})",
                "" if score is None else f"{score:.4g} ({name})",
                f"{min(trial.processor for trial in some):.0%}",
                measured_on(some, version),
            ]
        )
        + " |"
    )


def seeds_of(trials: Sequence[Trial]) -> str:
    return f", mean of {len(trials)} seeds" if len(trials) > 1 else ""


def measured_on(some: Sequence[Trial], version: str) -> str:
    """The commits of trainings; those of an older version with how many they are."""
    counts = Counter(trial.commit for trial in some)
    older = [f"{commit} (older, {n} of {len(some)})" for commit, n in counts.items() if commit != version]
    return ", ".join([version] * (version in counts) + older)


HEAD = """# Defaults on small data

Written by `python recipes/defaults.py`, which trains each line on one thread with nothing but `--minutes` and
`--seed`. Data sets are drawn from the data that recipes/README.md names; the number in a name counts the records, or
lines of text.  Every score is that of `headway eval` on n records that were not trained on.  *Search*: of those
trainings in which the learning rate or the batch is a third or three times the default's, the setting that gained most
over the defaults, with the score of the defaults for the same seeds; one seed unless it says the mean of more.
*Baseline*: the best of the simple methods that a run names, which learned from the whole training file, on the same n
records.  *Processor*: the least share of a core that one of these trainings got; minutes are of processor time, so
that a busy machine changes little; for older lines they were of the clock, and below 100 % shorter than elsewhere.
*Commit*: the version of the code that was measured; older ones are named.  All ran on a CPU with AVX-512 and bf16,
those of 8e981e7 and 4f1974f on AVX2, where a minute is fewer steps.  All trainings are in recipes/defaults.jsonl.
What was not measured has no line.

The learning rates of images, series and language models of characters (shakespeare, verses) were chosen by scores on
these same test records (docs/LOG.md has what was tried), so those lines are optimistic; a difference of a point or two
is within the noise of seeds.

Classifiers of texts start from scratch here, as naive Bayes over words of the training records, and keep to that
unless training lowers the held-out loss by more than its standard error.  Counts that are kept are counted anew in the
end with the held-out records, which the baseline learns from too; docs/LOG.md has what that was worth.  Reviews are
drawn anew for each seed, as naive Bayes itself differs by points from one draw of 200 to another; the baseline is then
the mean over the same draws.  A pretrained encoder needs more than these minutes on one core: MiniLM (`headway train
reviews.tsv --from FOLDER --minutes 1`, reviews-2000) has 60.7 % after one minute (0.7 epochs) and 66.7 % after three,
n = 1,067, on a busy machine.

| data | metric | minutes | chosen | defaults: mean (range) | search | baseline | processor | commit |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""

if __name__ == "__main__":
    main()
