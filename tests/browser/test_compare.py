"""Two models beside each other: what the page calls a difference is Python's, and it says what was read for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from headway.cli import main as cli
from headway.loading import load
from headway.look.page_session import Explorer
from headway.look.recording import Recording
from headway.model import Model
from headway.zoo import transformer
from headway.zoo.build import architecture
from tests.cli.folders import FOLDERS
from tests.look.readers import loaded, other

from . import cases
from .conftest import Shown
from .page import Page, found
from .test_served import serving

pytestmark = pytest.mark.long

TEXT = "the cat sat on the mat"


def translator(seed: int, **sizes: int) -> Model:
    """A translator of the words of `pairs`, with weights and perhaps sizes of its own."""
    like = FOLDERS["pairs"]()
    assert isinstance(like.config, transformer.Config)
    config = replace(like.config, **sizes)
    model = architecture("transformer").build(config).eval()
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return replace(like, model=model, config=config)


@dataclass(frozen=True)
class Compared:
    """A page of two models, and what Python says of both."""

    page: Page
    one: Recording
    two: Recording

    def difference(self, state: dict[str, int | str]) -> float:
        """Of the weights of the chosen cell."""
        site, head = str(state["site"]), int(state["head"])
        maps = (run[site].full()[0] for run in (self.one, self.two))
        ours, theirs = (map.mean(0) if head == -1 else map[head] for map in maps)
        return (ours - theirs)[int(state["row"]), int(state["column"])].item()


def opened(page: Page, folder: Path, *models: Model) -> Compared:
    """As `headway look ONE TEXT --compare TWO` writes it."""
    for name, model in zip(("one", "two"), models, strict=True):
        model.save(folder / name)
    file = folder / "page.html"
    words = ["look", str(folder / "one"), TEXT, "--compare", str(folder / "two"), "--out", str(file)]
    assert cli.main(words) == 0
    page.open(file)
    one = load(folder / "one").attend(TEXT)
    return Compared(page, one, load(folder / "two").attend(TEXT, said=one))


def test_translators_that_write_different_words(page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = opened(page, tmp_path, translator(4), translator(9))
    capsys.readouterr()
    assert seen.one.outcome.text != seen.two.outcome.text
    assert page.evaluate("headway.state.compare") == 1
    assert page.text("compared") == "difference: one − two; two reads what one wrote"
    for site in seen.one.sites:
        page.evaluate(f"headway.change({{site: {json.dumps(site)}, head: 1, view: 'matrix'}})")
        page.settle()
        pointed(seen)
    assert page.asked_for() == []
    assert page.errors == []


def pointed(seen: Compared) -> None:
    """The number under the pointer, at some places of the map."""
    box = seen.page.evaluate(f"{found('canvas')}.getBoundingClientRect().toJSON()")
    cells, sizes = set[tuple[int, int]](), list[float]()
    for x, y in ((0.5, 0.5), (0.45, 0.62), (0.6, 0.4), (0.55, 0.7), (0.4, 0.8), (0.35, 0.45)):
        seen.page.hover(box["x"] + x * box["width"], box["y"] + y * box["height"])
        state = seen.page.evaluate("headway.state")
        text = seen.page.text("hover-weight")
        told = 0.0 if text == "masked" else float(text.replace("−", "-"))
        assert told == pytest.approx(seen.difference(state), abs=0.01)
        cells.add((state["row"], state["column"]))
        sizes.append(abs(told))
    assert len(cells) > 1  # the pointer does choose
    assert max(sizes) > 0.01  # and there is a difference


def test_the_second_says_whose_words_it_reads(page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = opened(page, tmp_path, translator(4), translator(9))
    capsys.readouterr()
    assert page.evaluate(f"{found('follows')}.hidden")
    ours, theirs = seen.one.outcome.steps[2].logprob, seen.two.outcome.steps[2].logprob
    page.evaluate("headway.change({step: 2})")
    page.settle()
    told = page.evaluate("document.querySelector('.output-side .row').innerText").replace("−", "-")
    assert told.endswith(f"log p {ours:.2f} · two {theirs:.2f}")
    page.evaluate("headway.change({run: 1, compare: -1, step: 2})")
    page.settle()
    assert page.text("follows") == f"reads what one wrote: “{seen.one.outcome.text}”"
    assert page.text("output") == seen.two.outcome.text
    assert "would write" in page.evaluate("document.querySelector('.output-side').innerText")
    likely = seen.two.outcome.steps[2].top[0][0].strip()
    assert likely in page.text("probable")
    assert page.errors == []


def test_models_of_other_sizes(page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Layers that one lacks and heads that differ in number are said to have nothing beside them, in place."""
    seen = opened(page, tmp_path, translator(4, layers=2), translator(9, heads=4))
    capsys.readouterr()
    page.evaluate("headway.change({site: 'encoder.1.attn', head: 0})")
    page.settle()
    told = "nothing to compare with: two has no such site. These are the weights of one"
    assert page.text("compared") == told
    page.evaluate("headway.change({site: 'decoder.0.cross', head: 1, row: 2, column: 3})")
    page.settle()
    told = "two has 4 heads here, and not 2: only the means over heads can be compared"
    assert told in page.text("compared")
    plain = seen.one["decoder.0.cross"].full()[0, 1, 2, 3].item()
    assert float(page.text("hover-weight")) == pytest.approx(plain, abs=0.005)
    page.evaluate("headway.change({head: -1})")
    page.settle()
    assert page.text("compared") == "difference: one − two; two reads what one wrote"
    difference = seen.difference(page.evaluate("headway.state"))
    assert float(page.text("hover-weight").replace("−", "-")) == pytest.approx(difference, abs=0.01)
    assert page.errors == []


def test_what_is_typed_is_compared(page: Page, tmp_path: Path) -> None:
    models = [loaded("transformer"), other("transformer")]
    with serving(Explorer({"one": models[0], "two": models[1]}), tmp_path, "the cat") as address:
        page.open(address)
        page.evaluate("headway.change({site: 'decoder.0.cross', head: 1})")
        page.evaluate(f"{found('live-text')}.value = 'a dog ran'")
        page.click("live-read")
        page.wait("headway.bundle.runs[0].input === 'a dog ran'")
        page.evaluate("headway.change({row: 1, column: 2})")
        page.settle()
        one = models[0].attend("a dog ran")
        seen = Compared(page, one, models[1].attend("a dog ran", said=one))
        state = page.evaluate("headway.state")
        assert (state["compare"], state["site"], state["head"]) == (1, "decoder.0.cross", 1)
        assert page.text("compared") == "difference: one − two; two reads what one wrote"
        assert float(page.text("hover-weight").replace("−", "-")) == pytest.approx(seen.difference(state), abs=0.01)
        page.evaluate("headway.change({compare: -1})")
        page.evaluate(f"{found('live-text')}.value = 'a cat'")
        page.click("live-read")
        page.wait("headway.bundle.runs[0].input === 'a cat'")
        assert page.evaluate("headway.state.compare") == -1  # what was chosen stays
        assert page.errors == []


def test_differences_from_afar_are_told_to_be_of_blocks(shown: Shown) -> None:
    """Both heads have 0.7 in every block near the diagonal; only nearby is seen that they stand in other cells."""
    page = shown(cases.afar(), "#compare=1&row=100&column=99")
    assert page.text("notice").startswith("zoomed out: each cell is the difference of two block maxima")
    assert page.text("hover-weight") == "≈ 0.70"  # of two rounded weights
    assert page.text("peak") == "0.70, the largest difference of this head"  # not 0, which the blocks would say
    page.evaluate("headway.change({zoom: 40, x: 90, y: 90})")
    page.settle()
    assert page.evaluate(f"{found('notice')}.hidden")
    page.evaluate("headway.change({x: 800, y: 800, row: 805, column: 804})")  # whose fine weights are not in the file
    page.settle()
    assert page.text("notice").startswith("coarse here: each cell is the difference of two block maxima")
    assert "not in this file" in page.text("notice")
    assert page.text("hover-weight") == "coarse 0.00"
    assert "which may be in different cells" in page.text("entropy")
    page.evaluate("headway.change({compare: -1})")
    page.settle()
    assert page.text("notice").startswith("coarse here: the fine weights are not in this file")
    assert page.text("hover-weight") == "0.700"  # the strongest key of the row
    page.evaluate("headway.change({zoom: 1, x: 0, y: 0})")
    page.settle()
    assert page.evaluate(f"{found('notice')}.hidden")  # one run's map is drawn by its largest weights, as ever
    assert page.errors == []
