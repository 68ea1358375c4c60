"""Text pairs: the class of two texts that are read together, such as entailment, or whether questions are the same.

An input is typed as `one text ||| another`, or with a tab between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from torch import Tensor, nn

from headway.data.composed import PAIR, halves
from headway.data.splits import DataSplits
from headway.errors import UserError
from headway.metrics.baselines import most_frequent, naive_bayes
from headway.tasks.batches import DataRow, EncoderInput, FittedRow
from headway.tasks.model_parts import CUSTOM, ModelParts
from headway.tasks.results import Sample, example_of
from headway.tasks.text_classification import TextClassification, TextLabelTask
from headway.tasks.text_rows import TextRows, paired_rows
from headway.tasks.text_tasks import sample_text

MAX_PAIR_LENGTH = 2**16 - 1  # tokens: where the second text begins is kept in two bytes


class ReadsPairs(TextRows):
    """A task whose models read two texts, with a segment each where the model has segments."""

    columns = 3
    max_id = MAX_PAIR_LENGTH

    def input_rows(self, texts: Sequence[str]) -> list[FittedRow]:
        return paired_rows(self.tokenizer, texts, min(self.max_length, MAX_PAIR_LENGTH))

    def example(self, splits: DataSplits, samples: Sequence[Sample]) -> str:
        return example_of(samples) or f"one text{PAIR}another"

    def sample_input(self, folder: Path, context: int | None) -> str:
        one = sample_text(self.tokenizer, None if context is None else max(1, context // 2 - 1))
        return f"{one}{PAIR}{one}"

    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Tensor:
        raise UserError("a model that reads two texts together gives no vectors of one", do="leave out embed=")

    def encoder_input(self, model: nn.Module, rows: Sequence[DataRow]) -> EncoderInput:
        raise UserError("a model that reads two texts together has no encoder of one to look into")


class TextPairClassification(ReadsPairs, TextClassification):
    """Predict the class of two texts.  The tokenizer frames them as the model wants it."""

    name = "text-pair-classification"
    does = "names the class of two texts"
    target = "pair"
    architectures = TextLabelTask.architectures  # whose encoders see both texts at once, and have segments
    presets_by_size = TextLabelTask.presets_by_size

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        """A module of your own says by its folder that it reads two texts."""
        return None if parts.architecture == CUSTOM else super().from_model(parts)

    def can_count(self, model: nn.Module) -> bool:
        return False

    def simple_answers(self, train: Sequence[Sequence[str]], samples: Sequence[Sample]) -> dict[str, list[str]]:
        texts, labels = zip(*train, strict=True)
        asked = [words_by_side(one.source) for one in samples]
        return {
            "majority class": [most_frequent(labels)] * len(samples),
            "naive Bayes of words by side": naive_bayes(list(map(words_by_side, texts)), labels, asked),
        }


def words_by_side(text: str) -> str:
    """The words of two texts, each with where it stands: in the first, in the second, or in both."""
    first, second = (one.lower().split() for one in halves(text))
    both = set(first) & set(second)
    marked = [f"1:{word}" for word in first if word not in both] + [f"2:{word}" for word in second if word not in both]
    return " ".join([*marked, *(f"both:{word}" for word in sorted(both)), f"shared:{int(10 * overlap(text))}"])


def overlap(text: str) -> float:
    """The share of the words of two texts that both have."""
    first, second = (set(one.lower().split()) for one in halves(text))
    return len(first & second) / max(1, len(first | second))
