"""How answers are gathered and what they are measured by, in training and in `headway eval` alike."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.data.preprocess import ImagePreprocess, SoundPreprocess
from headway.data.records import Record
from headway.data.splits import subsample
from headway.model import Model
from headway.tasks.base import VALIDATION_ANSWERS, Task, validation_loss
from headway.tasks.captioning import Captioning, SpeechSeq2Seq
from headway.tasks.causal_lm import CausalLM
from headway.tasks.ctc_speech import CTC
from headway.tasks.generation import GenerationOptions
from headway.tasks.inputs import ImageInput, MelInput
from headway.tasks.masked_image import MaskedImage
from headway.tasks.results import CollectedAnswers, Sample
from headway.tasks.seq2seq import Seq2Seq, metrics_for, text_scores
from headway.tasks.tagging import Tagging
from headway.tasks.text_classification import TextClassification
from tests.cli.folders import FOLDERS, LABELS, TAGS, pair_lines, sentences
from tests.tasks.learners import LETTERS


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {name: FOLDERS[name]() for name in ("pairs", "labels", "tags")}


def record(*fields: str) -> Record:
    return Record(fields, Path("data.tsv"), 1)


def translations(count: int, words: int) -> list[Record]:
    draw = random.Random(0)
    return [record("x", " ".join(f"w{draw.randrange(words)}" for _ in range(12))) for _ in range(count)]


TARGETS: dict[str, tuple[Callable[[], list[Record]], str]] = {
    "dates": (lambda: [record("3. Mai 2021", "2021-05-03")] * 9, "exact"),
    "one word": (lambda: [record("New York", "city")] * 9, "exact"),
    "900 words": (lambda: translations(200, 900), "bleu"),
    # every word many times, and too many for a notation
    "5,000 words, many times": (lambda: translations(30_000, 5000), "bleu"),
    "few": (lambda: translations(12, 20), "bleu"),
    "40 words": (lambda: translations(200, 40), "word_error_rate"),
    "40 words, many times": (lambda: translations(30_000, 40), "word_error_rate"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_targets_decide_what_they_are_measured_by(name: str) -> None:
    make, by = TARGETS[name]
    assert metrics_for(iter(make()))[0] == by


@pytest.mark.slow
def test_what_is_written_comes_in_the_order_of_the_records(models: dict[str, Model]) -> None:
    records = [record(*line.split("\t")) for line in pair_lines(models, 14)]
    task, model, options = models["pairs"].task, models["pairs"].model, GenerationOptions()
    assert isinstance(task, Seq2Seq)
    found, sources = task.evaluate(model, records).samples, [one.fields[0] for one in records]
    assert [(sample.source, sample.wanted) for sample in found] == [one.fields for one in records]
    alone = [task.answers(model, [source], options)[0][0] for source in sources]
    assert [sample.answer for sample in found] == alone


@pytest.mark.parametrize("name", ["labels", "tags"])
def test_what_is_named_comes_in_the_order_of_the_records(name: str, models: dict[str, Model]) -> None:
    known = models[name].tokenizer
    assert known is not None
    task = TextClassification(known, LABELS) if name == "labels" else Tagging(known, TAGS)
    texts = sentences(9, 3, 4)
    records = [record(text, "good" if name == "labels" else " ".join("O" for _ in text.split())) for text in texts]
    samples = task.evaluate(models[name].model, records).samples
    assert [(sample.source, sample.wanted) for sample in samples] == [one.fields for one in records]
    assert samples == [task.evaluate(models[name].model, [one]).samples[0] for one in records]
    answers = CollectedAnswers()
    answers.add(samples)
    assert task.scores(answers).unit == "words"


@given(words=st.integers(1, 9), count=st.integers(1, 5))
def test_short_sources_are_told_apart_by_their_letters(words: int, count: int) -> None:
    samples = [Sample(" ".join(["four"] * words), "a", "a")] * count
    answers = CollectedAnswers()
    answers.add(samples)
    scores = text_scores(answers, ("exact",))
    assert scores.unit == ("characters" if words <= 4 else "words")
    [bucket] = scores.buckets
    length = 5 * words - 1 if words <= 4 else words
    assert bucket.first <= length <= (bucket.last or length)


def test_nothing_to_say_has_no_loss() -> None:
    class Empty:
        targets = 0

    class Nothing:
        def without_augmentation(self) -> Nothing:
            return self

        def loss(self, model: torch.nn.Module, batch: Empty) -> torch.Tensor:
            return torch.zeros(())

    assert validation_loss(Nothing(), torch.nn.Identity(), [Empty()]) == 0.0  # pyright: ignore[reportArgumentType]


SIGHT, HEARING = ImageInput(ImagePreprocess((8, 8))), MelInput(SoundPreprocess())
TASKS: dict[str, tuple[Task, bool]] = {
    "images": (Captioning(SIGHT, LETTERS, 8, 1), True),
    "speech by a decoder": (SpeechSeq2Seq(HEARING, LETTERS, 8, 1), True),
    "speech": (CTC(HEARING, LETTERS, 2), True),
    "pairs": (Seq2Seq(LETTERS, LETTERS, 1), True),
    "hidden patches": (MaskedImage(SIGHT), False),
    "texts": (CausalLM(LETTERS), False),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_validated_by_answers_or_by_its_loss(name: str) -> None:
    task, answers = TASKS[name]
    assert (task.validation_records > 0) == answers
    assert type(task.without_augmentation()) is type(task)


def test_texts_are_measured_alike_at_each_evaluation_and_in_the_end() -> None:
    """The first records in the file are single words, which alone would be measured as such."""
    most = VALIDATION_ANSWERS
    texts = ["word"] * most + [f"this is sentence {at} of so{at} many" for at in range(4 * most)]
    records = [record(f"{at}", text) for at, text in enumerate(texts)]
    assert metrics_for(records) == metrics_for(subsample(records, most)) == ("bleu", "chrf", "exact")


def test_answers_and_what_was_wanted() -> None:
    answers = CollectedAnswers()
    answers.add([Sample("a", "b", "c"), Sample("d", "e", "f")])
    assert (answers.answers, answers.wanted) == (["b", "e"], ["c", "f"])
