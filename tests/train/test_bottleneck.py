"""Models that are compared differ in nothing but themselves, are measured on the same, and no work is done twice."""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.cli.main import main
from headway.errors import UserError
from headway.loading import load
from headway.metrics.intervals import Share
from headway.metrics.scores import by_length
from headway.metrics.scoring import score_pairs
from headway.recipe import flat
from headway.training import bottleneck as tool
from headway.training import run as training
from headway.training.build import batches_of
from headway.training.plan import Plan, with_steps
from headway.training.recipe_sources import from_yaml, read_layers

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("rendered")]  # whole runs

MODELS = ("rnn-small", "rnnsearch-small", "transformer-tiny")
STEPS, HELD = 5, 0.1


@dataclass
class Seen:
    """A comparison, what each of its models read step by step, and how often each run was begun or taken up."""

    folder: Path
    said: str = ""
    read: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    runs: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])

    @property
    def found(self) -> dict[str, Any]:
        return json.loads((self.folder / tool.NUMBERS).read_text(encoding="utf-8"))

    def watched(self, stop: tuple[str, int]) -> Callable[[Plan], Callable[[int, int], Iterator[list[Any]]]]:
        """Batches that are noted; before step `stop` of a model somebody presses Ctrl-C."""

        def of(made: Plan) -> Callable[[int, int], Iterator[list[Any]]]:
            name = str(made.recipe.model.preset)

            def between(first: int, last: int) -> Iterator[list[Any]]:
                self.runs.append((name, first > 1))
                for step, batches in enumerate(batches_of(made)(first, last), first):
                    self.read.setdefault(name, []).append([batch.source.ids.tolist() for batch in batches])
                    if (name, step) == stop and first == 1:
                        signal.raise_signal(signal.SIGINT)
                    yield batches

            return between

        return of


@pytest.fixture(scope="module", autouse=True)
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HEADWAY_TRAIN_EVALUATE_EVERY", str(STEPS))
        patch.setenv("HEADWAY_TRAIN_CHECKPOINT_EVERY", str(STEPS))
        patch.setenv("HEADWAY_TRAIN_BATCH", "200")
        patch.setenv("HEADWAY_TRAIN_THREADS", "1")
        patch.setenv("HEADWAY_DATA_VALIDATION_SPLIT", str(HELD))
        yield


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words of 2 to 12 letters, and the same backwards."""
    draw, file = random.Random(0), tmp_path_factory.mktemp("data") / "backwards.tsv"
    words = {"".join(draw.choices("abcdefgh", k=draw.randint(2, 12))) for _ in range(300)}
    file.write_text("".join(f"{word}\t{word[::-1]}\n" for word in sorted(words)), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def seen(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The second model is interrupted; then the same command comes again."""
    seen = Seen(tmp_path_factory.mktemp("runs") / "compared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "batches_of", seen.watched(stop=(MODELS[1], 3)))
        assert compare(pairs, seen.folder) == 130
        assert not (seen.folder / tool.PAGE).exists()
        with redirect_stdout(StringIO()) as out:
            assert compare(pairs, seen.folder) == 0
        seen.said = out.getvalue()
    return seen


def compare(pairs: Path, folder: Path, *more: str, steps: int = STEPS) -> int:
    return main(["bottleneck", str(pairs), "--out", str(folder), "--train.steps", str(steps), *more])


def test_all_read_the_same(seen: Seen) -> None:
    assert list(seen.read) == list(MODELS)
    first, *others = seen.read.values()
    assert len(first) == STEPS
    assert all(other == first for other in others)
    assert len({str(step) for step in first}) == STEPS


def test_all_are_trained_alike(seen: Seen) -> None:
    first, *others = (flat(from_yaml(seen.folder / name / "recipe.yaml")) for name in MODELS)
    for other in others:
        differ = {name for name in first if not name.startswith("model.") and first[name] != other[name]}
        assert differ <= {"train.lr", "train.dropout", "out"}
    for file in ("tokenizer.json", "data.json"):
        assert len({(seen.folder / name / file).read_bytes() for name in MODELS}) == 1


def test_nothing_is_trained_twice(
    seen: Seen, pairs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert seen.runs == [(MODELS[0], False), (MODELS[1], False), (MODELS[1], True), (MODELS[2], False)]
    before = seen.found
    monkeypatch.setattr(tool, "run", None)
    monkeypatch.setattr(tool, "begin", None)
    assert compare(pairs, seen.folder, "--json") == 0
    assert json.loads(capsys.readouterr().out) == before == seen.found


def test_all_are_measured_on_the_same(seen: Seen) -> None:
    """And a model's numbers are those of what it writes."""
    found = seen.found
    assert [one["preset"] for one in found["models"]] == list(MODELS)
    shapes = {str([(b["first"], b["last"], b["count"]) for b in one["by_length"]]) for one in found["models"]}
    assert len(shapes) == 1
    assert found["held_out"] > 20
    for one in found["models"]:
        assert sum(bucket["count"] for bucket in one["by_length"]) == one["count"] == found["held_out"]
        assert one["by_length"][-1]["last"] == 12


def test_numbers_are_those_of_what_a_model_writes(seen: Seen, pairs: Path) -> None:
    asked = read_layers({"data.path": (str(pairs),), "out": str(seen.folder), "model.preset": MODELS[2]})
    _, (made,) = tool.planned([asked])
    records = [record.fields for record in made.splits.validation()]
    assert not {source for source, _ in records} & {record.fields[0] for record in made.splits.train()}
    model, told = load(seen.folder / MODELS[2]), seen.found["models"][2]
    answers = [model.predict(source).output for source, _ in records]
    longest = told["by_length"][-1]
    for least, numbers in ((0, told["scores"]), (longest["first"], longest["scores"])):
        some = [(answer, target) for answer, (_, target) in zip(answers, records, strict=True) if len(target) >= least]
        assert numbers == pytest.approx(dict(score_pairs(*zip(*some, strict=True), by=list(numbers)).numbers))


def test_a_metric_that_tells_nothing_apart_gives_way_to_one_that_does(seen: Seen) -> None:
    """After a few steps nothing is exactly right; how many characters are wrong still depends on the length."""

    def cells(name: str) -> set[float]:
        scores = [part["scores"] for one in seen.found["models"] for part in (one, *one["by_length"])]
        return {of[name] for of in scores}

    main, shown = next(iter(seen.found["models"][0]["scores"])), seen.found["measure"]
    assert (main, cells(main), shown) == ("exact", {0.0}, "character_error_rate")
    assert len(cells(shown)) > 3
    table = seen.said[seen.said.index("character errors by characters of the source") :]
    assert len(set(re.findall(r"\d+\.\d\d %", table))) > 3
    note = "exact: 0.00 % for every model at every length"
    assert note in table
    assert note in (seen.folder / tool.PAGE).read_text(encoding="utf-8")


def test_the_page_shows_a_line_for_each_model_and_loads_nothing(seen: Seen) -> None:
    page = (seen.folder / tool.PAGE).read_text(encoding="utf-8")
    drawing, *others = re.findall(r"<svg.*?</svg>", page, re.S)
    assert not others
    assert [len(re.findall(rf"fill: none; stroke: var\(--{name}\)", drawing)) for name in "abc"] == [2, 2, 2]
    assert all(f">{name}</text>" in drawing for name in MODELS)  # beside its line
    assert not re.search(r"https?:|<script|<link|src=", page)
    told = re.sub(r"<[^>]+>", " ", page)
    for word in ("characters", "through one vector", "by additive attention", f"--train.steps {STEPS} --seed 0"):
        assert word in told
    for one in seen.found["models"]:
        assert told.count(one["preset"]) >= 3  # beside its line, in both tables
        assert f"{one['parameters']:,}" in told


def test_the_table_fits_a_terminal(seen: Seen) -> None:
    lines = seen.said.splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("characters"))
    assert lines[head].split() == ["characters", "count", *MODELS]
    assert [line for line in lines[head - 2 :] if len(line) > 80 and str(seen.folder) not in line] == []
    assert lines[-2:] == [f"chart    {seen.folder / tool.PAGE}", f"numbers  {seen.folder / tool.NUMBERS}"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--seed", "1"], "seed would be 1, but the run in"),
        (["--train.batch", "100"], "train.batch would be 100"),
        (["--presets", "rnn-small,rnn-small"], "each once"),
        (["--presets", "rnn-small,rnnsearch-small,transformer-tiny,transformer-nano"], "one to 3"),
        (["--presets", "rnn-small,gpt2"], "gpt2 cannot learn this task"),
        (["--presets", "rnn-smal"], "did you mean 'rnn-small'"),
        (["--presets", ""], "no preset ''"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    seen: Seen, pairs: Path, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(pairs, seen.folder, *more) == 2
    assert said in capsys.readouterr().err


def test_other_data_is_refused(seen: Seen, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "backwards.tsv"
    other.write_text(pairs.read_text(encoding="utf-8").replace("\th", "\tg"), encoding="utf-8")
    assert compare(other, seen.folder, "--train.batch", str(seen.found["batch"])) == 2
    assert "has changed since this run began" in capsys.readouterr().err


def test_nothing_held_out_is_refused_before_training(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWAY_DATA_VALIDATION_SPLIT", "0")
    assert compare(pairs, tmp_path / "new") == 2
    assert "nothing is held out" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_with_minutes_all_learn_as_long_as_the_slowest_can(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    able: dict[str, int] = dict(zip(MODELS, (7, 3, 9), strict=True))

    def timed(made: Plan) -> tuple[Plan, None]:
        return replace(made, recipe=with_steps(made.recipe, able[str(made.recipe.model.preset)])), None

    monkeypatch.setattr(tool, "timed", timed)
    words = {"data.path": (str(pairs),), "out": str(tmp_path / "new"), "train.minutes": "2"}
    folder, plans = tool.planned([read_layers({**words, "model.preset": name}) for name in MODELS])
    assert [made.recipe.train.steps for made in plans] == [3, 3, 3]
    assert [made.recipe.out for made in plans] == [folder / name for name in MODELS]
    tool.begin(plans[1])  # from now on that decides, however busy the machine is
    able |= dict.fromkeys(able, 50)
    _, plans = tool.planned([read_layers({**words, "model.preset": name}) for name in MODELS])
    assert [made.recipe.train.steps for made in plans] == [3, 3, 3]


def test_without_data_says_what_to_give() -> None:
    with pytest.raises(UserError, match="needs data"):
        tool.planned([read_layers({"model.preset": "rnn-small"}, environ={})])


@given(st.lists(st.integers(0, 60), min_size=1, max_size=400))
def test_every_length_is_in_one_bucket_and_each_bucket_has_an_end(lengths: list[int]) -> None:
    buckets = by_length(lengths, {"exact": Share(np.ones(len(lengths), bool))}, edges=tool.edges_for(lengths))
    assert sum(bucket.count for bucket in buckets) == len(lengths)
    assert len(buckets) <= tool.MAX_BUCKETS
    assert buckets[-1].last == max(lengths)


def test_the_command_says_what_was_given(pairs: Path, tmp_path: Path) -> None:
    held = tmp_path / "held out.tsv"
    held.write_text("abba\tabba\nabc\tcba\n", encoding="utf-8")
    words = {"data.path": (str(pairs),), "data.validation": (str(held),), "data.skip_bad": True, "train.steps": "4"}
    asked = read_layers({**words, "model.preset": "rnn-small", "out": str(tmp_path / "new")})
    told = tool.command(asked, tool.planned([asked])[1])
    assert told[:3] == ["headway", "bottleneck", str(pairs)]
    assert told[3:] == [
        *("--validation", str(held), "--skip-bad", "--train.steps", "4", "--seed", "0", "--train.threads", "1"),
        *("--presets", "rnn-small", "--out", "NEW"),
    ]
