"""What a run leaves for people, for every kind of data and model: a page and a card that say what was measured."""

from __future__ import annotations

import html
import math
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headway.cli.main import main
from headway.data.builtin import DateSplit, dates
from headway.metrics.scores import Scores
from headway.nn.head import Classifier, FirstToken, LastToken, MeanPool
from headway.nn.trace import record
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.tasks.base import validation_loss
from headway.tasks.causal_lm import CausalLM
from headway.tasks.results import (
    EvalOptions,
    EvalResult,
    Sample,
    TracedInput,
    example_of,
    traced_samples,
)
from headway.tasks.seq2seq import Seq2Seq
from headway.training import recipe_data, report
from headway.training.build import evaluator_of
from headway.training.loop import RunResult
from headway.training.metrics_log import MetricsLog
from headway.training.plan import Plan, plan
from headway.training.recipe_sources import read_layers
from headway.training.report import attention, details_of, run_report
from headway.training.report_attention import MAX_SIDE, WeightMap, attention_examples, read_row, recorded
from headway.training.report_page import map_figure, write_report
from headway.training.run_summary import describe_end
from tests.train.runs import data_in, planned

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("rendered")]  # whole runs

WORDS = ("eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "東京", "שלום", "<b>", "merhaba")
SMALL = {"model.dim": "16", "model.layers": "1", "model.heads": "2"}
TINY_RNN = {"model.dim": "16", "model.hidden": "16", "model.align": "8", "model.readout": "8"}
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "transformer": ("pairs.tsv", {"model.preset": "transformer-nano", **SMALL}),
    "recurrent": ("pairs.tsv", {"model.preset": "rnnsearch-small", **TINY_RNN}),
    "fixed": ("pairs.tsv", {"model.preset": "rnn-small", **TINY_RNN}),
    "t5": (
        "pairs.tsv",
        {"model.preset": "t5-small", **SMALL, "model.head_dim": "8", "data.tokenizer": "bpe"},
    ),
    "classes": ("labels.tsv", {"model.preset": "bert-tiny", **SMALL}),
    "shared": ("labels.tsv", {"model.preset": "albert-base", **SMALL, "model.width": "8"}),
    "tags": ("tags.tsv", {"model.preset": "bert-tiny", **SMALL}),
    "causal": ("text.txt", {"model.preset": "gpt-nano", **SMALL}),
    "masked": ("text.txt", {"model.preset": "bert-tiny", **SMALL}),
    "span": ("text.txt", {"data.objective": "span", "model.preset": "t5-small", **SMALL, "model.head_dim": "8"}),
    "nothing": ("pairs.tsv", {"model.preset": "transformer-nano", **SMALL, "data.validation_split": "0"}),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Plan]]:
    """Plans by the name of their case, each made once."""
    place = tmp_path_factory.mktemp("report")
    write_data(place)
    plans: dict[str, Plan] = {}

    def get(name: str) -> Plan:
        if name not in plans:
            file, options = CASES[name]
            common = {"data.path": (str(place / file),), "out": str(place / f"out {name}"), "train.steps": "4"}
            plans[name] = plan(read_layers({**common, "data.max_length": "64", **options}, environ={}))
        return plans[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_CACHE", str(place / "cache"))
        yield get


def write_data(place: Path) -> None:
    lines = [" ".join(WORDS[(at * step) % len(WORDS)] for at in range(2, 9)) for step in range(1, 120)]
    (place / "pairs.tsv").write_text(
        "".join(f"{line} {at}\t{line.upper()}\n" for at, line in enumerate(lines)), "utf-8"
    )
    labels = "".join(f"{line} {at}\t{('gut', '<i>schlecht</i>')[at % 2]}\n" for at, line in enumerate(lines))
    (place / "labels.tsv").write_text(labels, "utf-8")
    tags = [" ".join("B-X" if len(word) > 4 else "O" for word in line.split()) for line in lines]
    tagged = "".join(f"{w} w{at}\t{t} O\n" for at, (w, t) in enumerate(zip(lines, tags, strict=True)))
    (place / "tags.tsv").write_text("words\ttags\n" + tagged, "utf-8")
    (place / "text.txt").write_text("\n".join(lines * 3), "utf-8")


def finished(made: Plan) -> tuple[str, str, nn.Module]:
    """The page, the card and the model of a run that learned nothing."""
    folder, model = made.out, made.build().eval()
    folder.mkdir(exist_ok=True)
    log, evaluator = MetricsLog(folder), evaluator_of(made)
    log.truncate(0)
    log.append(step=2, loss=3.0, targets=9, rate=0.1, norm=1.0)
    found = None if evaluator is None else evaluator(model)
    if found is not None:
        log.append(step=4, valid=dict(found.values), score=found.score)
    log.append(step=4, loss=None, targets=0, rate=0.1, norm=1.0, skipped=2)
    log.append_time(step=4, seconds=2.0, tokens=1000)
    made.as_model(model).save(folder)
    write_report(made, RunResult(4, None, "those of step 4", found), log, model)
    return (folder / "report.html").read_text("utf-8"), (folder / "README.md").read_text("utf-8"), model


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_run_is_reported(name: str, made: Callable[[str], Plan]) -> None:
    one = made(name)
    page, card, model = finished(one)
    count = f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters"
    for words in (count, CASES[name][0], "those of step 4", "500 tokens/s"):
        assert words in page
        assert words in card
    assert f"{torch.__version__}" in page
    assert "seed: 0" in page
    assert "--resume" in page
    assert len(page.encode()) < 1_000_000
    assert "<i>" not in page
    assert "<b>" not in page
    drawn = page.count("<figure>")
    assert drawn == {"tags": 3, "causal": 3, "masked": 3}.get(name, drawn)  # two heads and their mean
    assert (drawn == 0) == (name == "fixed")
    assert drawn <= 4
    assert ("Nothing can be drawn" in page) == (drawn == 0)


def test_the_card_says_how_to_use_the_model(made: Callable[[str], Plan], capsys: pytest.CaptureFixture[str]) -> None:
    _, card, _ = finished(made("transformer"))
    (code,) = re.findall(r"```python\n(.*?)\n```", card, re.S)
    exec(code, {})  # the folder that was just written
    assert capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("name", ["causal", "span"])
def test_a_language_model_is_tried_by_sampling(
    name: str, made: Callable[[str], Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    """What the page, the card and the terminal tell to type works, says its temperature, and draws the same again."""
    one = made(name)
    page, card, _ = finished(one)
    assert "sampled at temperature 0.8" in page
    command = f"headway run {shlex.quote(str(one.out))} --temperature 0.8 'drei vier fünf'"
    assert command in html.unescape(page)
    assert command in card
    assert command in describe_end(one, RunResult(4, None, "those of step 4", None))
    said = list[str]()
    for words in (shlex.split(command)[1:], [*shlex.split(command)[1:], "--seed", "0"]):
        assert main(words) == 0
        said.append(capsys.readouterr().out)
    (code,) = re.findall(r"```python\n(.*?)\n```", card, re.S)
    assert "temperature=0.8" in code
    exec(code, {})
    assert said == [capsys.readouterr().out] * 2
    assert main(["run", str(one.out), "drei vier fünf"]) == 0
    assert capsys.readouterr().out != said[0]  # greedy
    assert f"headway look {shlex.quote(str(one.out))} 'drei vier fünf'<" in html.unescape(page)


def test_a_masked_model_is_tried_with_a_mask(made: Callable[[str], Plan], capsys: pytest.CaptureFixture[str]) -> None:
    one = made("masked")
    finished(one)
    [first, *_] = one.task.next_commands(shlex.quote(str(one.out)), shlex.quote(one.task.example(one.splits, ())))
    assert main(shlex.split(first.command)[1:]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", ["speech", "conformer", "dictation", "vit"])
def test_what_can_be_looked_at_is_drawn_also_where_nothing_was_held_out(name: str, tmp_path: Path) -> None:
    with data_in(tmp_path):
        for more in ({"data.validation_split": "0"}, {}):
            one = planned(name, out=f"run {len(more)}", **more)
            model = one.build().eval()
            nothing = RunResult(4, None, "", EvalResult(Scores({"loss": math.inf}, 0, "targets")))  # it has diverged
            end = RunResult(4, None, "", None) if more else nothing
            found = run_report(one, end, MetricsLog(tmp_path), model)
            looked = one.as_model(model).attend(found.example)
            site = re.findall(r"(?:of|in) (\S+), the la", found.attention.description)
            assert found.attention.figures
            assert set(site) < {*looked.sites, "nothing"}


def traced(made: Plan, model: nn.Module, text: str) -> tuple[str, WeightMap]:
    """The description of what is drawn for a text, and the map."""
    found = attention_examples(recorded(made.task, model, [TracedInput("title", text)], "model", None), model)
    (drawn,) = found.figures
    assert isinstance(drawn, WeightMap)
    return found.description, drawn


def test_weights_that_are_drawn_are_those_that_were_used(made: Callable[[str], Plan]) -> None:
    """Row t is the look before token t was written; reading it changes no logit."""
    for name in ("transformer", "recurrent", "t5"):
        one = made(name)
        task, model = one.task, one.build().eval()
        assert isinstance(task, Seq2Seq)
        assert isinstance(model, EncoderDecoder)
        [source] = task.sources(["eins zwei"])
        [answer] = task.predict(model, ["eins zwei"])
        written = list(answer.hypotheses[0].tokens)
        description, drawn = traced(one, model, "eins zwei")
        rows = min(len(written), MAX_SIDE)
        assert (len(drawn.rows), len(drawn.columns)) == (rows, len(source))
        assert_close(torch.tensor(drawn.weights).sum(1), torch.ones(rows))
        shown, (site,) = torch.tensor([[task.start_token, *written[:-1]]]), re.findall(r"heads of (\S+),", description)
        with record(model, f"{site}.weights") as trace, torch.no_grad():
            model(torch.tensor([source]), shown)
        seen: Any = trace[f"{site}.weights"]
        assert_close(torch.tensor(drawn.weights), seen.full()[0].mean(0)[:rows])


def test_long_examples_are_cut(made: Callable[[str], Plan]) -> None:
    one = made("transformer")
    _, drawn = traced(one, one.build().eval(), "eins " * 60)
    assert len(drawn.columns) == len(drawn.weights[0]) == MAX_SIDE
    assert len(drawn.rows) == len(drawn.weights) <= MAX_SIDE


def test_a_class_is_shown_by_what_its_token_attends_to(made: Callable[[str], Plan]) -> None:
    one = made("classes")
    model = one.build().eval()
    evaluator = evaluator_of(one)
    assert evaluator is not None
    found = evaluator(model)
    assert found.scores.main == "accuracy"
    drawn = attention(one, details_of(one, found, model), model, "")
    assert len(drawn.figures) == 4
    for each in drawn.figures:
        assert isinstance(each, WeightMap)
        assert each.rows[0] == "[CLS]"
        assert each.columns == ("mean over heads", "head 0", "head 1")
        assert_close(torch.tensor(each.weights).sum(0), torch.ones(3))


@pytest.mark.parametrize(
    ("pool", "row"), [(FirstToken(), [1.0, 2.0]), (LastToken(), [5.0, 6.0]), (MeanPool(), [3.0, 4.0])]
)
def test_the_row_that_the_head_reads(pool: nn.Module, row: list[float]) -> None:
    model = Trunk(nn.Identity(), nn.Identity(), Classifier(2, 2, pool=pool))
    assert read_row(model, torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).tolist() == row


def test_the_loss_by_position_adds_up_to_the_loss(made: Callable[[str], Plan]) -> None:
    one = made("causal")
    task, model, batches = one.task, one.build().eval(), one.encoded.validation
    assert isinstance(task, CausalLM)
    with torch.inference_mode():
        buckets = task.loss_by_position(model, batches)
    assert sum(bucket.count for bucket in buckets) == sum(batch.targets for batch in batches)
    total = sum(bucket.numbers["loss"] * bucket.count for bucket in buckets)
    whole = validation_loss(task, model, batches) * sum(batch.targets for batch in batches)
    assert total == pytest.approx(whole, rel=1e-5)
    assert [bucket.label for bucket in buckets] == ["1–4", "5–16", "17–64"]


def test_dates_are_also_evaluated_where_nothing_like_them_was_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[str], Plan]
) -> None:
    monkeypatch.setattr(report, "MAX_UNSEEN", 30)
    monkeypatch.setattr(recipe_data, "DATES_VALIDATION", 20)
    asked: list[tuple[str, ...]] = []

    known = dict([*dates(7, 20, part=DateSplit.VALIDATION), *dates(7, 30, part=DateSplit.UNSEEN)])

    def answers(self: Seq2Seq, model: nn.Module, sources: list[str], options: object) -> list[tuple[str, str | None]]:
        return [answered(source, known[source], asked) for source in sources]

    monkeypatch.setattr(Seq2Seq, "answers", answers)
    one = plan_of_dates(tmp_path, made)
    model = one.build().eval()
    last = one.task.evaluate(model, list(one.splits.validation()), EvalOptions(metrics=("exact",)))
    found = run_report(one, RunResult(1, None, "", last), MetricsLog(tmp_path), model)
    assert found.unseen is not None
    assert (found.unseen.numbers["exact"], found.unseen.count) == (0.0, 30)
    assert found.details is not None
    assert (found.details.scores.numbers["exact"], found.details.scores.count) == (1.0, 20)
    assert list(found.details.scores.numbers) == ["exact"]  # as in the run
    assert asked == [*dates(7, 20, part=DateSplit.VALIDATION), *dates(7, 30, part=DateSplit.UNSEEN)]


def test_the_last_evaluation_is_not_repeated(monkeypatch: pytest.MonkeyPatch, made: Callable[[str], Plan]) -> None:
    one = made("classes")
    model = one.build().eval()
    before = one.task.validate(model, one.encoded.validation, one.splits.some_validation(1000))

    def never(*args: object) -> EvalResult:
        raise AssertionError("evaluated again")

    monkeypatch.setattr(type(one.task), "evaluate", never)
    found = run_report(one, RunResult(4, None, "", before), MetricsLog(one.out), model)
    assert found.details is not None
    assert found.details.scores is before.scores


def answered(source: str, target: str, asked: list[tuple[str, ...]]) -> tuple[str, str | None]:
    """What a model would say that has learned only what it was shown, and what ended it."""
    asked.append((source, target))
    return (target if len(asked) <= 20 else "?"), "token"


def plan_of_dates(tmp_path: Path, made: Callable[[str], Plan]) -> Plan:
    """A plan for dates without the time that preparing them takes: that of other pairs, with their splits."""
    one = made("transformer")
    return replace(one, recipe=replace(one.recipe, seed=7, out=tmp_path), splits=recipe_data.builtin_dates(7))


def test_few_samples_are_mostly_right_ones_and_one_wrong() -> None:
    right, wrong = [Sample(str(at), "b", "b") for at in range(9)], [Sample(str(at), "c", "b") for at in range(9)]

    def chosen(samples: list[Sample], *, graded: bool = True) -> list[str]:
        return [one.input for one in traced_samples(samples, graded=graded)]

    assert chosen([wrong[0], *right[1:5], wrong[5]]) == ["1", "2", "3", "0"]
    assert chosen(wrong) == ["0", "1", "2", "3"]
    assert chosen([Sample(one.source * 200, "b", "b") for one in right]) == [str(at) * 200 for at in range(4)]
    assert chosen([Sample("9" * 200, "b", "b"), *right]) == ["0", "1", "2", "3"]
    assert chosen([right[0], wrong[1], *right[2:]], graded=False) == ["0", "1", "2", "3"]
    assert chosen([]) == []
    assert traced_samples(wrong[:1], graded=True)[0].title == "0 → c (should be b)"


def test_an_answer_beside_a_text_from_right_to_left_keeps_its_order() -> None:
    """A date behind Hebrew would be read from right to left, its parts reversed, unless each text stands by itself."""
    [one] = traced_samples([Sample("3 במאי 2021", "2021-05-03", "2021-05-04")], graded=True)
    assert one.title == "\u20683 במאי 2021\u2069 → \u20682021-05-03\u2069 (should be \u20682021-05-04\u2069)"
    figure = map_figure(WeightMap(one.title, ("a",), ("b",), [[1.0]]))
    assert f"<figcaption>{one.title}</figcaption>" in figure  # from left to right, as the arrow points


def test_a_text_to_try_is_short_printable_and_right() -> None:
    samples = (Sample("a\nb", "x", "x"), Sample("ф", "y", "x"), Sample("é", "x", "x"), Sample("c", "x", "x"))
    assert example_of(samples) == "c"
    assert example_of(samples[:3]) == "é"
    assert example_of(samples[:1]) is None
    assert example_of(()) is None


def test_a_resumed_run_is_reported_from_its_whole_log(made: Callable[[str], Plan], tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    for step in (1, 2, 3):
        log.append(step=step, loss=float(step))
        log.append_time(step=step, seconds=30.0, tokens=1500)
    log.append(step=3, chosen=[1, 2], valid={"loss": 1.0}, score=-1.0)
    one = made("nothing")
    found = run_report(one, RunResult(3, None, "the mean", None), log, one.build())
    assert list(found.curves["loss"][0].points) == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert found.kept == [1, 2]
    assert ("time", "1.5 minutes of steps, evaluations not counted, 50 tokens/s") in found.summary
