"""Tasks on pairs, numbers, label sets and answers: laws of their losses, their scores, and their folders."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from headway.data.composed import PAIR, answers_in, labels_in
from headway.data.order import random_for
from headway.data.records import Record, as_records
from headway.errors import UserError
from headway.evaluation import evaluate
from headway.loading import load
from headway.metrics.scoring import entity_rates, span_f1
from headway.metrics.structured import score_answers, score_label_sets, score_numbers
from headway.model import Model
from headway.recipe import Recipe
from headway.tasks.base import Task, task_class
from headway.tasks.batches import Row, to_device
from headway.tasks.multi_label import MultiLabelClassification
from headway.tasks.question_answering import QuestionAnswering
from headway.tasks.text_pairs import TextPairClassification
from headway.tasks.text_regression import TextPairRegression, TextRegression
from headway.tasks.tracing import TraceOptions
from headway.training.recipe_data import load_splits
from headway.training.recipe_sources import read_layers, resolve
from headway.zoo import bert
from headway.zoo.build import on_meta
from tests.cli.folders import CONTEXT, TEXTS, made, sentences, words

WORDS = words("wordpiece", before=True, after=True)
SORTS = ("bad", "good", "so so")
TASKS: dict[str, Any] = {
    "pairs": TextPairClassification(WORDS, SORTS, max_length=CONTEXT),
    "numbers": TextRegression(WORDS, 3.0, 2.0, max_length=CONTEXT),
    "scored pairs": TextPairRegression(WORDS, 3.0, 2.0, max_length=CONTEXT),
    "label sets": MultiLabelClassification(WORDS, SORTS, max_length=CONTEXT),
    "answers": QuestionAnswering(WORDS, False, max_length=CONTEXT),
}
OUTPUTS = {"numbers": 1, "scored pairs": 1, "answers": 2}
every = pytest.mark.parametrize("name", TASKS)


@cache
def model_of(name: str) -> Model:
    config = config_of(name)
    return made("bert", config, WORDS, dict(TASKS[name].extra_config()), "bert")


def config_of(name: str) -> Any:
    top = "spans" if name == "answers" else "rows"
    sizes = {"dim": 16, "layers": 2, "heads": 2, "hidden": 32, "vocab": WORDS.vocab, "context": CONTEXT}
    return bert.Config(top=top, classes=OUTPUTS.get(name, len(SORTS)), **sizes)


def fields(name: str, count: int = 7) -> list[tuple[str, str]]:
    texts, others = sentences(count, 1), sentences(count, 2, 30)
    pairs = [PAIR.join(both) for both in zip(texts, others, strict=True)]
    numbers = [f"{at / 3:.4f}" for at in range(count)]
    answers = [
        json.dumps([{"text": word, "answer_start": other.index(word)}] * (at % 3 > 0))
        for at, other in enumerate(others)
        for word in [other.split()[-1]]
    ]
    told = {
        "pairs": (pairs, [SORTS[at % 3] for at in range(count)]),
        "numbers": (texts, numbers),
        "scored pairs": (pairs, numbers),
        "label sets": (texts, [("", "bad", "bad|good", "good|so so")[at % 4] for at in range(count)]),
        "answers": (pairs, answers),
    }[name]
    return list(zip(*told, strict=True))


def rows(name: str) -> list[Row]:
    return [tuple(map(np.array, row)) for row in TASKS[name].encode(fields(name))]


@every
def test_a_batch_is_its_rows_one_by_one(name: str) -> None:
    """Packed rows of any lengths do not see one another."""
    task, model = TASKS[name], model_of(name).model.double()
    together = task.collate(rows(name), random_for("unused"))
    alone = [task.collate([row], random_for("unused")) for row in rows(name)]
    assert together.targets == sum(one.targets for one in alone)
    assert together.tokens == sum(one.tokens for one in alone)
    with torch.inference_mode():
        apart = torch.stack([task.loss(model, one) for one in alone]).sum()
        assert_close(task.loss(model, together), apart, atol=1e-6, rtol=1e-6)
    model.float()


@every
def test_a_loss_has_gradients_on_any_device(name: str) -> None:
    task, model = TASKS[name], on_meta(config_of(name))
    batch = task.collate(rows(name), random_for("unused"))
    loss = task.loss(model, to_device(batch, torch.device("meta")))
    assert (loss.shape, loss.device.type) == (torch.Size(), "meta")
    loss.backward()
    assert all(one.grad is not None for one in model.parameters())


@every
@pytest.mark.parametrize("layout", ["headway", "hf"])
def test_a_folder_answers_as_the_model_did(name: str, layout: str, tmp_path: Path) -> None:
    model = model_of(name)
    task = TASKS[name]
    (replace(model, task_name=task.name).save if layout == "headway" else model.save_hf)(tmp_path)
    again = load(tmp_path)
    asked = [text for text, _ in fields(name)]
    kind = None if layout == "headway" else task.data_kind
    same = again.task_for(kind)
    assert type(same) is type(task)
    assert same.extra_config() == task.extra_config()
    wanted = [one.to_dict() for one in task.predict(model.model, asked)]
    assert [one.to_dict() for one in same.predict(again.model, asked)] == wanted
    assert json.loads(json.dumps(wanted)) == wanted
    assert all(one.to_text() for one in same.predict(again.model, asked))


@every
def test_scores_are_those_of_the_answers(name: str) -> None:
    """scikit-learn's, over what predict says."""
    metrics: Any = pytest.importorskip("sklearn.metrics")
    task, model, data = TASKS[name], model_of(name).model, fields(name, 40)
    found = task.evaluate(model, as_records(data))
    said, wanted = (
        [one.to_dict()["output"] for one in task.predict(model, [text for text, _ in data])],
        [w for _, w in data],
    )
    numbers = found.scores.numbers
    assert found.scores.count == len(data)
    assert all(
        found.scores.intervals[key].low <= number <= found.scores.intervals[key].high for key, number in numbers.items()
    )
    if name == "pairs":
        assert_close(numbers["accuracy"], metrics.accuracy_score(wanted, said))
        assert_close(numbers["f1"], metrics.f1_score(wanted, said, average="macro"))
    elif name == "label sets":
        bits = [[[label in one for label in SORTS] for one in some] for some in (list(map(labels_in, wanted)), said)]
        for average, key in (("micro", "micro_f1"), ("macro", "f1")):
            assert_close(numbers[key], metrics.f1_score(*map(np.array, bits), average=average, zero_division=0))
        assert_close(numbers["exact"], metrics.accuracy_score(*map(np.array, bits)))
    elif name == "answers":
        right = [[one["text"] for one in answers_in(w)] for w in wanted]
        assert numbers == score_answers(said, right).numbers
    else:
        y = list(map(float, wanted))
        assert_close(numbers["mae"], metrics.mean_absolute_error(y, said))
        assert_close(numbers["rmse"], metrics.root_mean_squared_error(y, said))
        assert_close(numbers["r2"], metrics.r2_score(y, said))
        assert_close(numbers["pearson"], float(np.corrcoef(y, said)[0, 1]))


def test_spearman_is_scipys() -> None:
    stats: Any = pytest.importorskip("scipy.stats")
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 5, 50).astype(float), draw.integers(0, 9, 50).astype(float)
    assert_close(score_numbers(x.tolist(), y.tolist()).numbers["spearman"], float(stats.spearmanr(x, y).statistic))


@pytest.mark.parametrize(
    ("answer", "right", "f1", "same"),
    [
        ("the Eiffel Tower", ["Eiffel tower."], 1.0, True),  # articles, punctuation and capitals do not count
        ("tower in Paris", ["Eiffel Tower", "Paris"], 0.5, False),  # the best of the references
        ("", [], 1.0, True),
        ("Paris", [], 0.0, False),
        ("", ["Paris"], 0.0, False),
        ("a b b", ["b b c"], 0.8, False),
    ],
)
def test_answers_are_measured_as_the_script_of_squad_does(answer: str, right: list[str], f1: float, same: bool) -> None:
    numbers = score_answers([answer], [right]).numbers
    assert_close(numbers["answer_f1"], f1)
    assert numbers["exact_match"] == float(same)


def test_sets_of_which_nothing_is_right() -> None:
    nothing = frozenset[str]()
    numbers = score_label_sets([nothing, nothing], [nothing, frozenset({"good"})], SORTS).numbers
    assert numbers == {"micro_f1": 0.0, "f1": 0.0, "exact": 0.5}


# ---- entities, as seqeval defines them (its default mode, which is that of CoNLL's script)


def ends(last: str, mark: str, kind: str, name: str) -> bool:
    listed = {("B", "B"), ("B", "S"), ("B", "O"), ("I", "B"), ("I", "S"), ("I", "O")}
    return last in ("E", "S") or (last, mark) in listed or (last != "O" and kind != name)


def begins(last: str, mark: str, kind: str, name: str) -> bool:
    listed = {("E", "E"), ("E", "I"), ("S", "E"), ("S", "I"), ("O", "E"), ("O", "I")}
    return mark in ("B", "S") or (last, mark) in listed or (mark != "O" and kind != name)


def entities(tags: list[str]) -> set[tuple[str, int, int]]:
    last, kind, begin, found = "O", "", 0, set[tuple[str, int, int]]()
    for at, tag in enumerate([*tags, "O"]):
        mark, name = tag[0], tag[1:].split("-", 1)[-1] or "_"
        if ends(last, mark, kind, name):
            found.add((kind, begin, at))
        if begins(last, mark, kind, name):
            begin = at
        last, kind = mark, name
    return found


TAGS = st.sampled_from(["O", *(f"{mark}-{name}" for mark in "BIES" for name in ("PER", "LOC"))])


@given(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=12))
def test_entities_are_counted_as_seqeval_does(pairs: list[tuple[str, str]]) -> None:
    answers, wanted = map(list, zip(*pairs, strict=True))
    a, w = entities(answers), entities(wanted)
    rates = entity_rates([" ".join(answers)], [" ".join(wanted)])
    for name in ("PER", "LOC"):
        mine, theirs = ({one for one in some if one[0] == name} for some in (a, w))
        if not mine and not theirs:
            assert name not in rates
            continue
        right = len(mine & theirs)
        assert rates[name]["count"] == len(theirs)
        assert_close(rates[name]["precision"], right / len(mine) if mine else 0.0)
        assert_close(rates[name]["recall"], right / len(theirs) if theirs else 0.0)
        assert_close(rates[name]["f1"], 2 * right / (len(mine) + len(theirs)))
    every_one = 2 * len(a & w) / (len(a) + len(w)) if a or w else 1.0
    assert_close(span_f1([" ".join(answers)], [" ".join(wanted)]), every_one)


# ---- odd data


@pytest.mark.parametrize(
    ("name", "record", "said"),
    [
        ("pairs", ("one text alone", "bad"), "'one text alone' is one text, and two are read together"),
        ("pairs", (f"a{PAIR}b", "worse"), "'worse' is none of the model's 3 classes; allowed: bad, good, so so"),
        ("label sets", ("a text", "bad|worse"), "'worse' is none of the model's 3 classes"),
        ("numbers", ("a text", "nan"), "'nan' is no number"),
        ("answers", (f"who?{PAIR}a cat", "cat"), "'cat' holds no answers"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(name: str, record: tuple[str, str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        TASKS[name].evaluate(model_of(name).model, [Record(record, Path("a.csv"), 2)])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "records", "said"),
    [
        (
            "text-regression",
            [("a text", "3"), ("another", "3.0")],
            "every number in records is 3; give data with different",
        ),
        ("multi-label-classification", [("a text", ""), ("another", "")], "no record of records has a label"),
        ("text-pair-classification", [("a ||| b", "x"), ("c ||| d", "x")], "every label in records is 'x'"),
    ],
)
def test_what_cannot_be_learned_is_one_sentence(task: str, records: list[tuple[str, str]], said: str) -> None:
    options = {"data.validation_split": "0"}
    splits = load_splits(resolve(read_layers(options, environ={})), task_class(task), records)
    with pytest.raises(UserError) as caught:
        task_class(task).from_data(splits, Recipe(), None)
    assert said in str(caught.value)


def test_balanced_weights_are_scikit_learns() -> None:
    """And the loss of a batch is that of its rows, each by the weight of its class; validation knows none."""
    weigh: Any = pytest.importorskip("sklearn.utils.class_weight").compute_class_weight
    labels = ["good"] * 6 + ["bad"] * 3 + ["so so"]
    recipe = resolve(read_layers({"train.class_weights": "balanced", "data.validation_split": "0"}, environ={}))
    records = [(f"the cat sat {at}{PAIR}a dog {at}", label) for at, label in enumerate(labels)]
    setup = TextPairClassification.from_data(load_splits(recipe, TextPairClassification, records), recipe, None)
    wanted = weigh("balanced", classes=np.array(SORTS), y=np.array(labels))
    assert_close(torch.tensor(setup.task.class_weights), torch.tensor(wanted, dtype=torch.float32))
    assert setup.chosen["train.class_weights"] == "balanced"
    task, model = replace(TASKS["pairs"], class_weights=(2.0, 0.5, 1.0)), model_of("pairs").model
    alone = [task.collate([row], random_for("unused")) for row in rows("pairs")]
    plain = [float(task.without_augmentation().loss(model, one)) for one in alone]
    weighed = [(2.0, 0.5, 1.0)[int(one.wanted)] * loss for one, loss in zip(alone, plain, strict=True)]
    assert_close(float(task.loss(model, task.collate(rows("pairs"), random_for("unused")))), sum(weighed))


def test_balanced_weights_of_labels_are_scikit_learns_for_each() -> None:
    """A label and its absence count alike; and the loss is that of PyTorch's pos_weight, written out."""
    weigh: Any = pytest.importorskip("sklearn.utils.class_weight").compute_class_weight
    sets = ["good"] * 6 + ["bad|good"] * 3 + ["", "good"]  # "so so" occurs in what is held out alone
    recipe = resolve(read_layers({"train.class_weights": "balanced", "data.validation_split": "0"}, environ={}))
    records = [(f"the cat sat {at}", labels) for at, labels in enumerate(sets)]
    splits = load_splits(recipe, MultiLabelClassification, records)
    setup = MultiLabelClassification.from_data(splits, recipe, None)
    for label, found in zip(("bad", "good"), setup.task.class_weights, strict=True):
        without, having = weigh("balanced", classes=np.array([0, 1]), y=np.array([label in one for one in sets]))
        assert found == pytest.approx(having / without)
    assert setup.chosen["train.class_weights"] == "balanced"
    assert MultiLabelClassification.weights(recipe, splits, ("bad", "so so"))[1] == 1.0
    assert MultiLabelClassification.weights(resolve(read_layers({}, environ={})), splits, SORTS) == ()
    weights = (2.0, 0.5, 1.0)
    task, model = replace(TASKS["label sets"], class_weights=weights), model_of("label sets").model
    batch = task.collate(rows("label sets"), random_for("unused"))
    chances = torch.sigmoid(batch.read.output(model).double())
    each = -torch.tensor(weights) * batch.wanted * chances.log() - (1 - batch.wanted) * (1 - chances).log()
    assert_close(float(task.loss(model, batch)), float(each.sum() / 3), atol=1e-5, rtol=1e-5)
    plain = task.without_augmentation().loss(model, batch)
    assert_close(plain, TASKS["label sets"].loss(model, batch))
    assert not torch.isclose(plain, task.loss(model, batch))


@every
def test_an_attention_map_of_what_was_answered(name: str) -> None:
    asked = fields(name)[0][0] if "pair" not in name and name != "answers" else f"the cat sat{PAIR}a dog ran"
    loaded = model_of(name)
    task: Task = TASKS[name]
    run = task.trace(loaded.model, asked, TraceOptions(8, CONTEXT))
    with torch.inference_mode():
        found = run.call()
    outcome = run.reader.settled(found).outcome(found)
    assert outcome.text
    if name in ("numbers", "scored pairs"):
        assert outcome.text == next(task.predict(loaded.model, [asked])).to_text()


def test_evaluation_of_a_file_reads_it_for_the_model(tmp_path: Path) -> None:
    """Numbers that look like classes are numbers for a model that says numbers."""
    file = tmp_path / "grades.tsv"
    file.write_text("text\tlabel\n" + "".join(f"{text} {at}\t{at % 3}\n" for at, text in enumerate(TEXTS * 4)))
    model = model_of("numbers")
    found = evaluate(model, file)
    assert found.scores.main == "rmse"
    assert found.scores.count == 4 * len(TEXTS)
