"""A small model of Llama's kind that reads letters, with weights as they are drawn: for inputs of any length."""

from __future__ import annotations

from headway.app.training.words import learned
from headway.checkpoint import Loaded
from headway.zoo import llama
from headway.zoo.build import build

LETTERS = "abcdefghijklmnopqrstuvwxyz      "


def reader(context: int, dim: int, layers: int, heads: int) -> Loaded:
    words = learned("characters", [LETTERS] * 3, None, False, False, 0)
    config = llama.Config(vocab=words.vocab, context=context, dim=dim, layers=layers, heads=heads, hidden=2 * dim)
    return Loaded(build(config).eval(), config, "llama", "llama", {}, words)
