"""Sampling weights: how often the records of each file are drawn in an epoch, in every order and process alike."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.order import Buckets, DataMixture, StreamWindows
from headway.data.records import Record
from headway.data.splits import WeightedPaths
from headway.errors import UserError
from headway.training.build import describe_choices
from headway.training.plan import Plan, plan
from headway.training.recipe_sources import preflight, read_layers
from headway.training.run import train
from tests.train.disks import same
from tests.train.runs import FAMILIES, Trial, data_in

SHORT = {"train.steps": "12", "train.threads": "1", "data.validation_split": "0.1"}


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("weighted")) as folder:
        for name, count in (("many", 60), ("few", 20)):
            rows = (f"{name} text {at},{'ab'[at % 2]}\n" for at in range(count))
            (folder / f"{name}.csv").write_text("text,label\n" + "".join(rows), "utf-8")
            (folder / f"{name}.txt").write_text(f"the {name} words of a book. " * 10 * count, "utf-8")
        yield folder


RUNS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.25])), min_size=1, max_size=4)


@given(RUNS, st.integers(0, 5))
def test_each_item_is_drawn_as_often_as_its_weight_says(runs: list[tuple[int, float]], epoch: int) -> None:
    ends = tuple(np.cumsum([size for size, _ in runs]).tolist())
    mixture, items = DataMixture(ends, tuple(weight for _, weight in runs)), np.arange(ends[-1])
    drawn = mixture.drawn(items, 7, epoch)
    counts, start = Counter(drawn.tolist()), 0
    if any(round(size * weight) for size, weight in runs):
        for (size, weight), end in zip(runs, ends, strict=True):
            own = [counts[item] for item in range(start, end)]
            assert set(own) <= {int(weight), int(weight) + 1}
            assert sum(own) == size * int(weight) + round(size * (weight % 1))
            start = end
    assert mixture.drawn(items, 7, epoch).tolist() == drawn.tolist()


def test_weights_of_one_change_nothing() -> None:
    lengths, mixture = np.arange(1, 41), DataMixture((10, 40), (1.0, 1.0))
    plain, ones = Buckets(lengths, 60, 3), Buckets(lengths, 60, 3, mixture=mixture)
    assert [one.tolist() for one in plain.epoch(2)] == [one.tolist() for one in ones.epoch(2)]
    assert mixture.total(lengths.cumsum()[[9, 39]].tolist()) == lengths.sum()
    assert DataMixture((10, 40), (2.0, 0.5)).total((10, 40)) == 35


def test_fractions_are_drawn_anew_in_each_epoch() -> None:
    order = Buckets(np.ones(40, int), 8, 3, mixture=DataMixture((40,), (0.5,)))
    epochs = [set(np.concatenate(order.epoch(number)).tolist()) for number in range(6)]
    assert all(len(drawn) == 20 for drawn in epochs)
    assert len(set().union(*epochs)) > 35
    assert all(one != other for at, one in enumerate(epochs) for other in epochs[:at])


def test_spans_are_of_the_set_in_which_they_begin() -> None:
    order = StreamWindows(1000, 10, 4, 3, DataMixture((300, 1000), (3.0, 1.0)))
    drawn = np.concatenate(order.epoch(1))
    counts = Counter(drawn.tolist())
    assert all(count == (3 if start < 300 else 1) for start, count in counts.items())
    assert 85 <= len(drawn[drawn < 300]) <= 90


def planned(family: str, *paths: str, **more: Any) -> Plan:
    settings = {**FAMILIES[family], **SHORT, "data.path": paths, "out": "run", **more}
    return plan(read_layers(settings, environ={}))


@pytest.mark.slow
@pytest.mark.parametrize("first", ["few", "many"])  # in whichever order files are given
def test_records_of_a_file_are_drawn_by_its_weight(first: str) -> None:
    second = {"few": "many", "many": "few"}[first]
    paths, weights = (f"{first}.csv", f"{second}.csv"), {"few": 3.0, "many": 0.5}
    made = planned("votes", *paths, **{"data.weights": (weights[first], weights[second])})
    splits, order = made.splits, made.encoded.batches(80, 1).steps.order
    owners = [record.file.stem for record in splits.train()]
    sizes = Counter(owners)
    drawn = [row for batch in order.epoch(0) for row in batch.tolist()]
    assert Counter(owners[row] for row in drawn) == {"few": 3 * sizes["few"], "many": round(sizes["many"] / 2)}
    assert {record.file.stem for record in splits.validation()} == {"few", "many"}
    assert isinstance(order, Buckets)
    assert made.encoded.tokens == pytest.approx(order.lengths[drawn].sum(), rel=0.02)
    assert f"{weights[first]:g} × {first}.csv, {weights[second]:g} × {second}.csv" in "".join(describe_choices(made))


def test_files_belong_to_the_folder_or_archive_that_was_given() -> None:
    weighted = WeightedPaths((Path("a"), Path("b/c.tar"), Path("d.csv")), (1.0, 2.0, 3.0))
    for at, file in enumerate(("a/cat/1.png", "b/c.tar/cat/1.png", "d.csv")):
        assert weighted.number(Record(("x",), Path(file), 1)) == at
    with pytest.raises(UserError, match=r"e.csv is in none of the files and folders that have weights"):
        weighted.number(Record(("x",), Path("e.csv"), 1))


@pytest.mark.slow
def test_texts_are_drawn_by_their_weight() -> None:
    made = planned("gpt2", "few.txt", "many.txt", **{"data.weights": (4.0, 1.0)})
    plain = planned("gpt2", "few.txt", "many.txt")
    order, train = made.encoded.batches(192, 1).steps.order, plain.encoded
    assert isinstance(order, StreamWindows)
    assert order.mixture is not None
    few, whole = order.mixture.ends
    assert whole == order.total == train.tokens  # validation is the end of the stream, which is no row of training
    assert made.encoded.tokens == whole + 3 * few
    drawn = Counter(start < few for batch in order.epoch(0) for start in batch.tolist())
    assert drawn[True] / (drawn[True] + drawn[False]) == pytest.approx(4 * few / (whole + 3 * few), abs=0.03)


@pytest.mark.long
def test_an_interrupted_run_draws_the_same(tmp_path: Path) -> None:
    made = planned("classes", "few.csv", "many.csv", **{"data.weights": (2.5, 1.0), "train.checkpoint_every": "5"})
    whole, cut = (Trial(made, tmp_path / name) for name in ("whole", "cut"))
    for trial in (whole, cut):
        trial.folder.mkdir()
    whole.run()
    cut.run(7)
    cut.run(resume=True)
    assert cut.seen == whole.seen
    assert same(cut.left()[0], whole.left()[0])


REFUSED = {
    "too few": (("few.csv", "many.csv"), "3", "data.weights has 1 number for 2 paths of data; give two files"),
    "one file": (("few.csv",), "3", "data.weights has 1 number for 1 path of data"),
    "none": (("few.csv", "many.csv"), "0,1", "--data.weights 0.0,1.0 is out of bounds; allowed: 0.001 to 1000"),
    "a word": (("few.csv", "many.csv"), "a,b", "--data.weights a,b is not a list"),
    "dates": (("dates",), "3", "dates has no files for data.weights to choose from"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_weights_that_say_nothing_are_refused(case: str) -> None:
    paths, weights, said = REFUSED[case]
    with pytest.raises(UserError, match=re.escape(said)):
        preflight(read_layers({"data.path": paths, "data.weights": weights, "out": "refused"}, environ={}), None)


@pytest.mark.slow
def test_the_recipe_keeps_them(place: Path) -> None:
    settings = {**FAMILIES["votes"], **SHORT, "train.steps": "2", "data.path": ("few.csv", "many.csv"), "out": "kept"}
    train(read_layers({**settings, "data.weights": "3,1"}, environ={}), out=io.StringIO())
    assert "weights: [3.0, 1.0]" in (place / "kept" / "recipe.yaml").read_text("utf-8")
