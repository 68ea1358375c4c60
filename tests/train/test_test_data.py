"""Test data: read beside training and validation, scored once by the final weights, and without any effect on them."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import headway
from headway.data.checks import leaks
from headway.data.records import Record
from headway.errors import UserError
from headway.evaluation import evaluate
from headway.loading import load
from headway.metrics.scores import MEASURES, score_cell
from headway.training.recipe_data import load_splits
from headway.training.recipe_sources import from_yaml, preflight, read_layers, resolve
from headway.training.resuming import resumed_plan
from headway.training.run import train
from tests.train.runs import FAMILIES, MORE, data_in

SHORT = {"train.steps": "2", "train.evaluate_every": "1", "train.threads": "1"}
LEAKED = 3  # lines of the training data in the test data
# rows that are in no other data, after a header
FRESH = {
    "labels.csv": 'text,label\n"the fish swims",up\n"a fish finds a net",down\n',
    "pairs.tsv": "the fish sees the boat\tder Fisch sieht das Boot.\n" * 2,
}
CASES = {
    "classes": "labels.csv",
    "votes": "labels.csv",  # counted weights, which are counted anew in the end
    "transformer": "pairs.tsv",
    "gpt2": "text.txt",
    "forecast": "moments.csv",
    "resnet": "photos",
}


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("tested")) as folder:
        write_tests(folder)
        yield folder


def write_tests(folder: Path) -> None:
    for name, rows in FRESH.items():
        known = (folder / name).read_text("utf-8").splitlines(keepends=True)[1 : 1 + LEAKED]
        (folder / f"test-{name}").write_text(rows + "".join(known), "utf-8")
    (folder / "test-text.txt").write_text("the moon paints the river. " * 30, "utf-8")
    rows = [f"{at / 5 % 3:.3f},{np.cos(at / 4):.3f}" for at in range(25)]
    (folder / "test-moments.csv").write_text("\n".join(["ramp,wave", *rows]) + "\n", "utf-8")
    draw = np.random.default_rng(7)
    for kind, light in (("dark", 0), ("light", 100)):
        (folder / "test-photos" / kind).mkdir(parents=True)
        for at in range(3):
            pixels = (draw.integers(0, 120, (8, 8, 3)) + light).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "test-photos" / kind / f"{at}.png")


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_it_is_scored_once_and_changes_nothing(name: str, place: Path) -> None:
    settings, file, console = {**FAMILIES, **MORE}[name] | SHORT, f"test-{CASES[name]}", io.StringIO()
    train(read_layers(settings | {"out": f"{name} plain"}, environ={}), out=io.StringIO())
    made, end = train(read_layers(settings | {"out": name, "data.test": (file,)}, environ={}), out=console)
    found, plain = end.test, place / f"{name} plain"
    assert found is not None
    for written in ("model.safetensors", "metrics.jsonl"):
        assert (made.out / written).read_bytes() == (plain / written).read_bytes()
    told = json.loads((made.out / "scores.json").read_text("utf-8"))
    tested, alone = told.pop("test"), json.loads((plain / "scores.json").read_text("utf-8"))
    conclusions = told.pop("conclusions"), alone.pop("conclusions")
    assert told == alone
    assert [line for line in conclusions[0] if "; the test data chose nothing" in line] or end.counted
    assert tested["files"] == [file]
    assert tested["count"] == found.scores.count > 0
    page = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", (made.out / "report.html").read_text("utf-8"))).split())
    card = (made.out / "README.md").read_text("utf-8")
    assert f"test data ({file}), scored once:" in console.getvalue()
    scores, things = found.scores, found.scores.things
    for name_of_score, number in scores.numbers.items():
        assert tested["scores"][name_of_score] == pytest.approx(number)
        assert scores.told(name_of_score) in console.getvalue()
        shown = MEASURES[name_of_score].with_interval(number, scores.intervals[name_of_score])
        assert shown in page
        assert shown in card
    for text in (page, card):
        assert f"On {scores.count:,} {things} of the test data, scored once, after training" in text
    assert [one.name for one in found.baselines] == [one.name for one in end.found.baselines] if end.found else []
    assert found.baselines
    for baseline in found.baselines:
        assert tested["baselines"][baseline.name][scores.main] == baseline.scores.numbers[scores.main]
        assert score_cell(baseline.scores, scores.main) in card
    leaked = LEAKED if CASES[name] in FRESH else 0
    assert (end.leaks, tested["leaks"]) == (leaked, leaked)
    assert any(f"leak: the source of {LEAKED} records" in line for line in conclusions[0]) == bool(leaked)
    if name not in ("gpt2", "forecast"):  # which eval reads in other windows
        assert tested["scores"] == pytest.approx(dict(evaluate(load(made.out), Path(file)).scores.numbers))


@pytest.mark.slow
def test_a_resumed_run_keeps_it(place: Path) -> None:
    layers = read_layers(FAMILIES["classes"] | SHORT | {"out": "kept", "data.test": ("test-labels.csv",)}, environ={})
    train(layers, out=io.StringIO())
    assert from_yaml(place / "kept" / "recipe.yaml").data.test == (Path("test-labels.csv"),)
    again = read_layers({"out": "kept"}, environ={})
    assert resumed_plan(again).encoded.test
    other = read_layers({"out": "kept", "data.test": ("entailed.csv",)}, environ={})
    with pytest.raises(UserError, match=r"entailed.csv has changed since this run began"):
        resumed_plan(other)
    file = place / "test-labels.csv"
    before = file.read_text("utf-8")
    file.write_text(FRESH["labels.csv"], "utf-8")
    with pytest.raises(UserError, match=r"test-labels.csv has changed since this run began"):
        resumed_plan(again)
    file.write_text(before, "utf-8")


REFUSED = {
    "the training data": ({"data.test": ("labels.csv",)}, "data.test labels.csv is the training data"),
    "the validation data": (
        {"data.test": ("test-labels.csv",), "data.validation": ("test-labels.csv",)},
        "data.test test-labels.csv is the validation data, which chooses the weights; give other records",
    ),
    "no file": ({"data.test": ("gone.csv",)}, "gone.csv does not exist"),
    "a pattern too": ({"data.test": ("a.csv",), "data.test_from": "x"}, "data.test and data.test_from are both given"),
    "another task": ({"data.test": ("pairs.tsv",), "data.columns": "1,2"}, "data.test pairs.tsv looks like text pairs"),
    "dates": ({"data.test": ("a.csv",), "data.path": ("dates",)}, "dates has no files, so data.test a.csv is not"),
    "one of two": (
        {"data.path": None, "data.source": "text.txt", "data.target": "pairs.tsv", "data.test": ("labels.csv",)},
        "data.test is labels.csv; allowed: two files, of sources and of targets",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_a_test_is_refused(case: str, place: Path) -> None:
    (place / "a.csv").touch()
    settings, said = REFUSED[case]
    given = {key: value for key, value in ({"data.path": ("labels.csv",)} | settings).items() if value is not None}
    with pytest.raises(UserError, match=re.escape(said)):
        preflight(read_layers({**given, "out": "refused"}, environ={}), None)
    assert not (place / "refused").exists()


@pytest.mark.slow
def test_a_bad_record_is_refused_before_training(place: Path) -> None:
    (place / "bad.csv").write_text("text,label\nthe fish,up\nthe bird,sideways\n", "utf-8")
    with pytest.raises(UserError, match=r"bad.csv:3: .*sideways"):
        headway.train("labels.csv", test="bad.csv", out="bad", quiet=True, steps=2, preset="bert-tiny", dim=16, heads=2)
    assert not (place / "bad").exists()


@pytest.mark.slow
def test_with_skip_bad_training_leaves_out_what_the_test_has() -> None:
    query = {"data.path": ("labels.csv",), "data.test": ("test-labels.csv",), "data.skip_bad": True}
    splits = load_splits(resolve(read_layers(query, environ={})))
    assert splits.test is not None
    tested = {record.fields[0] for record in splits.test()}
    learned = [record.fields[0] for side in (splits.train, splits.validation) for record in side()]
    assert learned
    assert not tested & set(learned)
    assert "in training and validation 3" in str(splits.skipped)
    assert splits.left_out is not None
    assert "; of the test data: 0 lines left out" in splits.left_out


def test_leaks_are_counted_by_whole_sources() -> None:
    def document(*pieces: str) -> list[Record]:
        return [Record((piece,), Path("a"), at, goes_on=at > 0) for at, piece in enumerate(pieces)]

    pairs = [Record(("a", "x"), Path("a"), 1), Record(("b", "x"), Path("a"), 2), Record(("a", "y"), Path("a"), 3)]
    assert leaks(pairs, [Record(("a", "z"), Path("b"), 1)]) == 2
    assert leaks(pairs, []) == 0
    assert leaks(document("a", "b"), document("ab")) == 1  # however it is cut
    assert leaks(document("a", "b"), document("a")) == 0
    assert leaks([*document("a", "b"), *document("c")], [*document("c"), *document("abc")]) == 1
