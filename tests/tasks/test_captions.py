"""Measures of captions: examples counted by hand, sacrebleu's BLEU, laws; and finding texts by images."""

from __future__ import annotations

from math import exp, log

import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import UserError
from headway.metrics.captions import bleu, cider, cider_each, score_captions, words
from headway.metrics.retrieval import chance_recall, first_ranks, recall, score_retrieval

caption = st.lists(st.sampled_from(["a", "dog", "cat", "runs", "on", "grass"]), min_size=1, max_size=8).map(" ".join)
images = st.lists(st.tuples(caption, st.lists(caption, min_size=1, max_size=4)), min_size=1, max_size=5)


def test_words_are_lowered_and_without_signs() -> None:
    assert words('A man\'s dog -- "Rex" -- runs, fast!') == ["a", "man", "s", "dog", "rex", "runs", "fast"]


# ---- BLEU


def test_bleu_clips_by_the_largest_count_of_one_reference() -> None:
    """Papineni's example: seven times "the", which one reference has twice."""
    scores = bleu(["the the the the the the the"], [["The cat is on the mat.", "There is a cat on the mat."]])
    assert scores == pytest.approx((2 / 7, 0.0, 0.0, 0.0))


def test_bleu_by_hand() -> None:
    """Of two references two words longer and two shorter the shorter counts; five of five words, two of four pairs."""
    scores = bleu(["a dog runs on grass"], [["a dog is running on the grass", "a dog runs"]])
    assert scores == pytest.approx((1.0, (1 / 2) ** (1 / 2), (1 / 2 * 1 / 3) ** (1 / 3), 0.0))


def test_short_answers_pay_for_it() -> None:
    assert bleu(["a dog"], [["a dog runs on"]])[:2] == pytest.approx((exp(-1), exp(-1)))


def test_a_corpus_is_not_the_mean_of_its_images() -> None:
    """Three of four words in all, and a length of four for four."""
    assert bleu(["a", "a cat runs"], [["dog"], ["a cat runs"]])[0] == pytest.approx(3 / 4)


@pytest.mark.slow
@given(rows=images)
def test_bleu_is_sacrebleus(rows: list[tuple[str, list[str]]]) -> None:
    answers = [answer for answer, _ in rows]
    most = max(len(known) for _, known in rows)
    columns = [[known[min(n, len(known) - 1)] for _, known in rows] for n in range(most)]
    for n, score in enumerate(bleu(answers, [known for _, known in rows]), 1):
        metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", max_ngram_order=n)
        assert 100 * score == pytest.approx(metric.corpus_score(answers, columns).score, abs=1e-6)


# ---- CIDEr


def test_cider_by_hand() -> None:
    """ "a" is in both images and tells nothing; one word and one pair agree in the first, none in the second."""
    assert cider_each(["a dog", "a dog"], [["a dog"], ["a cat"]]) == pytest.approx([10 * (1 + 1) / 4, 0.0])
    assert cider(["a dog", "a dog"], [["a dog"], ["a cat"]]) == pytest.approx(2.5)


def test_repeating_a_word_gains_nothing_and_length_costs() -> None:
    """(2, 1) of ln 2: clipped 1 · 1 / (2 · 1); one word too long: exp(−1 / 72)."""
    assert cider_each(["dog dog", "cat"], [["dog"], ["cat"]])[0] == pytest.approx(10 * (1 / 2) / 4 * exp(-1 / 72))


def test_cider_is_the_mean_over_references_and_rare_words_weigh_more() -> None:
    """Three images: "dog" in one of them weighs ln 3, "runs" in two ln 3/2; the pair "dog runs" agrees too."""
    known = [["dog runs", "dog"], ["cat runs"], ["cow"]]
    dog, runs = log(3), log(3 / 2)
    first = (1 + 1) / 4  # the same words
    second = dog * dog / ((dog**2 + runs**2) ** 0.5 * dog) / 4 * exp(-1 / 72)
    assert cider_each(["dog runs", "cat", "cow"], known)[0] == pytest.approx(10 * (first + second) / 2)


def test_one_image_tells_no_rarity() -> None:
    assert cider(["a dog"], [["a dog"]]) == 0.0


@pytest.mark.slow
@given(rows=images, data=st.data())
def test_order_changes_nothing_and_perfect_is_best(rows: list[tuple[str, list[str]]], data: st.DataObject) -> None:
    answers, known = [a for a, _ in rows], [k for _, k in rows]
    order = data.draw(st.permutations(range(len(rows))))
    scores = score_captions(answers, known).numbers
    again = score_captions([answers[i] for i in order], [known[i][::-1] for i in order]).numbers
    assert scores == pytest.approx(again)
    assert 0.0 <= scores["cider"] <= 10.0 + 1e-9
    assert all(0.0 <= scores[f"bleu_{n}"] <= 1.0 for n in range(1, 5))
    single = [[k[0]] for k in known]
    perfect, other = (score_captions(given, single).numbers for given in ([k[0] for k in known], answers))
    assert all(perfect[name] >= other[name] - 1e-9 for name in perfect if name == "bleu_1" or name == "cider")


def test_four_words_that_are_right_have_full_marks() -> None:
    told = ["a dog runs fast here", "two cats sleep on beds"]
    scores = score_captions(told, [[one] for one in told])
    assert scores.numbers == pytest.approx({"cider": 10.0, "bleu_1": 1, "bleu_2": 1, "bleu_3": 1, "bleu_4": 1})
    assert "CIDEr-D" in scores.shown()


def test_mistakes_of_captions_are_told() -> None:
    with pytest.raises(UserError, match="2 captions cannot be measured by the references of 1 images"):
        bleu(["a", "b"], [["a"]])
    with pytest.raises(UserError, match="nothing to measure"):
        cider([], [])
    with pytest.raises(UserError, match="image 2 has 'b' for its references; allowed: a list"):
        bleu(["a", "b"], [["a"], "b"])


# ---- retrieval


def test_recall_by_hand() -> None:
    """Two images with two texts each; the second image's best text is third, and one text finds its image second."""
    alike = torch.tensor([[0.9, 0.1, 0.5, 0.2], [0.8, 0.7, 0.3, 0.6]])
    scores = score_retrieval(alike, [0, 0, 1, 1]).numbers
    assert (scores["texts_1"], scores["texts_5"], scores["texts_rank"]) == (0.5, 1.0, 2.0)
    assert scores["images_1"] == pytest.approx(2 / 4)
    assert scores["images_5"] == 1.0


def test_vectors_that_are_all_the_same_find_nothing() -> None:
    ranks = first_ranks(torch.zeros(4, 4), torch.eye(4, dtype=torch.bool))
    assert ranks.tolist() == [4, 4, 4, 4]
    assert recall(ranks, 3).value() == 0.0


@pytest.mark.slow
@given(images=st.integers(2, 6), each=st.integers(1, 3), seed=st.integers(0, 99))
def test_recall_is_what_sorting_finds(images: int, each: int, seed: int) -> None:
    alike = torch.randn(images, images * each, generator=torch.Generator().manual_seed(seed))
    owners = [text // each for text in range(images * each)]
    scores = score_retrieval(alike, owners).numbers
    for k in (1, 5, 10):
        best = alike.argsort(1, descending=True)[:, :k].tolist()
        found = sum(any(owners[text] == image for text in row) for image, row in enumerate(best))
        assert scores[f"texts_{k}"] == pytest.approx(found / images)
    right = sum(int(alike[:, text].argmax()) == owners[text] for text in range(len(owners)))
    assert scores["images_1"] == pytest.approx(right / len(owners))


def test_chance_is_what_random_vectors_find() -> None:
    """One of 4 images' 2 texts among 3 of 8: 1 − 6/8 · 5/7 · 4/6."""
    assert chance_recall(2, 4 * 2, 3) == pytest.approx(1 - 6 / 8 * 5 / 7 * 4 / 6)
    assert chance_recall(5, 1000 * 5, 10) == pytest.approx(0.00999, abs=1e-4)
    assert chance_recall(1, 2 * 1, 9) == 1.0


def test_mistakes_of_retrieval_are_told() -> None:
    with pytest.raises(UserError, match="similarities of 2×3 for 2 texts"):
        score_retrieval(torch.zeros(2, 3), [0, 1])
    with pytest.raises(UserError, match="the texts belong to 1 images of 2"):
        score_retrieval(torch.zeros(2, 2), [0, 0])
    with pytest.raises(UserError, match="not finite"):
        score_retrieval(torch.full((2, 2), float("nan")), [0, 1])
