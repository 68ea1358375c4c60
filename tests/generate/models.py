"""Small models that write, out of the table of the laws and a few more, and the plain way to continue a prompt."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from headway.generate.beam import BEAM, Beam
from headway.generate.decoding import Job
from headway.generate.request import STOP, Generated, Stop
from headway.nn.context import Context
from headway.nn.embed import TokenEmbed
from headway.nn.head import LMHead
from headway.nn.recurrent import LSTMCell, RecurrentEncoder
from headway.nn.trunk import Trunk
from tests.laws.subjects import DECODER, DIM, RECURRENT, VOCAB, Subject, Trait, having, mixture, tokens

PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11], [12, 13]]


def mixture_model() -> Trunk:
    return Trunk(TokenEmbed(VOCAB, DIM), mixture(), LMHead(DIM, VOCAB))


def recurrent_model() -> Trunk:
    return Trunk(TokenEmbed(VOCAB, DIM), RecurrentEncoder(DIM, DIM, cell=LSTMCell, layers=2), LMHead(DIM, VOCAB))


MODELS = [
    *(subject for subject in having(Trait.CACHED) if subject.sample is tokens and isinstance(subject.make(), Trunk)),
    Subject("mixture model", mixture_model, DECODER, tokens),
    Subject("recurrent model", recurrent_model, RECURRENT, tokens),
]
REWINDING = [subject for subject in MODELS if Trait.REWINDS in subject.traits]


@lru_cache
def built(subject: Subject) -> Trunk:
    model = subject.build()
    assert isinstance(model, Trunk)
    return model


def subject(name: str) -> Subject:
    return next(subject for subject in MODELS if subject.name == name)


def memory_of(subject: Subject, rows: list[int]) -> Context:
    """The memory of these of four sources."""
    ctx = subject.with_memory(4)
    if ctx.memory is None or ctx.memory_keep is None:
        return ctx
    return replace(ctx, memory=ctx.memory[rows], memory_keep=ctx.memory_keep[rows])


@torch.no_grad()
def next_logits(subject: Subject, ids: list[int], row: int = 0) -> Tensor:
    """The logits after `ids` (V), all of them read anew and alone."""
    return built(subject)(torch.tensor([ids]), memory_of(subject, [row]))[0, -1]


def naive(subject: Subject, prompt: list[int], row: int, most: int) -> tuple[list[int], list[float]]:
    """Greedy decoding that computes everything again at each step."""
    ids, logprobs = list(prompt), list[float]()
    for _ in range(most):
        found = next_logits(subject, ids, row).log_softmax(-1)
        ids.append(int(found.argmax()))
        logprobs.append(float(found.max()))
    return ids[len(prompt) :], logprobs


def beam_search(
    model: Trunk, prompts: list[list[int]], how: Beam = BEAM, stop: Stop = STOP, **options: Any
) -> list[list[Generated]]:
    return Job(model, prompts, stop, **options).generate(how)


def told(found: list[Generated]) -> list[tuple[int, ...]]:
    return [one.tokens for one in found]


def likelihood(counts: Tensor, expected: Tensor) -> float:
    """Pearson's test: the chance of counts at least this far from what is expected."""
    distance = ((counts - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((len(counts) - 1) / 2), distance / 2))
