"""Speculative decoding: cheap guesses at the next tokens, read in one piece and kept as far as the model agrees.

Leviathan et al. 2023.  A guess x that was drawn with chance q(x) is kept with chance min(1, p(x) / q(x)), and replaced
by a draw from what p has above q where it is not.  So each token has the model's own distribution p; where p is
certain, as in greedy decoding, the tokens are the model's own.

Axes:  T tokens   V vocabulary
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError
from headway.generate.feed import Feed, context_of, row_of, vocab_of
from headway.generate.request import Request, Step
from headway.generate.sampling import drawn
from headway.generate.vocabulary import logprobs_at
from headway.nn.context import EMPTY, Context
from headway.nn.model import Trunk


class Guess(NamedTuple):
    """Tokens that may come next, and the chances by which they were drawn."""

    tokens: list[int]
    chances: list[Tensor]  # V each, float64


class Draft(ABC):
    """Where guesses come from."""

    ahead: int

    @abstractmethod
    def begin(self, request: Request) -> Guesser:
        """What guesses for one request."""


class Guesser(ABC):
    @abstractmethod
    def guess(self, count: int, vocab: int) -> Guess:
        """Up to `count` tokens that may come after what the request has so far."""


@dataclass(frozen=True)
class LookUp(Draft):
    """What followed the last place where the newest tokens stood before: at most `longest` of them, at least one.

    `beside` are texts to look in besides the prompt and the continuation, one for each prompt: an encoder's sources,
    where these have the same vocabulary.
    """

    ahead: int = 8
    longest: int = 3
    beside: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        counted(LookUp, ahead=self.ahead, longest=self.longest)

    def begin(self, request: Request) -> Guesser:
        return Finder(request, self.longest, self.beside[request.row] if self.beside else ())


@dataclass(frozen=True, eq=False)
class DraftModel(Draft):
    """A smaller model of the same vocabulary, which draws `ahead` tokens in the way that the request asks for."""

    model: Trunk
    ahead: int = 4
    memory: Context = EMPTY  # of the draft's own encoder, a row for each prompt

    def __post_init__(self) -> None:
        counted(DraftModel, ahead=self.ahead)
        if self.model.training:
            raise UserError("the draft model is in training mode, where dropout is on", do="call model.eval() first")

    def begin(self, request: Request) -> Guesser:
        memory = row_of(self.memory, request.row)
        return Sketcher(request, Follower(self.model, request.prompt, request.room, memory=memory))


class Finder(Guesser):
    """Keeps where each short run of tokens was last seen, so that a look costs the same however many came before."""

    def __init__(self, request: Request, longest: int, beside: Sequence[int] = ()):
        self.request, self.longest = request, longest
        self.ids = [*beside, *request.prompt]
        self.places: dict[tuple[int, ...], int] = {}  # what stands behind a run
        self.read, self.taken = 0, 0

    def guess(self, count: int, vocab: int) -> Guess:
        self.ids += self.request.tokens[self.taken :]
        self.taken = len(self.request.tokens)
        for at in range(self.read, len(self.ids)):
            self.places.update((run, at) for run in self.runs(at))
        self.read = len(self.ids)
        place = next((self.places[run] for run in self.runs(self.read) if run in self.places), self.read)
        tokens = self.ids[place : place + count]
        return Guess(tokens, [certain(token, vocab) for token in tokens])

    def runs(self, end: int) -> list[tuple[int, ...]]:
        """The runs of tokens that end before `end`, the longest first."""
        return [tuple(self.ids[end - size : end]) for size in range(min(self.longest, end), 0, -1)]


class Sketcher(Guesser):
    def __init__(self, request: Request, follower: Follower):
        self.request, self.follower = request, follower

    def guess(self, count: int, vocab: int) -> Guess:
        request, guess, model = self.request, Guess([], []), self.follower.feed.model
        if (own := vocab_of(model)) not in (None, vocab):
            said = f"a draft model of {own} words for a model of {vocab}"
            raise UserError(said, do="take a draft with the same tokenizer")
        ids, context = [*request.prompt, *request.tokens], context_of(model)
        for _ in range(count if context is None else min(count, context - len(ids) + 1)):
            (logits,) = self.follower.logits([*ids, *guess.tokens], 1)
            guess.chances.append(request.how.probabilities(request.changed(logits, guess.tokens)))
            guess.tokens.append(drawn(guess.chances[-1], request.draw))
        return guess


class Follower:
    """A model that reads one row as it grows, and is set back where the row was changed."""

    def __init__(
        self, model: Trunk, prompt: list[int], more: int, *, memory: Context = EMPTY, chunk: int | None = None
    ):
        self.feed, self.chunk = Feed(model, [prompt], more, memory=memory), chunk
        self.ids: list[int] = []  # what it has read

    def logits(self, ids: list[int], last: int) -> Tensor:
        """The logits after each of the `last` tokens of `ids`: last V."""
        same = min(len(self.ids), len(ids))
        while self.ids[:same] != ids[:same]:  # only guesses at the end can differ
            same -= 1
        start = min(same, len(ids) - last)
        if self.ids:
            self.feed.rewind(start)
        self.ids = ids
        unread = torch.tensor([ids[start:]], device=self.feed.device)
        return self.feed.head(self.feed.features(unread, self.chunk, last)[0])


def speculate(
    model: Trunk, requests: list[Request], draft: Draft, *, memory: Context = EMPTY, chunk: int | None = None
) -> Iterator[list[Step]]:
    """The steps of each request in turn: as many guesses are right as are right, so each has its own state."""
    for request in requests:
        own = row_of(memory, request.row)
        follower = Follower(model, request.prompt, request.room, memory=own, chunk=chunk)
        for step in guessed(request, follower, draft.begin(request), draft.ahead):
            yield [step]


def guessed(request: Request, follower: Follower, guesser: Guesser, ahead: int) -> Iterator[Step]:
    guess = Guess([], [])
    while True:
        ids = [*request.prompt, *request.tokens, *guess.tokens]
        logits = follower.logits(ids, len(guess.tokens) + 1)  # T V, before the first guess and after each
        for pair in verified(request, guess, logits):
            yield request.take(*pair)
            if request.reason is not None:
                return
        # a token by the model itself follows the guesses, and needs room too
        guess = guesser.guess(min(ahead, request.room - len(request.tokens) - 1), logits.shape[1])


def verified(request: Request, guess: Guess, logits: Tensor) -> list[tuple[int, float]]:
    """The guesses that are kept, then a token by the model, each with its log-probability.  Logits are T V."""
    tokens: list[int] = []
    for token, chances in zip(guess.tokens, guess.chances, strict=True):
        wanted = request.how.probabilities(request.changed(logits[len(tokens)], tokens))
        if torch.rand((), dtype=torch.float64, generator=request.draw) >= wanted[token] / chances[token]:
            tokens.append(drawn((wanted - chances.to(wanted.device)).clamp(min=0.0), request.draw))
            break
        tokens.append(token)
    else:
        wanted = request.how.probabilities(request.changed(logits[-1], tokens))
        tokens.append(drawn(wanted, request.draw))
    chosen, rows = torch.tensor(tokens, device=logits.device), logits[: len(tokens)]
    return list(zip(tokens, logprobs_at(rows, chosen[:, None])[:, 0].tolist(), strict=True))


def certain(token: int, vocab: int) -> Tensor:
    chances = torch.zeros(vocab, dtype=torch.float64)
    chances[token] = 1.0
    return chances


def counted(what: type[Draft], **counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UserError(f"{what.__name__}({name}={count})", allowed="1 or more")
