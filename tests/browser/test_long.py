"""Long inputs: tiles are drawn where they are seen, and the document stays small."""

from __future__ import annotations

import pytest

from . import cases
from .conftest import Shown
from .page import Page, found
from .samples import Sample

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def sample() -> Sample:
    return cases.long()


def test_four_thousand_tokens_open_and_can_be_read(shown: Shown, sample: Sample) -> None:
    page = shown(sample, "#row=100&column=99")
    assert page.evaluate("headway.weight('0.attn', 0, 100, 99)") == pytest.approx(0.7, abs=0.005)
    assert page.evaluate("headway.weight('0.attn', 1, 100, 36)") == pytest.approx(0.7, abs=0.005)
    assert float(page.text("hover-weight")) == pytest.approx(0.7, abs=0.005)
    page.every_view()
    assert page.evaluate("document.querySelectorAll('*').length") < 1500
    assert page.asked_for() == []
    assert page.errors == []


def test_what_is_not_in_the_file_is_said_to_be_missing(shown: Shown, sample: Sample) -> None:
    """Row 3000 has no fine tiles: its weights are known as bounds, and the page says so."""
    page = shown(sample, "#row=3000&column=2999")
    assert page.evaluate("headway.weight('0.attn', 0, 3000, 2999)") is None
    assert page.text("hover-weight") == "0.700"  # the strongest key is told
    assert page.text("entropy").startswith("entropy 0.61 of")  # and the entropy
    assert "not in this file" in page.text("entropy")
    keys = page.evaluate("[...document.querySelectorAll('[data-testid=side-keys] .number')].map(n => n.innerText)")
    assert keys == ["0.700"]
    for column, bound in ((2998, "≤ 0.71"), (2990, "≤ 0.00050")):  # in the same block, and in another
        page.evaluate(f"headway.change({{column: {column}}})")
        page.settle()
        assert page.text("hover-weight") == bound


def test_a_thin_diagonal_survives(shown: Shown, sample: Sample) -> None:
    """In every line of the whole map: of 4 096 cells of a row, one is bright."""
    page = shown(sample, "#view=matrix&palette=cividis")
    bright, all = page.evaluate(f"""(() => {{
      const node = {found("canvas")};
      const data = node.getContext("2d").getImageData(0, 0, node.width, node.height).data;
      const [bright, map] = [new Set(), new Set()];
      for (let at = 0; at < data.length; at += 4) {{
        const line = Math.floor(at / 4 / node.width);
        if (data[at] === 0 && data[at + 1] === 34 && data[at + 2] === 78) map.add(line);
        if (data[at] > 220 && data[at + 1] > 200 && data[at + 2] < 90) bright.add(line);
      }}
      return [[...bright].filter((line) => map.has(line)).length, map.size];
    }})()""")
    assert all > 300
    assert bright > 0.97 * all


def test_near_the_map_is_drawn_from_fine_tiles(shown: Shown, sample: Sample, page: Page) -> None:
    shown(sample, "#zoom=60&x=100&y=100&row=110&column=109")
    assert float(page.text("hover-weight")) == pytest.approx(0.7, abs=0.005)
    page.evaluate(f"{found('canvas')}.focus()")
    for _ in range(40):
        page.key("ArrowDown", shift=True)
    assert page.evaluate("headway.state.row") == 510
    assert page.evaluate("headway.state.y") > 300  # the map went along
    assert page.text("hover-weight").startswith("≤")
    assert page.errors == []
