"""Tasks of records: pairs, classes of texts, classes of words.  What is encoded, cut, framed and kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.data.order import random_for
from headway.errors import UserError
from headway.tasks.batches import ids
from headway.tasks.seq2seq import Seq2Seq
from headway.tasks.tagging import Tagging
from headway.tasks.text_classification import NO_TARGET, TextClassification
from tests.tasks.learners import LABELS, LETTERS, PIECES, TASKS, Learning, rows_of

PAIRS: Seq2Seq = TASKS["pairs"]
NAMES: TextClassification = TASKS["labels"]
TAGS: Tagging = TASKS["tags"]
words = st.lists(st.text("catdogxyz", min_size=1, max_size=7), min_size=1, max_size=9)


# ---- pairs


def test_a_decoder_reads_what_it_said_before() -> None:
    [row] = PAIRS.encode([("cat", "dog")])
    batch = PAIRS.collate([tuple(map(ids, row))], random_for())
    source, target = (LETTERS.plain(text) for text in ("cat", "dog"))
    assert rows_of(batch.source)[0].tolist() == [*source, LETTERS.eos]
    assert rows_of(batch.read)[0].tolist() == [PAIRS.start_token, *target]
    assert batch.wanted.tolist() == [*target, LETTERS.eos]
    assert (batch.targets, batch.tokens) == (4, 8)


def test_a_prefix_stands_before_every_source_and_is_extra_config() -> None:
    prefixed = replace(PAIRS, prefix="to dog: ")
    assert prefixed.encode([("cat", "dog")])[0][0] == LETTERS.encode("to dog: cat")
    assert prefixed.encode([("cat", "dog")])[0][1] == LETTERS.encode("dog")
    told = {"decoder_start_token_id": PAIRS.start_token, "eos_token_id": LETTERS.eos}
    assert PAIRS.extra_config() == told
    assert prefixed.extra_config() == {**told, "prefix": "to dog: "}


@given(texts=st.tuples(st.text("catdog ", max_size=30), st.text("catdog ", max_size=30)), longest=st.integers(1, 20))
def test_long_sides_are_cut_before_their_end(texts: tuple[str, str], longest: int) -> None:
    [row] = replace(PAIRS, max_length=longest).encode([texts])
    for side, text in zip(row, texts, strict=True):
        whole = LETTERS.encode(text)
        assert len(side) == min(len(whole), longest)
        assert (side[-1], side[:-1]) == (LETTERS.eos, whole[: len(side) - 1])


# ---- classes of texts


def test_a_text_has_one_class() -> None:
    rows = NAMES.encode([("the cat sat", "good"), ("a dog", "so so")])
    assert rows == [[PIECES.encode("the cat sat"), [1]], [PIECES.encode("a dog"), [2]]]
    batch = NAMES.collate([tuple(map(ids, row)) for row in rows], random_for())
    assert (batch.wanted.tolist(), batch.targets, batch.lengths) == ([1, 2], 2, (1, 1))
    assert NAMES.extra_config()["label2id"] == {"bad": 0, "good": 1, "so so": 2}
    assert NAMES.extra_config()["id2label"] == {"0": "bad", "1": "good", "2": "so so"}


def test_a_cut_text_keeps_the_tokens_around_it() -> None:
    [[row, _]] = replace(NAMES, max_length=5).encode([("the cat sat on the mat", "bad")])
    assert (len(row), row[0], row[-1]) == (5, PIECES.bos, PIECES.eos)
    assert row[:4] == PIECES.encode("the cat sat on the mat")[:4]


@pytest.mark.parametrize("task", [NAMES, TAGS])
def test_a_class_that_is_not_known_is_told(task: TextClassification | Tagging) -> None:
    with pytest.raises(UserError, match=r"'god' is not one of the 3 that the model knows.*did you mean 'good'"):
        task.encode([("cat", "god")])


@pytest.mark.parametrize("name", ["labels", "tags"])
@pytest.mark.parametrize("model", ["bert", "albert"])
def test_the_likeliest_class_is_the_answer(name: str, model: str) -> None:
    learning = Learning(name, model)
    rows = learning.rows([5, 9, 2])
    batch = learning.task.collate(rows, random_for())
    found = batch.likeliest(learning.model)
    alone = [learning.task.collate([row], random_for()).likeliest(learning.model)[0] for row in rows]
    assert found == alone
    assert sum(map(len, found)) == batch.targets
    picks = batch.logits(learning.model).argmax(-1)[batch.wanted != NO_TARGET]
    assert [pick for row in found for pick in row] == picks.tolist()


# ---- classes of words


@pytest.mark.slow
@given(words=words, data=st.data())
def test_a_class_stands_at_the_first_piece_of_its_word(words: list[str], data: st.DataObject) -> None:
    plain = [label for label in LABELS if " " not in label]
    tags = [data.draw(st.sampled_from(plain)) for _ in words]
    [[row, classes]] = TAGS.encode([(" ".join(words), " ".join(tags))])
    assert len(row) == len(classes)
    assert (row[0], row[-1], classes[0], classes[-1]) == (PIECES.bos, PIECES.eos, 0, 0)
    at = 1
    for word, tag in zip(words, tags, strict=True):
        pieces = PIECES.plain(word)
        assert row[at : at + len(pieces)] == pieces
        assert classes[at : at + len(pieces)] == [1 + LABELS.index(tag), *[0] * (len(pieces) - 1)]
        at += len(pieces)
    assert at == len(row) - 1
    batch = TAGS.collate([(ids(row), ids(classes))], random_for())
    assert batch.targets == len(words)
    assert batch.wanted[batch.wanted != NO_TARGET].tolist() == [LABELS.index(tag) for tag in tags]


@pytest.mark.slow
@given(words=words, longest=st.integers(3, 12))
def test_a_cut_row_has_the_classes_of_the_words_that_are_left(words: list[str], longest: int) -> None:
    tags = " ".join(["good"] * len(words))
    [[whole, classes]] = TAGS.encode([(" ".join(words), tags)])
    [[row, left]] = replace(TAGS, max_length=longest).encode([(" ".join(words), tags)])
    assert len(row) == min(len(whole), longest)
    assert (row[:-1], row[-1]) == (whole[: len(row) - 1], PIECES.eos)
    assert (left[:-1], left[-1]) == (classes[: len(row) - 1], 0)


def test_a_word_that_the_tokenizer_drops_has_a_class() -> None:
    assert PIECES.plain("\u200b") == []
    [[row, classes]] = TAGS.encode([("cat \u200b dog", "good bad good")])
    assert row[classes.index(1)] == PIECES.unk
    assert [label for label in classes if label] == [2, 1, 2]


def test_byte_level_pieces_spell_the_space_before_a_word() -> None:
    from headway.data.tokenizer_training import train_bpe

    pieces = train_bpe(["the cat sat on the mat"] * 9, 290)
    [[row, classes]] = Tagging(pieces, LABELS).encode([("the cat", "good bad")])
    assert row[1:-1] == pieces.plain("the cat")
    assert row[classes.index(1)] == pieces.plain(" cat")[0]


def test_tokens_without_a_class_weigh_nothing() -> None:
    learning = Learning("tags", "bert")
    row = learning.rows([9])[0]
    none = (row[0], torch.zeros(9, dtype=torch.int64).numpy())
    batch = TAGS.collate([none], random_for())
    assert batch.targets == 0
    assert TAGS.loss(learning.model, batch).item() == 0
