"""The page in a real browser: it opens without the network, every view draws, and every control does what it says."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from headway.look.bundle import Bundle
from headway.look.html_page import HEIGHT, iframe
from headway.look.html_page import render_page as page_of

from .cases import KINDS, lengths, sample
from .conftest import Shown
from .page import Page, found

pytestmark = pytest.mark.long

ALWAYS = {"matrix", "row", "heads", "received", "table"}
VIEWS = {
    ("text", "text"): {"lines"},
    ("target", "source"): {"lines", "alignment"},
    ("cells", "cells"): {"picture"},
    ("target", "cells"): {"picture", "strip"},
    ("frames", "frames"): {"lines", "sound"},
    ("target", "frames"): {"lines", "alignment", "sound"},
    ("rows", "rows"): {"lines", "series"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_view_of_every_site_draws_in_silence(shown: Shown, kind: str) -> None:
    made = sample(kind)
    page = shown(made)
    for site in made.data["runs"][0]["sites"]:
        page.evaluate(f"headway.change({{site: '{site['name']}'}})")
        page.settle()
        views = page.evaluate("headway.views()")
        own = VIEWS.get((site["rows"], site["columns"]), set(views) - ALWAYS)
        own = own | ({"map"} if site["plane"] or made.data["clouds"] else set())
        assert set(views) == ALWAYS | own | ({"pair"} if len(made.data["runs"]) > 1 else set())
        for view in views:
            page.click(f"view-{view}")
            assert page.evaluate("headway.state.view") == view
            assert view == "table" or colours(page) > 3
    assert page.asked_for() == []
    assert page.errors == []


def colours(page: Page) -> int:
    """How many colours the canvas has: an empty one has one."""
    return page.evaluate(f"""(() => {{
      const node = {found("canvas")};
      const [width, height] = [Math.ceil(node.width / 4), Math.ceil(node.height / 4)];
      const pen = new OffscreenCanvas(width, height).getContext("2d", {{ willReadFrequently: true }});
      pen.drawImage(node, 0, 0, width, height);
      return new Set(new Uint32Array(pen.getImageData(0, 0, width, height).data.buffer)).size;
    }})()""")


def test_an_edit_tells_the_new_output_and_how_much_less_likely_the_old_one_is(shown: Shown) -> None:
    made = sample("language")
    page = shown(made, "#site=1.attn&head=2")
    effects = {(e["site"], e["head"], e["how"]): e["outcome"] for e in made.data["runs"][0]["effects"]}
    before = made.data["runs"][0]["outcome"]["total"]
    for how in ("off", "uniform", "only"):
        page.click(f"edit-{how}")
        outcome = effects["1.attn", 2, how]
        delta = float(page.evaluate(f"{found('edit-delta')}.dataset.value"))
        assert delta == pytest.approx(outcome["total"] - before, abs=1e-9)
        assert outcome["text"] in page.text("edit-output")
    page.click("edit-reset")
    assert page.text("edit-delta") == ""
    page.evaluate("headway.change({site: 'rollout'})")
    page.settle()
    assert page.evaluate(f"{found('edit-off')}.disabled")


def test_why_an_edit_cannot_be_tried_is_said_before_the_click(shown: Shown) -> None:
    page = shown(sample("picture"))
    assert page.evaluate(f"{found('edit-off')}.disabled")
    assert "take too long" in page.evaluate(f"{found('edit-off')}.title")
    assert "--effects tries them" in page.text("edit-output")
    assert page.text("edit-delta") == ""


def test_two_runs_are_compared_by_their_difference(shown: Shown) -> None:
    made = sample("compared")
    page = shown(made, "#site=1.attn&head=2&row=8&column=3&compare=1")
    difference = made.weights[0, "1.attn"] - made.weights[1, "1.attn"]
    assert signed(page.text("hover-weight")) == pytest.approx(difference[2, 8, 3], abs=0.01)
    assert page.text("compared") == "difference: tiny language model − another model"
    page.evaluate("headway.change({compare: 2, site: '0.attn'})")
    page.settle()
    told = "nothing to compare with: a shorter text has a map of 2 × 2 here, and not of 16 × 16. "
    assert page.text("compared") == f"{told}These are the weights of tiny language model"
    assert float(page.text("hover-weight")) == pytest.approx(made.weights[0, "0.attn"][2, 8, 3], abs=0.0005 + 1e-6)
    page.evaluate("headway.change({site: '1.attn'})")
    page.settle()
    assert "a shorter text has no such site" in page.text("compared")
    page.evaluate("headway.change({compare: -1})")
    page.settle()
    assert page.evaluate(f"{found('compared')}.hidden")
    assert page.errors == []


def test_what_is_chosen_by_hand_is_compared_at_once(shown: Shown) -> None:
    """The choice keeps the keyboard, and what it offers follows the run."""
    page = shown(sample("compared"), "#site=1.attn&head=2")
    chosen = "(n, value) => (n.focus(), n.value = value, n.dispatchEvent(new Event('change')))"
    page.evaluate(f"({chosen})({found('compare')}, '2')")
    page.settle()
    assert page.text("compared").startswith("nothing to compare with")
    assert page.evaluate("document.activeElement.dataset.testid") == "compare"
    page.evaluate(f"({chosen})({found('run')}, '1')")
    page.settle()
    offered = page.evaluate(f"[...{found('compare')}.options].map(n => n.value)")
    assert offered == ["-1", "0", "2"]
    assert page.evaluate("document.activeElement.dataset.testid") == "run"


def signed(text: str) -> float:
    return float(text.replace("−", "-"))


def test_heads_are_sorted_by_what_was_measured(shown: Shown) -> None:
    made = sample("language")
    page = shown(made)
    for stat, way in (("entropy", 1), ("distance", -1)):
        page.evaluate(f"headway.change({{sort: '{stat}'}})")
        page.settle()
        told = page.evaluate("[...document.querySelectorAll('.ranked .number')].map(n => Number(n.innerText))")
        stats = [one for site in made.data["runs"][0]["sites"] for one in site["stats"][stat]]
        assert told == pytest.approx(sorted(stats, key=lambda value: way * value), abs=0.006)
    page.evaluate("headway.change({sort: 'effect'})")
    page.settle()
    first = page.evaluate("document.querySelector('.ranked .number').innerText")
    effects = [one for site in made.data["runs"][0]["sites"] for one in site["stats"]["effect"] or []]
    assert signed(first) == pytest.approx(max(effects, key=abs), abs=0.001)


def test_a_step_moves_the_query_and_shows_what_was_likely(shown: Shown) -> None:
    made = sample("translation")
    page = shown(made)
    script = f"(n => (n.value = 3, n.dispatchEvent(new Event('input'))))({found('step')})"
    page.evaluate(script)
    page.settle()
    assert page.evaluate("headway.state.row") == 3
    assert made.data["runs"][0]["outcome"]["steps"][3]["said"] in page.text("probable")


@pytest.mark.parametrize(
    ("kind", "view"),
    [
        ("language", "lines"),
        ("translation", "alignment"),
        ("picture", "picture"),
        ("caption", "strip"),
        ("sound", "sound"),
    ],
)
def test_a_page_opens_with_the_view_that_says_most(shown: Shown, kind: str, view: str) -> None:
    page = shown(sample(kind))
    assert page.evaluate("headway.state.view") == view


def test_what_is_chosen_is_in_the_address(shown: Shown) -> None:
    made = sample("translation")
    page = shown(made)
    chosen = {"site": "decoder.0.cross", "head": 3, "view": "lines", "row": 4, "column": 2, "sort": "entropy"}
    page.evaluate(f"headway.change({chosen})")
    page.click("share")
    hash = page.evaluate("location.hash")
    again = shown(made, hash)
    state = again.evaluate("headway.state")
    assert {key: state[key] for key in chosen} == chosen


def test_a_file_does_not_claim_to_have_a_link(shown: Shown) -> None:
    """What is shared of a file is the end of its address, with the edit, and it is said so."""
    made = sample("language")
    page = shown(made, "#site=1.attn&head=2")
    page.click("edit-off")
    page.click("share")
    page.wait("document.querySelector('.said').innerText !== ''")
    told = page.evaluate(
        "document.querySelector('.said').innerText + (document.querySelector('.said input')?.value ?? '')"
    )
    assert "file" in told
    assert "file://" not in told
    again = shown(made, page.evaluate("location.hash"))
    assert again.evaluate("headway.state.edits") == [{"site": "1.attn", "head": 2, "how": "off"}]
    assert again.text("edit-delta") != ""
    none = shown(made, "#edit=nowhere:1:off&edit=1.attn:99:off&edit=1.attn:1:gone")
    assert none.evaluate("headway.state.edits") == []


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_a_map_are_saved_as_they_are_shown(shown: Shown, kind: str) -> None:
    made = sample(kind)
    page = shown(made)
    state = page.evaluate("headway.state")
    lines = list(csv.reader(page.evaluate("headway.table()").splitlines()))
    weights = made.weights[state["run"], state["site"]][state["head"]]
    assert [len(lines) - 1, len(lines[0]) - 1] == list(weights.shape)
    for line, row in zip(lines[1:], weights, strict=True):
        for text, weight in zip(line[1:], row, strict=True):
            assert weight == 0 if text == "masked" else float(text) == pytest.approx(weight, abs=0.0005 + 1e-6)


def test_an_address_that_makes_no_sense_does_no_harm(shown: Shown) -> None:
    page = shown(sample("language"), "#site=nowhere&head=99&row=-5&view=flight&zoom=x&run=7&__proto__=1&compare=0.5")
    state = page.evaluate("headway.state")
    assert (state["site"], state["head"], state["row"], state["view"], state["run"]) == ("0.attn", 5, 0, "lines", 0)
    page.collect()
    assert page.errors == []


def test_the_theme_is_the_systems_until_it_is_chosen(shown: Shown, page: Page) -> None:
    page.prefer(color_scheme="dark")
    shown(sample("language"))
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.click("theme")
    light = page.evaluate(paper)
    page.click("theme")
    assert (light, page.evaluate(paper)) == ("rgb(255, 255, 255)", dark)
    assert dark != light


def test_a_page_in_a_sandbox_works(page: Page, tmp_path: Path) -> None:
    """As notebooks show it: no origin, no address, no storage."""
    made = sample("language")
    file = tmp_path / "book.html"
    file.write_text(f"<!doctype html><body>{iframe(page_of(Bundle(made.data, made.blobs)))}", encoding="utf-8")
    inner = page.framed(file)
    inner.wait("window.headway?.ready === true")
    assert float(inner.text("hover-weight")) > 0
    inner.evaluate(f"{found('share')}.click()")  # which has no address to tell
    inner.collect()
    assert inner.errors == []
    assert page.errors == []


SWEEP = """(async () => {
  const wrong = [];
  const views = headway.views().filter((view) => view !== "table");
  for (let at = 0; at < 300; at++) {
    const [width, height] = [220 + ((at * 37) % 1300), 160 + ((at * 53) % 800)];
    for (const view of ["matrix", views[at % views.length]]) {
      headway.change({ view });
      const told = headway.drawAt(width, height);
      if (told) wrong.push(`${view} at ${width} × ${height}: ${told}`);
    }
  }
  await headway.settled();
  return wrong;
})()"""


@pytest.mark.parametrize("kind", [*KINDS, "31 words"])
def test_a_view_of_any_size_draws(shown: Shown, kind: str) -> None:
    """Where the cells of a row are as wide as the room, rounding may leave less than no room beside them."""
    page = shown(lengths([31]) if kind == "31 words" else sample(kind))
    assert page.evaluate(SWEEP) == []
    assert page.asked_for() == []
    assert page.errors == []


DRAWN = """(async () => {
  const plain = CanvasRenderingContext2D.prototype.fillText;
  const said = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
    said.push(text);
    return plain.call(this, text, ...more);
  };
  for (let run = 0; run < headway.bundle.runs.length; run++) {
    headway.change({ run, view: "matrix" });
    await headway.settled();
  }
  CanvasRenderingContext2D.prototype.fillText = plain;
  return said;
})()"""


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1366, 768), (960, HEIGHT)])
def test_words_of_columns_are_words_or_numbers(shown: Shown, page: Page, width: int, height: int) -> None:
    """Of texts of any length, on usual screens and in a notebook: never only the dots of a word that was cut."""
    page.size(width, height)
    shown(lengths(range(6, 80, 2)))
    said = page.evaluate(DRAWN)
    assert len(said) > 1000
    assert "…" not in said


def test_one_panel_that_fails_does_not_stop_the_others(shown: Shown) -> None:
    made = sample("language")
    page = shown(made, "#site=1.attn&head=2&row=9&column=3")
    page.evaluate("(window.log = Math.log, Math.log = () => { throw new Error('broken on purpose') })")
    page.evaluate("headway.change({row: 10, column: 2})")
    page.settle()
    assert "broken on purpose" in page.evaluate("document.querySelector('#side').dataset.failed")
    weight = made.weights[0, "1.attn"][2, 10, 2]
    assert float(page.text("hover-weight")) == pytest.approx(weight, abs=0.0005 + 1e-6)
    assert page.text("foot-softmax") == f"w = {page.text('hover-weight')}"
    page.evaluate("(Math.log = window.log)")
    page.evaluate("headway.change({row: 9})")
    page.settle()
    assert page.evaluate("document.querySelector('#side').dataset.failed") is None


def test_legends_say_what_is_drawn(shown: Shown) -> None:
    made = sample("caption")
    page = shown(made, "#site=decoder.0.cross&head=1&row=3")
    weights = made.weights[0, "decoder.0.cross"][1]

    def legend(view: str) -> tuple[str, bool, bool]:
        """Its words, and whether there is a bar of colours and a choice of roots."""
        page.click(f"view-{view}")
        hidden = page.evaluate(f"[{found('legend')}.querySelector('canvas').hidden, {found('scale')}.hidden]")
        return page.text("peak"), not hidden[0], not hidden[1]

    assert legend("matrix") == (f"{weights.max():.3f}, largest of this head", True, True)
    brightest = f"brightest: {weights[3, 1:].max():.3f}; the line holds half of the weight"
    assert legend("picture") == (brightest, False, True)
    assert legend("strip") == ("brightest: the largest of each query; lines hold half of the weight", False, True)
    assert legend("row") == ("bars below: full width is 1; above: relative to the largest", False, False)
    assert legend("table") == ("", False, False)
    page.evaluate("headway.change({site: 'decoder.0.attn', head: 0})")
    page.settle()
    peak = made.weights[0, "decoder.0.attn"][0].max()
    assert legend("lines") == (f"wider is stronger, up to {peak:.3f}", False, True)
    page = shown(sample("translation"), "#site=decoder.0.cross")
    assert legend("alignment") == ("the area of a disc is its weight: full at 1", False, False)


MASKED = f"""(() => {{
  const node = {found("canvas")};
  const data = node.getContext("2d").getImageData(0, 0, node.width, node.height).data;
  let [blank, dark] = [0, 0];
  for (let at = 0; at < data.length; at += 4) {{
    if (data[at + 3] === 0) blank += 1;
    else if (data[at] === 0 && data[at + 1] === 34 && data[at + 2] === 78) dark += 1;
  }}
  return [blank, dark];
}})()"""


def test_masked_cells_are_blank(shown: Shown) -> None:
    """As much of the map as is masked has no colour at all, also not that of 0."""
    page = shown(sample("language"), "#view=matrix&site=0.attn&head=0&row=3&column=9")
    assert page.text("hover-weight") == "masked"
    causal, _ = page.evaluate(MASKED)
    page.evaluate("headway.change({site: '0.attn', head: 1})")
    full = shown(sample("compared"), "#view=matrix&site=1.attn&head=0")
    assert full.evaluate(MASKED)[0] > 0
    box = page.evaluate(f"{found('canvas')}.getBoundingClientRect().toJSON()")
    assert causal > 0.3 * box["width"] * box["height"]


def test_a_page_opens_with_the_row_that_decides(shown: Shown) -> None:
    """The class token's, of a model that reads its class there."""
    assert shown(sample("picture")).evaluate("headway.state.row") == 0


def test_written_tokens_are_underlined_as_far_as_they_were_likely(shown: Shown) -> None:
    made = sample("translation")
    page = shown(made)
    steps = made.data["runs"][0]["outcome"]["steps"]
    lengths = page.evaluate(
        "[...document.querySelectorAll('.written .token')].map(n => n.style.getPropertyValue('--p'))"
    )
    assert lengths == [f"{np.exp(step['logprob']):.0%}" for step in steps]
    page.click("play-text")
    page.wait(f"headway.state.step === {len(steps) - 1}", 20)
    page.wait(f"{found('play-text')}.innerText === '▶'", 5)
    assert page.evaluate("document.querySelector('.written .chosen').innerText") == steps[-1]["said"]


def test_a_small_window_is_mostly_map(shown: Shown, page: Page) -> None:
    """At 1366 × 768 nothing is outside the window, and the map has two fifths of its height."""
    page.size(1366, 768)
    shown(sample("language"))
    assert page.evaluate("document.documentElement.scrollHeight") == 768
    assert page.evaluate(f"{found('canvas')}.clientHeight") > 0.4 * 768
    page.click("drawer")
    assert page.evaluate("document.querySelector('.way').hidden") is False
    assert page.evaluate("document.documentElement.scrollHeight") == 768


def test_colours_are_those_of_the_theme_or_cividis(shown: Shown, page: Page) -> None:
    """Largest and smallest weights by luminance: dark on light paper, light on dark; cividis everywhere on demand."""
    brightness = """(() => {
      const pen = document.querySelector("[data-testid=legend] canvas").getContext("2d");
      const { data } = pen.getImageData(0, 2, 64, 1);
      const light = (at) => 0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2];
      return [light(0), light(63 * 4)];
    })()"""
    for scheme, rises in (("light", False), ("dark", True)):
        page.prefer(color_scheme=scheme)
        shown(sample("language"), "#view=matrix")
        least, most = page.evaluate(brightness)
        assert (most > least) == rises
        assert abs(most - least) > 150
        page.click("palette")
        least, most = page.evaluate(brightness)
        assert most > 200
        assert least < 60
