"""How a model of a task writes: decoding jobs for continuations and for texts written from a source.

Axes:  B rows
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from headway.errors import UserError
from headway.generate.decoding import Job, join_steps
from headway.generate.option_checks import DecodingOptions
from headway.generate.request import (
    Generated,
    Interrupt,
    Step,
    Stop,
    go_on,
    max_new_tokens,
    min_new_tokens,
    rules_of,
    token_setting,
)
from headway.generate.sampling import FREE, GREEDY, Greedy, RandomSampler, Rules, Sampler
from headway.generate.session import context_of, encode_sources, vocab_of
from headway.nn.context import Context
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.tasks.batches import cut

if TYPE_CHECKING:
    from headway.data.decode_stream import DecodeStream
    from headway.data.tokenizer import Tokenizer
    from headway.generate.beam import Beam
    from headway.generate.speculative import Draft, PromptLookup

MAX_NEW_TOKENS = 64  # where neither the options nor the model say otherwise
LIMIT = "max_new_tokens"  # among the settings of a model
LONGEST_TARGETS = 1000  # by their characters, whose tokens are counted


class Hypothesis(NamedTuple):
    """A generated text with its tokens, and why it ended."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    reason: str
    score: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "output": self.text,
            "tokens": list(self.tokens),
            "logprobs": list(self.logprobs),
            "reason": self.reason,
        }


@dataclass(frozen=True, eq=False)
class GenerationOptions:
    """How to decode, where the model writes; `mask_candidates` is how many fillings of a mask to name.

    `max_new_tokens` counts rows where the answer is a table.  `draft` proposes tokens ahead: a `PromptLookup`, or a
    smaller model of the same kind and tokens.  `languages` are the source's and the target's, of a translator that
    knows several; None: as its files say.  `prompt` is what is asked about an image.  `interrupt` is called before each
    step, and may raise to end a call that nobody waits for.
    """

    decoding: Sampler | Beam = GREEDY
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    mask_candidates: int = 5
    draft: PromptLookup | nn.Module | None = None
    languages: tuple[str | None, str | None] = (None, None)
    prompt: str | None = None
    interrupt: Interrupt = field(default=go_on, repr=False)


GREEDY_OPTIONS = GenerationOptions()


def generation_options(**how: Any) -> GenerationOptions:
    """How to decode, by the names of `DecodingOptions`."""
    asked = DecodingOptions(**how)
    languages = asked.source_language, asked.target_language
    return replace(decoding_options(asked), languages=languages, prompt=asked.prompt)


def decoding_options(asked: DecodingOptions) -> GenerationOptions:
    limit, stops = asked.max_new_tokens, (asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop)
    if asked.beam is not None:
        from headway.generate.beam import BEAM, Beam

        alpha = BEAM.alpha if asked.length_penalty is None else asked.length_penalty
        best = 1 if asked.best is None else asked.best
        return GenerationOptions(Beam(asked.beam, alpha, best, early=not asked.patient), limit, stops)
    decoding: Sampler = Greedy(asked.repetition_penalty)
    if asked.samples:
        heat = 1.0 if asked.temperature is None else asked.temperature
        rest = (asked.top_k, asked.top_p, asked.min_p, asked.repetition_penalty, asked.seed)
        decoding = RandomSampler(heat, *rest)
    if not asked.lookup:
        return GenerationOptions(decoding, limit, stops, draft=asked.draft)
    from headway.generate.speculative import PromptLookup

    return GenerationOptions(decoding, limit, stops, draft=PromptLookup())


AHEAD = ("draft", "lookup")  # options of speculative decoding
LANGUAGES = ("source_language", "target_language")  # options of a translator
PROMPT = "prompt"  # that of a model that reads images among words
DECODING = tuple(field.name for field in fields(DecodingOptions))
# the options of a task that writes tokens
WRITING = tuple(name for name in DECODING if name not in (*LANGUAGES, PROMPT))


def check_useful(how: Mapping[str, Any], useful: Sequence[str], does: str) -> None:
    """Refuses options that were given to a model for which only the `useful` ones mean anything."""
    usual = {field.name: field.default for field in fields(DecodingOptions)}
    for name, value in how.items():
        if name in usual and name not in useful and value != usual[name]:
            raise UserError(f"the model {does} and has no use for {name}=", do="leave it out")


def check_draft(ours: Sequence[Tokenizer | None], theirs: Sequence[Tokenizer | None]) -> None:
    """Refuses a draft model whose tokenizers, of what is read and of what is written, are not those of the model."""
    if ours[0] is None:
        raise UserError("a draft model guesses texts, and this model reads none", do="leave draft= out")
    for mine, other in zip(ours, theirs, strict=True):
        if mine is not None and other is not None and mine.backend.get_vocab() != other.backend.get_vocab():
            raise UserError("the draft model has other tokens", do="take one with the same tokenizer")


def continuation_job(
    model: Trunk,
    prompts: list[list[int]],
    tokenizer: Tokenizer,
    settings: Mapping[str, Any],
    options: GenerationOptions,
) -> Job:
    """Continuations of prompts; `settings` are what the model's config says of its tokens."""
    draft = options.draft
    if isinstance(draft, nn.Module):
        if not isinstance(draft, Trunk):
            raise UserError("the draft model does not continue texts", do="take a smaller model of the same kind")
        from headway.generate.speculative import DraftModel

        draft = DraftModel(draft)
    stop, bos = stop_condition(tokenizer, settings, options), first_token(tokenizer, settings)
    context = context_of(model)
    reread = None if context is None else reread_tokens(context)  # a text may be longer than what is read at once
    forced = rules(model, settings)
    return Job(model, prompts, stop, forced, draft, bos=bos, reread=reread, interrupt=options.interrupt)


def reread_tokens(context: int) -> int:
    """The last tokens of a text that a model reads again where its context is full."""
    return max(1, context // 2)


def writing_job(
    model: EncoderDecoder,
    memory: Context,
    rows: int,
    tokenizer: Tokenizer,
    settings: Mapping[str, Any],
    start: Sequence[int],
    options: GenerationOptions,
    draft: Draft | None = None,
) -> Job:
    """So many texts, written after the tokens `start` with something encoded as the memory of the decoder."""
    stop = stop_condition(tokenizer, settings, options, begun=len(start))
    forced = rules(model.decoder, settings, begins=True)
    return Job(model.decoder, [list(start)] * rows, stop, forced, draft, memory, interrupt=options.interrupt)


def source_draft(options: GenerationOptions, sources: Sequence[Sequence[int]], *, same_tokens: bool) -> Draft | None:
    """What proposes tokens of answers to sources; answers often repeat what they read."""
    draft = options.draft
    if draft is None:
        return None
    from headway.generate.speculative import DraftModel, PromptLookup

    if isinstance(draft, PromptLookup):
        return replace(draft, beside=tuple(map(tuple, sources))) if same_tokens else draft
    if not isinstance(draft, EncoderDecoder):
        raise UserError("the draft model has no encoder", do="take a smaller model of the same kind")
    return DraftModel(draft.decoder, memory=encode_sources(draft, [list(source) for source in sources]))


def stop_condition(
    tokenizer: Tokenizer, settings: Mapping[str, Any], options: GenerationOptions, begun: int = 0
) -> Stop:
    """Where an answer ends; a model that begins to write by itself counts the tokens it has `begun` with."""
    ends = token_setting(settings, "eos_token_id") if "eos_token_id" in settings else (tokenizer.eos,)
    lengths = settings if begun else {}
    most = token_limit(lengths, options, begun)
    given = tuple(end for end in ends if end is not None)
    return Stop(most, given, options.stop, min_new_tokens(lengths, begun, most), tokenizer.decode, tokenizer.stream)


def token_limit(settings: Mapping[str, Any], options: GenerationOptions, begun: int = 0) -> int:
    """Tokens of an answer at most, wherever the model answers: as asked, as its settings say, or as usual."""
    return options.max_new_tokens or max_new_tokens(settings, begun, MAX_NEW_TOKENS)


def longest_target(tokenizer: Tokenizer, targets: Iterable[str], max_length: int) -> dict[str, int]:
    """The setting of how many tokens a model may write: as many as the longest target that it learns from has."""
    rows = tokenizer.encode_batch(nlargest(LONGEST_TARGETS, targets, key=len))
    return {LIMIT: max((len(cut(row, max_length)) for row in rows), default=MAX_NEW_TOKENS)}


def stored_limit(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json keeps of the limit."""
    return {LIMIT: settings[LIMIT]} if LIMIT in settings else {}


def first_token(tokenizer: Tokenizer, settings: Mapping[str, Any]) -> int | None:
    """The token that a text begins with, where there is one."""
    given = settings.get("bos_token_id")
    return tokenizer.bos if given is None else given


def rules(model: Trunk, settings: Mapping[str, Any], *, begins: bool = False) -> Rules:
    """What the model's config forces and forbids."""
    found = rules_of(settings, vocab_of(model), begins=begins)
    return FREE if found == FREE else found


def hypotheses(found: Sequence[Generated], texts: Sequence[str]) -> tuple[Hypothesis, ...]:
    return tuple(
        Hypothesis(text, one.tokens, one.logprobs, str(one.reason), one.score)
        for one, text in zip(found, texts, strict=True)
    )


class StreamedText:
    """The text of a continuation, piece by piece as its tokens come; what may begin a stop string is held back."""

    def __init__(self, stop: Stop, text: DecodeStream):
        self.stop, self.text, self.held = stop, text, ""

    def push(self, token: int) -> str:
        """What is certain now and was not before."""
        self.held += "" if token in self.stop.tokens else self.text.push(token)
        sure = self.stop.certain(self.held)
        piece, self.held = self.held[:sure], self.held[sure:]
        return piece

    def end(self) -> str:
        """What was held back, now that nothing follows."""
        held = self.held + self.text.end()
        return held[: self.stop.found(held)]


def streamed(job: Job, text: DecodeStream, options: GenerationOptions) -> Generator[str, None, Hypothesis]:
    """What a job writes for one prompt, piece by piece as it comes; in the end it returns all that was written."""
    if not isinstance(options.decoding, Sampler):
        raise UserError("a beam cannot be written as it comes", do="sample, or take the likeliest token")
    written, steps, pieces = StreamedText(job.stop, text), list[Step](), list[str]()
    with torch.inference_mode():
        for [step] in job.stream(options.decoding):
            steps.append(step)
            pieces.append(written.push(step.token))
            yield pieces[-1]
    pieces.append(written.end())
    yield pieces[-1]
    [found] = hypotheses([join_steps(steps)], ["".join(pieces)])
    return found
