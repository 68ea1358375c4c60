"""What traces of models of texts share: tokens as a person reads them, as axes, and texts that a decoder writes.

Axes:  T tokens   N tokens that are predicted   C width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headway.data.decode_stream import BROKEN, specials
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.decoding import Job
from headway.generate.sampling import GREEDY
from headway.generate.session import context_of, vocab_of
from headway.nn.context import Context
from headway.nn.trunk import EncoderDecoder, Trunk, device_of
from headway.tasks.generation import first_token
from headway.tasks.tracing import Axes, Axis, Choices, ForcedText, TokenAxis, TracedRun, TraceOptions

SPACE = "▁"  # SentencePiece's
APOSTROPHES = ("'", "’")
BYTE_SPACE = "Ġ"  # of byte-level BPE
PIECE, WORD_END, JOINED = "##", "</w>", "@@"  # a piece within a word; a word's last piece; a piece that goes on


def tokens(name: str, ids: Sequence[int], words: Tokenizer) -> TokenAxis:
    """The pieces that ids are."""
    apart = special(words)
    marked = tuple(at for at, id in enumerate(ids) if id in apart)
    labels = tuple(map(reader(words), ids))
    spelled = [words.token(id) if id < words.vocab else "" for id in ids]
    return TokenAxis(name, labels, marked, word_starts(labels, spelled, marked, type(words.backend.model).__name__))


def word_starts(labels: Sequence[str], spelled: Sequence[str], marked: Sequence[int], model: str) -> tuple[int, ...]:
    """Where words begin, by how this kind of vocabulary marks them; special tokens and punctuation are words."""
    apart = {at for at, label in enumerate(labels) if at in marked or is_punctuation(label)}
    own = [at for at in range(len(labels)) if at not in marked]
    if model == "WordPiece":
        begins = {at for at in own if not spelled[at].startswith(PIECE)}
    elif any(spelled[at].endswith((WORD_END, JOINED)) for at in own):
        ends = any(spelled[at].endswith(WORD_END) for at in own)
        begins = {at for at in own if at == 0 or spelled[at - 1].endswith(WORD_END if ends else JOINED) == ends}
    elif model == "WordLevel" and not any(labels[at].isspace() for at in own):
        begins = set(own)
    else:
        begins = {at for at in own if labels[at][:1].isspace() or spelled[at].startswith((" ", SPACE, BYTE_SPACE))}
    return tuple(at for at in range(len(labels)) if at == 0 or at in apart or at - 1 in apart or at in begins)


def is_punctuation(label: str) -> bool:
    """An apostrophe belongs to its word."""
    return label.strip() not in ("", *APOSTROPHES) and not any(sign.isalnum() for sign in label)


def reader(words: Tokenizer) -> Callable[[int], str]:
    """`piece`, with a memory: of a long text the same few words are likely again and again."""
    return cache(partial(piece, words))


def piece(words: Tokenizer, id: int) -> str:
    """How a token reads; one that is special or only part of a letter, as the vocabulary has it; a number beyond it."""
    if id >= words.vocab:
        return f"#{id}"  # models have rows to spare
    # not `words.decode`, which mends letters over several ids at a millisecond a call
    read, spelled = words.backend.decode([id], skip_special_tokens=True), words.token(id)
    if not read or BROKEN in read:
        return spelled
    # a word's space belongs to it, and is lost where its first piece is read alone
    return f" {read}" if spelled.startswith(SPACE) and not read.startswith(" ") else read


def special(words: Tokenizer) -> frozenset[int]:
    """The tokens that are put around texts.  A mask, and what is unknown, stand for something in the text."""
    return specials(words.backend) - {words.mask, words.unk}


def readable(words: Tokenizer, ids: Iterable[int]) -> str:
    """A text with its special tokens: masks and sentinels stand among the words."""
    runs = [(apart, list(run)) for apart, run in groupby(ids, specials(words.backend).__contains__)]
    return " ".join(" ".join(map(words.token, run)) if apart else words.decode(run) for apart, run in runs).strip()


def fitting_ids(
    ids: list[int], model: nn.Module, tokenizer: Tokenizer, settings: Mapping[str, Any], options: TraceOptions
) -> list[int]:
    """The ids of a text, of which a model can read at least one and at most as many as it has positions for."""
    start = first_token(tokenizer, settings)
    ids = ids or ([] if start is None else [start])
    if not ids:
        raise UserError("an empty text, and the model has no token to begin with", do="give it a word or two")
    check_length(len(ids), (context_of(model) if isinstance(model, Trunk) else None) or options.context)
    return ids


def check_length(tokens: int, context: int | None) -> None:
    if context is not None and tokens > context:
        said = f"the text has {tokens:,} tokens and the model a context of {context:,}"
        raise UserError(said, do=f"shorten it to {context:,} tokens")


def text_axes(ids: Sequence[int], tokenizer: Tokenizer) -> Axes:
    """The axes of a model that reads one text."""
    return Axes({"": tokens("text", ids, tokenizer)})


def reread_axes(ids: Sequence[int], shifted: Sequence[int], tokenizer: Tokenizer) -> Axes:
    """Those of a model whose decoder reads the text again, behind the token that it begins with."""
    text, again = tokens("text", ids, tokenizer), tokens("text again", shifted, tokenizer)
    return Axes({"encoder": text, "decoder": again}, text, again)


def own_tokens(ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Where the tokens of the text itself stand; all, where there are no others."""
    apart = special(tokenizer)
    return [at for at, id in enumerate(ids) if id not in apart] or list(range(len(ids)))


def followed(
    prompt: list[int], own: Sequence[int], tokenizer: Tokenizer, model: Trunk, forced: ForcedText | None
) -> tuple[ForcedText, list[int]]:
    """What follows a prompt, the model's own tokens or those of another, and the tokens of both."""
    if forced is None:
        return ForcedText.of(own, tokenizer), [*prompt, *own]
    ids, context = [*prompt, *forced.ids(tokenizer, vocab_of(model))], context_of(model)
    if context is not None and len(ids) - 1 > context:  # whoever wrote it may have had more room
        said = (
            f"what {forced.by} wrote is read up to token {len(ids) - 1:,}, and the model has a context of {context:,}"
        )
        raise UserError(said, do="shorten the input, or let less be written")
    return forced, ids


class WrittenTokens(NamedTuple):
    """What a decoder begins with, the tokens that it writes behind that, and the text that these are."""

    prompt: list[int]
    tokens: Sequence[int]
    text: str


def with_prefix(job: Job, prefix: tuple[int, ...]) -> Job:
    """The same job, whose continuations begin with the ids of a prefix."""
    return replace(job, rules=replace(job.rules, prefix=known_ids(prefix, job.model))) if prefix else job


def known_ids(prefix: tuple[int, ...], model: Trunk) -> tuple[int, ...]:
    vocab = vocab_of(model)
    if unknown := [id for id in prefix if id < 0 or (vocab is not None and id >= vocab)]:
        raise UserError(f"the model has no token {unknown[0]}", allowed="the ids of its vocabulary")
    return prefix


def writing_of(make: Callable[[], Job], prefix: tuple[int, ...]) -> Callable[[], WrittenTokens]:
    """What a job writes, from a prefix on; it is made anew, its source encoded again, for each writing of its text."""

    def write() -> WrittenTokens:
        job = with_prefix(make(), prefix)
        [[found]] = job.generate(GREEDY)
        return WrittenTokens(job.prompts[0], found.tokens, job.stop.text(found.tokens))

    return write


def traced_writing(
    model: EncoderDecoder,
    source: tuple[Tensor, Context],
    tokenizer: Tokenizer,
    encoded: Axis | None,
    memory: Axis,
    options: TraceOptions,
    write: Callable[[], WrittenTokens],
) -> TracedRun:
    """An encoder–decoder with its source, and what it writes with `tokenizer`: its own tokens, or those of another.

    `encoded` are the places of its encoder, if these have a name, and `memory` those that the decoder looks at.
    """
    prompt, own, text = write()
    first = len(prompt) - 1
    forced, ids = followed(prompt, own, tokenizer, model.decoder, options.forced_text)
    target = torch.tensor([ids[:-1]], device=device_of(model))

    def call() -> Tensor:
        return model.decoder.features(target, model.remember(*source))[0, first:]  # N C

    at, label = tuple(range(first, len(ids) - 1)), reader(tokenizer)
    choices = Choices("written", at, tuple(ids[first + 1 :]), label, lambda best: write().text, model.decoder.head)
    streams: dict[str, Axis] = {"decoder": tokens("prefix", ids[:-1], tokenizer)}
    streams |= {} if encoded is None else {"encoder": encoded}
    axes = Axes(streams, memory, tokens("target", ids[1:], tokenizer))
    return TracedRun(model, call, choices, axes, text, forced_text=forced, prefix=options.prefix)
