"""Embeddings: a vector for each text, image or sound, by a model that has nothing else to say.

Axes:  B batch   C width
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numpy as np
from torch import Tensor, nn

from headway.data.records import Record
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.nn.context import Context
from headway.nn.towers import Projection
from headway.nn.trunk import Trunk
from headway.ops.losses import unit_vectors
from headway.tasks.batches import FittedRow, PackedBatch, Row
from headway.tasks.inputs import Input, ModelInput, input_of
from headway.tasks.media_tasks import MediaReader
from headway.tasks.model_parts import ModelParts, required_tokenizer
from headway.tasks.results import EvalResult
from headway.tasks.text_tasks import ReadsText
from headway.tasks.text_tracing import fitting_ids, text_axes
from headway.tasks.tracing import TracedRun, TraceOptions, Vector
from headway.tasks.vectors import GivesVectors


class Headless(GivesVectors):
    """An encoder without a head, which has nothing to learn."""

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> Any:
        return self.nothing_to_learn()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.nothing_to_learn()

    def nothing_to_learn(self) -> NoReturn:
        raise UserError("a model that gives vectors has nothing to be right or wrong about", do="train a head")

    def validate(self, model: nn.Module, batches: Sequence[Any], records: Iterable[Record]) -> EvalResult:
        return self.evaluate(model, records)


@dataclass(frozen=True, eq=False)
class TextEmbedding(ReadsText, Headless):
    """Vectors of texts."""

    name = "text-embedding"

    tokenizer: Tokenizer

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        if not isinstance(parts.model, Trunk) or input_of(parts) is not None:
            return None
        return cls(required_tokenizer(parts))

    def pooled(self, model: nn.Module, read: PackedBatch) -> Tensor:
        own = own_vector(model, read.ids, read.context)
        return super().pooled(model, read) if own is None else own

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        assert isinstance(model, Trunk)
        tokenizer = self.tokenizer
        row = fitting_ids(tokenizer.encode(input), model, tokenizer, {}, options)
        read = PackedBatch.of_texts(model, [FittedRow(row)], tokenizer)

        def call() -> Tensor:
            return self.pooled(model, read)[0]  # C

        return TracedRun(model, call, Vector(), text_axes(row, tokenizer))


@dataclass(frozen=True, eq=False)
class MediaEmbedding(MediaReader, Headless):
    """Vectors of images, sounds or numbers."""

    name = "media-embedding"

    input: Input

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        found = input_of(parts)
        return None if found is None else cls(found)

    def pooled(self, model: nn.Module, read: ModelInput) -> Tensor:
        own = own_vector(model, *read)
        return super().pooled(model, read) if own is None else own

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        return self.traced_vector(model, input)


def own_vector(model: nn.Module, inputs: Tensor, context: Context) -> Tensor | None:
    """The vectors, of length 1, of a model whose answer they are (a tower of CLIP's); None: it has none."""
    if isinstance(model, Trunk) and isinstance(model.head, Projection):
        return unit_vectors(model(inputs, context))
    return None
