"""How answers are gathered and what they are measured by, in training and in `headway eval` alike."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.answer import Wish
from headway.app.training.measure import held_loss, measures_for, name_scores, named, pair_scores, written
from headway.checkpoint import Loaded
from headway.data.sources import Record
from headway.tasks.labels import Labels, Tags
from headway.train.loop import Sample
from tests.app.folders import LABELS, TAGS, pair_lines, sentences


def record(*fields: str) -> Record:
    return Record(fields, Path("data.tsv"), 1)


def translations(count: int, words: int) -> list[Record]:
    draw = random.Random(0)
    return [record("x", " ".join(f"w{draw.randrange(words)}" for _ in range(12))) for _ in range(count)]


@pytest.mark.parametrize(
    ("records", "by"),
    [
        ([record("3. Mai 2021", "2021-05-03")] * 9, "exact"),
        ([record("New York", "city")] * 9, "exact"),
        (translations(200, 900), "bleu"),
        (translations(30_000, 5000), "bleu"),  # every word many times, and too many for a notation
        (translations(12, 20), "bleu"),
        (translations(200, 40), "word_error_rate"),
        (translations(30_000, 40), "word_error_rate"),
    ],
)
def test_targets_decide_what_they_are_measured_by(records: list[Record], by: str) -> None:
    assert measures_for(iter(records))[0] == by


def test_what_is_written_comes_in_the_order_of_the_records(models: dict[str, Loaded]) -> None:
    records = [record(*line.split("\t")) for line in pair_lines(models, 14)]
    samples = written(models["pairs"].speaker(), records, Wish())
    assert [(sample.source, sample.wanted) for sample in samples] == [one.fields for one in records]
    assert [sample.answer for sample in samples[:3]] == [
        written(models["pairs"].speaker(), [one], Wish())[0].answer for one in records[:3]
    ]


@pytest.mark.parametrize("name", ["labels", "tags"])
def test_what_is_named_comes_in_the_order_of_the_records(name: str, models: dict[str, Loaded]) -> None:
    known = models[name].tokenizer
    assert known is not None
    task = Labels(known, LABELS) if name == "labels" else Tags(known, TAGS)
    texts = sentences(9, 3, 4)
    records = [record(text, "good" if name == "labels" else " ".join("O" for _ in text.split())) for text in texts]
    samples = named(task, models[name].model, records)
    assert [(sample.source, sample.wanted) for sample in samples] == [one.fields for one in records]
    assert samples == [named(task, models[name].model, [one])[0] for one in records]
    assert name_scores(task, iter(samples)).unit == "words"


@given(words=st.integers(1, 9), count=st.integers(1, 5))
def test_short_sources_are_told_apart_by_their_letters(words: int, count: int) -> None:
    samples = [Sample(" ".join(["four"] * words), "a", "a")] * count
    scores = pair_scores(iter(samples), ("exact",))
    assert scores.unit == ("letters" if words <= 4 else "words")
    [bucket] = scores.buckets
    length = 5 * words - 1 if words <= 4 else words
    assert bucket.first <= length <= (bucket.last or length)


def test_nothing_to_say_has_no_loss() -> None:
    class Empty:
        targets = 0

    class Nothing:
        def loss(self, model: torch.nn.Module, batch: Empty) -> torch.Tensor:
            return torch.zeros(())

    assert held_loss(Nothing(), torch.nn.Identity(), [Empty()]) == 0.0  # pyright: ignore[reportArgumentType]
