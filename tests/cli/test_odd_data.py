"""Small odd data of every kind: a plan, a score with what it stands on, and advice that works when it is typed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

import numpy as np
import pytest

from tests.cli.command import Place, made_place
from tests.cli.folders import saved
from tests.data.files import coded, picture, put, wav

pytestmark = pytest.mark.long

STEPS = ("--train.steps", "6", "--train.threads", "1")
TINY = ("--model.dim", "16", "--model.heads", "2", "--model.layers", "1")
HEARING = (*TINY, "--model.hidden", "16", "--model.channels", "4", "--model.kernel", "3")
PATCHES = ("--model.patch", "4", "--model.image", "8")
SEEING = ("--preset", "vit-nano", *TINY)
SCORE = re.compile(
    r"\((?:\d+ of )?[\d,]+(?: [a-z ]+)?; (?:≤ |≥ )?[-\d.,]+(?:–[-\d.,]+)?(?: %)?\)"
)  # n, and an interval


def lines(*rows: str) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def numbered(count: int, row: Callable[[int], str]) -> bytes:
    return lines(*map(row, range(count)))


GREETINGS = ("שלום עולם", "مرحبا", "你好,世界", "👩‍👩‍👧 hi", "naïve café", "a\u00a0b")
PIXELS = {f"unnamed/{at}.png": coded(picture(at, 9, 14)) for at in range(48)}
FILES: dict[str, bytes] = {
    "unbalanced.tsv": lines(
        "text\tlabel", *(f"text number {at}\t{'rare' if at % 9 == 4 else 'usual'}" for at in range(40))
    ),
    "one-word.csv": lines("text,label", *(f'"{GREETINGS[at % 6]}{at}",{"ab"[at % 2]}' for at in range(24))),
    "quoted.csv": lines("source,target", *(f'"one, ""{at}""","eins,\n{at}"' for at in range(30))),
    "digits.tsv": numbered(40, lambda at: f"{at}\t{' '.join(str(at))}"),
    "short.txt": numbered(60, lambda at: f"Line {at}: the quick brown fox jumps over {at * 7} lazy dogs."),
    "chinese.txt": "".join(f"第{at}行:今天天气很好,我们去公园散步。\n" for at in range(80)).encode(),
    "texts/a.txt": numbered(40, lambda at: f"First book, sentence {at}."),
    "texts/b.txt": numbered(40, lambda at: f"Second book, sentence {at * at}."),
    "grey/cat/1.png": coded(picture(1, 8, 8, channels=1)),
    **{f"grey/{'cat' if at % 3 else 'dog'}/{at}.png": coded(picture(at, 8, 8, channels=1)) for at in range(2, 16)},
    **{f"listed/{at}.png": coded(picture(at, 10, 10)) for at in range(16)},
    "listed/labels.csv": lines("image,label", *(f"{at}.png,{'odd' if at % 2 else 'even'}" for at in range(16))),
    **PIXELS,
    **{f"voices/{word}_{at}.wav": wav(at, 800 + 40 * at) for at in range(12) for word in ("yes", "no")},
    "one-column.csv": lines("time,level", *(f"{at},{np.sin(at / 5):.3f}" for at in range(120))),
}
DATA: dict[str, tuple[str, ...]] = {
    "labels": ("labels.csv", *TINY),
    "a rare class": ("unbalanced.tsv", *TINY),
    "scripts": ("one-word.csv", *TINY),
    "pairs": ("pairs.tsv", *TINY),
    "quotes and line breaks": ("quoted.csv", *TINY),
    "digits": ("digits.tsv", *TINY),
    "tags": ("tags.jsonl", *TINY),
    "a text": ("short.txt", *TINY),
    "Chinese": ("chinese.txt", *TINY),
    "a folder of texts": ("texts", *TINY),
    "masked words": ("short.txt", "--objective", "masked", *TINY),
    "spans": ("text.txt", "--objective", "span", *TINY, "--model.head-dim", "8", "--model.hidden", "16"),
    "images": ("photos", *SEEING),
    "grey images": ("grey", *SEEING),
    "listed images": ("listed", *SEEING),
    "images without labels": ("unnamed", "--objective", "masked", *TINY, "--model.image", "8"),
    "captions": ("told", "--preset", "vit-captioner-small", *TINY, *PATCHES, "--model.decoder-layers", "1"),
    "sounds": ("voices", "--data.label-from", "^([a-z]+)_", *HEARING),
    "speech": ("sounds", "--task", "speech", "--data.label-from", r"(\d_\d_\d)", "--model.factor", "2", *HEARING),
    "series": ("series.csv", *TINY),
    "sets": ("sets.jsonl", *TINY),
    "rows over time": ("moments.csv", "--task", "forecast", *TINY),
    "one column over time": ("one-column.csv", *TINY),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = made_place(tmp_path_factory.mktemp("place"))
    put(place.folder, FILES)
    return place


@pytest.mark.parametrize("name", DATA)
def test_a_plan_a_score_and_advice_that_works(place: Place, name: str) -> None:
    done = place("train", *DATA[name], *STEPS, "--out", f"model of {name}")
    assert (done.code, done.err) == (0, "")
    plan, end = done.out.split("\ndone: ")
    assert re.search(r"^  task +\S", plan, re.M)
    assert re.search(r"^  length +6 steps", plan, re.M)
    assert SCORE.search(end), end
    assert re.search(r"^by \S", end, re.M), end  # a baseline
    assert re.search(r"^(has|has not|may not have) learned", end, re.M), end
    commands = [shlex.split(line) for line in end.partition("\nnext\n")[2].splitlines()]
    assert {words[1] for words in commands} >= {"run", "look"}
    for program, *words in commands:
        assert program in ("headway", "python")
        found = place(*words) if program == "headway" else place.script(saved(place.folder / "line.py", words[1:]))
        assert found.code == 0, (words, found.err)
    folder = place.folder / f"model of {name}"
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert any("valid" in line for line in metrics)


def test_figures_are_counted() -> None:
    assert len(DATA) >= 20
