"""Pages of real models, as `headway look` writes them: what they show is what Python says."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from headway.cli import main as cli
from headway.generate.sampling import RandomSampler
from headway.learn.lesson import LESSONS
from headway.loading import load
from headway.look.bundle import pack_bundle
from headway.look.head_edits import HeadEdit
from headway.look.html_page import render_page
from headway.look.module_flow import module_flow
from headway.look.output_lens import TEMPERATURES, OutputLens, output_lens
from headway.look.page_session import Explorer
from headway.look.recording import Recording
from headway.nn.trace import Off, Only, Uniform
from headway.tasks.tracing import Choices
from headway.zoo.build import architecture
from tests.cli.folders import made, sizes, words
from tests.look.readers import READERS, loaded

from .page import Page, found

pytestmark = pytest.mark.long

ALWAYS = {"flow", "map", "matrix", "row", "heads", "received", "table"}
MODELS = {  # and the views besides that the sites of each must offer, taken together
    "gpt2": {"lens", "lines"},
    "bert": {"lens", "lines"},
    "transformer": {"lens", "lines", "alignment"},
    "rnn": {"lines", "alignment"},
    "vit": {"picture"},
    "swin": {"picture"},
    "mvitv2": {"picture"},
    "captioner, soft": {"picture", "strip"},
    "captioner, hard": {"picture", "strip"},
    "captioner, vit": {"lens", "lines", "picture", "strip"},
    "conformer, decoder": {"lens", "lines", "alignment", "sound"},
    "whisper": {"lens", "lines", "alignment", "sound"},
    "sets": {"lines"},
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
    several = any(site.heads > 1 for site in recording.sites.values()) or len(recording.sites) > 1
    assert views == (ALWAYS if several else ALWAYS - {"heads"}) | MODELS[name]
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


LENSES = ["gpt2", "bert", "transformer", "captioner, vit", "conformer, decoder", "whisper"]


@pytest.mark.parametrize("name", LENSES)
def test_the_lens_says_what_python_says(opened: tuple[Page, Recording], name: str) -> None:
    """Every cell, what is summed, and the distribution at another temperature among the likeliest tokens."""
    page, recording = opened
    lens = output_lens(recording)
    assert lens is not None
    page.evaluate(f"headway.change({{view: 'lens', step: {lens.first}}})")
    page.settle()
    rows = page.evaluate(
        "[...document.querySelectorAll('.lens-grid tbody tr')].map(n => [...n.cells].slice(1).map(c => c.title))"
    )
    for line, layer in zip(rows, range(len(lens.layers) - 1, -1, -1), strict=True):
        ranks = [int(title.rpartition(" ")[2]) for title in line]
        assert ranks == [step[layer].rank + 1 for step in lens.choices]
    if lens.parts is None:
        assert "norms inside" in page.text("logit-parts")
    else:
        told = page.evaluate("[...document.querySelectorAll('.lens-parts .probable .number')].map(n => n.innerText)")
        values = sorted(lens.parts.values[0], key=abs, reverse=True)[:8]
        assert [float(text.replace("−", "-")) for text in told] == pytest.approx(values, abs=0.005 + 1e-4)
        assert f"{lens.parts.total[0]:+.2f}".replace("-", "−") in page.text("logit-parts")
    sampled(page, recording, lens)
    assert page.errors == []


def sampled(page: Page, recording: Recording, lens: OutputLens) -> None:
    """Temperature 0.5, then the two likeliest alone."""
    if page.evaluate(f"{found('temperature')}.closest('.sliders').hidden"):
        return
    for testid, value in (("temperature", TEMPERATURES.index(0.5)), ("top-k", 2)):
        page.evaluate(f"(n => (n.value = {value}, n.dispatchEvent(new Event('input'))))({found(testid)})")
    reader = recording.run.reader
    assert isinstance(reader, Choices)
    logits = reader.head(recording.run.call().detach())[lens.first]
    sampler = RandomSampler(temperature=0.5, top_k=2)
    expected = sampler.probabilities(sampler.process(logits, [])).topk(2).values.tolist()
    told = page.evaluate("[...document.querySelectorAll('.next .number')].map(n => n.innerText)")[:2]
    assert [float(text.removesuffix(" %")) / 100 for text in told] == pytest.approx(expected, abs=0.006)


def test_the_whole_model_is_shown_as_it_ran(opened: tuple[Page, Recording]) -> None:
    """Every module of the tree can be opened, with its sizes; attention leads into its heads."""
    page, recording = opened
    page.evaluate("headway.change({view: 'flow'})")
    page.settle()
    page.evaluate("""(() => {
      for (;;) {
        const closed = document.querySelector('.module-name[aria-expanded="false"]');
        if (closed === null) return;
        closed.click();
      }
    })()""")
    told = page.evaluate("[...document.querySelectorAll('.module-name')].map(n => n.dataset.path)")
    nodes = {node.path: node for node in module_flow(recording).walk()}
    assert set(told) == nodes.keys() - {""}
    added = page.evaluate("""[...document.querySelectorAll('.module.residual > .module-head')].map((n) => [
      n.querySelector('.module-name').dataset.path,
      ...[...n.querySelectorAll('.number')].map((m) => m.innerText),
    ])""")
    for path, *numbers in added:
        node = nodes[path]
        assert node.before is not None
        assert node.added is not None
        assert node.size is not None
        expected = [node.before, node.added, node.size]
        assert [float(text) for text in numbers] == pytest.approx(expected, abs=0.005 + 1e-6)
    site = next(iter(recording.sites))
    page.click(f"flow-{site}")
    assert page.evaluate("[headway.state.site, headway.state.view !== 'flow']") == [site, True]
    page.collect()
    assert page.errors == []


def test_a_tour_goes_through_every_kind_of_model(opened: tuple[Page, Recording]) -> None:
    """Six steps with the numbers of this input, each with a lesson that there is; it can be left at any time."""
    page, recording = opened
    page.click("tour")
    told = list[str]()
    for at in range(6):
        page.settle()
        assert page.evaluate("document.querySelectorAll('.toured').length") == 1
        told.append(page.text("tour-text"))
        lesson = page.evaluate("document.querySelector('.tour code').innerText").split()[-1]
        assert lesson in LESSONS
        if at == 3 and not recording.is_hard(page.evaluate("headway.state.site")):
            assert float(page.evaluate(f"{found('foot-softmax')}.dataset.value")) == pytest.approx(
                float(re.search(r"the weight ([\d.]+)\.", told[-1])[1]),
                abs=0.0005 + 1e-6,  # type: ignore[index]
            )
        page.click("tour-next")
    assert len(set(told)) == 6
    assert page.evaluate("document.querySelector('.tour').hidden")
    page.click("tour")
    page.key("Escape")
    assert page.evaluate("document.querySelector('.tour').hidden")
    page.collect()
    assert page.errors == []


OTHERS = ["albert", "text classes", "tags", "t5", "mae", "clip", "simclr", "conformer, ctc", "wav2vec2, ctc"]
OTHERS += ["series", "forecast", "mvit", "lrnet", "resnet, attention"]


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_kind_of_model_has_a_page(name: str, page: Page, tmp_path: Path) -> None:
    """Every view of the site that it opens with, at three sizes of a window: no error, no request, nothing clipped."""
    recording = loaded(name).attend(READERS[name].given())
    file = tmp_path / "page.html"
    explorer = Explorer({name: loaded(name)})
    effects = explorer.effects([recording])
    bundle = pack_bundle([recording], explorer.focus([recording], effects), effects)
    file.write_text(render_page(bundle), encoding="utf-8")
    for size in [(1366, 768), (390, 844)]:
        page.size(*size)
        page.open(file)
        page.every_view()
        assert page.evaluate("document.querySelectorAll('[data-failed]').length") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert page.evaluate("window.scrollY") == 0  # it opens at its head
        clipped = "[...document.querySelectorAll('.tabs button')].filter(n => n.scrollWidth > n.clientWidth + 1).length"
        assert page.evaluate(clipped) == 0
        assert page.asked_for() == []
        assert page.errors == []
    site = page.evaluate("headway.state.site")
    row = page.evaluate(f"headway.row({json.dumps(site)}, 0, 0)")["weights"]
    if not recording.is_hard(site):
        assert row == pytest.approx(recording[site].full()[0, 0, 0].tolist(), abs=0.01)


def test_experts_are_in_the_whole_model(page: Page, tmp_path: Path) -> None:
    known = words("characters")
    config = architecture("mixtral").Config(vocab=known.vocab, context=64, kv_heads=1, **{**sizes, "layers": 2})
    model = made("mixtral", config, known, {"bos_token_id": known.bos, "eos_token_id": known.eos})
    file = tmp_path / "page.html"
    file.write_text(render_page(pack_bundle([model.attend("the cat")])), encoding="utf-8")
    page.open(file)
    page.every_view()
    page.evaluate("headway.change({view: 'flow'})")
    page.settle()
    page.evaluate("document.querySelector('[data-path=\\'stack.blocks.0.ffn\\']').click()")
    assert "expert 1\n" in page.text("flow")
    page.collect()
    assert page.errors == []
