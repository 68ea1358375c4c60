"""Continuing texts: how the models of a task that reads and writes one text answer, as a whole and as they write.

Axes:  C width
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn

from headway.generate.decoding import Job
from headway.generate.request import Generated, Stop
from headway.generate.sampling import GREEDY
from headway.generate.session import context_of
from headway.nn.trunk import Trunk, device_of
from headway.tasks.batches import FittedRow
from headway.tasks.causal_decoder import CausalDecoder, TextDecoder
from headway.tasks.generation import (
    GREEDY_OPTIONS,
    WRITING,
    GenerationOptions,
    continuation_job,
    hypotheses,
    reread_tokens,
    streamed,
)
from headway.tasks.results import TextPrediction
from headway.tasks.text_tasks import ReadsText
from headway.tasks.text_tracing import fitting_ids, followed, reader, text_axes, with_prefix
from headway.tasks.tracing import Choices, TracedRun, TraceOptions


class ContinuesInput(ReadsText):
    """A task whose models write behind what they read; `settings` are what the model's config says of its tokens."""

    decoding = WRITING
    continues: ClassVar[bool] = True  # whether an answer is the rest of the input, and not a text of its own

    settings: Mapping[str, Any]

    def read_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """What the model reads for inputs, and writes behind."""
        return self.tokenizer.encode_batch(texts)

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[TextPrediction]:
        prompts = self.fitted_prompts(model, self.read_ids(inputs))
        job = self.job(model, [prompt.ids for prompt in prompts], options)
        for text, prompt, found in zip(inputs, prompts, job.generate(options.decoding), strict=True):
            texts = [self.following(prompt.ids, one, job.stop) for one in found]
            yield TextPrediction(text, hypotheses(found, texts), continues=self.continues, cut=prompt.cut)

    def stream(
        self, model: nn.Module, text: str, options: GenerationOptions = GREEDY_OPTIONS
    ) -> Generator[str, None, TextPrediction]:
        """What is written for one text, piece by piece as it comes; a continuation behind the text itself."""
        [(prompt, cut, _)] = self.fitted_prompts(model, self.read_ids([text]))
        if self.continues:
            yield text
        found = yield from streamed(self.job(model, [prompt], options), self.tokenizer.stream(prompt), options)
        return TextPrediction(text, (found,), continues=self.continues, cut=cut)

    def prompts(self, model: nn.Module, texts: Sequence[str]) -> list[FittedRow]:
        """The tokens of texts that are continued as they stand."""
        return self.fitted_prompts(model, self.tokenizer.encode_batch(texts))

    def fitted_prompts(self, model: nn.Module, rows: Sequence[list[int]]) -> list[FittedRow]:
        """Of a text longer than the context, as many of its last tokens as are read again where the context is full."""
        assert isinstance(model, Trunk)
        context = context_of(model)
        if context is None:
            return [FittedRow(row) for row in rows]
        last = reread_tokens(context)
        cut = f"of more than {context:,} tokens cut to the last {last:,}"
        return [FittedRow(row[-last:], cut) if len(row) > context else FittedRow(row) for row in rows]

    def job(self, model: nn.Module, prompts: list[list[int]], options: GenerationOptions) -> Job:
        assert isinstance(model, Trunk)
        return continuation_job(model, prompts, self.tokenizer, self.settings, options)

    def causal_decoder(self, model: nn.Module) -> CausalDecoder | None:
        return TextDecoder(model, self) if isinstance(model, Trunk) else None

    def following(self, prompt: list[int], found: Generated, stop: Stop) -> str:
        """The text that follows the prompt's: a word's first space belongs to it here, which it loses by itself."""
        out = self.tokenizer.stream(prompt)
        text = "".join([*(out.push(token) for token in found.body), out.end()])
        return text[: stop.found(text)]

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        """The text and its continuation, read as one: each token predicts which one follows."""
        assert isinstance(model, Trunk)
        tokenizer = self.tokenizer
        prompt = fitting_ids(self.read_ids([input])[0], model, tokenizer, self.settings, options)

        def written() -> tuple[tuple[int, ...], str]:
            most = len(options.prefix) + max(options.max_tokens, 1)
            job = with_prefix(self.job(model, [prompt], GenerationOptions(max_new_tokens=most)), options.prefix)
            job = replace(job, reread=None)  # all of it is read at once
            [[found]] = job.generate(GREEDY)
            before = input if self.continues else ""
            return found.tokens, before + self.following(prompt, found, job.stop)

        own, whole = written()
        forced, read = followed(prompt, own, tokenizer, model, options.forced_text)
        inputs, at = torch.tensor([read[:-1]], device=device_of(model)), tuple(range(len(read) - 1))
        choices = Choices("next", at, tuple(read[1:]), reader(tokenizer), lambda best: written()[1], model.head)
        axes = text_axes(read[:-1], tokenizer)
        run = TracedRun(model, lambda: model.features(inputs)[0], choices, axes, whole)
        return replace(run, forced_text=forced, prefix=options.prefix)
