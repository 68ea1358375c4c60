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

from PIL import Image

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))  # the tests' driver of the browser

from tests.browser.chrome import Chrome  # noqa: E402
from tests.browser.page import Page  # noqa: E402

FASHION, DIGITS = "{data}/fashion_mnist", "{data}/fsdd/recordings"
TRAINED = {  # model: arguments of headway train
    "dates": ["dates", "--train.steps", "1000"],
    "fashion": [FASHION, "--preset", "vit-nano", "--train.steps", "315"],
    "digits": [DIGITS, "--data.label-from", "^([0-9])_", "--train.steps", "60"],
}
STORY = "Once upon a time"
DATE, TROUSERS, ZERO = "the 5th of March 1987", f"{FASHION}/t10k-images-idx3-ubyte.gz/3", f"{DIGITS}/0_jackson_0.wav"
# picture: the model (trained, or of --weights), its input, the state of the page, the size of the window and its theme
LLAMA = ("llama_stories260k", STORY)
LARGE, SMALL, PHONE = (1400, 1000), (1366, 768), (390, 844)
HEAD = {"site": "4.attn", "head": 6}
SHOTS = {
    "translator": ("dates", DATE, {"site": "decoder.1.cross", "view": "matrix", "step": 1, "row": 1}, LARGE, "light"),
    "alignment": ("dates", DATE, {"site": "decoder.1.cross", "view": "alignment"}, LARGE, "dark"),
    "vit": ("fashion", TROUSERS, {"site": "2.attn", "view": "picture"}, LARGE, "light"),
    "spotlights": ("fashion", TROUSERS, {"site": "2.attn", "view": "heads", "layers": True}, SMALL, "dark"),
    "sound": ("digits", ZERO, {}, LARGE, "light"),
    "opening": (*LLAMA, {}, SMALL, "light"),
    "matrix": (*LLAMA, {**HEAD, "view": "matrix"}, LARGE, "dark"),
    "heads": (*LLAMA, {**HEAD, "view": "heads"}, LARGE, "light"),
    "embedding": (*LLAMA, {**HEAD, "view": "map"}, SMALL, "dark"),
    "lens": (*LLAMA, {"view": "lens"}, LARGE, "dark"),
    "flow": (*LLAMA, {"view": "flow"}, SMALL, "light"),
    "phone": (*LLAMA, {**HEAD, "view": "matrix"}, PHONE, "dark"),
    "phone-light": ("dates", DATE, {}, PHONE, "light"),
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
        page.prefer(color_scheme=theme, reduced_motion="reduce")
        page.open(file)
        page.evaluate(f"headway.change({json.dumps(state)})")
        page.settle()
        picture = HERE / f"{name}.png"
        page.shot(picture)
    with Image.open(picture) as shot:
        shot.convert("RGB").save(picture, optimize=True)
    print(f"{name}: {folder.name}, {size[0]} × {size[1]}")


if __name__ == "__main__":
    main()
