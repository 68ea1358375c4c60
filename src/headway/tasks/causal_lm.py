"""Causal language modelling: predict each token from those before it.

Texts are read as one long stream and cut into spans; where a document ends inside a span, the span is cut there too, so
that no token sees another document and positions begin anew.

Axes:  N tokens of all rows
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.order import random_for
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.generate.sampling import RandomSampler
from headway.metrics.scores import Bucket, Scores, by_length
from headway.metrics.scoring import score_losses, score_texts
from headway.nn.head import LMHead, main_head, word_head
from headway.nn.trunk import Trunk, device_of
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.batches import PackedBatch, Row, TextBatch, TokenPrediction, around, ids, some, to_device
from headway.tasks.continuation import ContinuesInput
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions, first_token, stop_condition
from headway.tasks.language_modelling import (
    LENGTH_EDGES,
    REPORT_TOKENS,
    TEMPERATURE,
    TRACED_TOKENS,
    DocumentLoss,
    LanguageModelling,
    WindowBatch,
    joined_runs,
)
from headway.tasks.model_parts import ModelParts, required_tokenizer
from headway.tasks.results import EvalResult, ReportDetails, Sample, TracedInput
from headway.tasks.text_tasks import DEFAULT_CONTEXT, Framing, context_for, corpus_level, merged_settings, one_tokenizer
from headway.tasks.text_tracing import readable

POSITION_TOKENS = 100_000  # of validation, whose loss is measured by position
POSITION_EDGES = (4, 16, 64, 256, 1024)
CHARACTERS = 512  # tokens of a vocabulary at most, with the 256 bytes that spell what is not in it
PROMPT_TOKENS = 40  # at most, of a text that is continued in a report


@dataclass(frozen=True, eq=False)
class CausalBatch(TextBatch):
    read: PackedBatch
    wanted: Tensor  # N, the token after each; none, where no row has a second token


@dataclass(frozen=True, eq=False)
class CausalLM(ContinuesInput, LanguageModelling):
    """Continue the text.  A document has `bos` before it and `eos` behind it, where the tokenizer has these."""

    name = "causal-lm"
    does = "continues texts"
    architectures = (
        *("bloom", "deepseek", "gemma", "gpt2", "gpt_neox", "gpt_oss", "llama", "mixtral", "olmo", "olmo2"),
        *("qwen2_moe", "workbench"),
    )
    presets_by_size = ("gpt-nano", "gpt-micro", "gpt-mini", "gpt-baby", "gpt2")
    overlap = 1
    sampling: ClassVar[Mapping[str, float]] = {"temperature": TEMPERATURE}

    tokenizer: Tokenizer
    max_length: int = DEFAULT_CONTEXT
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        tokenizer, chosen = one_tokenizer(recipe, splits, start, corpus_level(splits), Framing())
        task = cls(tokenizer)
        task = replace(task, settings=merged_settings(start, task.extra_config()))
        return TaskSetup(task, tokenizer, tokenizer, chosen)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        model = parts.model
        if not isinstance(model, Trunk) or not isinstance(main_head(model.head), LMHead) or model.fills_masks:
            return None
        return cls(required_tokenizer(parts), context_for(parts), parts.extra_config)

    def extra_config(self) -> Mapping[str, Any]:
        return {"bos_token_id": self.tokenizer.bos, "eos_token_id": self.tokenizer.eos}

    # ---- learning

    @property
    def lr_factor(self) -> float:
        return 2.0 if self.tokenizer.vocab <= CHARACTERS else 1.0  # none of them is rare (docs/LOG.md)

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        return around(self.tokenizer)

    def stride(self, context: int) -> int:
        return context  # the last token of a span is predicted and not read

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> CausalBatch:
        """The last token of a row has nothing to predict; so a row of one token is left out."""
        whole = [row for (row,) in rows if len(row) > 1]
        if not whole:  # a model must read something, if only to learn nothing from it
            return CausalBatch(PackedBatch.of([rows[0][0]]), torch.empty(0, dtype=torch.int64))
        wanted = torch.from_numpy(ids(*(row[1:] for row in whole)))
        return CausalBatch(PackedBatch.of([row[:-1] for row in whole]), wanted)

    def predicted(self, model: nn.Module, batch: CausalBatch) -> TokenPrediction:
        assert isinstance(model, Trunk)
        features = model.features(batch.read.ids, batch.read.context).flatten(0, 1)
        return TokenPrediction(word_head(model.head), features[: batch.targets], batch.wanted)

    def before(self, batch: CausalBatch) -> Tensor:
        return batch.read.ids.flatten()[: batch.targets]

    # ---- evaluation by windows

    @property
    def window_frame(self) -> tuple[list[int], list[int]]:
        """Documents begin with the token that the model begins with, so that their first token is asked for, too."""
        ends = stop_condition(self.tokenizer, self.settings, GREEDY_OPTIONS).tokens
        return some(first_token(self.tokenizer, self.settings)), list(ends[:1])

    def windows(self, rows: Sequence[np.ndarray]) -> WindowBatch:
        return WindowBatch(self.collate([(row,) for row in rows], random_for()), [len(row) - 1 for row in rows])

    def right(self, predicted: TokenPrediction) -> Tensor:
        """Not asked for: perplexity is what says how good a language model is."""
        return torch.zeros_like(predicted.wanted, dtype=torch.bool)

    def scores(self, found: Sequence[DocumentLoss]) -> Scores:
        rows = [
            (run.loss, run.asked, size, one.asked)
            for one, runs in joined_runs(found)
            for run, size in zip(runs, one.shared_bytes(runs), strict=True)
        ]
        losses, asked, sizes, lengths = zip(*rows, strict=True)
        return score_texts(losses, asked, sizes, lengths, edges=LENGTH_EDGES)

    # ---- for the report

    @torch.inference_mode()
    def report_details(
        self, model: nn.Module, batches: Sequence[CausalBatch], records: Sequence[Record], found: EvalResult
    ) -> ReportDetails:
        """Scores by position, sampled continuations, and a text to trace."""
        rows = sorted((row.tolist() for row in batches[0].read.split()), key=len)
        scores = replace(found.scores, buckets=self.loss_by_position(model, batches), unit="tokens read")
        note = f"Continuations of at most {REPORT_TOKENS} tokens, sampled at temperature {TEMPERATURE}."
        traced = TracedInput("", self.tokenizer.decode(rows[-1][:TRACED_TOKENS]))
        return ReportDetails(scores, self.continuations(model, rows[-3:]), note, [traced])

    def loss_by_position(self, model: nn.Module, batches: Sequence[CausalBatch]) -> tuple[Bucket, ...]:
        """The loss by how many tokens were read before: a model that has read more should predict better."""
        runs, seen, device = list[tuple[float, int, int]](), 0, device_of(model)
        for batch in batches:
            each = self.predicted(model, to_device(batch, device)).losses().double().cpu()
            for row in each.split(batch.read.lengths) if batch.targets else ():
                parts = ((first + 1, row[first:last]) for first, last in pairwise((0, *POSITION_EDGES, sys.maxsize)))
                runs += [(part.sum().item(), len(part), first) for first, part in parts if len(part)]
            seen += batch.targets
            if seen > POSITION_TOKENS:
                break
        if not runs:
            return ()
        losses, counts, positions = zip(*runs, strict=True)
        found = score_losses(losses, counts, f"{self.target}s", ("loss", "perplexity"))
        return by_length(positions, found.statistics, edges=POSITION_EDGES)

    def continuations(self, model: nn.Module, rows: Sequence[list[int]]) -> list[Sample]:
        """How the model continues where validation texts begin, and how these go on."""
        prompts = [row[: min(PROMPT_TOKENS, max(1, len(row) // 2))] for row in rows]
        options = GenerationOptions(RandomSampler(temperature=TEMPERATURE), max_new_tokens=REPORT_TOKENS)
        found = self.job(model, prompts, options).generate(options.decoding)
        return [
            Sample(*(readable(self.tokenizer, some) for some in (prompt, one.body, row[len(prompt) :][:REPORT_TOKENS])))
            for prompt, [one], row in zip(prompts, found, rows, strict=True)
        ]
