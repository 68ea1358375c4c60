"""For everyone: by keyboard alone, by ear, in any script, on any screen, without motion."""

from __future__ import annotations

import pytest

from . import cases
from .conftest import Shown
from .page import Page, found

pytestmark = pytest.mark.long

FOCUSED = """(() => {
  const node = document.activeElement;
  return node === document.body ? null : node.dataset.testid ?? node.getAttribute("aria-label") ?? node.innerText;
})()"""
CONTROLS = """[...document.querySelectorAll("button, select, input, textarea, audio[controls], [tabindex='0']")]
  .filter((n) => n.tabIndex >= 0 && !n.disabled && n.offsetParent !== null)
  .map((n) => n.dataset.testid ?? n.getAttribute("aria-label") ?? n.innerText)"""


@pytest.mark.parametrize("view", ["matrix", "table"])
def test_tab_reaches_every_control(shown: Shown, view: str) -> None:
    page = shown(cases.compared(), f"#view={view}")
    wanted = page.evaluate(CONTROLS)
    assert {"theme", "share", "help", "compare", "sort", "step", f"view-{view}", "edit-off"} <= set(wanted)
    reached = list[str]()
    for _ in range(len(wanted) + 3):
        page.key("Tab")
        reached.append(page.evaluate(FOCUSED))
    assert set(wanted) <= set(reached)


def test_arrows_reach_what_tab_passes_over(shown: Shown) -> None:
    """Heads, views and keys are one stop each; inside, arrows go on."""
    page = shown(cases.continued(layers=3, heads=4))
    page.evaluate("document.querySelector('.thumb[tabindex=\"0\"]').focus()")
    page.key("Home")
    heads = {page.evaluate(FOCUSED)}
    for _ in range(17):
        page.key("ArrowRight")
        heads.add(page.evaluate(FOCUSED))
    every = page.evaluate("[...document.querySelectorAll('.thumb')].map(n => n.dataset.testid)")
    assert heads == set(every)
    page.key("Home")
    page.key("ArrowDown")
    assert page.evaluate(FOCUSED) == "head-1.attn-mean"
    page.key("Enter")
    assert page.evaluate("[headway.state.site, headway.state.head]") == ["1.attn", -1]
    page.evaluate(f"{found('view-matrix')}.focus()")
    page.key("ArrowRight")
    page.key("Enter")
    assert page.evaluate("headway.state.view") == "lines"
    page.evaluate("document.querySelector('.keys button').focus()")
    page.key("ArrowDown")
    page.key("Enter")
    second = page.evaluate("headway.state.column")
    assert page.evaluate("[...document.querySelectorAll('.keys button')].findIndex(n => n.ariaCurrent)") == 1, second


def test_keys_move_the_cell_the_head_the_layer_and_the_view(shown: Shown) -> None:
    page = shown(cases.continued(layers=3, heads=4), "#site=1.attn&head=1&row=5&column=5&view=matrix")
    page.evaluate(f"{found('canvas')}.focus()")

    def after(*keys: str, shift: bool = False) -> list[object]:
        for key in keys:
            page.key(key, shift=shift)
        return page.evaluate("(s => [s.site, s.head, s.row, s.column, s.view, s.pinned])(headway.state)")

    assert after("ArrowDown", "ArrowRight", "ArrowRight")[2:4] == [6, 7]
    assert after("ArrowUp", "ArrowLeft")[2:4] == [5, 6]
    assert after("ArrowUp", shift=True)[2] == 0
    assert after("End")[3] == 15
    assert after("Home")[3] == 0
    assert after("]")[1] == 2
    assert after("[", "[", "[")[1] == 3  # around
    assert after(".")[0] == "2.attn"
    assert after(",", ",")[0] == "0.attn"
    assert after("v")[4] == "lines"
    assert after("V", shift=True)[4] == "matrix"
    assert after("p")[5] is True
    assert after("Escape")[5] is False
    assert after("m")[1] == -1
    page.key("?")
    assert page.evaluate("document.querySelector('dialog').open")
    page.key("Escape")
    assert not page.evaluate("document.querySelector('dialog').open")


def test_the_table_tells_screen_readers_what_the_map_shows(shown: Shown) -> None:
    made = cases.translated()
    page = shown(made, "#view=table&site=decoder.1.cross&head=1")
    table = page.evaluate("""(() => {
      const rows = [...document.querySelectorAll(".table-view tbody tr")];
      return rows.map((row) => [...row.children].map((cell) => cell.innerText));
    })()""")
    weights = made.weights[0, "decoder.1.cross"][1]
    assert len(table) == len(weights)
    for row, cells in enumerate(table):
        assert float(cells[3]) == pytest.approx(weights[row].max(), abs=0.005)
        assert cells[2].startswith(f"{weights[row].argmax()} ")
    assert "strongest keys" in page.evaluate("document.querySelector('.table-view caption').innerText")
    page.evaluate("headway.change({row: 2, column: 1})")
    page.wait(f"{found('announced')}.innerText.includes('to')", 5)


def test_texts_keep_their_direction(shown: Shown) -> None:
    page = shown(cases.translated(), "#site=encoder.0.attn")
    assert page.evaluate(f"getComputedStyle({found('input')}).direction") == "rtl"
    first, second = page.evaluate(
        "[...document.querySelectorAll('.token')].slice(0, 2).map(n => n.getBoundingClientRect().x)"
    )
    assert first > second
    page.evaluate("headway.change({site: 'decoder.0.attn'})")
    page.settle()
    assert page.evaluate(f"getComputedStyle({found('input')}).direction") == "ltr"
    assert page.evaluate("[...document.querySelectorAll('.token, .probable .name')].every(n => n.tagName === 'BDI')")


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (900, 700), (390, 800)])
def test_no_token_is_too_long_for_the_page(shown: Shown, page: Page, width: int, height: int) -> None:
    page.size(width, height)
    shown(cases.spoken(["x" * 10_000, "word", "漢" * 5_000, "a b " * 2_000, "ا" * 3_000]))
    for view in page.evaluate("headway.views()"):
        page.evaluate(f"headway.change({{view: '{view}'}})")
        page.settle()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.querySelectorAll('.token')].every(n => n.offsetWidth < 260)")
    assert page.evaluate(f"{found('canvas')} !== null")


def test_nothing_moves_where_motion_is_unwelcome(shown: Shown, page: Page) -> None:
    page.prefer(reduced_motion="reduce")
    shown(cases.continued(layers=1, heads=2))
    script = "[...document.querySelectorAll('*')].every(n => /^0s/.test(getComputedStyle(n).transitionDuration))"
    assert page.evaluate(script)


def test_every_control_has_a_name(shown: Shown) -> None:
    page = shown(cases.captioned())
    nameless = page.evaluate("""[...document.querySelectorAll("button, select, input, textarea, canvas[tabindex]")]
      .filter((n) => !(n.innerText || n.ariaLabel || n.labels?.length || n.title)).map((n) => n.outerHTML)""")
    assert nameless == []
