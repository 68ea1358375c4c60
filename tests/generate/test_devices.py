"""Decoders of the table on a simulated device: what they write, by every way of decoding, is what the CPU writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from headway.generate.beam import Beam
from headway.generate.decoding import Job
from headway.generate.pool import DecodingPool
from headway.generate.request import Generated, Stop
from headway.generate.sampling import GREEDY, RandomSampler, Rules
from headway.generate.session import DecodingSession
from headway.generate.speculative import DraftModel, PromptLookup
from headway.nn.state import FixedState
from headway.nn.trunk import Trunk, device_of
from headway.tasks.batches import to_device
from tests.generate.models import MODELS, PROMPTS, REWINDING, memory_of
from tests.laws.subjects import Subject
from tests.simulated_device import moved, simulated_device

STOP = Stop(6, tokens=(3,))


def written(subject: Subject, model: Trunk, how: Any, **options: Any) -> list[list[Generated]]:
    memory = to_device(memory_of(subject, list(range(len(PROMPTS)))), device_of(model))
    return Job(model, PROMPTS, STOP, memory=memory, **options).generate(how)


def pooled(subject: Subject, model: Trunk) -> list[float]:
    """Two rows of a serving pool, after a step."""
    pool = DecodingPool(model, 2, 16)
    for prompt in PROMPTS[:2]:
        session = DecodingSession(model, [prompt], 4)
        session.prompt()
        pool.join((session.state, len(prompt)))
    return pool.read([[1], [2]]).flatten().tolist()


WAYS: dict[str, Callable[[Subject, Trunk], Any]] = {
    "greedy": lambda subject, model: written(subject, model, GREEDY),
    "chunked": lambda subject, model: written(subject, model, GREEDY, chunk=2),
    "sampled": lambda subject, model: written(subject, model, RandomSampler(temperature=0.8, top_p=0.9, seed=1)),
    "ruled": lambda subject, model: written(subject, model, GREEDY, rules=Rules(never=(4,), no_repeat=2)),
    "beam": lambda subject, model: written(subject, model, Beam(3, best=2)),
}
AHEAD: dict[str, Callable[[Subject, Trunk], Any]] = {
    "prompt lookup": lambda subject, model: written(subject, model, GREEDY, draft=PromptLookup(3)),
    "draft model": lambda subject, model: written(
        subject, model, RandomSampler(seed=2), draft=DraftModel(model, 3, drafted(subject, model))
    ),
}


def drafted(subject: Subject, model: Trunk) -> Any:
    return to_device(memory_of(subject, list(range(len(PROMPTS)))), device_of(model))


def cases() -> Iterator[Any]:
    drafting = [one for one in REWINDING if one.name not in ("shared", "zoo clip text")]  # their heads give other words
    for subjects, ways in ((MODELS, WAYS), (drafting, AHEAD)):
        yield from (pytest.param(one, way, id=f"{one.name} {name}") for one in subjects for name, way in ways.items())


def assert_same(subject: Subject, way: Callable[[Subject, Trunk], Any]) -> None:
    here, there = subject.build(), subject.build()
    assert isinstance(here, Trunk)
    expected = way(subject, here)
    with simulated_device():
        found = way(subject, moved(there))  # type: ignore[arg-type]
    for mine, other in zip(found, expected, strict=True):
        for one, two in zip(mine, other, strict=True):
            assert one.tokens == two.tokens
            assert one.logprobs == pytest.approx(two.logprobs, abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("subject", "way"), cases())
def test_what_is_written_is_the_same(subject: Subject, way: Callable[[Subject, Trunk], Any]) -> None:
    assert_same(subject, way)


@pytest.mark.long
def test_a_pool_of_rows_is_the_same() -> None:
    subject = next(one for one in MODELS if memory_of(one, [0]).memory is None and one in REWINDING)
    here, there = subject.build(), subject.build()
    assert isinstance(here, Trunk)
    expected = pooled(subject, here)
    with simulated_device():
        assert pooled(subject, moved(there)) == pytest.approx(expected, abs=1e-5)  # type: ignore[arg-type]


@pytest.mark.long
def test_a_cache_on_the_cpu_is_found() -> None:
    def here(state: FixedState, owner: Any, positions: Any, *new: Any) -> Any:
        return append(state, owner, positions, *(x.cpu() for x in new))

    append, subject = FixedState.append, REWINDING[0]
    model = moved(subject.build())
    with (
        simulated_device(),
        patch.object(FixedState, "append", here),
        pytest.raises(RuntimeError, match=r"both|same device type"),
    ):
        written(subject, model, GREEDY)  # type: ignore[arg-type]
