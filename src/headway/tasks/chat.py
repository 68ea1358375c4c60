"""Chat: answer the messages of a conversation.  The loss is of the assistant's answers alone.

Messages are written by the chat template of the tokenizer.  A row is one conversation; rows travel packed, so that
several of them are read in one call, none sees another, and padding costs nothing.

Axes:  N tokens of all rows   M tokens of answers   C width
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.chat_template import PLAIN_TEMPLATE, ChatTemplate, template_of
from headway.data.conversations import ASSISTANT, USER, Message
from headway.data.order import batched
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.sampling import GREEDY
from headway.metrics.baselines import unigram_losses
from headway.metrics.scoring import score_losses
from headway.nn.head import LMHead, main_head, word_head
from headway.nn.trunk import Trunk
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup, loss_scores
from headway.tasks.batches import PackedBatch, Row, TextBatch, TokenPrediction
from headway.tasks.causal_lm import CausalLM
from headway.tasks.continuation import ContinuesInput
from headway.tasks.distillation import PredictsTargets
from headway.tasks.generation import GenerationOptions
from headway.tasks.language_modelling import BASELINE_TOKENS, REPORT_TOKENS, runs_of
from headway.tasks.model_parts import ModelParts, required_tokenizer
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    EvalOptions,
    EvalResult,
    ReportDetails,
    Sample,
    TracedInput,
)
from headway.tasks.text_tasks import (
    DEFAULT_CONTEXT,
    Framing,
    TokenRows,
    context_for,
    corpus_level,
    given,
    merged_settings,
    one_tokenizer,
)

EVALUATED_TOGETHER = 16  # conversations
REPORTED = 3  # conversations of a report


@dataclass(frozen=True, eq=False)
class AnswerBatch(TextBatch):
    """Conversations; of the tokens behind each, those that are answers are to be predicted."""

    read: PackedBatch
    at: Tensor  # M, the places of all rows that are followed by a token of an answer
    wanted: Tensor  # M, these tokens
    counts: tuple[int, ...]  # how many of them each row has

    @staticmethod
    def of(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> AnswerBatch:
        """Rows of ids, and for each id whether an answer has it."""
        answered = [mask[1:].astype(bool) for _, mask in rows]
        wanted = np.concatenate([row[1:][mask] for (row, _), mask in zip(rows, answered, strict=True)])
        at = np.flatnonzero(np.concatenate(answered))
        read = PackedBatch.of([row[:-1] for row, _ in rows])
        return AnswerBatch(read, torch.from_numpy(at), torch.from_numpy(wanted.astype(np.int64)), counts_of(answered))


def counts_of(masks: Sequence[np.ndarray]) -> tuple[int, ...]:
    return tuple(int(mask.sum()) for mask in masks)


def answer_predictions(model: nn.Module, batch: AnswerBatch) -> TokenPrediction:
    """The tokens of answers that a model is to predict."""
    assert isinstance(model, Trunk)
    features = model.features(batch.read.ids, batch.read.context).flatten(0, 1)[batch.at]
    return TokenPrediction(word_head(model.head), features, batch.wanted)


class Dialogue(ContinuesInput, TokenRows):
    """A task whose models answer messages, as their chat template writes them, within `max_length` tokens."""

    continues = False
    target = "token"
    architectures = CausalLM.architectures
    presets_by_size = CausalLM.presets_by_size
    max_id = 1  # whether an answer has a token
    graded = False
    sample_names = ("message", "the model", "what was there")

    tokenizer: Tokenizer
    max_length: int
    settings: Mapping[str, Any]

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        causal = isinstance(parts.model, Trunk) and isinstance(main_head(parts.model.head), LMHead)
        if not causal or parts.tokenizer is None or parts.tokenizer.chat_template is None:
            return None
        return cls(required_tokenizer(parts), context_for(parts), parts.extra_config)  # pyright: ignore[reportCallIssue]

    def extra_config(self) -> Mapping[str, Any]:
        return {"bos_token_id": self.tokenizer.bos, "eos_token_id": self.ends}

    @cached_property
    def template(self) -> ChatTemplate:
        return template_of(self.tokenizer)

    @property
    def ends(self) -> list[int]:
        """The tokens that end an answer: the tokenizer's, and the special token that the template writes there."""
        row, answered = self.marked_row([message(USER, "a"), message(ASSISTANT, "b")])
        last = [id for id, own in zip(row, answered, strict=True) if own][-1:]
        special = {id for id, token in self.tokenizer.backend.get_added_tokens_decoder().items() if token.special}
        found = [*([] if self.tokenizer.eos is None else [self.tokenizer.eos]), *(id for id in last if id in special)]
        return list(dict.fromkeys(found))

    # ---- conversations as ids

    def read_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text as the message that an answer follows."""
        return [self.tokenizer.marked(self.template.render([message(USER, text)])) for text in texts]

    def marked_row(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """The ids of a conversation up to its last answer, and whether each belongs to an answer.

        An answer is what the template writes for its message behind the text that asks for it.  Where the messages that
        follow change how an answer is written, only the last one is learned.
        """
        last = max(at for at, one in enumerate(messages) if one["role"] == ASSISTANT)
        whole = self.template.render(messages[: last + 1], answer_next=False).rstrip()
        row = self.tokenizer.marked(whole)
        answered = [False] * len(row)
        for at, one in enumerate(messages[: last + 1]):
            if one["role"] != ASSISTANT:
                continue
            before = self.template.render(messages[:at])
            written = self.template.render(messages[: at + 1], answer_next=False).rstrip()
            if not (whole.startswith(written) and written.startswith(before)):
                if at < last:
                    continue
                raise UserError(
                    "the chat template writes an answer differently from how it asks for one",
                    do="take a model with another chat template",
                )
            start, end = (shared_tokens(row, self.tokenizer.marked(text)) for text in (before, written))
            answered[start:end] = [True] * (end - start)
        return row, answered

    def encoded(self, conversation: str) -> tuple[list[int], list[int]]:
        """The ids and the marks of a conversation in a record, of which the end is cut off where it is too long."""
        row, answered = self.marked_row(json.loads(conversation))
        return row[: self.max_length], [int(one) for one in answered[: self.max_length]]

    # ---- for people

    @torch.inference_mode()
    def report_details(
        self, model: nn.Module, batches: Sequence[Any], records: Sequence[Record], found: EvalResult
    ) -> ReportDetails:
        """Answers to a few messages that were held out, and one of them to trace."""
        samples = list(self.answer_samples(model, records[:REPORTED]))
        note = f"Answers of at most {REPORT_TOKENS} tokens, the likeliest token each time."
        traced = [TracedInput("", samples[0].source)] if samples else []
        return ReportDetails(found.scores, samples, note, traced)

    def answer_samples(self, model: nn.Module, records: Sequence[Record]) -> Iterator[Sample]:
        options = GenerationOptions(GREEDY, max_new_tokens=REPORT_TOKENS)
        answers = self.predict(model, [record.fields[0] for record in records], options)
        for record, answer in zip(records, answers, strict=True):
            messages: list[Message] = json.loads(record.fields[1])
            wanted = next(one["content"] for one in messages if one["role"] == ASSISTANT)
            yield Sample(record.fields[0], answer.output, wanted)

    def example(self, splits: DataSplits, samples: Sequence[Sample]) -> str:
        return next(splits.train()).fields[0]


def message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def shared_tokens(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two rows begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def dialogue_setup(
    splits: DataSplits, recipe: Recipe, start: ModelParts | None
) -> tuple[Tokenizer, int, dict[str, Any], dict[str, Any]]:
    """The tokenizer, with a chat template, the most tokens of a row, settings of generation, and what was chosen."""
    tokenizer, chosen = one_tokenizer(recipe, splits, start, corpus_level(splits), Framing())
    if tokenizer.chat_template is None:
        if tokenizer.eos is None:
            raise UserError(
                "the tokenizer has neither a chat template nor a token that ends a text",
                do="add chat_template.jinja to the folder of the model",
            )
        tokenizer = replace(tokenizer, chat_template=PLAIN_TEMPLATE, literal=False)
    context = None if start is None else context_for(start)
    longest = given(recipe.data.max_length, DEFAULT_CONTEXT if context is None else min(context, DEFAULT_CONTEXT))
    return tokenizer, longest, merged_settings(start, {}), {**chosen, "data.max_length": longest}


@dataclass(frozen=True, eq=False)
class ChatLM(Dialogue, PredictsTargets):
    """Predict the assistant's answers."""

    name = "chat-lm"
    does = "answers messages"
    validation_records = 0  # the loss of answers decides

    tokenizer: Tokenizer
    max_length: int = DEFAULT_CONTEXT
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        tokenizer, longest, settings, chosen = dialogue_setup(splits, recipe, start)
        task = cls(tokenizer, longest, settings)
        task = replace(task, settings={**settings, **task.extra_config()})
        return TaskSetup(task, tokenizer, tokenizer, chosen)

    # ---- learning

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [list(self.encoded(conversation)) for _, conversation in fields]

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> AnswerBatch:
        return AnswerBatch.of([(row[0], row[1]) for row in rows])

    def predicted(self, model: nn.Module, batch: AnswerBatch) -> TokenPrediction:
        return answer_predictions(model, batch)

    def loss_parts(self, model: nn.Module, batch: AnswerBatch) -> Iterator[tuple[float, int]]:
        """Runs of tokens."""
        return runs_of(answer_predictions(model, batch).losses().double().cpu().numpy())

    # ---- evaluation

    def validate(self, model: nn.Module, batches: Sequence[Any], records: Iterable[Record]) -> EvalResult:
        """By the loss of a token of an answer; its exponential stands beside it."""
        return EvalResult(loss_scores(self, model, batches, self.target, "perplexity"))

    @torch.inference_mode()
    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        """The perplexity of answers, given what stands before each token."""
        found, conversations = list[tuple[float, int]](), 0
        for some in batched(records, EVALUATED_TOGETHER):
            batch = self.batch(model, some)
            conversations += len(some)
            if batch.targets:
                found += self.loss_parts(model, batch)
        if not found:
            said = f"the answers of all conversations begin behind {self.max_length:,} tokens, which the model reads"
            raise UserError(said, do="give shorter conversations")
        losses, counts = zip(*found, strict=True)
        scores = score_losses(losses, counts, f"{self.target}s", ("loss", "perplexity"))
        return EvalResult(scores, extra={"conversations": conversations})

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        """How frequent tokens of answers are."""
        train, seen = list[Any](), 0
        for batch in data.batches:
            train.append(batch.wanted.numpy())
            seen += batch.targets
            if seen >= BASELINE_TOKENS:
                break
        asked = [batch.wanted.numpy() for batch in data.validation_batches]
        if not seen or not asked:
            return
        losses = unigram_losses(np.concatenate(train), np.concatenate(asked), self.tokenizer.vocab)
        summed, counts = zip(*runs_of(losses), strict=True)
        yield BaselineResult(
            "token frequencies", score_losses(summed, counts, f"{self.target}s", ("loss", "perplexity"))
        )
