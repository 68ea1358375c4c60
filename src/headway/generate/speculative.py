"""Speculative decoding: drafted tokens are verified in one call of the model and kept as far as it agrees.

Leviathan et al. 2023.  A token x drafted with probability q(x) is accepted with probability min(1, p(x) / q(x)), and
otherwise replaced by a sample from max(0, p − q), normalised.  So each token has the model's own distribution p; in
greedy decoding the tokens are the model's own.

Axes:  T tokens   V vocabulary
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from headway.errors import UserError
from headway.generate.request import Interrupt, Request, Step, go_on
from headway.generate.sampling import draw_index, logprobs_at
from headway.generate.session import DecodingSession, context_of, memory_row, vocab_of
from headway.nn.context import EMPTY, Context
from headway.nn.trunk import Trunk


def speculate(
    model: Trunk,
    requests: list[Request],
    draft: Draft,
    *,
    memory: Context = EMPTY,
    chunk: int | None = None,
    interrupt: Interrupt = go_on,
) -> Iterator[list[Step]]:
    """The steps of each request in turn: the number of right guesses differs, so each has its own state."""
    for request in requests:
        own = memory_row(memory, request.row)
        session = RowSession(model, request.prompt, request.room, memory=own, chunk=chunk)
        drafter, guess = draft.begin(request), DraftTokens([], [])
        while request.reason is None:
            interrupt()
            ids = [*request.prompt, *request.tokens, *guess.tokens]
            logits = session.logits(ids, len(guess.tokens) + 1)  # T V, before the first guess and after each
            for token, logprob in verify(request, guess, logits):
                step = request.take(token, logprob)
                yield [step]
                if step.reason is not None:
                    break
            else:
                # a token by the model itself follows the guesses, and needs room too
                room = request.room - len(request.tokens) - 1
                guess = drafter.guess(min(draft.ahead, room), logits.shape[1])


def verify(request: Request, guess: DraftTokens, logits: Tensor) -> list[tuple[int, float]]:
    """The guesses that are kept, then a token by the model, each with its log-probability.  Logits are T V."""
    tokens: list[int] = []
    for token, probabilities in zip(guess.tokens, guess.probabilities, strict=True):
        wanted = request.sampler.probabilities(request.process(logits[len(tokens)], tokens))
        if torch.rand((), dtype=torch.float64, generator=request.generator) >= wanted[token] / probabilities[token]:
            tokens.append(draw_index((wanted - probabilities.to(wanted.device)).clamp(min=0.0), request.generator))
            break
        tokens.append(token)
    else:
        wanted = request.sampler.probabilities(request.process(logits[-1], tokens))
        tokens.append(draw_index(wanted, request.generator))
    chosen, rows = torch.tensor(tokens, device=logits.device), logits[: len(tokens)]
    return list(zip(tokens, logprobs_at(rows, chosen[:, None])[:, 0].tolist(), strict=True))


class DraftTokens(NamedTuple):
    """Tokens that may come next, and the probabilities by which they were drawn."""

    tokens: list[int]
    probabilities: list[Tensor]  # V each, float64


class Draft(ABC):
    """Where guesses come from."""

    ahead: int

    @abstractmethod
    def begin(self, request: Request) -> Drafter:
        """What guesses for one request."""


class Drafter(ABC):
    @abstractmethod
    def guess(self, count: int, vocab: int) -> DraftTokens:
        """Up to `count` tokens that may come after what the request has so far."""


@dataclass(frozen=True)
class PromptLookup(Draft):
    """What followed the last place where the newest tokens stood before: at most `longest` of them, at least one.

    `beside` are texts to look in besides the prompt and the continuation, one for each prompt: an encoder's sources,
    where these have the same vocabulary.
    """

    ahead: int = 8
    longest: int = 3
    beside: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        check_counts(PromptLookup, ahead=self.ahead, longest=self.longest)

    def begin(self, request: Request) -> Drafter:
        return NGramDrafter(request, self.longest, self.beside[request.row] if self.beside else ())


@dataclass(frozen=True, eq=False)
class DraftModel(Draft):
    """A smaller model of the same vocabulary, which draws `ahead` tokens in the way that the request asks for."""

    model: Trunk
    ahead: int = 4
    memory: Context = EMPTY  # of the draft's own encoder, a row for each prompt

    def __post_init__(self) -> None:
        check_counts(DraftModel, ahead=self.ahead)
        if self.model.training:
            raise UserError("the draft model is in training mode, where dropout is on", do="call model.eval() first")

    def begin(self, request: Request) -> Drafter:
        memory = memory_row(self.memory, request.row)
        return ModelDrafter(request, RowSession(self.model, request.prompt, request.room, memory=memory))


class NGramDrafter(Drafter):
    """Keeps where each short run of tokens was last seen, so that a look costs the same however many came before."""

    def __init__(self, request: Request, longest: int, beside: Sequence[int] = ()):
        self.request, self.longest = request, longest
        self.ids = [*beside, *request.prompt]
        self.places: dict[tuple[int, ...], int] = {}  # what stands behind a run
        self.read, self.taken = 0, 0

    def guess(self, count: int, vocab: int) -> DraftTokens:
        self.ids += self.request.tokens[self.taken :]
        self.taken = len(self.request.tokens)
        for at in range(self.read, len(self.ids)):
            self.places.update((run, at) for run in self.runs(at))
        self.read = len(self.ids)
        place = next((self.places[run] for run in self.runs(self.read) if run in self.places), self.read)
        tokens = self.ids[place : place + count]
        return DraftTokens(tokens, [one_hot(torch.tensor(token), vocab).double() for token in tokens])

    def runs(self, end: int) -> list[tuple[int, ...]]:
        """The runs of tokens that end before `end`, the longest first."""
        return [tuple(self.ids[end - size : end]) for size in range(min(self.longest, end), 0, -1)]


class ModelDrafter(Drafter):
    def __init__(self, request: Request, session: RowSession):
        self.request, self.session = request, session

    def guess(self, count: int, vocab: int) -> DraftTokens:
        request, guess, model = self.request, DraftTokens([], []), self.session.session.model
        if (own := vocab_of(model)) not in (None, vocab):
            given = f"a draft model of {own} words for a model of {vocab}"
            raise UserError(given, do="take a draft with the same tokenizer")
        ids, context = [*request.prompt, *request.tokens], context_of(model)
        for _ in range(count if context is None else min(count, context - len(ids) + 1)):
            (logits,) = self.session.logits([*ids, *guess.tokens], 1)
            guess.probabilities.append(request.sampler.probabilities(request.process(logits, guess.tokens)))
            guess.tokens.append(draw_index(guess.probabilities[-1], request.generator))
        return guess


class RowSession:
    """A model that reads one row as it grows, and is set back where the row was changed."""

    def __init__(
        self, model: Trunk, prompt: list[int], more: int, *, memory: Context = EMPTY, chunk: int | None = None
    ):
        self.session, self.chunk = DecodingSession(model, [prompt], more, memory=memory), chunk
        self.ids: list[int] = []  # what it has read

    def logits(self, ids: list[int], last: int) -> Tensor:
        """The logits after each of the `last` tokens of `ids`: last V."""
        same = min(len(self.ids), len(ids))
        while self.ids[:same] != ids[:same]:  # only guesses at the end can differ
            same -= 1
        start = min(same, len(ids) - last)
        if self.ids:
            self.session.rewind(start)
        self.ids = ids
        unread = torch.tensor([ids[start:]], device=self.session.device)
        if unread.shape[1] == 1:
            return self.session.step(unread[0])
        return self.session.head(self.session.features(unread, self.chunk, last)[0])


def check_counts(what: type[Draft], **counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UserError(f"{what.__name__}({name}={count})", allowed="1 or more")
