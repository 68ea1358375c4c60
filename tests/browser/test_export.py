"""Pictures of every view: the SVG is well-formed, needs nothing else, and looks as the PNG does; paper is clean."""

from __future__ import annotations

import csv
from base64 import b64decode
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from .cases import ARABIC, KINDS, sample, spoken
from .conftest import Shown
from .page import Page

pytestmark = pytest.mark.long

SVG = "{http://www.w3.org/2000/svg}"
RASTERED = """(async () => {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(headway.svg())}`;
  await image.decode();
  const node = document.createElement("canvas");
  [node.width, node.height] = [image.naturalWidth, image.naturalHeight];
  node.getContext("2d").drawImage(image, 0, 0);
  return node.toDataURL();
})()"""


def pixels(address: str) -> NDArray[np.float64]:
    with Image.open(BytesIO(b64decode(address.partition(",")[2]))) as picture:
        return np.asarray(picture.convert("RGB"), dtype=np.float64) / 255


def check_exports(page: Page) -> None:
    """Both pictures of what is shown."""
    drawn, written = pixels(page.evaluate("headway.png()")), pixels(page.evaluate(RASTERED))
    assert drawn.shape == written.shape
    apart = np.abs(drawn - written)
    assert apart.mean() < 0.01  # edges of letters and of cells
    assert np.percentile(apart.reshape(-1), 95) < 0.1
    assert drawn.std() > 0.01  # not an empty one
    tree = ElementTree.fromstring(page.evaluate("headway.svg()"))
    for node in tree.iter():
        assert all(value.startswith("data:image/png") for key, value in node.attrib.items() if key.endswith("href"))
        assert "style" not in node.attrib


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_is_a_drawing(shown: Shown, page: Page, kind: str, theme: str) -> None:
    page.prefer(color_scheme=theme)
    shown(sample(kind), "#layers=1")
    for view in page.evaluate("headway.views()"):
        page.evaluate(f"headway.change({{view: '{view}'}})")
        page.settle()
        check_exports(page)
    assert page.asked_for() == []
    assert page.errors == []


def test_what_a_drawing_says_is_what_the_map_is_of(shown: Shown) -> None:
    """All words of the rows and of the columns, and the largest weight as the page writes it."""
    made = sample("translation")
    page = shown(made, "#view=matrix&site=decoder.0.cross&head=0")
    said = [
        "".join(node.itertext()) for node in ElementTree.fromstring(page.evaluate("headway.svg()")).iter(f"{SVG}text")
    ]
    assert set(ARABIC) <= set(said)
    page.evaluate("headway.change({view: 'table'})")
    page.settle()
    said = [
        "".join(node.itertext()) for node in ElementTree.fromstring(page.evaluate("headway.svg()")).iter(f"{SVG}text")
    ]
    weights = made.weights[0, "decoder.0.cross"][0]
    assert {f"{row.max():.3f}" for row in weights} <= set(said)


def test_hostile_tokens_are_drawn_as_text(shown: Shown) -> None:
    page = shown(spoken(["</text><script>x</script>", "\x01\x0b&amp;", "\ud800", "שלום", '"quoted"', "\uffff"]))
    for view in page.evaluate("headway.views()"):
        page.evaluate(f"headway.change({{view: '{view}'}})")
        page.settle()
        tree = ElementTree.fromstring(page.evaluate("headway.svg()").encode("utf-8"))
        assert tree.find(f".//{SVG}script") is None


@pytest.mark.parametrize("kind", ["language", "picture"])
def test_a_printed_page_is_what_is_shown_and_no_controls(shown: Shown, page: Page, kind: str) -> None:
    """As wide as the paper, and dark on white whatever the theme is."""
    page.prefer(color_scheme="dark")
    shown(sample(kind))
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.size(720, 1000)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.tell("Emulation.setEmulatedMedia", media="print", features=[])
    left = page.evaluate("""[...document.querySelectorAll("button, select, input")]
      .filter((n) => n.offsetParent !== null && !n.matches(".keys button, .module-name, .rival"))
      .map((n) => n.dataset.testid ?? n.innerText)""")
    assert left == []
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    assert 250 < page.evaluate("document.querySelector('.stage').clientHeight") < 1000
    assert b64decode(page.tell("Page.printToPDF", preferCSSPageSize=True)["data"]).startswith(b"%PDF")
    page.prefer(color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(paper) == dark
    assert page.errors == []


def test_numbers_of_each_view(shown: Shown) -> None:
    """All heads in one table below one another, both runs and their difference, and the points of the embedding map."""
    made = sample("compared")
    page = shown(made, "#view=heads&site=0.attn&compare=1")
    tokens = len(made.data["runs"][0]["axes"]["text"]["labels"])
    blocks = rows_of(page)
    assert [line[0] for line in blocks[:: tokens + 2]] == [f"0.attn head {head}" for head in range(4)]
    page.evaluate("headway.change({view: 'pair', compare: -1, head: 2})")
    page.settle()
    blocks = rows_of(page)
    assert len(blocks) == 3 * (tokens + 2)
    ours = made.weights[0, "0.attn"][2, tokens - 1]
    last = [text.removeprefix("≈ ").removeprefix("≤ ").replace("masked", "0") for text in blocks[tokens + 1][1:]]
    assert [float(text) for text in last] == pytest.approx(ours.tolist(), abs=0.01)
    page = shown(sample("language"), "#view=map")
    points = rows_of(page)
    assert points[0] == ["point", "group", "first component", "second component"]
    assert [line[0] for line in points[1:]] == sample("language").data["runs"][0]["axes"]["text"]["labels"]
    assert page.errors == []


def rows_of(page: Page) -> list[list[str]]:
    page.settle()
    return list(csv.reader(page.evaluate("headway.table()").splitlines()))
