"""What a run leaves for people, for every kind of data and model: a page and a card that say what was measured."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headway.answer import Speaker, Wish
from headway.app.report import final
from headway.app.report.final import few, measured
from headway.app.report.final_texts import by_place
from headway.app.report.heat import Map, Ribbon
from headway.app.report.outcome import Outcome, example, told
from headway.app.report.sight import PIECES, Example, alignments, read_row
from headway.app.report.write import finish_folder
from headway.app.settings.recipe import ask
from headway.app.training import exams, material
from headway.app.training.assemble import loaded_of
from headway.app.training.exams import examiner_of
from headway.app.training.measure import held_loss
from headway.app.training.plan import Plan, plan
from headway.data.dates import Part, dates
from headway.data.sources import Record
from headway.nn.head import Classifier, FirstToken, LastToken, MeanPool
from headway.nn.model import EncoderDecoder, Trunk
from headway.nn.trace import record
from headway.tasks.causal import Causal
from headway.tasks.pairs import Pairs
from headway.train.journal import Journal
from headway.train.loop import End, Sample

pytestmark = pytest.mark.slow  # whole runs

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
    "nothing": ("pairs.tsv", {"model.preset": "transformer-nano", **SMALL, "data.held_out": "0"}),
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
            plans[name] = plan(ask({**common, "data.longest": "64", **options}, environ={}))
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
    folder, model = made.recipe.out, made.build().eval()
    assert folder is not None
    folder.mkdir(exist_ok=True)
    journal = Journal(folder)
    journal.cut(0)
    journal.tell(step=2, loss=3.0, targets=9, rate=0.1, norm=1.0)
    examiner = examiner_of(made)
    found = None if examiner is None else examiner(model)
    if found is not None:
        journal.tell(step=4, valid=dict(found.values), score=found.score)
    journal.tell(step=4, loss=None, targets=0, rate=0.1, norm=1.0, skipped=2)
    journal.time(step=4, seconds=2.0, tokens=1000)
    loaded_of(made, model).save(folder)
    finish_folder(made, End(4, None, "those of step 4", found), journal, model, examiner)
    return (folder / "report.html").read_text("utf-8"), (folder / "README.md").read_text("utf-8"), model


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_run_is_told(name: str, made: Callable[[str], Plan]) -> None:
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
    assert (drawn == 0) == (name in ("fixed", "nothing"))
    assert drawn <= 4
    assert ("Nothing can be drawn" in page) == (drawn == 0)


def test_the_card_says_how_to_use_the_model(made: Callable[[str], Plan], capsys: pytest.CaptureFixture[str]) -> None:
    _, card, _ = finished(made("transformer"))
    (code,) = re.findall(r"```python\n(.*?)\n```", card, re.S)
    exec(code, {})  # the folder that was just written
    assert capsys.readouterr().out


def test_weights_that_are_drawn_are_those_that_were_used(made: Callable[[str], Plan]) -> None:
    """Row t is the look before piece t was written; reading it changes no logit."""
    for name in ("transformer", "recurrent", "t5"):
        one = made(name)
        task, model = one.ready.task, one.build().eval()
        assert isinstance(task, Pairs)
        assert isinstance(model, EncoderDecoder)
        source, answer = tuple(task.reader.encode("eins zwei")), (5, 6, 7)
        found = alignments(model, [Example(source, answer, task.begin, "title")], task.reader, task.writer)
        (drawn,) = found.figures
        assert isinstance(drawn, Map)
        assert (len(drawn.rows), len(drawn.columns)) == (len(answer), len(source))
        assert_close(torch.tensor(drawn.weights).sum(1), torch.ones(len(answer)))
        shown, (site,) = torch.tensor([[task.begin, 5, 6]]), re.findall(r"heads of (\S+),", found.how)
        with record(model, site) as trace, torch.no_grad():
            model(torch.tensor([source]), shown)
        seen: Any = trace[site]
        assert_close(torch.tensor(drawn.weights), seen.full()[0].mean(0))


def test_long_examples_are_cut(made: Callable[[str], Plan]) -> None:
    one = made("transformer")
    task, model = one.ready.task, one.build().eval()
    assert isinstance(task, Pairs)
    assert isinstance(model, EncoderDecoder)
    found = alignments(model, [Example((5,) * 60, (6,) * 50, task.begin)], task.reader, task.writer)
    (drawn,) = found.figures
    assert isinstance(drawn, Map)
    assert (len(drawn.rows), len(drawn.columns), len(drawn.weights[0])) == (PIECES, PIECES, PIECES)


def test_a_class_is_shown_by_what_its_token_looks_at(made: Callable[[str], Plan]) -> None:
    one = made("classes")
    model = one.build().eval()
    found = measured(one, End(4, None, "", None), model)
    assert found.scores is not None
    assert found.scores.main == "accuracy"
    assert len(found.sights.figures) == 4
    for ribbon in found.sights.figures:
        assert isinstance(ribbon, Ribbon)
        assert ribbon.pieces[0] == "[CLS]"
        assert sum(ribbon.weights) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("pool", "row"), [(FirstToken(), [1.0, 2.0]), (LastToken(), [5.0, 6.0]), (MeanPool(), [3.0, 4.0])]
)
def test_the_row_that_the_head_reads(pool: nn.Module, row: list[float]) -> None:
    model = Trunk(nn.Identity(), nn.Identity(), Classifier(2, 2, pool=pool))
    assert read_row(model, torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).tolist() == row


def test_the_loss_by_place_adds_up_to_the_loss(made: Callable[[str], Plan]) -> None:
    one = made("causal")
    model, held = one.build().eval(), one.prepared.held
    assert isinstance(model, Trunk)
    assert isinstance(one.ready.task, Causal)
    with torch.inference_mode():
        buckets = by_place(model, held)
    assert sum(bucket.count for bucket in buckets) == sum(batch.targets for batch in held)
    total = sum(bucket.numbers["loss"] * bucket.count for bucket in buckets)
    whole = held_loss(one.ready.task, model, held) * sum(batch.targets for batch in held)
    assert total == pytest.approx(whole, rel=1e-5)
    assert [bucket.label for bucket in buckets] == ["1–4", "5–16", "17–64"]


def test_dates_are_also_measured_where_nothing_like_them_was_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[str], Plan]
) -> None:
    monkeypatch.setattr(final, "RECORDS", 20)
    monkeypatch.setattr(final, "UNSEEN", 30)
    monkeypatch.setattr(material, "DATES_HELD", 20)
    asked: list[tuple[str, ...]] = []

    def written(speaker: Speaker, records: list[Record], wish: Wish) -> list[Sample]:
        return [answered(one, asked) for one in records]

    monkeypatch.setattr(exams, "written", written)
    monkeypatch.setattr(final, "written", written)
    one = plan_of_dates(tmp_path, made)
    found = measured(one, End(1, None, "", None), one.build())
    assert found.unseen is not None
    assert (found.unseen.numbers["exact"], found.unseen.count) == (0.0, 30)
    assert found.scores is not None
    assert found.scores.numbers["exact"] == 1.0
    assert asked == [*dates(7, 20, part=Part.VALIDATION), *dates(7, 30, part=Part.UNSEEN)]


def answered(one: Record, asked: list[tuple[str, ...]]) -> Sample:
    """What a model would say that has learned only what it was shown."""
    asked.append(one.fields)
    return Sample(one.fields[0], one.fields[1] if len(asked) <= 20 else "?", one.fields[1])


def plan_of_dates(tmp_path: Path, made: Callable[[str], Plan]) -> Plan:
    """A plan for dates without the time that preparing them takes: that of other pairs, with their material."""
    one = made("transformer")
    return replace(one, recipe=replace(one.recipe, seed=7, out=tmp_path), material=material.embedded(7))


def test_few_samples_are_mostly_right_ones_and_one_wrong() -> None:
    right, wrong = Sample("a", "b", "b"), Sample("a", "c", "b")
    assert few([wrong, right, right, right, right, wrong], lambda sample: True) == [1, 2, 3, 0]
    assert few([wrong] * 9, lambda sample: True) == [0, 1, 2, 3]
    assert few([right] * 9, lambda sample: sample is None) == [0, 1, 2, 3]
    assert few([], lambda sample: True) == []


def test_a_text_to_try_is_short_printable_and_right() -> None:
    samples = (Sample("a\nb", "x", "x"), Sample("ф", "y", "x"), Sample("é", "x", "x"), Sample("c", "x", "x"))
    assert example(final.Final(None, samples)) == "c"
    assert example(final.Final(None, samples[:3])) == "é"
    assert example(final.Final(None, samples[:1])) == "some text"
    assert example(final.Final()) == "some text"


def test_an_interrupted_run_is_told_from_its_whole_journal(made: Callable[[str], Plan], tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for step in (1, 2, 3):
        journal.tell(step=step, loss=float(step))
        journal.time(step=step, seconds=30.0, tokens=1500)
    journal.tell(step=3, chosen=[1, 2], valid={"loss": 1.0}, score=-1.0)
    one = made("transformer")
    outcome: Outcome = told(one, End(3, None, "the mean", None), journal, one.build(), final.Final())
    assert list(outcome.curves["loss"][0].points) == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert outcome.kept == [1, 2]
    assert ("time", "1.5 minutes of steps, evaluations not counted, 50 tokens/s") in outcome.summary
