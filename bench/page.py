"""The page of `headway look` in a real browser: its size, when it is ready, how long another head takes; JSON.

Pages of 144 heads: MiniLM's maps of two texts, of 128 and of 512 tokens, and a small model of Llama's kind with 12
layers of 12 heads on 4,095 letters.  Each switch goes to a head that was not looked at before, and ends when all of
the page that depends on it is drawn, the numbers below the map included.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch

from headway.app.training.words import learned
from headway.checkpoint import Loaded, load
from headway.look.attended import Attended
from headway.look.bundle import bundle
from headway.look.page import page
from headway.zoo import llama
from headway.zoo.build import build
from recipes.prove import minilm
from tests.browser.chrome import Chrome
from tests.browser.page import Page

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
    torch.manual_seed(0)
    chrome = Chrome()
    tab = Page(chrome)
    tab.size()
    print(json.dumps({told: shown(tab, runs) for told, runs in recordings()}))
    chrome.close()


def recordings() -> Iterator[tuple[str, list[Attended]]]:
    for tokens in (128, 512):
        yield f"{tokens}", real(tokens)
    yield "4,095", [long(4_095)]


def real(tokens: int) -> list[Attended]:
    """MiniLM on two parts of our own README."""
    model = load(minilm())
    assert model.tokenizer is not None
    text = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8") * 2
    parts = [model.tokenizer.encode(part)[1 : tokens - 2] for part in (text, text[3000:])]
    return [model.attend(model.tokenizer.decode(part)) for part in parts]


def long(tokens: int) -> Attended:
    letters = "abcdefghijklmnopqrstuvwxyz      "
    words = learned("characters", [letters] * 3, None, False, False, 0)
    config = llama.Config(vocab=words.vocab, context=tokens + 1, dim=192, layers=12, heads=12, hidden=384)
    model = Loaded(build(config).eval(), config, "llama", "llama", {}, words)
    return model.attend(("the cat sat on the mat " * tokens)[:tokens], most=1)


def shown(tab: Page, runs: list[Attended]) -> dict[str, Any]:
    text = page(bundle(runs))
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
