"""One table says how a model is asked what it has learned, while it trains and in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from torch import nn

from headway.app.report import final
from headway.app.training.exams import ANSWERS, WAYS, Asked, sides, way_of
from headway.app.training.plan import Plan
from headway.data.drawn import drawn
from headway.data.preprocess import ImagePreprocess, SoundPreprocess
from headway.data.sources import Record
from headway.tasks.causal import Causal
from headway.tasks.described import Captions
from headway.tasks.hidden import HiddenPatches
from headway.tasks.pairs import Pairs
from headway.tasks.senses import Hearing, Sight
from headway.tasks.spoken import Spoken
from headway.tasks.task import Task
from headway.train.loop import Sample
from tests.tasks.learners import LETTERS

SIGHT, HEARING = Sight(ImagePreprocess((8, 8))), Hearing(SoundPreprocess())
TASKS: dict[str, tuple[Task, type | None]] = {
    "images": (Captions(SIGHT, LETTERS, 8, 1), Captions),
    "speech by a decoder": (Captions(HEARING, LETTERS, 8, 1), Spoken),
    "speech": (Spoken(HEARING, LETTERS, 2), Spoken),
    "pairs": (Pairs(LETTERS, LETTERS, 1), Pairs),
    "hidden patches": (HiddenPatches(SIGHT), None),
    "texts": (Causal(LETTERS), None),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_its_way(name: str) -> None:
    task, way = TASKS[name]
    assert way_of(task) is (WAYS[way] if way else None)
    assert way_of(task.measured()) is way_of(task)


def test_what_is_drawn_belongs_to_what_is_asked() -> None:
    assert set(final.DRAWN) <= set(WAYS)


def test_texts_are_measured_alike_at_each_evaluation_and_in_the_end() -> None:
    """The first records in the file are single words, which alone would be measured as such."""
    texts = ["word"] * ANSWERS + [f"this is sentence {at} of so{at} many" for at in range(4 * ANSWERS)]
    records = [Record((f"{at}", text), Path("a.tsv"), at + 1) for at, text in enumerate(texts)]
    made, model = cast(Plan, None), nn.Identity()
    in_the_end, at_each = Asked(made, model, records).by, Asked(made, model, drawn(records, ANSWERS)).by
    assert in_the_end == at_each == ("bleu", "chrf", "exact")


def test_answers_and_what_was_wanted() -> None:
    samples: list[Any] = [Sample("a", "b", "c"), Sample("d", "e", "f")]
    assert sides(samples) == (["b", "e"], ["c", "f"])
