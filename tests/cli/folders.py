"""Small models of every purpose, saved as people have them, and data for each."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headway.data.tokenizer import Tokenizer
from headway.model import Model
from headway.tasks.generation import GenerationOptions
from headway.tasks.model_parts import named_classes
from headway.tasks.text_tasks import Framing, sentinels_of, trained
from headway.zoo import bart, bert, gpt2, t5, transformer
from headway.zoo.build import architecture

TEXTS = ["the cat sat on the mat", "a dog ran after the cat", "red big house", "on and on ran the dog, after a cat"]
VOCABULARY = sorted({word for text in TEXTS for word in text.replace(",", "").split()})
LABELS, TAGS = ("bad", "good"), ("B-X", "I-X", "O")
CONTEXT = 16
sizes: dict[str, Any] = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32}


def words(level: str, *, before: bool = False, after: bool = False, marks: int = 0) -> Tokenizer:
    vocab = None if level == "characters" else 200
    return trained(level, TEXTS * 3, vocab, Framing(before, after, marks))


def made(
    name: str, config: Any, tokenizer: Tokenizer | None, kept: dict[str, Any], kind: str | None = None, seed: int = 1
) -> Model:
    model = architecture(name).build(config).eval()
    torch.manual_seed(seed)
    for parameter in model.parameters():  # large weights, so that answers differ from text to text
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return Model(model, config, name, kind, kept, tokenizer)


def pairs() -> Model:
    known = words("words", after=True)
    kept = {"decoder_start_token_id": known.bos, "eos_token_id": known.eos, "max_new_tokens": 16}
    # with this seed it ends most of its texts by itself
    return made("transformer", transformer.Config(vocab=known.vocab, **sizes), known, kept, seed=4)


def narrow() -> Model:
    """An encoder–decoder with a table of positions."""
    known = words("words", after=True)
    both: dict[str, Any] = {"decoder_layers": 1, "decoder_heads": 2, "decoder_hidden": 32, "context": CONTEXT}
    kept = {"decoder_start_token_id": known.eos, "eos_token_id": known.eos}
    return made("bart", bart.Config(vocab=known.vocab, **sizes, **both), known, kept)


def spans() -> Model:
    known = words("characters", after=True, marks=20)
    kept = {"decoder_start_token_id": known.bos, "eos_token_id": known.eos}
    return made("t5", t5.Config(vocab=known.vocab, head_dim=8, **sizes), known, kept)


def causal() -> Model:
    known = words("characters")
    kept = {"bos_token_id": known.bos, "eos_token_id": known.eos}
    return made("gpt2", gpt2.Config(vocab=known.vocab, context=CONTEXT, **sizes), known, kept, "gpt2")


def encoder(top: str, classes: int = 2, kept: dict[str, Any] | None = None) -> Model:
    known = words("wordpiece", before=True, after=True)
    config = bert.Config(vocab=known.vocab, context=CONTEXT, top=top, classes=classes, **sizes)
    return made("bert", config, known, kept or {}, "bert")


FOLDERS: dict[str, Callable[[], Model]] = {
    "pairs": pairs,
    "narrow": narrow,
    "spans": spans,
    "causal": causal,
    "masked": lambda: encoder("words"),
    "labels": lambda: encoder("rows", 2, named_classes(LABELS)),
    "tags": lambda: encoder("tokens", 3, named_classes(TAGS)),
    "vectors": lambda: encoder("none"),
}


def sentences(count: int, seed: int = 0, longest: int = 7) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(VOCABULARY, k=draw.randint(1, longest))) for _ in range(count)]


def marks(loaded: Model) -> tuple[int, ...]:
    assert loaded.tokenizer is not None
    return sentinels_of(loaded.tokenizer)


def saved(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def pair_lines(models: dict[str, Model], count: int) -> list[str]:
    """Sources, with what the model writes or the beginning of it, so that some answers are right."""
    sources = sentences(count)
    answers = [one.output.split() for one in models["pairs"].predict(sources, GenerationOptions(max_new_tokens=12))]
    return [f"{source}\t{' '.join(answer[:12]) or 'cat'}" for source, answer in zip(sources, answers, strict=True)]


def worded_lines(models: dict[str, Model], count: int) -> list[str]:
    """The same, with so many different words that they are no notation."""
    return [
        f"{line} so{at} we{at} go{at}" if at % 2 == 0 else line for at, line in enumerate(pair_lines(models, count))
    ]


def named_lines(labels: tuple[str, ...], count: int) -> list[str]:
    draw = random.Random(1)
    return [f"{text}\t{draw.choice(labels)}" for text in sentences(count, 1)]


def tagged_lines(count: int, longest: int = 7) -> list[str]:
    draw = random.Random(2)
    return [f"{text}\t{' '.join(draw.choices(TAGS, k=len(text.split())))}" for text in sentences(count, 2, longest)]


def documents() -> list[str]:
    """From one letter to several windows."""
    return ["a", *sentences(9, 4, 3), " ".join(sentences(30, 5)), "the cat, " * 7]


def jsonl(path: Path, texts: list[str]) -> Path:
    return saved(path, [json.dumps({"text": text}) for text in texts])
