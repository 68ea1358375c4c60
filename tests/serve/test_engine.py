"""Requests that are served together are answered as each would be alone, and leave nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.pool import DecodingPool
from headway.generate.request import Reason
from headway.generate.sampling import RandomSampler
from headway.model import Model
from headway.nn.state import FixedState
from headway.serve.engine import (
    MAX_PREFIXES,
    Engine,
    GenerationRequest,
    Overloaded,
    PrefixCache,
    Ticket,
    TokenEvent,
)
from headway.serve.serve_options import EngineLimits
from headway.tasks.generation import GenerationOptions
from headway.zoo import gpt2, llama, workbench
from tests.cli.folders import TEXTS, made, words

SIZES: dict[str, Any] = {"dim": 16, "layers": 2, "heads": 2, "hidden": 32}
CONTEXT = 48


def gpt() -> Model:
    known = words("characters")
    return made("gpt2", gpt2.Config(vocab=known.vocab, context=CONTEXT, **SIZES), known, {})


def llama_model() -> Model:
    known = words("wordpiece")
    return made("llama", llama.Config(vocab=known.vocab, kv_heads=1, **SIZES), known, {})


def gru() -> Model:
    known = words("words")
    return made(
        "workbench", workbench.Config(vocab=known.vocab, mixer="gru", positions="sinusoidal", **SIZES), known, {}
    )


MODELS = {"gpt2": gpt, "llama": llama_model, "gru": gru}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]()


@pytest.fixture
def engine(model: Model) -> Iterator[Engine]:
    made = Engine(model, EngineLimits(slots=3, queue=40, context=CONTEXT, chunk=5))
    yield made
    made.close(drain=False)


def tokenizer(model: Model) -> Tokenizer:
    assert model.tokenizer is not None
    return model.tokenizer


def requests(model: Model, count: int) -> list[tuple[str, GenerationOptions]]:
    random, found = Random(count), list[tuple[str, GenerationOptions]]()
    for at in range(count):
        text = " ".join(random.choice(TEXTS).split()[: random.randint(1, 5)])
        sampler = RandomSampler(temperature=0.8, seed=at) if at % 3 else GenerationOptions().decoding
        found.append((text, GenerationOptions(sampler, random.randint(1, 12), ("at", "zz") if at % 4 == 0 else ())))
    return found


def asked(engine: Engine, model: Model, text: str, options: GenerationOptions, top: int = 0) -> Ticket:
    return engine.submit(GenerationRequest(tuple(tokenizer(model).encode(text)), options, top))


def text_of(events: Sequence[TokenEvent]) -> str:
    return "".join(event.text for event in events)


@pytest.mark.slow
def test_answers_are_those_of_each_request_alone(engine: Engine, model: Model) -> None:
    """Texts, tokens, reasons; and log-probabilities to what sums in another order give."""
    given = requests(model, 24)
    answers = [list(ticket) for ticket in [asked(engine, model, *one) for one in given]]
    for (text, options), events in zip(given, answers, strict=True):
        [expected] = model.predict([text], options)[0].hypotheses
        assert [event.token for event in events] == list(expected.tokens)
        assert text_of(events) == expected.text
        assert events[-1].reason == Reason(expected.reason)
        assert [event.logprob for event in events] == pytest.approx(list(expected.logprobs), abs=5e-6)


def test_the_same_prompt_again_reads_only_its_last_token(engine: Engine, model: Model) -> None:
    text, options = TEXTS[3], GenerationOptions(max_new_tokens=6)
    first = asked(engine, model, text, options)
    expected = list(first)
    again = asked(engine, model, text, options)
    assert [event[:1] for event in again] == [event[:1] for event in expected]
    prompt = len(first.request.prompt)
    assert first.cached_tokens == 0
    assert again.cached_tokens in (prompt - 1, 0)
    carried = bool(engine.pool.state.carried)  # a recurrent state cannot be set back to before its last token
    assert (again.cached_tokens == 0) == carried


@pytest.mark.slow
def test_a_beginning_that_several_share_is_read_once(engine: Engine, model: Model) -> None:
    """Those that come later wait for it, where a state can be cut; each then reads the rest of its own."""
    begun, options = [2 + at % 7 for at in range(40)], GenerationOptions(max_new_tokens=3)
    tickets = [engine.submit(GenerationRequest((*begun, end), options)) for end in (2, 3, 4)]
    for end, ticket in zip((2, 3, 4), tickets, strict=True):
        job = engine.decoder.job([[*begun, end]], options)
        assert tuple(event.token for event in ticket) == job.generate()[0][0].tokens
    carried = bool(engine.pool.state.carried)
    assert [ticket.cached_tokens for ticket in tickets] == ([0, 0, 0] if carried else [0, 40, 40])


def test_likeliest_tokens_are_told(engine: Engine, model: Model) -> None:
    for event in asked(engine, model, "the cat", GenerationOptions(max_new_tokens=5), top=3):
        assert len(event.top) == 3
        assert event.top[0] == (event.token, pytest.approx(event.logprob))
        assert [p for _, p in event.top] == sorted((p for _, p in event.top), reverse=True)


def test_it_is_read_in_an_event_loop(engine: Engine, model: Model) -> None:
    options = GenerationOptions(max_new_tokens=5)

    async def answered(text: str) -> list[TokenEvent]:
        return [event async for event in asked(engine, model, text, options).events()]

    async def several() -> list[list[TokenEvent]]:
        return await asyncio.gather(*map(answered, TEXTS))

    for text, events in zip(TEXTS, asyncio.run(several()), strict=True):
        assert text_of(events) == model.predict(text, options).output


def settled(engine: Engine) -> None:
    while engine.running or engine.waiting:
        threading.Event().wait(0.002)


@pytest.mark.slow
def test_who_leaves_frees_its_row(engine: Engine, model: Model) -> None:
    options = GenerationOptions(max_new_tokens=30)
    tickets = [asked(engine, model, "a dog", options) for _ in range(12)]
    for ticket in tickets[::2]:
        next(iter(ticket))
        ticket.cancel()
        ticket.cancel()
    for ticket in tickets[1::2]:
        assert text_of(list(ticket)) == model.predict("a dog", options).output
    settled(engine)
    assert engine.pool.rows == 0


def test_what_does_not_fit_is_refused(model: Model) -> None:
    engine = Engine(model, EngineLimits(slots=1, queue=1, context=CONTEXT))
    held = threading.Event()
    choose = Ticket.choose

    def waits(self: Ticket, logits: Tensor, logprobs: Tensor) -> None:
        held.wait()
        choose(self, logits, logprobs)

    try:
        Ticket.choose = waits  # type: ignore[method-assign]
        first = asked(engine, model, "the", GenerationOptions(max_new_tokens=2))
        while not engine.running:
            threading.Event().wait(0.002)
        second = asked(engine, model, "a", GenerationOptions(max_new_tokens=2))
        with pytest.raises(Overloaded) as refused:
            asked(engine, model, "a", GenerationOptions(max_new_tokens=2))
        assert refused.value.retry_after == 2
        second.cancel()  # whoever waits and leaves makes room
        third = asked(engine, model, "a", GenerationOptions(max_new_tokens=2))
    finally:
        held.set()
        Ticket.choose = choose  # type: ignore[method-assign]
    assert [len(list(ticket)) for ticket in (first, third)] == [2, 2]
    engine.close(drain=True)


def test_a_prompt_longer_than_the_context_is_told(engine: Engine, model: Model) -> None:
    with pytest.raises(UserError, match=f"has {CONTEXT + 1} tokens and the model a context of {CONTEXT}"):
        engine.submit(GenerationRequest((1,) * (CONTEXT + 1)))


def test_without_a_limit_it_goes_on_until_the_context_is_full(engine: Engine, model: Model) -> None:
    ticket = engine.submit(GenerationRequest((1, 2, 3), GenerationOptions()))
    ticket.request.stop = replace(ticket.request.stop, tokens=())
    events = list(ticket)
    assert len(events) <= CONTEXT - 3 + 1
    if events[-1].reason is not Reason.TOKEN:
        assert (len(events), events[-1].reason) == (CONTEXT - 3 + 1, Reason.CONTEXT)


@pytest.mark.slow
def test_it_drains_or_ends_at_once(model: Model) -> None:
    options = GenerationOptions(max_new_tokens=8)
    engine = Engine(model, EngineLimits(slots=2, queue=9, context=CONTEXT))
    tickets = [asked(engine, model, text, options) for text in TEXTS]
    engine.close(drain=True)
    assert not engine.thread.is_alive()
    for text, ticket in zip(TEXTS, tickets, strict=True):
        assert text_of(list(ticket)) == model.predict(text, options).output
    with pytest.raises(Overloaded):
        asked(engine, model, "a", options)
    engine = Engine(model, EngineLimits(slots=1, queue=9, context=CONTEXT))
    tickets = [asked(engine, model, text, options) for text in TEXTS]
    engine.close(drain=False)
    with pytest.raises(RuntimeError, match="the engine was closed"):
        list(tickets[-1])


def test_one_that_fails_does_not_fail_the_others(engine: Engine, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    read = DecodingPool.read

    def poisoned(self: DecodingPool, pieces: Sequence[Sequence[int]], memories: Any) -> Tensor:
        logits = read(self, pieces, memories).clone()
        rows = [ticket for ticket, piece in zip(engine.rows, pieces, strict=True) if piece]
        logits[[at for at, ticket in enumerate(rows) if ticket.request.sampler.seed == 7]] = torch.nan
        return logits

    monkeypatch.setattr(DecodingPool, "read", poisoned)
    options = GenerationOptions(max_new_tokens=6)
    bad = replace(options, decoding=RandomSampler(seed=7))
    tickets = [asked(engine, model, "a cat", one) for one in (options, bad, options)]
    with pytest.raises(UserError, match="not finite"):
        list(tickets[1])
    for ticket in (tickets[0], tickets[2]):
        assert text_of(list(ticket)) == model.predict("a cat", options).output
    settled(engine)


def test_prefixes_are_bounded_and_the_oldest_are_dropped(model: Model) -> None:
    engine = Engine(model, EngineLimits(slots=1, queue=99, context=CONTEXT, prefix_bytes=20_000))
    for ticket in [asked(engine, model, text, GenerationOptions(max_new_tokens=3)) for text in TEXTS * 2]:
        list(ticket)
    engine.close(drain=True)
    assert 0 < engine.prefixes.size <= 20_000
    assert engine.prefixes.size == sum(size for _, size in engine.prefixes.entries.values())
    assert PrefixCache(10).longest([1, 2, 3]) is None


def test_prefixes_are_no_more_than_a_prompt_can_be_compared_with() -> None:
    known = PrefixCache(2**20)
    for first in range(MAX_PREFIXES + 5):
        known.add((first, 1), FixedState(2))
    assert list(known.entries) == [(first, 1) for first in range(5, MAX_PREFIXES + 5)]


@pytest.mark.parametrize(("name", "least"), [("slots", 1), ("queue", 0), ("context", 2), ("chunk", 1)])
def test_limits_are_checked(name: str, least: int) -> None:
    with pytest.raises(UserError, match=f"{name}={least - 1}"):
        EngineLimits(**{name: least - 1})


@pytest.mark.slow
def test_requests_in_any_order_give_the_same(model: Model) -> None:
    """With more rows than one, chunks of any size and no prefix cache."""
    given = requests(model, 10)
    told = list[list[tuple[int, ...]]]()
    for slots, chunk, prefix in ((1, 1, 0), (2, 3, 0), (8, 64, 2**20)):
        engine = Engine(model, EngineLimits(slots, 40, CONTEXT, chunk, prefix))
        order = list(range(len(given)))
        Random(slots).shuffle(order)
        tickets = {at: asked(engine, model, *given[at]) for at in order}
        told.append([tuple(event.token for event in tickets[at]) for at in range(len(given))])
        engine.close(drain=True)
    assert told[0] == told[1] == told[2]
    assert len(list(islice(told[0], 10))) == 10
