"""A text classifier begins as naive Bayes, and training leaves it no worse."""

from __future__ import annotations

import json
import math
import random
import signal
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.data.tokenizer import Tokenizer
from headway.metrics.baselines import WordCounts, naive_bayes
from headway.model import Model
from headway.nn.trunk import VotingTrunk
from headway.tasks.batches import PackedBatch
from headway.tasks.text_classification import LabelBatch, TextClassification
from headway.training.learner import StepResult
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


def planned(folder: Path, rows: Sequence[tuple[str, str]] = (), **more: str) -> Plan:
    file = folder / "reviews.tsv"
    lines = (f"{text}\t{label}\n" for text, label in rows or reviews(150, 1))
    file.write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")
    given = {"data.path": (str(file),), "train.steps": "2", "out": folder / "run", **SMALL, **more}
    return plan(read_layers(given, environ={}), folder / "scratch")


def token_texts(tokenizer: Tokenizer | None, texts: Sequence[str]) -> list[str]:
    """Texts whose words are the tokens of the model."""
    assert tokenizer is not None
    return [" ".join(map(str, row)) for row in tokenizer.encode_batch(texts)]


@pytest.mark.slow
def test_the_first_logits_are_those_of_naive_bayes(tmp_path: Path) -> None:
    made = planned(tmp_path)
    assert made.recipe.model.preset == "text-classifier-tiny"
    train = [record.fields for record in made.splits.train()]
    asked = [text for text, _ in reviews(60, 2)]
    model = made.build().eval()
    found = made.as_model(model).predict(asked)
    known = token_texts(made.setup.tokenizer, [text for text, _ in train])
    answers = naive_bayes(known, [label for _, label in train], token_texts(made.setup.tokenizer, asked))
    assert [one.to_text().split()[0] for one in found] == answers

    vocab, labels = made.setup.tokenizer.vocab, ["bad", "good", "odd"]  # type: ignore[union-attr]
    rows = [[int(word) for word in text.split()] for text in known]
    counted = WordCounts.of(rows, [labels.index(label) for _, label in train], 3, vocab)
    votes, prior, scale = counted.likelihoods(), counted.prior(), counted.temperature()
    for text in token_texts(made.setup.tokenizer, asked):
        ids = [int(word) for word in text.split()]
        wanted = scale * (prior + votes[ids].sum(0))
        with torch.inference_mode():
            logits = model(torch.tensor([ids]))[0].numpy()
        np.testing.assert_allclose(logits - logits.mean(), wanted - wanted.mean(), atol=1e-5)


TINY: dict[str, Any] = {"dim": 16, "heads": 2, "layers": 1, "batch": 150}


def trained(rows: list[tuple[str, str]] | Path, folder: Path, **options: Any) -> Model:
    given: dict[str, Any] = {"task": "text-classification", "out": folder / "run", "seed": 1, "threads": 1}
    return headway.train(rows, quiet=True, **given, **options)


KEPT = "kept the counted weights: training did not lower the held-out loss by more than its standard error"


@pytest.mark.slow
def test_counts_that_are_kept_are_naive_bayes_of_all_records(tmp_path: Path) -> None:
    """Also of those that were held out, on which it was scored before they were counted."""
    train, test = reviews(200, 1), reviews(400, 2)
    model, made = trained(train, tmp_path, steps=8, **TINY), tmp_path / "run"
    lines = read_lines(made / "metrics.jsonl")
    [last] = [line for line in lines if "chosen" in line]
    [first] = [line for line in lines if line["step"] == 0]
    assert (last["chosen"], last["valid"]) == ([0], first["valid"])
    (known, labels), asked = zip(*train, strict=True), [text for text, _ in test]
    answers = naive_bayes(token_texts(model.tokenizer, known), labels, token_texts(model.tokenizer, asked))
    assert [one.to_dict()["output"] for one in model.predict(asked)] == answers

    scores = json.loads((made / "scores.json").read_text("utf-8"))
    assert scores["scores"]["accuracy"] == first["valid"]["accuracy"]
    told = f"{KEPT}; in the end they were counted anew with the held-out texts, and the scores are of before that"
    assert told in scores["conclusions"]
    for page in ("report.html", "README.md"):
        assert told in (made / page).read_text("utf-8")


@pytest.mark.slow
def test_validation_files_are_never_counted(tmp_path: Path) -> None:
    """They are somebody's own choice, and may be a test set."""
    files, test = [tmp_path / name for name in ("train.tsv", "held.tsv")], reviews(40, 2)
    for file, rows in zip(files, (reviews(200, 1), test), strict=True):
        file.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    model = trained(files[0], tmp_path, steps=4, validation=files[1], **TINY)
    scores = json.loads((tmp_path / "run" / "scores.json").read_text("utf-8"))
    assert KEPT in scores["conclusions"]
    assert model.evaluate(test).scores.numbers["accuracy"] == scores["scores"]["accuracy"]


class Interrupts:
    """Sends the signal of Ctrl-C after a step."""

    def on_step(self, result: StepResult, seconds: float) -> None:
        if result.step == 3:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
def test_an_interrupted_run_keeps_the_same_counts(tmp_path: Path) -> None:
    """Byte for byte, with those of the held-out records."""
    rows, pace = reviews(100, 1), {"steps": 6, "evaluate_every": 2, **TINY}
    trained(rows, tmp_path / "whole", **pace)
    with pytest.raises(KeyboardInterrupt):
        trained(rows, tmp_path / "cut", callbacks=[Interrupts()], **pace)
    trained(rows, tmp_path / "cut", resume=True, **pace)
    for name in ("model.safetensors", "metrics.jsonl"):
        whole, cut = ((tmp_path / folder / "run" / name).read_bytes() for folder in ("whole", "cut"))
        assert whole == cut


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
def test_the_first_weights_stay_where_training_spoils_them(tmp_path: Path) -> None:
    model = trained(reviews(100, 1), tmp_path, steps=20, lr=0.1, **TINY)
    lines = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert [line["chosen"] for line in lines if "chosen" in line] == [[0]]
    assert model.config.vocab < 32_000  # type: ignore[union-attr]


@pytest.mark.slow
def test_words_of_held_out_texts_are_whole_and_vote_when_these_are_counted(tmp_path: Path) -> None:
    letters = "bdfgklmnprstvz"
    named = [
        (f"{text} {a}a{b}o", label)
        for (text, label), (a, b) in zip(reviews(150, 1), product(letters, letters), strict=False)
    ]
    made = planned(tmp_path, named)
    task, (train, held) = made.counting_task(), (made.encoded.train, made.encoded.held)
    assert isinstance(task, TextClassification)
    assert train is not None
    assert held is not None
    known, asked = ({*rows.stream()[0 : len(rows.stream())].tolist()} for rows in (train, held))
    unknown = sorted(asked - known)
    assert len(unknown) == len(held)  # the name that is in each
    first, again = made.build(), made.build()
    task.count_weights(again, train, held)
    assert isinstance(first, VotingTrunk)
    assert isinstance(again, VotingTrunk)
    assert not first.votes.weight[unknown].any()
    assert again.votes.weight[unknown].any(1).all()


@pytest.mark.slow
def test_the_standard_error_is_that_of_the_mean_loss_of_a_text(tmp_path: Path) -> None:
    made = planned(tmp_path)
    task, model = made.counting_task(), made.build().eval()
    assert task is not None
    texts, labels = zip(*(record.fields for record in made.splits.validation()), strict=True)
    found = made.as_model(model).predict(list(texts))
    told = [one.to_dict()["probabilities"][label] for one, label in zip(found, labels, strict=True)]
    losses = -np.log(told)
    wanted = losses.std(ddof=1) / np.sqrt(len(losses))
    assert task.loss_error(model, made.encoded.validation) == pytest.approx(wanted, rel=1e-5)
    [batch] = made.encoded.validation
    alone = LabelBatch(PackedBatch.of([np.array([1])]), batch.wanted[:1], (1,))
    assert task.loss_error(model, [alone]) == math.inf
