"""What a run chooses by itself: batch, learning rate, length of rows, epochs and preset, from the data and the time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.training.defaults import MIN_UPDATES, default_epochs, default_lr, fine_tuning_lr
from headway.training.plan import Plan, plan
from headway.training.recipe_sources import read_layers
from tests.data.files import coded, picture, put
from tests.train import runs

WORDS = (
    "the",
    "a",
    "film",
    "story",
    "cast",
    "was",
    "is",
    "never",
    "always",
    "good",
    "dull",
    "warm",
    "old",
    "and",
    "of",
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    texts = [" ".join(WORDS[(at * step + at) % len(WORDS)] for step in range(1, 19)) for at in range(600)]
    labels = "".join(f"{text} {at}\t{'good' if at % 2 else 'bad'}\n" for at, text in enumerate(texts))
    put(tmp_path, {"reviews.tsv": f"text\tlabel\n{labels}".encode(), "book.txt": "\n".join(texts).encode()})
    put(tmp_path, {f"photos/{at % 2}/{at}.png": coded(picture(at, 32, 32)) for at in range(2)})
    return tmp_path


def planned(path: str, **settings: Any) -> Plan:
    return plan(read_layers({"data.path": (path,), "train.threads": 1, **settings}, environ={}))


@pytest.mark.slow
def test_few_targets_in_a_batch_lower_the_learning_rate(place: Path) -> None:
    """At 2.3e-3, thirty labels a batch leave BERT at the loss of chance; images and series learn faster by it."""
    assert default_lr(128, "tokens", 32) < 1e-3 < default_lr(128, "tokens", 128) < default_lr(128, "tokens", 300)
    assert default_lr(128, "tokens", 300) == default_lr(128, "vectors", 32) == pytest.approx(0.3 / 128)
    assert default_lr(32, "images", 32) == 3e-3
    found = planned("reviews.tsv", **{"train.minutes": 1})
    assert (found.recipe.train.lr or 1) < 1e-3


@pytest.mark.slow
def test_characters_are_learned_at_a_higher_rate_than_subwords(place: Path) -> None:
    """Language models gain by it; verses in subwords, and pairs of sentences, lose: docs/LOG.md."""
    (place / "words.txt").write_text("".join(f"word{at} word{at * 7}\n" for at in range(1000)), encoding="utf-8")
    for tokenizer, times in (("characters", 2), ("words", 1)):
        found = planned("words.txt", **{"train.minutes": 1, "data.tokenizer": tokenizer})
        assert found.recipe.train.lr == pytest.approx(times * default_lr(found.config.dim, "tokens", 512))


@pytest.mark.slow
def test_new_taggers_learn_slower_and_trained_ones_at_the_rate_of_fine_tuning(place: Path) -> None:
    """On average 1.8 points fewer words were right on 1,000 sentences at the whole rate."""
    rows = [{"words": list(WORDS), "tags": ["O" if at % 3 else "B"] * len(WORDS)} for at in range(60)]
    (place / "tags.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    new = planned("tags.jsonl", **{"train.minutes": 1})
    assert new.recipe.train.lr == pytest.approx(default_lr(new.config.dim, "tokens", 256) / 3)
    sizes = {"model.dim": 16, "model.heads": 2, "model.layers": 1, "train.steps": 1, "data.task": "tagging"}
    headway.train("tags.jsonl", out=place / "run", quiet=True, **sizes)
    trained = planned("tags.jsonl", **{"train.minutes": 1, "model.from": place / "run"})
    assert trained.recipe.train.lr == fine_tuning_lr(16)


@pytest.mark.slow
def test_little_time_means_small_batches(place: Path) -> None:
    batches = [planned("book.txt", **{"train.minutes": minutes}).recipe.train.batch or 0 for minutes in (0.5, 5, 50)]
    assert batches == sorted(batches)
    assert batches[0] < batches[-1]


@pytest.mark.slow
def test_small_batches_of_a_text_have_short_rows(place: Path) -> None:
    found = planned("book.txt", **{"train.minutes": 1})
    assert found.recipe.data.max_length == found.config.context == 64
    [[first]] = found.encoded.batches(found.recipe.train.batch or 0, 1).between(1, 2)
    assert len(first.read.lengths) >= 8
    asked = planned("book.txt", **{"train.minutes": 1, "data.max_length": 128})
    assert asked.recipe.data.max_length == asked.config.context == 128


@pytest.mark.slow
def test_a_label_for_a_text_is_not_learned_by_heart(place: Path) -> None:
    found = planned("reviews.tsv")
    batch, steps, tokens = found.recipe.train.batch or 0, found.recipe.train.steps or 0, found.encoded.tokens
    assert steps * batch <= 1.01 * max(found.task.max_epochs * tokens, MIN_UPDATES * batch)


@pytest.mark.slow
def test_two_images_get_the_smallest_model_and_an_end(place: Path) -> None:
    found = planned("photos", **{"train.minutes": 10, "data.validation_split": 0})
    assert found.recipe.model.preset == found.task.presets_by_size[0]
    batch = found.recipe.train.batch or 0
    assert default_epochs(found.task, found.encoded, batch) * found.encoded.tokens / batch <= MIN_UPDATES + 1


@pytest.mark.slow
def test_preferences_are_learned_by_shorter_steps(tmp_path: Path) -> None:
    """A tenth of fine-tuning: docs/LOG.md has what the usual steps do to a model's answers."""
    with runs.data_in(tmp_path):
        base = runs.planned("chats")
        base.as_model(base.build()).save("base")
        pair = {"prompt": "the cat", "chosen": "a cat", "rejected": "the dog"}
        Path("preferred.jsonl").write_text(f"{json.dumps(pair)}\n" * 24, encoding="utf-8")
        start = {"model.from": "base", "out": "run", "train.steps": "2"}
        told, preferred = (planned(file, **start).recipe.train.lr for file in ("chats.jsonl", "preferred.jsonl"))
    assert told is not None
    assert preferred == pytest.approx(0.1 * told)
