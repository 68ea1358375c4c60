"""The embedding map: points where Python puts them, the nearest one under the pointer, searched ones marked."""

from __future__ import annotations

import numpy as np
import pytest

from .cases import KINDS, pieced, sample
from .conftest import Shown
from .page import Page, found
from .test_page import colours

pytestmark = pytest.mark.long

SIZES = [(1, 1), (60, 40), (211, 97), (390, 500), (833, 411), (1500, 900)]
PLACED = """(() => {
  const { told, at, unit, middle } = headway.plan;
  const placed = ([x, y]) => [(x - middle[0]) / unit, (middle[1] - y) / unit];
  return Array.from({ length: told.count }, (_, one) => placed(at(one)));
})()"""


@pytest.mark.parametrize("kind", KINDS)
def test_points_stand_where_python_puts_them(shown: Shown, page: Page, kind: str) -> None:
    """In the same unit both ways, also after a change of the layer has moved them."""
    made = sample(kind)
    shown(made)
    for site in made.data["runs"][0]["sites"]:
        if site["plane"] is None:
            continue
        page.evaluate(f"headway.change({{site: '{site['name']}', view: 'map', cloud: -1}})")
        page.settle()
        expected = np.array(site["plane"]["points"]).reshape(-1, 2) / 9999
        assert np.allclose(np.array(page.evaluate(PLACED)), expected, atol=1e-6)
        assert colours(page) > 3
        held = 100 * sum(site["plane"]["shares"])
        assert f"both components hold {held:.{1 if held < 10 else 0}f} % of their variance" in page.text("peak")
        failed = page.evaluate(f"{[list(size) for size in SIZES]}.map(([w, h]) => headway.drawAt(w, h))")
        assert failed == [""] * len(SIZES)
    assert page.asked_for() == []
    assert page.errors == []


@pytest.mark.parametrize("cloud", [-1, 0])
def test_the_nearest_point_is_meant(shown: Shown, page: Page, cloud: int) -> None:
    shown(sample("language"), f"#view=map&cloud={cloud}&site=1.attn")
    box = page.evaluate(f"{found('canvas')}.getBoundingClientRect().toJSON()")
    for at in (3, 11):
        x, y = page.evaluate(f"headway.plan.at({at})")
        page.hover(box["x"] + x + 2, box["y"] + y - 1)
        assert page.evaluate(f"headway.state.{'row' if cloud < 0 else 'point'}") == at
    told = page.text("story")
    assert told == "sample 11 · bird" if cloud == 0 else told.startswith("“and” ←")


def test_searched_points_are_marked(shown: Shown, page: Page) -> None:
    shown(sample("language"), "#view=map&site=1.attn")
    page.evaluate(f"(n => (n.focus(), n.value = 'TH', n.dispatchEvent(new Event('input'))))({found('search')})")
    page.settle()
    labels = page.evaluate("[...headway.plan.told.marked].map(at => headway.plan.told.label(at).trim())")
    assert labels == ["The", "that", "the", "the"]
    assert page.errors == []


def test_layers_of_samples_can_be_chosen(shown: Shown, page: Page) -> None:
    made = sample("language")
    shown(made, "#view=map")
    choose = "(n, value) => (n.value = value, n.dispatchEvent(new Event('change')))"
    page.evaluate(f"({choose})({found('cloud')}, '0')")
    page.settle()
    page.evaluate(f"({choose})({found('layer')}, '2')")
    page.settle()
    assert page.evaluate("[headway.state.cloud, headway.state.layer]") == [0, 2]
    assert page.evaluate("headway.plan.told.groups.map(([name]) => name)") == ["bird", "cat", "dog"]
    page.key("ArrowDown")
    assert page.errors == []


def test_points_move_unless_less_motion_is_preferred(shown: Shown, page: Page) -> None:
    """Between 150 and 300 ms; else they are there at once."""
    moved = """(async () => {
      const start = performance.now();
      headway.change({ layer: headway.state.layer === 0 ? 1 : 0 });
      await headway.settled();
      return performance.now() - start;
    })()"""
    shown(sample("language"), "#view=map&cloud=0")
    assert page.evaluate(moved) >= 150
    page.prefer(color_scheme="light", reduced_motion="reduce")
    seen = page.evaluate("""(async () => {
      const places = [];
      const before = headway.plan.at(0).join();
      headway.change({ layer: 2 });
      for (let frame = 0; frame < 3; frame++) {
        await new Promise(requestAnimationFrame);
        places.push(headway.plan.at(0).join());
      }
      return [before, ...new Set(places.filter((one) => one !== before))];
    })()""")
    assert len(seen) == 2


def test_a_word_stands_in_the_middle_of_its_pieces(shown: Shown, page: Page) -> None:
    made = pieced()
    shown(made, "#view=map&words=1")
    points = np.array(made.data["runs"][0]["sites"][0]["plane"]["points"]).reshape(-1, 2) / 9999
    ends = [1, 4, 6, 7, 8]
    expected = [points[a:b].mean(0) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    assert np.allclose(page.evaluate(PLACED), expected, atol=1e-6)
