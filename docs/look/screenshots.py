"""The screenshots in this folder, taken of the page as it is now.

    python docs/look/screenshots.py --models MODELS --weights ../shared/weights --data ../shared/data

`--models` is where models are trained, with the fixed numbers of steps below, unless they are there already; what needs
data or weights that are not there is left as it is.  Needs Chromium, as the tests of the page do (`make browser`).
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))  # the tests' driver of the browser

from tests.browser.chrome import Chrome  # noqa: E402
from tests.browser.page import Page  # noqa: E402

FASHION = "{data}/fashion_mnist"
TRAINED = {  # model: arguments of headway train
    "dates": ["dates", "--train.steps", "1000"],
    "fashion": [FASHION, "--preset", "vit-nano", "--train.steps", "315"],
}
STORY = "Once upon a time"
DATE, TROUSERS = "the 5th of March 1987", "{data}/fashion_mnist/t10k-images-idx3-ubyte.gz/3"
# picture: the model (trained, or of --weights), its input, the state of the page, the size of the window and its theme
LLAMA = ("llama_stories260k", STORY)
SHOTS = {
    "translator": ("dates", DATE, {"site": "decoder.1.cross", "view": "matrix"}, (1400, 1000), "light"),
    "alignment": ("dates", DATE, {"site": "decoder.1.cross", "view": "alignment"}, (1400, 1000), "dark"),
    "vit": ("fashion", TROUSERS, {"site": "2.attn", "view": "picture"}, (1400, 1000), "light"),
    "opening": (*LLAMA, {}, (1366, 768), "light"),
    "matrix": (*LLAMA, {"site": "2.attn", "head": 5, "view": "matrix"}, (1400, 1000), "dark"),
    "lines": (*LLAMA, {"site": "2.attn", "head": 5, "view": "lines"}, (1400, 1000), "light"),
    "lens": (*LLAMA, {"view": "lens"}, (1400, 1000), "dark"),
    "flow": (*LLAMA, {"view": "flow"}, (1366, 768), "light"),
    "phone": (*LLAMA, {"site": "2.attn", "head": 5, "view": "matrix"}, (390, 844), "dark"),
}


def headway(*words: str) -> None:
    run([sys.executable, "-m", "headway", *words], check=True)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    for name in ("models", "weights", "data"):
        parser.add_argument(f"--{name}", type=Path, default=Path(name))
    parser.add_argument("only", nargs="*", metavar="PICTURE", help="such as matrix; all of them by default")
    given = parser.parse_args()
    chrome = Chrome()
    try:
        page = Page(chrome)
        for name in given.only or SHOTS:
            take(name, page, given.models, given.weights, given.data)
    finally:
        chrome.close()


def take(name: str, page: Page, models: Path, weights: Path, data: Path) -> None:
    model, text, state, size, theme = SHOTS[name]
    words = [word.format(data=data) for word in TRAINED.get(model, [])]
    folder = models / model if words else weights / model
    if not (folder.exists() or words == TRAINED["dates"] or (words and Path(words[0]).exists())):
        print(f"{name}: left as it is, without {words[0] if words else folder}")
        return
    if not folder.exists():
        headway("train", *words, "--out", str(folder))
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "page.html"
        headway("look", str(folder), text.format(data=data), "--out", str(file))
        page.size(*size)
        page.prefer(color_scheme=theme)
        page.open(file)
        page.evaluate(f"headway.change({json.dumps(state)})")
        page.settle()
        page.shot(HERE / f"{name}.png")
    print(f"{name}: {folder.name}, {size[0]} × {size[1]}")


if __name__ == "__main__":
    main()
