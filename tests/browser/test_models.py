"""Pages of real models, as `headway look` writes them: what they show is what Python says."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from headway.cli import main as cli
from headway.look.recording import HeadEdit, Recording
from headway.model import load
from headway.nn.trace import Off, Only, Uniform
from tests.look.readers import READERS, loaded

from .page import Page, found

pytestmark = pytest.mark.long

MODELS = {  # and the views that the sites of each must offer, taken together
    "gpt2": {"matrix", "lines", "row", "table"},
    "bert": {"matrix", "lines", "row", "table"},
    "transformer": {"matrix", "lines", "row", "alignment", "table"},
    "rnn": {"matrix", "lines", "row", "alignment", "table"},
    "vit": {"matrix", "row", "picture", "table"},
    "swin": {"matrix", "row", "picture", "table"},
    "mvitv2": {"matrix", "row", "picture", "table"},
    "captioner, soft": {"matrix", "row", "picture", "strip", "table"},
    "captioner, hard": {"matrix", "row", "picture", "strip", "table"},
    "captioner, vit": {"matrix", "lines", "row", "picture", "strip", "table"},
    "conformer, decoder": {"matrix", "lines", "row", "alignment", "sound", "table"},
    "whisper": {"matrix", "lines", "row", "alignment", "sound", "table"},
    "sets": {"matrix", "lines", "row", "table"},
}
EDITS = {"off": Off(), "uniform": Uniform(), "only": Only()}


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def opened(name: str, page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Page, Recording]:
    """The page of a model that was saved, and what Python says of the same."""
    folder, file = tmp_path / "model", tmp_path / "page.html"
    loaded(name).save(folder)
    given = READERS[name].given()
    assert cli.main(["look", str(folder), given, "--out", str(file)]) == 0
    capsys.readouterr()
    page.open(file)
    return page, load(folder).attend(given)


def test_a_page_shows_what_python_says(opened: tuple[Page, Recording], name: str) -> None:
    page, recording = opened
    assert page.text("title") == "model"
    said = page.evaluate("headway.bundle.runs[0].outcome.text")
    assert said == recording.outcome.text
    views = set[str]()
    for site in recording.sites:
        page.evaluate(f"headway.change({{site: {json.dumps(site)}, head: 0}})")
        page.settle()
        numbers(page, recording, site)
        for view in page.evaluate("headway.views()"):
            page.click(f"view-{view}")
            views.add(view)
        pointed(page, recording, site)
    assert views == MODELS[name]
    edits(page, recording)
    assert page.asked_for() == []
    assert page.errors == []


def numbers(page: Page, recording: Recording, site: str) -> None:
    """Some weights of every head, and the way by which the foot comes to them."""
    weights = recording[site].full()[0]
    draw = random.Random(site)
    for head, rows in enumerate(weights):
        row, column = draw.randrange(len(rows)), draw.randrange(rows.shape[1])
        told = page.evaluate(f"headway.weight({json.dumps(site)}, {head}, {row}, {column})")
        assert told == pytest.approx(rows[row, column].item(), abs=0.001)
    row = draw.randrange(weights.shape[1])
    column = int(weights[0, row].argmax())
    page.evaluate(f"headway.change({{row: {row}, column: {column}}})")
    page.settle()
    if recording.is_hard(site):  # one place, whatever its probability
        assert page.text("hover-weight") == "1.000"
        assert page.text("foot-softmax").endswith(", chosen")
        assert told_by(page, "foot-softmax") < 0.99
    else:
        assert told_by(page, "foot-softmax") == pytest.approx(weights[0, row, column].item(), abs=1e-4)
    terms = recording.detail(site).terms(0, row, column).sum().item()
    assert told_by(page, "foot-score") == pytest.approx(terms, rel=0.02, abs=0.02)


def told_by(page: Page, testid: str) -> float:
    return float(page.evaluate(f"{found(testid)}.dataset.value"))


def pointed(page: Page, recording: Recording, site: str) -> None:
    """The number under the pointer."""
    page.click("view-matrix")
    box = page.evaluate(f"{found('canvas')}.getBoundingClientRect().toJSON()")
    page.hover(box["x"] + 0.52 * box["width"], box["y"] + 0.47 * box["height"])
    state = page.evaluate("headway.state")
    weight = recording[site].full()[0, state["head"], state["row"], state["column"]].item()
    text = page.text("hover-weight")
    assert weight == 0 if text == "masked" else float(text) == pytest.approx(weight, abs=0.0005 + 1e-6)


def edits(page: Page, recording: Recording) -> None:
    """Each way to change a head of the last site."""
    site = list(recording.sites)[-1]
    head = recording.sites[site].heads - 1
    page.evaluate(f"headway.change({{site: {json.dumps(site)}, head: {head}}})")
    page.settle()
    for how, edit in EDITS.items():
        page.click(f"edit-{how}")
        outcome = recording.edited(HeadEdit(site, head, edit))
        assert told_by(page, "edit-delta") == pytest.approx(outcome.total - recording.outcome.total, abs=1e-3)
        if outcome.text != recording.outcome.text:
            assert page.evaluate("document.querySelector('.edit-output ins') !== null")
