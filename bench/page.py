"""The page of `headway look` in a real browser: its size, when it is ready, how long another head takes; JSON.

Pages of 144 heads: MiniLM's maps of two texts, of 128 and of 512 tokens, and a small model of Llama's kind with 12
layers of 12 heads on 4,095 letters.  Each switch goes to a head that was not looked at before, and ends when all of
the page that depends on it is drawn, the numbers below the map included.  Where there is no browser, nothing is told.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.letters import reader
from headway.loading import load
from headway.look.bundle import pack_bundle
from headway.look.html_page import render_page
from headway.look.recording import Recording
from recipes.prove import minilm
from tests.browser.chrome import BROWSER, Chrome
from tests.browser.page import Page
from tests.look.readers import two_texts

SWITCHES = """(async () => {
  const took = [];
  for (const [site, head] of %s) {
    const start = performance.now();
    headway.change({ site, head });
    await headway.settled();
    took.push(performance.now() - start);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return took;
})()"""


def main() -> None:
    if not Path(BROWSER).exists():
        print("{}")
        return
    torch.manual_seed(0)
    chrome = Chrome()
    tab = Page(chrome)
    tab.size()
    print(json.dumps({told: shown(tab, runs) for told, runs in recordings()}))
    chrome.close()


def recordings() -> Iterator[tuple[str, list[Recording]]]:
    model = load(minilm())
    for tokens in (128, 512):
        yield f"{tokens}", two_texts(model, tokens)
    yield "4,095", [long(4_095)]


def long(tokens: int) -> Recording:
    model = reader(tokens + 1, dim=192, layers=12, heads=12)
    return model.attend(("the cat sat on the mat " * tokens)[:tokens], most=1)


def shown(tab: Page, runs: list[Recording]) -> dict[str, Any]:
    text = render_page(pack_bundle(runs))
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "page.html")
        file.write_text(text, encoding="utf-8")
        tab.open(file)
        ready = tab.evaluate("performance.getEntriesByName('headway-ready')[0].startTime")
        sites = [name for name, site in runs[0].sites.items() if site.heads == 12]
        here = tab.evaluate("headway.state.site")
        inside = switched(tab, [(here, head) for head in range(1, 12)])
        across = switched(tab, [(name, 5) for name in sites if name != here])
    return {"MB": len(text.encode("utf-8")) / 1e6, "ready ms": ready, "same site": inside, "other site": across}


def switched(tab: Page, to: list[tuple[str, int]]) -> dict[str, float]:
    took = tab.evaluate(SWITCHES % json.dumps(to))
    return {"median": median(took), "worst": max(took)}


if __name__ == "__main__":
    main()
