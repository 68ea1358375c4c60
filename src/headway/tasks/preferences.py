"""Learning from preferences: of two answers, the chosen one is to become likelier than the rejected one.

Direct preference optimisation (Rafailov and others, 2023).  With π for the log-probability of an answer and π₀ for that
of the model that training began with, the loss of a pair is

    −log σ(β · ((π(chosen) − π₀(chosen)) − (π(rejected) − π₀(rejected))))

The first weights are part of the state of a run, since a resumed run needs them too.

Axes:  P pairs   M tokens of all answers
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.order import batched
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.distributed.sharing import shared
from headway.errors import UserError
from headway.metrics.intervals import Share
from headway.metrics.scores import Scores
from headway.metrics.scoring import scores_of
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.batches import Row
from headway.tasks.chat import AnswerBatch, Dialogue, answer_predictions, dialogue_setup
from headway.tasks.model_parts import ModelParts
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    EvalOptions,
    EvalResult,
)
from headway.tasks.text_tasks import DEFAULT_CONTEXT

BETA = 0.1  # how far answers may move from what the first weights give them
EVALUATED_TOGETHER = 16  # pairs
PREFIX = "model."


@dataclass(frozen=True, eq=False)
class PreferenceBatch(AnswerBatch):
    """Conversations in pairs: one with the chosen answer, the next with the rejected one."""

    @property
    def targets(self) -> int:
        return len(self.counts) // 2


class AnswerLogProbability(nn.Module):
    """The log-probability of the answers of a batch, so that it can be computed with other weights, too."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, batch: PreferenceBatch) -> Tensor:
        """P 2, of the chosen and of the rejected answer."""
        found = answer_predictions(self.model, batch)
        rows = zip(found.features.split(batch.counts), found.wanted.split(batch.counts), strict=True)
        return torch.stack([-found.head.loss(features, wanted) for features, wanted in rows]).view(-1, 2)


@dataclass(frozen=True, eq=False)
class PreferenceLM(Dialogue):
    """Prefer the chosen answers.  Only the last answer of a conversation is compared."""

    name = "preference-lm"
    does = "answers messages"
    target = "pair"
    presets_by_size = ()  # new weights have no answers to compare
    fine_tuning_lr_factor = 0.1  # long steps make the chosen answers unlikely, too: only their distance counts
    columns = 4

    tokenizer: Tokenizer
    max_length: int = DEFAULT_CONTEXT
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    beta: float = BETA

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        if start is None:
            raise UserError(
                "preferences are learned by a model that answers already",
                do="give one as model.start, trained on conversations",
            )
        tokenizer, longest, settings, chosen = dialogue_setup(splits, recipe, start)
        task = cls(tokenizer, longest, settings)
        task = replace(task, settings={**settings, **task.extra_config()})
        return TaskSetup(task, tokenizer, tokenizer, chosen)

    # ---- learning

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [[part for one in both for part in self.last_answer(one)] for _, *both in fields]

    def last_answer(self, conversation: str) -> tuple[list[int], list[int]]:
        """The ids of a conversation, and whether each belongs to its last answer; the beginning is cut off."""
        row, answered = self.marked_row(json.loads(conversation))
        start = len(answered) - next((at for at, one in enumerate(reversed(answered)) if not one), 0)
        first = max(0, len(row) - self.max_length)
        return row[first:], [int(at >= start) for at in range(first, len(row))]

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> PreferenceBatch:
        found = AnswerBatch.of([pair for row in rows for pair in ((row[0], row[1]), (row[2], row[3]))])
        return PreferenceBatch(found.read, found.at, found.wanted, found.counts)

    def sizes(self, rows: Any) -> np.ndarray:
        return rows.lengths(0) + rows.lengths(2)

    def loss(self, model: nn.Module, batch: PreferenceBatch) -> Tensor:
        """As where the first weights find all answers equally likely."""
        return preference_loss(AnswerLogProbability(model)(batch), self.beta)

    def memory(self, model: nn.Module) -> Mapping[str, Tensor] | None:
        """The first weights, but for those that stay as they are."""
        learned = ((name, value) for name, value in model.named_parameters() if value.requires_grad)
        return {name: value.detach().clone() for name, value in chain(learned, model.named_buffers())}

    def loss_after(
        self, model: nn.Module, batch: PreferenceBatch, memory: Mapping[str, Tensor]
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        asked = AnswerLogProbability(model)
        first = {PREFIX + name: value for name, value in memory.items()}
        with torch.no_grad(), evaluating(asked):
            before = torch.func.functional_call(asked, first, (batch,))
        return preference_loss(asked(batch) - before, self.beta), memory

    # ---- evaluation

    def validate(self, model: nn.Module, batches: Sequence[Any], records: Iterable[Record]) -> EvalResult:
        """By how often the chosen answer is the likelier one."""
        return self.evaluate(model, records)

    @torch.inference_mode()
    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        def right(some: Sequence[Record]) -> list[bool]:
            found = AnswerLogProbability(model)(self.batch(model, some))
            return (found[:, 0] > found[:, 1]).tolist()

        parts = shared(right, batched(records, EVALUATED_TOGETHER))
        return EvalResult(accuracy([one for _, found in parts for one in found]))

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        """One of two answers by chance."""
        yield BaselineResult("chance", Scores({"accuracy": 0.5}, found.scores.count, "pairs"))


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Without dropout, for a while."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def preference_loss(margins: Tensor, beta: float) -> Tensor:
    """−log σ(β · (chosen − rejected)), summed over pairs, of P 2."""
    chosen, rejected = margins.unbind(-1)
    return -F.logsigmoid(beta * (chosen - rejected)).sum()


def accuracy(right: Sequence[bool]) -> Scores:
    return scores_of({"accuracy": Share(np.array(right))}, "pairs")
