"""Laws of the measures, their agreement with sacrebleu and scikit-learn, and examples counted by hand."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence

import pytest
import sacrebleu
from hypothesis import assume, given
from hypothesis import strategies as st

from headway.errors import UserError
from headway.metrics import scoring as measures
from headway.metrics.intervals import Sums, clopper_pearson, columns
from headway.metrics.scores import EDGES, MEASURES, Bucket, Classes, Scores, by_length, measure, quantile_edges
from headway.metrics.scoring import (
    PAIR_MEASURES,
    edit_distance,
    score_classes,
    score_pairs,
    score_tags,
    score_texts,
    spans,
)

Scored = Callable[[Sequence[str], Sequence[str]], Scores]
ANSWERS = ["the cat sat on the mat .", "a dog sleeps here", "Ein Hund", "zwei Männer stehen am Herd und kochen"]
REFERENCES = ["the cat sat on a mat .", "a dog slept here", "ein Hund", "zwei Männer stehen am Herd und kochen"]


def all_measures(answers: Sequence[str], references: Sequence[str]) -> Scores:
    return score_pairs(answers, references, [len(r) for r in references], by=tuple(PAIR_MEASURES))


def classes(answers: Sequence[str], references: Sequence[str]) -> Scores:
    return score_classes(answers, references, [len(r) for r in references])


def tagged(answers: Sequence[str], references: Sequence[str]) -> Scores:
    return score_tags(answers, references, [len(r.split()) for r in references])


sentences = st.lists(st.sampled_from(["a", "b", "cat", "Hund", "。", "é"]), min_size=1, max_size=8).map(" ".join)
pairs = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=8)
tag = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
tag_rows = st.integers(1, 6).flatmap(
    lambda n: st.tuples(*[st.lists(tag, min_size=n, max_size=n).map(" ".join) for _ in range(2)])
)
KINDS: dict[str, tuple[Scored, st.SearchStrategy[list[tuple[str, str]]]]] = {
    "pairs": (all_measures, pairs),
    "classes": (classes, st.lists(st.tuples(*[st.sampled_from("abcd")] * 2), min_size=1, max_size=20)),
    "tags": (tagged, st.lists(tag_rows, min_size=1, max_size=6)),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_the_order_of_pairs_changes_nothing(kind: str, data: st.DataObject) -> None:
    scored, strategy = KINDS[kind]
    rows = data.draw(strategy)
    again = data.draw(st.permutations(rows))
    assert scored(*zip(*rows, strict=True)).plain() == scored(*zip(*again, strict=True)).plain()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_perfect_answers_have_the_best_scores(kind: str, data: st.DataObject) -> None:
    scored, strategy = KINDS[kind]
    rows = [reference for _, reference in data.draw(strategy)]
    assume(any(len(row.split()) > 3 for row in rows) or kind != "pairs")  # BLEU counts four words in a row
    best = {"bleu": 100, "chrf": 100, "word_error_rate": 0, "character_error_rate": 0}
    for name, number in scored(rows, rows).numbers.items():
        assert number == pytest.approx(best.get(name, 1)), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_nothing_beats_perfect_answers(kind: str, data: st.DataObject) -> None:
    scored, strategy = KINDS[kind]
    answers, references = zip(*data.draw(strategy), strict=True)
    some, perfect = scored(answers, references), scored(references, references)
    names = [name for name in some.numbers if name != "bleu"]
    assert not any(MEASURES[name].better(some.numbers[name], perfect.numbers[name]) for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_measure_is_an_error(kind: str) -> None:
    with pytest.raises(UserError, match="nothing to measure"):
        KINDS[kind][0]([], [])


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_too_few_is_an_error(kind: str) -> None:
    with pytest.raises(UserError, match="1 answers cannot be measured by 2 references"):
        KINDS[kind][0](["a"], ["a", "b"])


@pytest.mark.slow
@given(rows=pairs, tokenize=st.sampled_from(measures.TOKENIZERS))
def test_bleu_and_chrf_are_those_of_sacrebleu(rows: list[tuple[str, str]], tokenize: str) -> None:
    answers, references = zip(*rows, strict=True)
    scores = score_pairs(answers, references, tokenize=tokenize)
    assert scores.numbers["bleu"] == sacrebleu.corpus_bleu(answers, [references], tokenize=tokenize).score
    assert scores.numbers["chrf"] == sacrebleu.corpus_chrf(answers, [references]).score


def test_signatures_say_how_it_was_computed() -> None:
    version = sacrebleu.__version__
    assert score_pairs(ANSWERS, REFERENCES).signatures == {
        "bleu": f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}",
        "chrf": f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}",
    }
    assert "|tok:char|" in score_pairs(ANSWERS, REFERENCES, tokenize="char").signatures["bleu"]


def test_a_mistyped_tokenizer_or_measure_is_named() -> None:
    with pytest.raises(UserError, match="did you mean '13a'"):
        score_pairs(ANSWERS, REFERENCES, tokenize="13")
    with pytest.raises(UserError, match="did you mean 'bleu'"):
        score_pairs(ANSWERS, REFERENCES, by=("blue",))
    with pytest.raises(UserError, match="did you mean 'exact'"):
        measure("exct")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A single label was found")
@given(rows=st.lists(st.tuples(*[st.sampled_from("abcd")] * 2), min_size=1, max_size=30))
def test_classes_agree_with_scikit_learn(rows: list[tuple[str, str]]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    answers, references = (list(side) for side in zip(*rows, strict=True))
    ours = Classes.of(answers, references)
    p, r, f, asked = sklearn.precision_recall_fscore_support(references, answers, labels=ours.labels, zero_division=0)
    assert [ours.precision(label) for label in ours.labels] == pytest.approx(list(p))
    assert [ours.recall(label) for label in ours.labels] == pytest.approx(list(r))
    assert [ours.f1(label) for label in ours.labels] == pytest.approx(list(f))
    assert [ours.asked[label] for label in ours.labels] == list(asked)
    confusion = sklearn.confusion_matrix(references, answers, labels=ours.labels).tolist()
    assert [[ours.counts[r, a] for a in ours.labels] for r in ours.labels] == confusion
    numbers = score_classes(answers, references).numbers
    assert numbers["f1"] == pytest.approx(sum(f) / len(f))  # what it calls the macro average
    assert numbers["accuracy"] == sklearn.accuracy_score(references, answers)


@pytest.mark.parametrize(
    ("a", "b", "edits"),
    [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2), ("Saturday", "Sunday", 3)],
)
def test_edits_counted_by_hand(a: str, b: str, edits: int) -> None:
    assert edit_distance(a, b) == edits


short = st.text("abc", max_size=6)


@given(a=short, b=short, c=short)
def test_edits_are_a_distance(a: str, b: str, c: str) -> None:
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, b) == edit_distance(b, a)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)
    assert abs(len(a) - len(b)) <= edit_distance(a, b) <= max(len(a), len(b))


def test_error_rates_divide_by_the_words_of_all_references() -> None:
    answers, references = ["HH AH L OW", "W ER D"], ["HH AH L OW", "W ER L D"]
    assert measures.word_error_rate(answers, references) == 1 / 8
    assert measures.character_error_rate(["abc", ""], ["abd", "x"]) == 2 / 4
    assert measures.word_error_rate(["a b c"], ["a"]) == 2
    assert measures.word_error_rate(["", ""], ["", ""]) == 0
    assert measures.word_error_rate(["a"], [""]) == math.inf


def test_spans_are_read_as_conll_reads_them() -> None:
    assert spans(["O", "B-PER", "I-PER", "O"]) == {("PER", 1, 3)}
    assert spans(["B-PER", "B-PER"]) == {("PER", 0, 1), ("PER", 1, 2)}
    assert spans(["I-LOC", "I-LOC", "B-LOC", "I-PER"]) == {("LOC", 0, 2), ("LOC", 2, 3), ("PER", 3, 4)}
    assert spans(["O"]) == spans([]) == set()


def test_span_f1_counts_whole_spans() -> None:
    references = ["B-PER I-PER O B-LOC", "O O"]
    answers = ["B-PER I-PER O O", "B-LOC O"]  # one of two found, one of two answers right
    scores = score_tags(answers, references)
    assert scores.numbers == {"span_f1": 0.5, "token_accuracy": 4 / 6}
    assert measures.span_f1(["B-PER O"], ["B-PER I-PER"]) == 0  # half a span is none
    assert measures.span_f1(["O"], ["O"]) == 1
    assert "span_f1" not in score_tags(["DET NOUN"], ["DET VERB"]).numbers


def test_tags_must_be_as_many_as_words() -> None:
    with pytest.raises(UserError, match="row 2 has 1 tags for 2 words"):
        score_tags(["O", "O"], ["O", "O O"])


def test_perplexity_counted_by_hand() -> None:
    losses, tokens, sizes = [math.log(8) * 3, math.log(8)], [3, 1], [9, 3]
    assert measures.perplexity(losses, tokens) == pytest.approx(8)
    assert measures.perplexity(losses, sizes) == pytest.approx(2)  # three bytes for each token
    assert measures.bits_per_byte(losses, sizes) == pytest.approx(1)
    assert score_texts(losses, tokens, sizes).numbers["loss"] == pytest.approx(math.log(8))
    assert measures.perplexity([1e6], [1]) == math.inf
    assert math.isnan(measures.perplexity([0.0], [0]))


def test_losses_need_their_counts() -> None:
    with pytest.raises(UserError, match="2 losses and 1 counts"):
        measures.perplexity([1.0, 2.0], [1])
    with pytest.raises(UserError, match="have no mean"):
        measures.perplexity([], [])
    with pytest.raises(UserError, match="one of each for each text"):
        score_texts([1.0], [1], [])


def own(lengths: Sequence[int]) -> dict[str, Sums]:
    """Rows whose loss is their length."""
    return {"loss": Sums(columns(lengths), lambda totals: totals[0])}


def columns_of(bucket: Bucket) -> list[int]:
    statistic = bucket.statistics["loss"]
    assert isinstance(statistic, Sums)
    return statistic.columns[0].tolist()


@pytest.mark.slow
@given(lengths=st.lists(st.integers(0, 99), min_size=1), edges=st.sets(st.integers(1, 90), min_size=1).map(sorted))
def test_every_row_is_in_one_bucket(lengths: list[int], edges: list[int]) -> None:
    buckets = by_length(lengths, own(lengths), edges=edges)
    seen = [int(length) for bucket in buckets for length in columns_of(bucket)]
    assert sorted(seen) == sorted(lengths)
    assert sum(bucket.count for bucket in buckets) == len(lengths)
    for bucket in buckets:
        assert all(bucket.first <= length <= (bucket.last or 99) for length in columns_of(bucket))
    ends = [bucket.last or 100 for bucket in buckets]
    assert ends == sorted(set(ends))


def test_buckets_by_fixed_edges() -> None:
    buckets = by_length([1, 5, 6, 51, 50, 20], own([0] * 6))
    assert EDGES == (5, 10, 15, 20, 30, 50)
    assert [(b.label, b.count) for b in buckets] == [("1–5", 2), ("6–10", 1), ("16–20", 1), ("31–50", 1), ("> 50", 1)]


def test_buckets_by_quantiles_are_about_equal() -> None:
    lengths = random.Random(0).sample(range(1, 1001), 1000)
    counts = [b.count for b in by_length(lengths, own(lengths), edges=quantile_edges(lengths, 4))]
    assert len(counts) == 4
    assert max(counts) - min(counts) <= 2
    assert quantile_edges([7, 7, 7, 7]) == (7,)


@pytest.mark.parametrize("wrong", [{"lengths": []}, {"lengths": [-1]}, {"edges": []}, {"edges": [5, 5]}])
def test_wrong_buckets_are_errors(wrong: dict[str, list[int]]) -> None:
    with pytest.raises(UserError):
        by_length(wrong.get("lengths", [1]), own([0]), edges=wrong.get("edges", [5]))
    with pytest.raises(UserError, match="3 lengths for 4 pairs"):
        score_pairs(ANSWERS, REFERENCES, [1, 2, 3])


def test_a_bucket_has_the_scores_of_its_rows_alone() -> None:
    scores = score_pairs(ANSWERS, REFERENCES, [7, 4, 2, 7])
    short, long = scores.buckets
    assert dict(long.numbers) == score_pairs([ANSWERS[0], ANSWERS[3]], [REFERENCES[0], REFERENCES[3]]).numbers
    assert (short.count, long.count) == (2, 2)


def test_every_measure_knows_its_direction() -> None:
    lower = {name for name, measure in MEASURES.items() if not measure.higher}
    errors = {"word_error_rate", "character_error_rate", "error", "rmse", "mae"}
    assert lower == errors | {"loss", "perplexity", "byte_perplexity", "bits_per_byte", "texts_rank", "images_rank"}


@pytest.mark.parametrize("name", MEASURES)
def test_better_is_strict_and_a_missing_number_beats_nothing(name: str) -> None:
    one, two, none, better = 0.1, 0.2, math.nan, MEASURES[name].better
    best, worst = (two, one) if MEASURES[name].higher else (one, two)
    assert better(best, worst)
    assert not better(worst, best)
    assert not better(one, one)
    assert better(one, none)
    assert not better(none, one)
    assert not better(none, none)


def test_the_table_is_aligned() -> None:
    assert score_pairs(ANSWERS, REFERENCES, [7, 4, 2, 7], by=("exact", "word_error_rate")).shown() == (
        "4 pairs, each score with its 95 % interval\n\n"
        "length  count           exact      word errors\n"
        "all         4  25.00 % (1–81)   15.00 % (4–33)\n"
        "1–5         2   0.00 % (0–84)  33.33 % (25–50)\n"
        "6–10        2  50.00 % (1–99)    7.14 % (0–14)"
    )


def test_classes_are_shown_with_what_they_were_taken_for() -> None:
    shown = score_classes(list("aabbc"), list("ababa")).shown()
    assert shown.splitlines()[-9:] == [
        "class  count      precision         recall             F1  taken for",
        "a          3  50.0 % (1–99)  33.3 % (1–91)  40.0 % (1–89)      b (1)",
        "b          2  50.0 % (1–99)  50.0 % (1–99)  50.0 % (2–95)      a (1)",
        "c          0   0.0 % (0–98)              –   0.0 % (0–99)",
        "",
        "asked \\ said  a  b  c",
        "a             1  1  1",
        "b             1  1  ·",
        "c             ·  ·  ·",
    ]
    cloth = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle-boot"]
    assert "asked \\ said  Ankl  Bag  Coat  Dres" in score_classes(cloth, cloth).shown()
    assert "asked" not in score_classes(list("ab"), list("ab")).shown()  # the table above says as much
    many = [f"a class with a very long name {n}" for n in range(50)]
    assert score_classes(many, many).shown().endswith("and 30 more")


@pytest.mark.long
@given(rows=pairs)
def test_tables_are_narrow_and_data_is_json(rows: list[tuple[str, str]]) -> None:
    scores = all_measures(*zip(*rows, strict=True))
    assert max(map(len, scores.shown().splitlines())) <= 80
    json.dumps(scores.plain(), allow_nan=False)
    wide = Scores(dict.fromkeys(MEASURES, 1234567.0), 10**9)
    assert max(map(len, wide.shown().splitlines())) <= 80
    assert all(measure.title in wide.shown() for measure in MEASURES.values())


def test_what_is_not_finite_is_null_in_json() -> None:
    assert score_texts([1e6], [1], [1]).plain()["scores"] == {
        "perplexity": None,
        "byte_perplexity": None,
        "bits_per_byte": pytest.approx(1e6 / math.log(2)),
        "loss": 1e6,
    }


def test_scores_of_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="no measure 'blue'"):
        Scores({"blue": 1.0}, 1)


WIDE_LABELS = ["anger and disgust", "a very long label indeed", "joy"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_number_of_a_table_has_an_interval_within_80_columns(kind: str) -> None:
    draw = random.Random(1)
    rows = {
        "pairs": [("a cat sat " * draw.randint(1, 9), "a cat sat on " * draw.randint(1, 9)) for _ in range(60)],
        "classes": [(draw.choice(WIDE_LABELS), draw.choice(WIDE_LABELS)) for _ in range(600)],
        "tags": [(" ".join(draw.choices(["O", "B-PER"], k=n)), " ".join(["O"] * n)) for n in range(1, 60)],
    }[kind]
    scores = KINDS[kind][0](*zip(*rows, strict=True))
    shown = scores.shown()
    assert max(map(len, shown.splitlines())) <= 80
    for of in (scores, *scores.buckets):
        for name, number in of.numbers.items():
            assert MEASURES[name].with_interval(number, of.intervals[name]) in shown
            if of.count > 1:
                assert f"{MEASURES[name].shown(number)} (" in shown
    plain = json.loads(json.dumps(scores.plain()))
    for part, of in ((plain, scores), *zip(plain["by_length"], scores.buckets, strict=True)):
        assert {name: one["n"] for name, one in part["intervals"].items()} == dict.fromkeys(of.numbers, of.count)
    for label, row in plain.get("classes", {}).items():
        assert set(row["intervals"]) == {"precision", "recall", "f1"}
        assert row["intervals"]["recall"]["n"] == row["count"]
        assert label in shown or f"{label[:15]}…" in shown


def test_the_interval_of_a_bucket_is_that_of_its_rows_alone() -> None:
    answers, references, lengths = list("aabbababab"), list("abbbabaaab"), [1] * 6 + [9] * 4
    short, long = score_classes(answers, references, lengths).buckets
    assert short.intervals == score_classes(answers[:6], references[:6]).intervals
    assert long.intervals == score_classes(answers[6:], references[6:]).intervals


def test_rates_of_a_class_are_shares_with_exact_intervals() -> None:
    classes = Classes.of(["a"] * 8 + ["b"] * 12, ["a"] * 6 + ["b"] * 10 + ["a"] * 4)
    rates = classes.rates("a")
    assert {name: one.n for name, one in rates.items()} == {"precision": 8, "recall": 10, "f1": 12}
    assert rates["precision"].interval == clopper_pearson(6, 8)
    assert rates["recall"].interval == clopper_pearson(6, 10)
    low, high = clopper_pearson(6, 12)
    assert rates["f1"].share == pytest.approx(2 * 0.5 / 1.5)
    assert rates["f1"].interval == pytest.approx((2 * low / (1 + low), 2 * high / (1 + high)))
