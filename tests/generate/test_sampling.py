"""Each change of the logits against its definition, written out the slow way."""

from __future__ import annotations

from math import exp, inf, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.generate.decoding import generate
from headway.generate.request import Stop
from headway.generate.sampling import (
    Greedy,
    RandomSampler,
    Sampler,
    apply_temperature,
    draw_index,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
)
from tests.generate.models import MODELS, PROMPTS, built, likelihood, memory_of, subject, told
from tests.laws.subjects import Subject

# a coarse grid, so that ties occur
values = st.lists(st.integers(-12, 12).map(lambda n: n / 4), min_size=1, max_size=9)
shares = st.floats(0.01, 1.0)


def left(logits: Tensor) -> list[int]:
    """The tokens that can still be chosen."""
    return (logits > -inf).nonzero()[:, 0].tolist()


def ranked(logits: list[float]) -> list[int]:
    return sorted(range(len(logits)), key=lambda token: -logits[token])


def probabilities(logits: list[float]) -> list[float]:
    total = sum(exp(x) for x in logits)
    return [exp(x) / total for x in logits]


@pytest.mark.slow
@given(values, st.integers(1, 12))
def test_top_k(logits: list[float], count: int) -> None:
    found = keep_top_k(torch.tensor(logits), count)
    assert left(found) == sorted(ranked(logits)[:count])


@pytest.mark.slow
@given(values, shares)
def test_top_p(logits: list[float], mass: float) -> None:
    chances, kept, total = probabilities(logits), list[int](), 0.0
    for token in ranked(logits):
        if total >= mass - 1e-12:
            break
        kept.append(token)
        total += chances[token]
    borders = [sum(chances[token] for token in ranked(logits)[:n]) for n in range(len(logits))]
    if min(abs(border - mass) for border in borders) > 1e-9:  # at a border rounding decides
        assert left(keep_top_p(torch.tensor(logits), mass)) == sorted(kept)


@given(values, shares)
def test_min_p(logits: list[float], share: float) -> None:
    chances = probabilities(logits)
    if min(abs(chance / max(chances) - share) for chance in chances) > 1e-9:
        kept = [token for token, chance in enumerate(chances) if chance >= share * max(chances)]
        assert left(keep_min_p(torch.tensor(logits), share)) == kept


@pytest.mark.slow
@given(values, st.lists(st.integers(0, 8)), st.floats(0.5, 3.0))
def test_repetition(logits: list[float], seen: list[int], penalty: float) -> None:
    seen = [token for token in seen if token < len(logits)]
    expected = [x if token not in seen else x / penalty if x > 0 else x * penalty for token, x in enumerate(logits)]
    assert_close(penalise_repetition(torch.tensor(logits), seen, penalty), torch.tensor(expected))


@pytest.mark.slow
@given(values, st.floats(0.1, 5.0))
def test_temperature(logits: list[float], value: float) -> None:
    expected = torch.tensor(probabilities([x / value for x in logits]), dtype=torch.float64)
    assert_close(
        RandomSampler(temperature=value).probabilities(apply_temperature(torch.tensor(logits), value)), expected
    )


@pytest.mark.slow
@given(values)
def test_what_is_left_keeps_its_value(logits: list[float]) -> None:
    before = torch.tensor(logits)
    for after in (keep_top_k(before, 3), keep_top_p(before, 0.7), keep_min_p(before, 0.3)):
        assert_close(after[left(after)], before[left(after)], atol=0, rtol=0)
        assert int(before.argmax()) in left(after)


@pytest.mark.slow
@given(values)
def test_nothing_asked_is_the_model(logits: list[float]) -> None:
    x = torch.tensor(logits)
    for how in (RandomSampler(), RandomSampler(top_k=99, top_p=1.0, min_p=1e-9, temperature=1.0, repetition=1.0)):
        assert_close(how.probabilities(how.process(x, [0])), torch.tensor(probabilities(logits)).double())


def test_changes_follow_one_another() -> None:
    """Top-p counts the mass of what top-k has left: of 4 equal tokens 0.6 needs 3, of 2 it needs both."""
    flat = torch.zeros(4)
    assert left(RandomSampler(top_p=0.6).process(flat, [])) == [0, 1, 2]
    assert left(RandomSampler(top_p=0.6, top_k=2).process(flat, [])) == [0, 1]
    # repetition comes before temperature, and both before the cut
    logits = torch.tensor([2.0, 1.5, 0.0])
    assert left(RandomSampler(top_k=1).process(logits, [0])) == [0]
    assert left(RandomSampler(top_k=1, repetition=2.0).process(logits, [0])) == [1]
    assert Greedy(repetition=2.0).process(logits, [0]).tolist() == [1.0, 1.5, 0.0]


ONE_TOKEN = [
    RandomSampler(top_k=1, seed=3),
    RandomSampler(temperature=0.0, seed=3),
    RandomSampler(temperature=1e-300, seed=3),
    RandomSampler(top_p=1e-6, seed=3),
    RandomSampler(min_p=1.0, seed=3),
]


@pytest.mark.parametrize("subject", MODELS, ids=str)
def test_the_narrowest_sampling_is_greedy(subject: Subject) -> None:
    memory, stop = memory_of(subject, [0, 1, 2, 3]), Stop(4)
    greedy = told(generate(built(subject), PROMPTS, stop=stop, memory=memory))
    for how in ONE_TOKEN:
        assert told(generate(built(subject), PROMPTS, how, stop, memory=memory)) == greedy


def test_the_narrowest_sampling_is_greedy_among_equals() -> None:
    logits = torch.tensor([0.0, 1.0, 1.0, 1.0])
    for how in (RandomSampler(top_k=1), RandomSampler(temperature=0.0), RandomSampler(top_p=0.01), Greedy()):
        assert how.pick(how.process(logits, []), torch.Generator().manual_seed(1)) == 1
    assert Greedy().probabilities(logits).tolist() == [0.0, 1.0, 0.0, 0.0]


def test_a_repeated_token_becomes_rare() -> None:
    model = built(subject("gpt"))
    (plain,) = generate(model, [[4]], stop=Stop(12))
    (varied,) = generate(model, [[4]], Greedy(repetition=50.0), stop=Stop(12))
    assert len(set(varied.tokens)) > len(set(plain.tokens))


def test_log_probabilities_are_the_models_own() -> None:
    """Whatever is done to the logits before the choice."""
    model = built(subject("llama"))
    (one,) = generate(model, [[1, 2]], RandomSampler(temperature=0.3, top_k=3, seed=1), Stop(5))
    with torch.no_grad():
        logprobs = model(torch.tensor([[1, 2, *one.tokens]]))[0, 1:-1].log_softmax(-1)
    assert_close(torch.tensor(one.logprobs), logprobs.gather(1, torch.tensor(one.tokens)[:, None])[:, 0])


@pytest.mark.slow
def test_draws_are_as_frequent_as_their_weights() -> None:
    weights = torch.tensor([0.5, 0.0, 0.2, 0.3, 0.0], dtype=torch.float64) * 7
    draw = torch.Generator().manual_seed(0)
    counts = torch.bincount(torch.tensor([draw_index(weights, draw) for _ in range(4000)]), minlength=5)
    assert counts[[1, 4]].tolist() == [0, 0]
    assert likelihood(counts[[0, 2, 3]], torch.tensor([2000.0, 800.0, 1200.0])) > 0.01


@given(values, st.integers(1, 9))
def test_likeliest_leaves_that_many(logits: list[float], count: int) -> None:
    assert len(left(keep_top_k(torch.tensor(logits), count))) == min(count, len(logits))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"temperature": -1.0}, "temperature=-1; allowed: 0 or more"),
        ({"temperature": inf}, "temperature=inf"),
        ({"top_k": 0}, "top_k=0; allowed: 1 or more; leave it out"),
        ({"top_p": 0.0}, "top_p=0; allowed: above 0, up to 1"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"min_p": -0.1}, "min_p=-0.1"),
        ({"repetition": 0.0}, "repetition_penalty=0; allowed: a number above 0"),
    ],
)
def test_impossible_settings_are_told(settings: dict[str, float], told: str) -> None:
    with pytest.raises(UserError, match=told):
        RandomSampler(**settings)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="repetition_penalty=-1"):
        Greedy(repetition=-1.0)


def test_settings_are_values() -> None:
    assert RandomSampler(0.5, seed=1) == RandomSampler(temperature=0.5, seed=1)
    assert isinstance(hash(RandomSampler()), int)
    ways: list[Sampler] = [Greedy(), RandomSampler()]
    logits = torch.randn(4)
    assert all(way.process(logits, [0]) is logits for way in ways)
    assert log(RandomSampler().probabilities(torch.zeros(4))[0]) == pytest.approx(log(0.25))
