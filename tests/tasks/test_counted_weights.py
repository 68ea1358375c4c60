"""A text classifier begins as naive Bayes, and training leaves it no worse."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.metrics.baselines import WordCounts, naive_bayes
from headway.model import Model
from headway.training.metrics_log import read_lines
from headway.training.plan import Plan, plan
from headway.training.recipe_sources import read_layers

CLASSES = {"good": ["fine", "warm", "bright", "kind"], "bad": ["dull", "cold", "weak", "cruel"], "odd": ["blue"]}
WORDS = [
    "film",
    "story",
    "actor",
    "scene",
    "plot",
    "music",
    "camera",
    "ending",
    "voice",
    "crowd",
    *(word for words in CLASSES.values() for word in words),
]
SMALL = {"model.dim": "16", "model.heads": "2", "model.layers": "1", "train.threads": "1", "seed": "3"}


def reviews(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts in which words of their class are somewhat more frequent than others."""
    draw = random.Random(seed)
    labels = [draw.choice(["good", "good", "bad", "odd"]) for _ in range(count)]
    return [(" ".join(draw.choices([*WORDS, *CLASSES[label]], k=draw.randint(3, 12))), label) for label in labels]


def planned(folder: Path, **more: str) -> Plan:
    file = folder / "reviews.tsv"
    file.write_text(
        "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in reviews(150, 1)), encoding="utf-8"
    )
    given = {"data.path": (str(file),), "train.steps": "2", "out": folder / "run", **SMALL, **more}
    return plan(read_layers(given, environ={}), folder / "scratch")


def token_texts(made: Plan, texts: list[str]) -> list[str]:
    """Texts whose words are the tokens of the model."""
    assert made.setup.tokenizer is not None
    return [" ".join(map(str, row)) for row in made.setup.tokenizer.encode_batch(texts)]


@pytest.mark.slow
def test_the_first_logits_are_those_of_naive_bayes(tmp_path: Path) -> None:
    made = planned(tmp_path)
    assert made.recipe.model.preset == "text-classifier-tiny"
    train = [record.fields for record in made.splits.train()]
    asked = [text for text, _ in reviews(60, 2)]
    model = made.build().eval()
    found = made.as_model(model).predict(asked)
    known = token_texts(made, [text for text, _ in train])
    answers = naive_bayes(known, [label for _, label in train], token_texts(made, asked))
    assert [one.to_text().split()[0] for one in found] == answers

    vocab, labels = made.setup.tokenizer.vocab, ["bad", "good", "odd"]  # type: ignore[union-attr]
    rows = [[int(word) for word in text.split()] for text in known]
    counted = WordCounts.of(rows, [labels.index(label) for _, label in train], 3, vocab)
    votes, prior, scale = counted.likelihoods(), counted.prior(), counted.temperature()
    for text in token_texts(made, asked):
        ids = [int(word) for word in text.split()]
        wanted = scale * (prior + votes[ids].sum(0))
        with torch.inference_mode():
            logits = model(torch.tensor([ids]))[0].numpy()
        np.testing.assert_allclose(logits - logits.mean(), wanted - wanted.mean(), atol=1e-5)


TINY: dict[str, Any] = {"dim": 16, "heads": 2, "layers": 1, "batch": 150}


def trained(rows: list[tuple[str, str]], folder: Path, **options: Any) -> Model:
    given: dict[str, Any] = {"task": "text-classification", "out": folder / "run", "seed": 1, "threads": 1}
    return headway.train(rows, quiet=True, **given, **options)


@pytest.mark.slow
def test_training_leaves_it_no_worse_than_naive_bayes(tmp_path: Path) -> None:
    train, test = reviews(200, 1), reviews(400, 2)
    model = trained(train, tmp_path, steps=60, **TINY)
    known, given = zip(*train, strict=True)
    texts, labels = zip(*test, strict=True)
    simple = sum(map(str.__eq__, naive_bayes(known, given, texts), labels)) / len(labels)
    assert model.evaluate(test).scores.numbers["accuracy"] >= simple


@pytest.mark.long
def test_order_is_learned_where_counts_tell_nothing(tmp_path: Path) -> None:
    """At the small learning rate that counted weights have."""
    draw = random.Random(1)

    def row() -> tuple[str, str]:
        words, label = draw.choices(["film", "story", "actor"], k=6), draw.choice(["cat", "dog"])
        first, second = sorted(draw.sample(range(6), 2))
        words[first], words[second] = label, "dog" if label == "cat" else "cat"
        return " ".join(words), label

    rows = list(dict(row() for _ in range(900)).items())
    model = trained(rows[200:], tmp_path, steps=1000)  # as few records have by default
    assert model.evaluate(rows[:200]).scores.numbers["accuracy"] > 0.9


@pytest.mark.slow
def test_other_models_are_drawn_and_learn_at_their_own_rate(tmp_path: Path) -> None:
    bert, counted = planned(tmp_path, **{"model.preset": "bert-tiny"}), planned(tmp_path)
    assert bert.counting_task() is None
    assert counted.counting_task() is not None
    assert (counted.recipe.train.lr or 0) < (bert.recipe.train.lr or 0)


def test_counts_without_a_text_are_those_of_the_others() -> None:
    rows, labels = [[0, 1, 1], [0, 2], [1, 2, 2, 3], [0, 3]], [0, 1, 0, 1]
    found = WordCounts.of(rows, labels, 2, 5).left_out()
    for at, row in enumerate(rows):
        others = WordCounts.of(rows[:at] + rows[at + 1 :], labels[:at] + labels[at + 1 :], 2, 5)
        seen, size = others.counts[row].any(1), others.counts.sum(0) + 4  # words that all texts have
        wanted = others.prior() + (np.log(others.counts[row] + 1) - np.log(size))[seen].sum(0)
        np.testing.assert_allclose(found[at], wanted, atol=1e-12)


def test_a_text_alone_in_its_class_has_a_finite_probability() -> None:
    counted = WordCounts.of([[0, 1], [0], [2]], [0, 0, 1], 2, 3)
    assert np.isfinite(counted.left_out()).all()
    assert 0.01 <= counted.temperature() <= 1


@pytest.mark.slow
def test_the_first_weights_stay_unless_others_lose_no_answer_and_have_a_lower_loss(tmp_path: Path) -> None:
    """A learning rate that spoils them leaves them as they were."""
    model = trained(reviews(100, 1), tmp_path, steps=20, lr=0.1, **TINY)
    lines = read_lines(tmp_path / "run" / "metrics.jsonl")
    found = {line["step"]: line["valid"] for line in lines if "valid" in line and "chosen" not in line}
    able = [step for step, values in found.items() if values["accuracy"] >= found[0]["accuracy"]]
    [chosen] = [line["chosen"] for line in lines if "chosen" in line]
    assert chosen == [min(able, key=lambda step: found[step]["loss"])]
    assert model.config.vocab < 16_000  # type: ignore[union-attr]
