"""Every task with every architecture that can learn it, small; and the plain way to its loss.

Axes:  B batch   T tokens   V vocabulary   K classes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.nn.context import Context
from headway.nn.trunk import EncoderDecoder
from headway.tasks.batches import PackedBatch, Row, ids
from headway.tasks.causal_lm import CausalBatch, CausalLM
from headway.tasks.masked_lm import MaskedBatch, MaskedLM
from headway.tasks.seq2seq import PairBatch, Seq2Seq
from headway.tasks.span_corruption import SpanCorruption
from headway.tasks.tagging import Tagging
from headway.tasks.text_classification import LabelBatch, TextClassification
from headway.tasks.text_tasks import Framing, sentinels_of, trained
from headway.zoo import albert, bart, bert, gpt2, llama, rnn, seq2seq, t5, transformer

TEXTS = ["the cat sat on the mat", "a dog ran after the cat", "the dog sat", "on and on ran the cat, after a dog"]
LABELS = ("bad", "good", "so so")
CONTEXT = 64


def words(level: str = "characters", *, before: bool = False, after: bool = True, marks: int = 0) -> Tokenizer:
    vocab = None if level == "characters" else 120
    return trained(level, TEXTS, vocab, Framing(before, after, marks))


LETTERS = words()
MARKED = words(marks=20)
PIECES = words("wordpiece", before=True)

TASKS: dict[str, Any] = {
    "pairs": Seq2Seq(LETTERS, LETTERS, start_token=1, label_smoothing=0.1),
    "causal": CausalLM(LETTERS),
    "masked": MaskedLM(PIECES),
    "spans": SpanCorruption(MARKED, start_token=1, sentinels=sentinels_of(MARKED)),
    "labels": TextClassification(PIECES, LABELS, label_smoothing=0.1),
    "tags": Tagging(PIECES, LABELS, label_smoothing=0.2),
}

sizes: dict[str, Any] = {"dim": 16, "layers": 2, "heads": 4, "hidden": 24}
recurrent: dict[str, Any] = {"dim": 12, "hidden": 16, "target_vocab": None}
encoder: dict[str, Any] = {**sizes, "vocab": PIECES.vocab, "context": CONTEXT, "classes": len(LABELS)}


def paired(vocab: int) -> dict[str, Callable[[], nn.Module]]:
    both: dict[str, Any] = {"decoder_layers": 2, "decoder_heads": 4, "decoder_hidden": 24, "context": CONTEXT}
    return {
        "transformer": lambda: transformer.build(transformer.Config(vocab=vocab, tied="all", **sizes)),
        "rnn": lambda: rnn.build(rnn.Config(vocab=vocab, align=8, readout=8, **recurrent)),
        "seq2seq": lambda: seq2seq.build(seq2seq.Config(vocab=vocab, layers=2, **recurrent)),
        "t5": lambda: t5.build(t5.Config(vocab=vocab, head_dim=4, **sizes)),
        "bart": lambda: bart.build(bart.Config(vocab=vocab, **sizes, **both)),
    }


def reading(top: str) -> dict[str, Callable[[], nn.Module]]:
    return {
        "bert": lambda: bert.build(bert.Config(top=top, **encoder)),
        "albert": lambda: albert.build(albert.Config(top=top, width=8, **encoder)),
    }


writing: dict[str, Any] = {"vocab": LETTERS.vocab, "context": CONTEXT, **sizes}
MODELS: dict[str, dict[str, Callable[[], nn.Module]]] = {
    "pairs": paired(LETTERS.vocab),
    "spans": paired(MARKED.vocab),
    "causal": {
        "gpt2": lambda: gpt2.build(gpt2.Config(**writing)),
        "llama": lambda: llama.build(llama.Config(kv_heads=2, **writing)),
    },
    "masked": reading("words"),
    "labels": reading("rows"),
    "tags": reading("tokens"),
}


@dataclass(frozen=True)
class Learning:
    """A task and a model that can learn it."""

    name: str
    architecture: str

    @property
    def task(self) -> Any:
        return TASKS[self.name]

    @property
    def model(self) -> nn.Module:
        return built(self)

    def rows(self, lengths: list[int]) -> list[Row]:
        """Rows of random ids, each of about so many tokens."""
        return [self.row(length, np.random.default_rng([at, length])) for at, length in enumerate(lengths)]

    def row(self, length: int, draw: np.random.Generator) -> Row:
        vocab, end = LETTERS.vocab if self.name != "tags" else PIECES.vocab, LETTERS.eos
        source = draw.integers(5, min(vocab, PIECES.vocab), length)
        if self.name == "pairs":
            return ids(source, end or 0), ids(draw.integers(5, vocab, 1 + 7 * length % 11), end or 0)
        if self.name == "labels":
            return source, draw.integers(0, len(LABELS), 1)
        if self.name == "tags":  # a first piece has one more than its class
            return source, ids(1, draw.integers(0, len(LABELS) + 1, length - 1))
        return (source,)

    def __str__(self) -> str:
        return f"{self.name} {self.architecture}"


LEARNINGS = [Learning(name, architecture) for name, models in MODELS.items() for architecture in models]


@lru_cache
def built(learning: Learning) -> nn.Module:
    torch.manual_seed(1)
    model = MODELS[learning.name][learning.architecture]().double().eval()
    for parameter in model.parameters():  # what begins at zero would hide its defects
        if parameter.abs().max() == 0:
            nn.init.normal_(parameter, std=0.3)
    return model


def plain_loss(task: Any, model: nn.Module, batch: Any) -> Tensor:
    """The loss over padded rows and all logits, by torch's own cross-entropy."""
    logits, wanted = plain_logits(model, batch)
    smoothing = getattr(task, "label_smoothing", 0.0)
    return F.cross_entropy(logits, wanted, reduction="sum", label_smoothing=smoothing)


def plain_logits(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """… V or … K for each target, and the targets."""
    if isinstance(batch, PairBatch):
        assert isinstance(model, EncoderDecoder)
        source, seen = spread(batch.source)
        read, real = spread(batch.read)
        return model(source, read, Context(keep=seen[:, None]))[real], batch.wanted
    ids, real = spread(batch.read)
    found = model(ids, Context(keep=real[:, None]))
    if isinstance(batch, CausalBatch):
        return found[real], batch.wanted
    if isinstance(batch, MaskedBatch):
        return found[real][batch.chosen], batch.wanted
    assert isinstance(batch, LabelBatch)
    return found if found.dim() == 2 else found[real], batch.wanted


def spread(ragged: PackedBatch) -> tuple[Tensor, Tensor]:
    """The rows with padding behind them, and where they are, both B T."""
    rows = rows_of(ragged)
    pad = partial(nn.utils.rnn.pad_sequence, batch_first=True)
    return pad(rows, padding_value=3), pad([torch.ones(len(row), dtype=torch.bool) for row in rows])


def rows_of(ragged: PackedBatch) -> list[Tensor]:
    return list(ragged.ids) if ragged.rows is None else list(ragged.ids[0].split(ragged.rows.lengths))


def tensors(batch: Any) -> list[Tensor]:
    """All that a batch holds, to compare."""
    ragged = [part for part in vars(batch).values() if isinstance(part, PackedBatch)]
    return [
        *(row for one in ragged for row in rows_of(one)),
        *(p for p in vars(batch).values() if isinstance(p, Tensor)),
    ]
