"""The samples that browser tests look at, one for each kind of model that a page may show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch

from headway.ops.attention_map import Weights

from .samples import WORDS, Floats, Sample, begun, frames, grid, items, outcome, picture, softmax, sound, text

ARABIC = ["القطة", "التي", "جلست", "على", "السجادة", "نظرت", "إلى", "الكلب"]
CHINESE = ["坐在", "垫子", "上", "的", "猫", "看着", "那只", "狗", "。"]


def continued(words: Sequence[str] = WORDS, layers: int = 4, heads: int = 6, seed: int = 0) -> Sample:
    """A language model: causal self-attention, effects of every head, and rollout."""
    made = begun("2.attn", 3, seed)
    axes = {"text": text([f" {word}" for word in words], [0])}
    made.run("tiny language model", " ".join(words), axes, outcome("next", ["and", "slept"], len(words) - 2))
    for layer in range(layers):
        made.site(f"{layer}.attn", "text", "text", heads, causal=True)
    made.effects()
    made.cloud(60, ["cat", "dog", "bird"])
    made.given("rollout", "text", "text", mixed(made, layers), derived=True, causal=True)
    return made


def compared() -> Sample:
    """Two models that read the same, and one that reads something else."""
    made = continued(layers=2, heads=4)
    made.run("another model", " ".join(WORDS), made.data["runs"][0]["axes"], outcome("next", ["or"], 15))
    for layer in range(2):
        made.site(f"{layer}.attn", "text", "text", 4, causal=True)
    made.run("a shorter text", "The cat", {"text": text(["The", "cat"])}, outcome("next", ["or"], 1))
    made.site("0.attn", "text", "text", 4, causal=True)
    return made


def translated(source: Sequence[str] = ARABIC, target: Sequence[str] = CHINESE) -> Sample:
    """An encoder, and a decoder that looks across."""
    made = begun("decoder.1.cross", 1)
    axes = {"source": text([*source, "</s>"], [len(source)]), "target": text(["<s>", *target], [0])}
    made.run("tiny translator", " ".join(source), axes, outcome("written", target, 0))
    for layer in range(2):
        made.site(f"encoder.{layer}.attn", "source", "source", 4)
    for layer in range(2):
        made.site(f"decoder.{layer}.attn", "target", "target", 4, causal=True)
        made.site(f"decoder.{layer}.cross", "target", "source", 4)
    made.effects()
    return made


def seen() -> Sample:
    """A picture in cells behind a class token, and a coarser grid that looks at a finer one."""
    made = begun("1.attn", 2)
    axes = {"cells": grid(10, 10, 1), "coarse": grid(5, 5)}
    made.run("tiny vision model", "meadow.png", axes, outcome("classes", ["apple"], None), picture=picture())
    for layer in range(2):
        made.site(f"{layer}.attn", "cells", "cells", 4, sharp=1.2)
    made.site("2.pooled", "coarse", "cells", 2)
    for site in made.data["runs"][0]["sites"]:
        site["opens"] = 0
    return made


def patches(side: int = 24) -> Sample:
    """A picture of 577 tokens, whose weights are small and nearly alike, without the numbers behind them."""
    made = begun("0.attn")
    axes = {"cells": grid(side, side, 1)}
    made.run("a flat vision model", "meadow.png", axes, outcome("classes", ["apple"], None), picture=picture())
    logits = made.random.normal(size=(2, side * side + 1, side * side + 1)).astype(np.float32) * 0.3
    made.given("0.attn", "cells", "cells", softmax(logits))
    return made


def lengths(counts: Sequence[int]) -> Sample:
    """Texts of several lengths, one run for each."""
    made = begun("0.attn")
    for count in counts:
        words = [f"{WORDS[at % len(WORDS)]}{at}" for at in range(count)]
        made.run(f"{count} words", " ".join(words), {"text": text(words)}, outcome("next", ["end"], count - 1))
        made.site("0.attn", "text", "text", 1, causal=True)
    return made


def captioned() -> Sample:
    made = begun("decoder.0.cross", 0)
    words = ["a", "red", "apple", "on", "a", "green", "meadow"]
    axes = {"cells": grid(7, 7, 1), "target": text(["<s>", *words], [0])}
    made.run("tiny captioner", "meadow.png", axes, outcome("written", words, 0), picture=picture())
    made.site("encoder.0.attn", "cells", "cells", 2)
    made.site("decoder.0.attn", "target", "target", 2, causal=True)
    made.site("decoder.0.cross", "target", "cells", 2)
    return made


def heard() -> Sample:
    made = begun("decoder.0.cross", 0)
    words = ["seven", "eight", "nine"]
    axes = {"frames": frames(60, 0.04), "target": text(["<s>", *words], [0])}
    made.run("tiny speech model", "digits.wav", axes, outcome("heard", words, 0), sound=sound())
    made.site("encoder.0.attn", "frames", "frames", 2)
    made.site("decoder.0.cross", "target", "frames", 2)
    return made


def foreseen() -> Sample:
    """Rows of numbers with times, one of which is not known."""
    made = begun("1.attn", 1)
    axes = {"rows": items([f"2024-03-{day:02d}" for day in range(1, 25)])}
    values = np.cumsum(np.random.default_rng(5).normal(size=(24, 2)), 0).round(3).tolist()
    values[3][1] = None
    series = {"columns": ["temperature", "pressure"], "rows": values}
    made.run("tiny forecaster", "weather.csv", axes, outcome("foreseen", [], None), series=series)
    for layer in range(2):
        made.site(f"{layer}.attn", "rows", "rows", 3, causal=True)
    return made


def long(length: int = 4096) -> Sample:
    """A map in tiles: two heads look back by 1 and by 64; the file holds the fine tiles of the first rows only."""
    made = begun("0.attn")
    labels = [f"t{at}" for at in range(length)]
    made.run("a long text", "…", {"text": text(labels)}, outcome("next", ["end"], length - 1))
    place = np.arange(length)
    w = np.zeros((2, length, length), np.float32)
    w[:, :, 0] = 0.3
    for head, back in enumerate((1, 64)):
        w[head, place, np.maximum(place - back, 0)] = 0.7
    told = {"name": "0.attn", "label": "layer 0 · attn", "derived": False, "rows": "text", "columns": "text"}
    stats = {"entropy": [0.6, 0.6], "distance": [1.0, 64.0], "effect": None}
    made.tiled(
        told | {"stats": stats, "detail": None},
        Weights(torch.from_numpy(w)[None]),
        [(0, j) for j in range(length // 256)],
    )
    return made


def afar(length: int = 1024) -> Sample:
    """Two runs of a long text whose heads look back by 1 and by 2: from afar, they look the same."""
    made = begun("0.attn")
    place = np.arange(length)
    for back in (1, 2):
        labels = [f"t{at}" for at in range(length)]
        made.run(f"back by {back}", "…", {"text": text(labels)}, outcome("next", ["end"], length - 1))
        w = np.zeros((1, length, length), np.float32)
        w[0, place, np.maximum(place - back, 0)] = 0.7
        told = {"name": "0.attn", "label": "layer 0 · attn", "derived": False, "rows": "text", "columns": "text"}
        stats = {"entropy": [0.6], "distance": [back], "effect": None}
        made.tiled(
            told | {"stats": stats, "detail": None},
            Weights(torch.from_numpy(w)[None]),
            [(0, j) for j in range(length // 256)],
        )
    return made


def spoken(tokens: Sequence[str]) -> Sample:
    """Any tokens at all, everywhere that a token can be."""
    made = begun("0.attn")
    run = made.run(tokens[0][:200], tokens[-1], {"text": text(tokens)}, outcome("written", tokens, 0))
    run["architecture"] = tokens[len(tokens) // 2][:200]
    made.site("0.attn", "text", "text", 2)
    made.effects()
    for effect in run["effects"]:
        effect["outcome"]["text"] = tokens[1 % len(tokens)]
    return made


def mixed(made: Sample, layers: int) -> Floats:
    """Attention rollout of a run's first sites."""
    maps = [made.weights[0, f"{layer}.attn"].mean(0) for layer in range(layers)]
    rolled = np.eye(len(maps[0]), dtype=np.float32)
    for one in maps:
        rolled = ((one + np.eye(len(one), dtype=np.float32)) / 2) @ rolled
    return rolled[None]


PIECES = ["[CLS]", "un", "##believ", "##able", "cat", "##s", "sleep", "[SEP]"]
STARTS = [0, 1, 4, 6, 7]  # of its words


def pieced() -> Sample:
    """Two texts in pieces: the second has another number of tokens, and as many words."""
    made = begun("0.attn", 1)
    for pieces, starts in ((PIECES, STARTS), (["[CLS]", "known", "dog", "##s", "run", "[SEP]"], [0, 1, 2, 4, 5])):
        title, words = "tiny encoder", " ".join(pieces)
        made.run(title, words, {"text": text(pieces, [0, len(pieces) - 1], starts)}, outcome("classes", ["pet"], None))
        for layer in range(2):
            made.site(f"{layer}.attn", "text", "text", 3)
    return made


KINDS: dict[str, Callable[[], Sample]] = {
    "language": continued,
    "translation": translated,
    "picture": seen,
    "caption": captioned,
    "sound": heard,
    "compared": compared,
    "pieces": pieced,
    "series": foreseen,
}


@cache
def sample(kind: str) -> Sample:
    return KINDS[kind]()
