"""Words, all heads, several heads in colours, who looks here, two runs side by side: what they show is true."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from .cases import KINDS, PIECES, STARTS, sample
from .conftest import Shown
from .page import Page, found
from .samples import Floats
from .test_page import colours

pytestmark = pytest.mark.long

SIZES = [(1, 1), (60, 40), (211, 97), (390, 500), (833, 411), (1500, 900)]
NEW_VIEWS = ["heads", "received", "pair", "lines", "series"]


@pytest.mark.parametrize("kind", KINDS)
def test_new_views_draw_at_every_size(shown: Shown, kind: str) -> None:
    page = shown(sample(kind))
    for site in sample(kind).data["runs"][0]["sites"]:
        page.evaluate(f"headway.change({{site: '{site['name']}', layers: true, also: '0.1'}})")
        page.settle()
        for view in set(NEW_VIEWS) & set(page.evaluate("headway.views()")):
            page.evaluate(f"headway.change({{view: '{view}'}})")
            page.settle()
            assert colours(page) > 3
            failed = page.evaluate(f"{[list(size) for size in SIZES]}.map(([w, h]) => headway.drawAt(w, h))")
            assert failed == [""] * len(SIZES), view
    page.collect()
    assert page.errors == []
    assert page.asked_for() == []


def joined(w: Floats) -> Floats:
    """The sum over the keys of a word, and the mean over its queries."""
    ends = [*STARTS[1:], len(PIECES)]
    columns = np.stack([w[..., a:b].sum(-1) for a, b in zip(STARTS, ends, strict=True)], -1)
    return np.stack([columns[..., a:b, :].mean(-2) for a, b in zip(STARTS, ends, strict=True)], -2)


def test_words_keep_the_mass_of_their_pieces(shown: Shown) -> None:
    made = sample("pieces")
    page = shown(made, "#row=2&column=4")
    page.click("words")
    page.settle()
    assert page.evaluate("[headway.state.row, headway.state.column]") == [1, 2]  # the words of the same pieces
    assert page.evaluate("[...document.querySelectorAll('.input-side .token')].map(n => n.innerText)") == [
        "[CLS]", "unbelievable", "cats", "sleep", "[SEP]",
    ]  # fmt: skip
    for head in (-1, 0, 1, 2):
        w = made.weights[0, "0.attn"]
        expected = joined(w.mean(0) if head == -1 else w[head])
        for row in range(len(STARTS)):
            for exact, tolerance in (("false", 0.01), ("true", 1e-5)):
                told = page.evaluate(f"headway.row('0.attn', {head}, {row}, {exact})")
                assert told["weights"] == pytest.approx(expected[row].tolist(), abs=tolerance)
            assert sum(told["weights"]) == pytest.approx(1, abs=1e-5)
    assert "A word of several tokens" in page.text("foot")
    page.click("words")
    page.settle()
    assert page.evaluate("[headway.state.row, headway.state.column]") == [1, 4]
    assert page.errors == []


def test_texts_of_other_tokens_are_compared_by_their_words(shown: Shown) -> None:
    made = sample("pieces")
    page = shown(made, "#compare=1&view=pair")
    assert page.evaluate("headway.state.words")  # as many words, but not as many tokens
    told = page.evaluate("headway.state")
    other = made.weights[1, "0.attn"][told["head"]]
    starts = [0, 1, 2, 4, 5, 6]
    theirs = np.stack([other[:, a:b].sum(1) for a, b in pairwise(starts)], 1)
    theirs = np.stack([theirs[a:b].mean(0) for a, b in pairwise(starts)])
    difference = joined(made.weights[0, "0.attn"][told["head"]]) - theirs
    text = page.text("hover-weight").replace("−", "-").removeprefix("≈ ")
    assert float(text) == pytest.approx(difference[told["row"], told["column"]], abs=0.01)
    page.click("words")
    page.settle()
    assert "nothing to compare with" in page.text("compared")


def at_share(page: Page, x: float, y: float) -> None:
    box = page.evaluate(f"{found('canvas')}.getBoundingClientRect().toJSON()")
    page.press_at(box["x"] + x * box["width"], box["y"] + y * box["height"])


@pytest.mark.parametrize("kind", ["language", "picture", "sound"])
def test_a_click_on_a_panel_chooses_its_head(shown: Shown, kind: str) -> None:
    page = shown(sample(kind), "#view=heads&head=0&layers=1")
    site = page.evaluate("headway.state.site")
    seen = set[tuple[str, int]]()
    for x in (0.1, 0.4, 0.75):
        for y in (0.15, 0.5):
            at_share(page, x, y)
            state = page.evaluate("headway.state")
            assert state["view"] == "heads"
            seen.add((state["site"], state["head"]))
    assert len(seen) > 1
    assert site in page.evaluate("headway.bundle.runs[0].sites.map(site => site.name)")


@pytest.mark.parametrize("kind", KINDS)
def test_who_looks_here_is_the_column(shown: Shown, kind: str) -> None:
    made = sample(kind)
    page = shown(made)
    for site in made.data["runs"][0]["sites"]:
        column = site["shape"][1] // 3
        page.evaluate(f"headway.change({{site: '{site['name']}', head: 0, view: 'received'}})")
        page.settle()  # another site begins at the strongest key of its query
        page.evaluate(f"headway.change({{column: {column}}})")
        page.settle()
        said = page.text("story").split(" · ")[0]
        shares = [float(number) / 100 for number in re.findall(r"([\d.]+) %", said)]
        best = np.sort(made.weights[0, site["name"]][0][:, column])[::-1][:2]
        assert shares == pytest.approx([each for each in best if each > 0], abs=0.0006)


def test_several_heads_have_their_own_colours(shown: Shown) -> None:
    page = shown(sample("language"), "#view=lines&head=0")
    before = colours(page)
    for head in (2, 5):
        page.click(f"also-{head}")
    assert page.evaluate("headway.state.also") == "2.5"
    assert colours(page) > before
    hues = page.evaluate("[...document.querySelectorAll('.chip[aria-pressed=true]')].map(n => n.style.background)")
    assert len(set(hues)) == 3
    page.click("also-2")
    assert page.evaluate("headway.state.also") == "5"
    page.evaluate("headway.change({also: '../../x'})")
    page.settle()
    assert page.evaluate("headway.state.also") == ""
    page.collect()
    assert page.errors == []


def test_a_chart_has_its_columns_by_name_and_rows_by_their_times(shown: Shown) -> None:
    made = sample("series")
    page = shown(made)
    assert page.evaluate("headway.state.view") == "series"
    drawn = page.evaluate("headway.svg()")
    for word in ("temperature", "pressure", "2024-03-01"):
        assert word in drawn
    series = made.data["runs"][0]["series"]
    largest = max(row[0] for row in series["rows"])
    assert f">{float(f'{largest:.4g}'):g}<".replace("-", "−") in drawn
    box = page.evaluate(f"{found('canvas')}.getBoundingClientRect().toJSON()")
    plan = page.evaluate("({ ...headway.plan })")
    page.hover(box["x"] + 118 + 7.5 * plan["step"], box["y"] + 200)
    assert page.evaluate("headway.state.row") == 7
    best = int(made.weights[0, "1.attn"][1][7].argmax())
    assert page.text("story").startswith(f"2024-03-08 ← 2024-03-{best + 1:02d}")
    assert page.errors == []
