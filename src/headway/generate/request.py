"""One prompt while it is decoded: when it stops, the state it carries, its steps and its result.

`Stop` says where a continuation ends: stop tokens, stop strings, maximum length.  The functions at the end read Hugging
Face's generation_config.json.  Only what belongs to the model is read: start and stop tokens, forced and suppressed
tokens, lengths.  How tokens are chosen (beams, temperature and the like) is up to the caller.

Axes:  V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from headway.errors import UserError
from headway.generate.sampling import FREE, Rules, Sampler, forbid_tokens

LENGTHS = ("max_length", "max_new_tokens", "min_length", "min_new_tokens")
TOKENS = ("suppress_tokens", "begin_suppress_tokens")
COUNTS = (*LENGTHS, "no_repeat_ngram_size")
MASKS = (
    *(*TOKENS, "no_repeat_ngram_size"),
    *("lang_to_id", "task_to_id", "is_multilingual", "max_initial_timestamp_index", "alignment_heads"),  # Whisper's
)


class InterruptedCall(Exception):  # noqa: N818
    """Nobody waits any more for what was being written."""


Interrupt = Callable[[], None]  # called before each step; it raises `InterruptedCall` where nobody waits any more


def go_on() -> None:
    """Interrupts nothing."""


class Reason(StrEnum):
    """Why a continuation ended."""

    TOKEN = "token"  # a stop token was chosen
    STRING = "string"  # its text holds a stop string
    LENGTH = "length"  # it has the maximum number of new tokens
    CONTEXT = "context"  # the model has no more positions


class StreamDecoder(Protocol):
    """Decodes token by token, as a tokenizer's stream does; a `copy` of it goes on by itself."""

    def push(self, id: int, /) -> str: ...


@dataclass(frozen=True)
class Stop:
    """A continuation ends at a stop token, where its text holds a stop string, or after `max_new_tokens`.

    The stop token, and the tokens that complete a stop string, belong to the continuation's tokens; its `text` ends
    before them.  Before `min_new_tokens` stop tokens cannot be chosen and stop strings do not count.  Stop strings are
    searched in what `decode` makes of all new tokens; the prompt's text does not count.  With `stream`, which gives the
    same text piece by piece, a token costs the same however many came before it.
    """

    max_new_tokens: int = 64
    tokens: tuple[int, ...] = ()
    strings: tuple[str, ...] = ()
    min_new_tokens: int = 0
    decode: Callable[[Sequence[int]], str] | None = None
    stream: Callable[[], StreamDecoder] | None = None

    def __post_init__(self) -> None:
        least, most = self.min_new_tokens, self.max_new_tokens
        if most < 1:
            raise UserError(f"Stop(max_new_tokens={most})", allowed="1 new token or more")
        if not 0 <= least <= most:
            raise UserError(f"Stop(min_new_tokens={least}, max_new_tokens={most})", allowed=f"a minimum of 0 to {most}")
        if self.strings and self.decode is None:
            raise UserError("stop strings without a way to read tokens", do="pass Stop(decode=tokenizer.decode, …)")
        if "" in self.strings:
            raise UserError("an empty stop string", allowed="strings of one character or more")

    def forbidden(self, length: int) -> tuple[int, ...]:
        """The tokens that may not follow `length` new ones."""
        return self.tokens if length < self.min_new_tokens else ()

    def reason(self, tokens: Sequence[int], room: int, matched: bool) -> Reason | None:
        """Why a continuation ends here that may have `room` tokens; None: it goes on.

        `matched`: its text holds a stop string, by a `StopMatcher`.
        """
        if tokens[-1] in self.tokens:
            return Reason.TOKEN
        if matched and len(tokens) >= self.min_new_tokens:
            return Reason.STRING
        if len(tokens) >= self.max_new_tokens:
            return Reason.LENGTH
        return Reason.CONTEXT if len(tokens) >= room else None

    def found(self, text: str) -> int | None:
        """Where the first stop string begins in a text."""
        return min((text.index(string) for string in self.strings if string in text), default=None)

    def certain(self, text: str) -> int:
        """How much of a text is before any stop string, whatever follows it."""
        found = self.found(text)
        begun = (at for at in range(len(text)) if any(string.startswith(text[at:]) for string in self.strings))
        return next(begun, len(text)) if found is None else found

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a continuation, without its stop token and before its stop string."""
        if self.decode is None:
            raise UserError("text without a way to read tokens", do="pass Stop(decode=tokenizer.decode, …)")
        if tokens and tokens[-1] in self.tokens:
            tokens = tokens[:-1]
        text = self.decode(tokens)
        return text[: self.found(text)] if len(tokens) >= self.min_new_tokens else text


STOP = Stop()


class StopMatcher:
    """Matches stop strings in one continuation, token by token."""

    def __init__(self, stop: Stop):
        self.stop, self.matched = stop, False
        self.stream = stop.stream() if stop.strings and stop.stream is not None else None
        self.tail, self.reach = "", max((len(string) for string in stop.strings), default=1) - 1
        self.tokens: tuple[int, ...] = ()  # where there is no stream

    def push(self, token: int) -> bool:
        """Whether the text holds a stop string, with this token."""
        if self.matched or not self.stop.strings:
            return self.matched
        if self.stream is not None:
            text = self.tail + self.stream.push(token)
        else:
            assert self.stop.decode is not None
            self.tokens = (*self.tokens, token)
            text = self.stop.decode(self.tokens)
        self.matched = self.stop.found(text) is not None
        self.tail = text[max(len(text) - self.reach, 0) :]  # all that a string which ends later could begin in
        return self.matched

    def fork(self) -> StopMatcher:
        """A copy that goes on by itself, as beams do."""
        other = copy(self)
        other.stream = copy(self.stream)
        return other


class Step(NamedTuple):
    """A new token of one row."""

    row: int  # which of the prompts
    token: int
    logprob: float  # by the model itself, before any change of its logits
    reason: Reason | None  # why the row ends with it; None: it goes on


@dataclass(frozen=True)
class Generated:
    """A continuation: its tokens with a stop token at the end where it has one, and the model's log-probabilities."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    reason: Reason
    score: float  # what continuations of one prompt are ordered by: the sum of logprobs unless a beam says otherwise

    @property
    def body(self) -> tuple[int, ...]:
        """The tokens without the stop token."""
        return self.tokens[:-1] if self.reason is Reason.TOKEN else self.tokens


@dataclass
class Request:
    """One row while it is being continued."""

    row: int
    prompt: list[int]
    sampler: Sampler
    stop: Stop
    room: int  # new tokens at most
    rules: Rules = FREE
    tokens: list[int] = field(default_factory=list[int])
    reason: Reason | None = None

    def __post_init__(self) -> None:
        self.generator, self.matcher = torch.Generator().manual_seed(self.sampler.seed), StopMatcher(self.stop)

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.tokens)

    @property
    def ids(self) -> list[int]:
        """The prompt and all new tokens."""
        return [*self.prompt, *self.tokens]

    def process(self, logits: Tensor, ahead: Sequence[int] = ()) -> Tensor:
        """The processed logits (V) of the next token, after the tokens `ahead`."""
        length, seen = len(self.tokens) + len(ahead), [*self.ids, *ahead]
        logits = forbid_tokens(logits, self.stop.forbidden(length))
        if self.rules is not FREE:
            ids = torch.tensor([seen], device=logits.device)
            logits = self.rules.masked(logits[None], length, [self.room], ids)[0]
        return self.sampler.process(logits, seen)

    def take(self, token: int, logprob: float) -> Step:
        """Appends a token."""
        self.tokens.append(token)
        self.reason = self.stop.reason(self.tokens, self.room, self.matcher.push(token))
        return Step(self.row, token, logprob, self.reason)


def is_setting(name: str) -> bool:
    """Whether this entry of a generation_config.json is taken."""
    return name in (*LENGTHS, *MASKS) or name.endswith("_token_id")


def generation_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a generation_config.json about the model's own tokens, lengths and masks."""
    return {name: value for name, value in values.items() if is_setting(name)}


def rules_of(settings: Mapping[str, Any], vocab: int | None, *, begins: bool) -> Rules:
    """The rules in a model's settings; those of the first token hold where the model `begins` a text itself."""

    def known(name: str) -> tuple[int, ...]:
        tokens = token_setting(settings, name)
        return tuple(token for token in tokens if token >= 0 and (vocab is None or token < vocab))

    return Rules(
        first=known("forced_bos_token_id") if begins else (),
        last=known("forced_eos_token_id"),
        never=known("suppress_tokens"),
        not_first=known("begin_suppress_tokens"),
        no_repeat=count_setting(settings, "no_repeat_ngram_size") or 0,
    )


def begin_of(settings: Mapping[str, Any], bos: int | None) -> int:
    """The token that a text is written after: as the settings say, or else `bos`, the tokenizer's."""
    starts = (*token_setting(settings, "decoder_start_token_id"), *token_setting(settings, "bos_token_id"))
    begin = next(iter(starts), bos)
    if begin is None:
        raise UserError(
            "the model does not say with which token it begins to write",
            do="set decoder_start_token_id in its config.json, or take a tokenizer with a first token, such as <s>",
        )
    return begin


def check_settings(settings: Mapping[str, Any], place: str) -> None:
    """Refuses counts and tokens that are none, heeded or not; `place` is the file they are from."""
    for name in settings:
        if name in COUNTS:
            count_setting(settings, name, place)
        elif name in TOKENS or name.endswith("_token_id"):
            token_setting(settings, name, place)


def token_setting(settings: Mapping[str, Any], name: str, place: str = "the model's settings") -> tuple[int, ...]:
    """A setting that is no token, one or several."""
    value = settings.get(name)
    found = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in found):
        raise UserError(f"{place}: {name} is {value!r:.60}", allowed="a token's number, or a list of them")
    return tuple(found)


def count_setting(settings: Mapping[str, Any], name: str, place: str = "the model's settings") -> int | None:
    value, least = settings.get(name), 1 if name == "max_new_tokens" else 0
    if value is not None and not (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        raise UserError(f"{place}: {name} is {value!r:.60}", allowed=f"a whole number, {least} or more")
    return value


def max_new_tokens(settings: Mapping[str, Any], prompt: int, otherwise: int) -> int:
    """The maximum number of new tokens after a prompt, where the caller gives none."""
    new, whole = count_setting(settings, "max_new_tokens"), count_setting(settings, "max_length")
    return max(new or (otherwise if whole is None else whole - prompt), 1)


def min_new_tokens(settings: Mapping[str, Any], prompt: int, most: int) -> int:
    """The minimum number of new tokens, at most `most`."""
    new, whole = count_setting(settings, "min_new_tokens"), count_setting(settings, "min_length")
    return min(max(new or 0, (whole or 0) - prompt), most)
