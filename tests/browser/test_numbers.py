"""The numbers that a page shows are those that it was given: under the pointer, at the side, at the foot."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

from headway.look.weight_codes import STRONGEST

from .cases import KINDS, patches, sample
from .conftest import Shown
from .page import found
from .samples import Floats

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_under_the_pointer_is_the_weight(shown: Shown, kind: str) -> None:
    made = sample(kind)
    page = shown(made, "#view=matrix")
    box = page.evaluate(f"{found('canvas')}.getBoundingClientRect().toJSON()")
    seen = set[tuple[int, int]]()
    for across, down in [(0.5, 0.5), (0.4, 0.35), (0.6, 0.8), (0.55, 0.3), (0.45, 0.6)]:
        page.hover(box["x"] + across * box["width"], box["y"] + down * box["height"])
        state = page.evaluate("headway.state")
        weights = made.weights[state["run"], state["site"]]
        weight = weights[state["head"], state["row"], state["column"]]
        if page.text("hover-weight") == "masked":
            assert (weight, page.text("foot-softmax")) == (0, "w = 0, masked")
        else:
            assert float(page.text("hover-weight")) == pytest.approx(weight, abs=0.0005 + 1e-6)
            assert page.text("foot-softmax") == f"w = {page.text('hover-weight')}"
        seen.add((state["row"], state["column"]))
    assert len(seen) > 2  # the pointer does choose


BRIGHTEST = f"""(() => {{
  const node = {found("canvas")};
  const copy = Object.assign(document.createElement("canvas"), {{ width: node.width, height: node.height }});
  const pen = copy.getContext("2d", {{ willReadFrequently: true }});
  pen.drawImage(node, 0, 0);
  const data = pen.getImageData(0, 0, node.width, node.height).data;
  const box = node.getBoundingClientRect();
  for (let at = 0; at < data.length; at += 4) {{
    if (data[at] !== 254 || data[at + 1] !== 232 || data[at + 2] !== 56) continue;
    return [box.x + ((at / 4) % node.width) + 2, box.y + Math.floor(at / 4 / node.width) + 2];
  }}
  return null;
}})()"""


@pytest.mark.parametrize(("kind", "view"), [("language", "matrix"), ("translation", "matrix"), ("sound", "sound")])
def test_the_brightest_cell_is_the_one_of_the_largest_weight(shown: Shown, kind: str, view: str) -> None:
    """The pointer reads the cell that it stands on, and not its neighbour."""
    made = sample(kind)
    page = shown(made, f"#view={view}&palette=cividis")
    page.hover(*page.evaluate(BRIGHTEST))
    state = page.evaluate("headway.state")
    weights = made.weights[0, state["site"]][state["head"]]
    assert weights[state["row"], state["column"]] == pytest.approx(weights.max(), abs=0.0005)


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_is_what_the_bundle_tells(shown: Shown, kind: str) -> None:
    made = sample(kind)
    page = shown(made)
    chosen = random.Random(0)
    for (run, name), weights in made.weights.items():
        if run > 0:
            continue
        heads, rows, columns = weights.shape
        for _ in range(12):
            at = chosen.randrange(heads), chosen.randrange(rows), chosen.randrange(columns)
            told = page.evaluate(f"headway.weight('{name}', {at[0]}, {at[1]}, {at[2]})")
            if weights[at] >= np.sort(weights[at[:2]])[-min(columns, STRONGEST)]:
                assert told == pytest.approx(weights[at], abs=0.001)
        mean = page.evaluate(f"headway.weight('{name}', -1, 0, 0)")
        assert mean == pytest.approx(weights[:, 0, 0].mean(), abs=0.005)


def check_texts(told: dict[str, Any], weights: Floats) -> None:
    """What a page says of a row: every number is right to its last digit, every bound holds, and the row sums to 1."""
    assert sum(told["weights"]) == pytest.approx(1, abs=0.01)
    for text, weight in zip(told["texts"], weights, strict=True):
        if text == "masked":
            assert weight == 0
        elif text.startswith("≤ "):
            assert weight <= float(text[2:])
        else:
            digits = len(text.partition(".")[2])
            assert digits >= 3
            assert abs(float(text) - weight) <= 0.5 * 10.0**-digits * (1 + 1e-4)
    assert told["entropy"] == pytest.approx(float(-(weights * np.log(np.maximum(weights, 1e-30))).sum()), abs=0.01)
    first, second = np.sort(weights)[::-1][:2]
    assert first - second < 0.001 or int(np.argmax(told["weights"])) == int(weights.argmax())


@pytest.mark.parametrize("kind", [*KINDS, "flat"])
def test_all_that_is_said_of_a_row_is_true(shown: Shown, kind: str) -> None:
    """As the map has it, and exact where the numbers behind it are in the file."""
    made = patches() if kind == "flat" else sample(kind)
    page = shown(made)
    for (run, name), weights in made.weights.items():
        rows = {0, weights.shape[1] // 2, weights.shape[1] - 1} if run == 0 else ()
        for row in rows:
            for exact in ("false", "true"):
                told = page.evaluate(f"headway.row('{name}', 0, {row}, {exact})")
                if told is not None:
                    check_texts(told, weights[0, row])
            assert exact == "false" or told is None or "≤" not in "".join(told["texts"])


def test_the_mean_over_heads_says_what_it_is(shown: Shown) -> None:
    made = patches()
    page = shown(made, "#head=-1&row=5&view=row")
    mean = made.weights[0, "0.attn"][:, 5].mean(0)
    told = page.evaluate("headway.row('0.attn', -1, 5)")
    for text, weight in zip(told["texts"], mean, strict=True):
        mark, _, number = text.partition(" ")
        assert mark in ("≤", "≈")
        assert weight <= float(number) if mark == "≤" else float(number) == pytest.approx(weight, abs=0.0055)
    entropy = float(page.text("entropy").split()[1])
    assert entropy == pytest.approx(float(-(mean * np.log(mean)).sum()), abs=0.011)


def test_side_and_foot_follow_the_numbers_of_the_cell(shown: Shown) -> None:
    made = sample("language")
    page = shown(made, "#site=1.attn&head=2&row=9&column=3")
    weights = made.weights[0, "1.attn"][2, 9]
    told = page.evaluate(
        "[...document.querySelectorAll('[data-testid=side-keys] .number')].map(n => Number(n.innerText))"
    )
    assert told == pytest.approx(sorted(weights, reverse=True)[: len(told)], abs=0.0005 + 1e-6)
    softmax = float(page.evaluate(f"{found('foot-softmax')}.dataset.value"))
    assert softmax == pytest.approx(weights[3], abs=1e-4)  # by way of q, k and the softmax, not by the map
    assert "How this weight is computed" in page.text("foot")
    assert "16 dimensions" in page.text("terms")
    page.evaluate("headway.change({column: 12})")
    page.settle()
    assert "masked" in page.text("foot")  # the future
    page.evaluate("headway.change({head: -1})")
    page.settle()
    assert "Choose one head" in page.text("foot")


def test_entropy_is_that_of_the_row(shown: Shown) -> None:
    made = sample("language")
    page = shown(made, "#site=0.attn&head=0&row=15")
    row = made.weights[0, "0.attn"][0, 15]
    told = float(page.text("entropy").split()[1])
    assert told == pytest.approx(float(-(row * np.log(row)).sum()), abs=0.01)


def share(text: str) -> float:
    """Of a number that is shown as 59.4 %."""
    return float(text.removesuffix(" %")) / 100


@pytest.mark.parametrize("kind", KINDS)
def test_the_sentence_is_made_of_the_numbers(shown: Shown, kind: str) -> None:
    """Who looks at whom, with the two largest weights of the row; it follows the query, and is what is heard."""
    made = sample(kind)
    run = made.data["runs"][0]
    page = shown(made)
    for site in run["sites"]:
        for row in (0, site["shape"][0] - 1):
            page.evaluate(f"headway.change({{site: '{site['name']}', head: 0, row: {row}}})")
            page.settle()
            told = page.text("story")
            best = np.sort(made.weights[0, site["name"]][0, row])[::-1][:2]
            shares = [share(found) for found in re.findall(r"[\d.]+ %", told.split(" · ")[0])]
            assert shares == pytest.approx([each for each in best if each > 0], abs=0.0005 + 1e-6)
            effect = (site["stats"]["effect"] or [None])[0]
            assert ("switched off" in told) == (effect is not None)
            if effect is not None:
                assert told.endswith(f"{effect:+.3f}".replace("-", "−"))
    page.wait(f"{found('announced')}.innerText.includes('looks at')", 5)


def test_the_sentence_says_what_a_head_usually_does(shown: Shown) -> None:
    made = sample("language")
    site = made.data["runs"][0]["sites"][1]
    before = dict(site["stats"])
    site["stats"] |= {"previous": [0.62, 0.1, None, 0.2, 0.2, 0.2], "induction": [0.1, 0.45, 0.2, 0.2, 0.2, 0.2]}
    try:
        page = shown(made, "#site=1.attn&head=0")
        assert "this head gives the token before 62.0 % of its weight" in page.text("story")
        badges = page.evaluate("[...document.querySelectorAll('.thumb .badge')].map(n => n.parentNode.dataset.testid)")
        assert badges == ["head-1.attn-0", "head-1.attn-1"]
        page.evaluate("headway.change({head: 3})")
        page.settle()
        assert f"looks {site['stats']['distance'][3]:.1f} tokens away on average" in page.text("story")
    finally:
        site["stats"] = before
