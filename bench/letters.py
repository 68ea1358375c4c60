"""A small model of Llama's kind that reads letters, with weights as they are drawn: for inputs of any length."""

from __future__ import annotations

from headway.model import Model
from headway.tasks.text_tasks import Framing, trained
from headway.zoo import llama
from headway.zoo.build import build

LETTERS = "abcdefghijklmnopqrstuvwxyz      "


def reader(context: int, dim: int, layers: int, heads: int) -> Model:
    words = trained("characters", [LETTERS] * 3, None, Framing())
    config = llama.Config(vocab=words.vocab, context=context, dim=dim, layers=layers, heads=heads, hidden=2 * dim)
    return Model(build(config).eval(), config, "llama", "llama", {}, words)
