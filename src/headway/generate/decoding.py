"""The decoding loop: one for recurrent and transformer decoders, with or without a memory.

    for steps in stream(model, prompts, RandomSampler(temperature=0.8), Stop(most=100, tokens=(eos,))): …
    answers = generate(model.decoder, [[bos]] * 2, Beam(4), stop, memory=encode_sources(model, sources))

Axes:  B batch   V vocabulary

A generation job: prompts, memory and stopping criteria for the decoding loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.errors import UserError
from headway.generate.beam import Beam, beam_search
from headway.generate.request import STOP, Generated, Request, Step, Stop
from headway.generate.sampling import FREE, GREEDY, Rules, Sampler
from headway.generate.session import DecodingSession, Prompts, checked_prompts, context_of, room_for, smallest
from headway.generate.speculative import Draft, speculate
from headway.nn.context import EMPTY, Context
from headway.nn.trunk import Trunk


@dataclass(frozen=True, eq=False)
class Job:
    """Prompts for a model to go on from; `memory`, `bos` and the others are the arguments of `stream`."""

    model: Trunk
    prompts: list[list[int]]
    stop: Stop
    rules: Rules
    draft: Draft | None
    memory: Context = EMPTY
    bos: int | None = None

    def found(self, how: Sampler | Beam) -> list[list[Generated]]:
        """The continuations of each prompt, the best first; one, unless a beam is asked for more."""
        model, prompts, stop = self.model, self.prompts, self.stop
        if isinstance(how, Beam) and self.draft is None:
            return beam_search(model, prompts, how, stop, memory=self.memory, bos=self.bos, rules=self.rules)
        found = generate(
            model, prompts, how, stop, memory=self.memory, bos=self.bos, draft=self.draft, rules=self.rules
        )
        return [[one] for one in found]

    def steps(self, how: Sampler) -> Iterator[list[Step]]:
        """The new tokens of each prompt, as they come."""
        model, prompts, stop = self.model, self.prompts, self.stop
        return stream(model, prompts, how, stop, memory=self.memory, bos=self.bos, draft=self.draft, rules=self.rules)


def generate(
    model: Trunk,
    prompts: Prompts,
    how: Sampler | Sequence[Sampler] | Beam = GREEDY,
    stop: Stop = STOP,
    *,
    memory: Context = EMPTY,
    bos: int | None = None,
    chunk: int | None = None,
    context: int | None = None,
    draft: Draft | None = None,
    rules: Rules = FREE,
) -> list[Generated]:
    """The continuation of each prompt; by a beam, the best one.  The arguments are those of `stream`."""
    if isinstance(how, Beam):
        if draft is not None:
            raise UserError("a beam search with a draft", allowed="a draft for Greedy or Sample")
        found = beam_search(
            model, prompts, how, stop, memory=memory, bos=bos, chunk=chunk, context=context, rules=rules
        )
        return [best[0] for best in found]
    steps = stream(
        model, prompts, how, stop, memory=memory, bos=bos, chunk=chunk, context=context, draft=draft, rules=rules
    )
    return collect(steps, len(prompts))


def stream(
    model: Trunk,
    prompts: Prompts,
    how: Sampler | Sequence[Sampler] = GREEDY,
    stop: Stop = STOP,
    *,
    memory: Context = EMPTY,
    bos: int | None = None,
    chunk: int | None = None,
    context: int | None = None,
    draft: Draft | None = None,
    rules: Rules = FREE,
) -> Iterator[list[Step]]:
    """Yields the new token of each row that is not finished, step by step.

    `how` may differ from prompt to prompt.  `memory` is the context that a decoder with cross-attention reads, from
    `encode_sources`; `bos` replaces an empty prompt; prompts are read in pieces of `chunk` tokens (chunked prefill);
    `context` limits prompt and continuation together, as a table of positions does by itself; a `draft` proposes
    tokens (speculative decoding); `rules` forbid tokens.
    """
    requests = start_requests(model, prompts, how, stop, bos, context, rules)
    if chunk is not None and chunk < 1:
        raise UserError(f"chunk={chunk}", allowed="1 or more tokens", do="leave it out to read prompts in one piece")
    if draft is not None:
        return speculate(model, requests, draft, memory=memory, chunk=chunk)
    return steps_of(model, requests, memory, chunk) if requests else iter(())


def steps_of(model: Trunk, requests: list[Request], memory: Context, chunk: int | None) -> Iterator[list[Step]]:
    more = max(request.room for request in requests) - 1
    session = DecodingSession(model, [request.prompt for request in requests], more, memory=memory)
    logits = session.prompt(chunk)
    while True:
        yield choose_tokens(requests, logits)
        going = [index for index, request in enumerate(requests) if request.reason is None]
        if not going:
            return
        if len(going) < len(requests):
            requests = [requests[index] for index in going]
            session.select(torch.tensor(going, device=session.device))
        logits = session.step(torch.tensor([request.tokens[-1] for request in requests], device=session.device))


def choose_tokens(requests: list[Request], logits: Tensor) -> list[Step]:
    """Each request chooses its next token by its row of the logits, B V."""
    logprobs = logits.log_softmax(-1)  # one fused pass: 0.10 against 0.21 ms for the logsumexp of 50k
    if logprobs[:, 0].isnan().any():  # a logit of NaN or +∞ makes a whole row NaN
        raise UserError("the model's logits are not finite", do="look for NaN or ±∞ in its weights")
    chosen = [request.choose(row) for request, row in zip(requests, logits, strict=True)]
    picked = logprobs.gather(1, torch.tensor(chosen, device=logits.device)[:, None])[:, 0].tolist()
    return [request.take(*pair) for request, *pair in zip(requests, chosen, picked, strict=True)]


def start_requests(
    model: Trunk,
    prompts: Prompts,
    how: Sampler | Sequence[Sampler],
    stop: Stop,
    bos: int | None,
    context: int | None,
    rules: Rules,
) -> list[Request]:
    context = smallest(context, context_of(model))
    rows = checked_prompts(model, prompts, bos, context)
    ways = [how] * len(rows) if isinstance(how, Sampler) else list(how)
    if len(ways) != len(rows):
        raise UserError(f"{len(ways)} ways to choose for {len(rows)} prompts", allowed="one for all, or one for each")
    return [
        Request(index, row, way, stop, room_for(len(row), stop.most, context), rules)
        for index, (row, way) in enumerate(zip(rows, ways, strict=True))
    ]


def collect(steps: Iterable[list[Step]], rows: int) -> list[Generated]:
    """The continuation of each row, from all its steps."""
    taken: list[list[Step]] = [[] for _ in range(rows)]
    for step in (step for batch in steps for step in batch):
        taken[step.row].append(step)
    return [join_steps(row) for row in taken]


def join_steps(steps: list[Step]) -> Generated:
    logprobs = tuple(step.logprob for step in steps)
    reason = steps[-1].reason
    assert reason is not None
    return Generated(tuple(step.token for step in steps), logprobs, reason, sum(logprobs))
