"""What tasks share whose models answer with a vector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torch import nn

from headway.data.records import Record
from headway.errors import UserError
from headway.tasks.base import Task
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.results import DEFAULT_EVALUATION, EmbeddingVector, EvalOptions, EvalResult


class GivesVectors(Task):
    """A task whose models answer with a vector, which no data can be compared with unless it learns from data."""

    does = "gives vectors"

    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[EmbeddingVector]:
        return iter(self.embeddings(model, inputs))

    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        raise self.nothing_to_compare("the model")

    def nothing_to_compare(self, named: str) -> UserError:
        return UserError(f"{named} gives vectors, which no data can be compared with", do="train a head")
