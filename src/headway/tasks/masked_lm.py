"""Masked language modelling, as BERT does it: of the tokens that are chosen, most are masked, and all are predicted.

Only the chosen tokens go through the output layer.

Axes:  N tokens of all rows   M chosen tokens   B batch   T tokens   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.session import context_of
from headway.nn.head import word_head
from headway.nn.trunk import Trunk, device_of
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.batches import PackedBatch, Row, TextBatch, TokenPrediction, around, fitted, ids, to_device
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.language_modelling import TRACED_TOKENS, LanguageModelling, WindowBatch, own_random
from headway.tasks.model_parts import ModelParts, required_tokenizer
from headway.tasks.results import (
    SHOWN_SAMPLES,
    EvalResult,
    FilledMasks,
    MaskCandidate,
    ReportDetails,
    Sample,
    TracedInput,
)
from headway.tasks.text_tasks import DEFAULT_CONTEXT, Framing, context_for, one_tokenizer, sample_text
from headway.tasks.text_tracing import fitting_ids, own_tokens, piece, readable, reader, special, text_axes
from headway.tasks.tracing import Choices, TracedRun, TraceOptions


@dataclass(frozen=True, eq=False)
class MaskedBatch(TextBatch):
    read: PackedBatch
    chosen: Tensor  # M, places among the N
    wanted: Tensor  # M, what stood there


class MaskedRow(NamedTuple):
    """A row with some of its tokens hidden."""

    read: np.ndarray
    chosen: np.ndarray  # places in it
    wanted: np.ndarray  # what stood there


def masked_batch(rows: Sequence[MaskedRow], tokenizer: Tokenizer) -> MaskedBatch:
    starts = np.cumsum([0, *(len(row.read) for row in rows)])
    chosen = ids(*(start + row.chosen for start, row in zip(starts, rows, strict=False)))
    wanted = ids(*(row.wanted for row in rows))
    read = PackedBatch.of([row.read for row in rows], apart=tokenizer.ends_apart)
    return MaskedBatch(read, torch.from_numpy(chosen), torch.from_numpy(wanted))


@dataclass(frozen=True, eq=False)
class MaskedLM(LanguageModelling):
    """Predict what stood at a `share` of the places: 80 % of them show the mask, 10 % a random token."""

    name = "masked-lm"
    does = "fills masks in texts"
    architectures = ("bert", "albert", "deberta", "longformer", "modernbert", "xlnet")
    presets_by_size = ("bert-tiny", "bert-mini", "bert-small", "bert-medium")

    tokenizer: Tokenizer
    share: float = 0.15
    shown: tuple[float, float] = (0.8, 0.1)  # as the mask, as a random token
    max_length: int = DEFAULT_CONTEXT
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        tokenizer, chosen = one_tokenizer(recipe, splits, start, "wordpiece", Framing(bos=True, eos=True))
        if tokenizer.mask is None:
            raise UserError("this tokenizer has no mask token", do="train one here, or use data.objective causal")
        return TaskSetup(cls(tokenizer), tokenizer, tokenizer, chosen, head="words")

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        if not isinstance(parts.model, Trunk) or not parts.model.fills_masks:
            return None
        return cls(required_tokenizer(parts), max_length=context_for(parts), settings=parts.extra_config)

    # ---- learning

    def stride(self, context: int) -> int:
        return context - 1 - sum(map(len, around(self.tokenizer)))

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> MaskedBatch:
        return masked_batch([self.hidden(row, random) for (row,) in rows], self.tokenizer)

    def hidden(self, row: np.ndarray, random: np.random.Generator) -> MaskedRow:
        """A row between its frame, of which nothing is chosen; of each row one token is, at least."""
        chosen = np.flatnonzero(random.random(len(row)) < self.share)
        if len(chosen) == 0:
            chosen = random.integers(0, len(row), 1)
        inside, draw, (mask, other) = row.copy(), random.random(len(chosen)), self.shown
        inside[chosen[draw < mask]] = self.mask_token
        replaced = chosen[(draw >= mask) & (draw < mask + other)]
        inside[replaced] = random.integers(0, self.tokenizer.vocab, len(replaced))
        before, after = around(self.tokenizer)
        return MaskedRow(ids(before, inside, after), len(before) + chosen, row[chosen])

    def predicted(self, model: nn.Module, batch: MaskedBatch) -> TokenPrediction:
        assert isinstance(model, Trunk)
        read = batch.read
        features = model.features_at(batch.chosen, read.ids, read.context, *self.marks(model, read))
        return TokenPrediction(word_head(model.head), features, batch.wanted)

    def marks(self, model: Trunk, read: PackedBatch) -> tuple[Tensor, ...]:
        """What the model is told beside the ids: its segments, and of masks where it asks for them."""
        mask = self.tokenizer.mask
        return model.hiding(read.ids == (-1 if mask is None else mask), *read.marks(model))

    # ---- evaluation by windows

    def windows(self, rows: Sequence[np.ndarray]) -> WindowBatch:
        """A mask is shown wherever a token is asked for."""
        masked = replace(self, shown=(1.0, 0.0))
        hidden = [masked.hidden(row, own_random(row)) for row in rows]
        return WindowBatch(masked_batch(hidden, self.tokenizer), [len(row.wanted) for row in hidden])

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"of {self.share:.0%} of the words, which were masked",)

    # ---- use

    @property
    def mask_token(self) -> int:
        if self.tokenizer.mask is None:
            raise UserError("this model's tokenizer has no mask token", do="embed the text instead, with embed=")
        return self.tokenizer.mask

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[FilledMasks]:
        assert isinstance(model, Trunk)
        mask = self.mask_token
        known = fitted([self.masked(text) for text in inputs], context_of(model))
        rows = [row.ids for row in known]
        for text, (row, cut, _) in zip(inputs, known, strict=True):
            if mask not in row:
                spelled = self.tokenizer.token(mask)
                where = f" among its first {len(row):,} tokens, which are all that the model reads" if cut else ""
                raise UserError(f"{text[:60]!r} has no {spelled} to fill{where}", do=f"put {spelled} in")
        read = to_device(PackedBatch.of([ids(row) for row in rows], apart=self.tokenizer.ends_apart), device_of(model))
        places = (read.ids.flatten() == mask).nonzero().flatten()
        features = model.features(read.ids, read.context, *self.marks(model, read)).flatten(0, 1)[places]
        probabilities = model.head(features).softmax(-1)  # M V
        top = probabilities.topk(min(options.mask_candidates, probabilities.shape[-1]))
        found = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        for text, (row, cut, _) in zip(inputs, known, strict=True):
            masks = [next(found) for id in row if id == mask]
            best = iter([indices[0] for indices, _ in masks])
            named = tuple(
                tuple(MaskCandidate(self.spelled(id), p) for id, p in zip(*one, strict=True)) for one in masks
            )
            filled = self.tokenizer.decode([next(best) if id == mask else id for id in row])
            yield FilledMasks(text, filled, named, cut=cut)

    def masked(self, text: str) -> list[int]:
        """A text's ids between those that frame it, as in training: [CLS] and [SEP].

        Its masks are read as such also where a tokenizer takes every text literally.
        """
        if not self.tokenizer.literal:
            return self.tokenizer.encode(text)
        before, after = around(self.tokenizer)
        first, *others = self.tokenizer.plain_batch(text.split(self.tokenizer.token(self.mask_token)))
        return [*before, *first, *(id for piece in others for id in (self.mask_token, *piece)), *after]

    def example(self, splits: DataSplits, samples: Sequence[Sample]) -> str:
        """How a text of the data begins, with a mask in the place of a word."""
        *words, _ = super().example(splits, samples).split()
        return " ".join([*words, self.tokenizer.token(self.mask_token)])

    def sample_input(self, folder: Path, context: int | None) -> str:
        mask = self.tokenizer.mask
        return sample_text(self.tokenizer, context, None if mask is None else self.tokenizer.token(mask))

    def spelled(self, id: int) -> str:
        return self.tokenizer.decode([id]) or self.tokenizer.token(id)

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        """What stands behind each mask; in a text without masks, how likely each token is where it stands."""
        assert isinstance(model, Trunk)
        tokenizer, mask = self.tokenizer, self.tokenizer.mask
        read = tokenizer.encode(input) if mask is None else self.masked(input)
        read = fitting_ids(read, model, tokenizer, self.settings, options)
        masks = [at for at, id in enumerate(read) if id == mask]
        asked = masks or own_tokens(read, tokenizer)

        def whole(best: Sequence[int]) -> str:
            said = dict(zip(asked, best, strict=True))
            return tokenizer.decode([said.get(at, id) for at, id in enumerate(read)])

        known = None if masks else tuple(read[at] for at in asked)
        choices = Choices("fill", tuple(asked), known, reader(tokenizer), whole, model.head)
        one = to_device(PackedBatch.of([ids(read)], apart=tokenizer.ends_apart), device_of(model))
        marks, axes = self.marks(model, one), text_axes(read, tokenizer)
        return TracedRun(model, lambda: model.features(one.ids, one.context, *marks)[0, asked], choices, axes)

    # ---- for the report

    @torch.inference_mode()
    def report_details(
        self, model: nn.Module, batches: Sequence[MaskedBatch], records: Sequence[Record], found: EvalResult
    ) -> ReportDetails:
        """What the model fills in at the hidden places of some validation rows, and one of them to trace."""
        batch = to_device(batches[0], device_of(model))
        predicted = self.predicted(model, batch)
        filled = predicted.head(predicted.features).argmax(-1).tolist()
        rows, start, samples = [row.tolist() for row in batch.read.split()], 0, list[Sample]()
        for row in rows[:SHOWN_SAMPLES]:
            inside = [at for at, place in enumerate(batch.chosen.tolist()) if start <= place < start + len(row)]
            start += len(row)
            both = (self.listed([ids[at] for at in inside]) for ids in (filled, batch.wanted.tolist()))
            samples.append(Sample(readable(self.tokenizer, row), *both))
        apart = special(self.tokenizer)
        text = readable(self.tokenizer, [id for id in max(rows, key=len)[:TRACED_TOKENS] if id not in apart])
        note = f"Of {self.share:.0%} of the tokens, most of which are masked, the likeliest ones in order."
        return ReportDetails(found.scores, samples, note, [TracedInput("", text)])

    def listed(self, ids: Sequence[int]) -> str:
        return ", ".join(piece(self.tokenizer, id).strip() for id in ids)
