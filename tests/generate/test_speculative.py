"""Guesses change how fast tokens come, and nothing else."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from headway.errors import UserError
from headway.generate.decoding import Job, generate
from headway.generate.request import Request, Stop
from headway.generate.sampling import Greedy, RandomSampler, Sampler
from headway.generate.session import DecodingSession
from headway.generate.speculative import Draft, DraftModel, PromptLookup
from headway.nn.block import Stack
from headway.nn.embed import TokenEmbed
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk
from tests.generate.models import MODELS, PROMPTS, REWINDING, built, likelihood, memory_of, subject, told
from tests.laws.subjects import CONTEXT, Subject

pytestmark = pytest.mark.slow

STOP = Stop(10, tokens=(3,))


def drafts() -> list[tuple[Draft, int | None]]:
    """Each with the size of the pieces in which prompts are read."""
    return [
        (PromptLookup(), None),
        (PromptLookup(ahead=1, longest=1), 2),
        (DraftModel(built(subject("window")), ahead=3), None),
        (DraftModel(built(subject("gpt")), ahead=5), 3),
    ]


@pytest.mark.parametrize("subject", [s for s in REWINDING if not s.name.startswith(("zoo", "shared"))], ids=str)
def test_guesses_leave_greedy_tokens_as_they_are(subject: Subject) -> None:
    memory, how = memory_of(subject, [0, 1, 2, 3]), Greedy(repetition=1.2)
    plain = generate(built(subject), PROMPTS, how, STOP, memory=memory)
    for draft, chunk in drafts():
        found = generate(built(subject), PROMPTS, how, STOP, memory=memory, draft=draft, chunk=chunk)
        assert [(one.tokens, one.reason) for one in found] == [(one.tokens, one.reason) for one in plain]
        for one, other in zip(found, plain, strict=True):
            assert_close(torch.tensor(one.logprobs), torch.tensor(other.logprobs), atol=1e-5, rtol=0)


def test_a_model_that_agrees_with_itself_reads_in_leaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 tokens by guesses of 3: one for the prompt, then 4 at a time; the draft reads one by one."""
    model, calls, features = built(subject("llama")), list[int](), DecodingSession.features
    monkeypatch.setattr(DecodingSession, "features", lambda *given: calls.append(given[1].shape[1]) or features(*given))
    generate(model, [[1, 2]], stop=Stop(17), draft=DraftModel(subject("llama").build(), ahead=3))  # type: ignore[arg-type]
    assert sum(calls) <= 2 * (2 + 17)  # nothing is read twice
    assert sum(1 for length in calls if length >= 4) == 4


def test_a_sample_with_a_draft_that_agrees_is_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = list[int]()
    monkeypatch.setattr(DecodingSession, "rewind", lambda feed, length: lost.append(feed.read - length))
    draft = DraftModel(subject("llama").build(), ahead=3)  # type: ignore[arg-type]
    generate(built(subject("llama")), [[1, 2]], RandomSampler(seed=4), Stop(17), draft=draft)
    assert set(lost) == {0}


# ---- distributions

WORDS = 4


def bigrams(seed: int) -> Trunk:
    """A model whose next token depends on the last alone."""
    torch.manual_seed(seed)
    model = Trunk(TokenEmbed(WORDS, 6), Stack([]), LMHead(6, WORDS)).eval()
    with torch.no_grad():
        model.head.weight.normal_(std=0.7)  # type: ignore[union-attr]
    return model


def chance_of(model: Trunk, how: Sampler, prompt: list[int], tokens: tuple[int, ...]) -> float:
    chance, ids = 1.0, list(prompt)
    for token in tokens:
        with torch.no_grad():
            logits = model(torch.tensor([ids]))[0, -1]
        chance *= float(how.probabilities(how.process(logits, ids))[token])
        ids.append(token)
    return chance


@pytest.mark.parametrize(
    "way", [RandomSampler(), RandomSampler(temperature=0.7, top_k=3, repetition=1.3)], ids=["plain", "changed"]
)
@pytest.mark.parametrize("draft", [DraftModel(bigrams(1), ahead=2), PromptLookup(ahead=2), DraftModel(bigrams(0), 3)])
def test_guesses_leave_the_distribution_as_it_is(way: RandomSampler, draft: Draft) -> None:
    """Three tokens of a small vocabulary, drawn by many seeds, against the chance of each triple."""
    model, prompt, runs = bigrams(0), [0, 1, 2, 0, 1], 500
    hows = [RandomSampler(way.temperature, way.top_k, repetition=way.repetition, seed=seed) for seed in range(runs)]
    counts = Counter(told(generate(model, [prompt] * runs, hows, Stop(3), draft=draft)))
    expected = {tokens: runs * chance_of(model, way, prompt, tokens) for tokens in product(range(WORDS), repeat=3)}
    assert all(expected[tokens] > 0 for tokens in counts)
    often = [tokens for tokens, number in expected.items() if number >= 5]
    rest = runs - sum(expected[tokens] for tokens in often), runs - sum(counts[tokens] for tokens in often)
    seen = torch.tensor([*(counts[tokens] for tokens in often), rest[1]], dtype=torch.float64)
    hoped = torch.tensor([*(expected[tokens] for tokens in often), rest[0]], dtype=torch.float64)
    assert likelihood(seen[hoped > 1], hoped[hoped > 1]) > 0.01


def test_a_wrong_distribution_would_be_seen() -> None:
    """The draft's own draws, taken as they are, fail the test above by far."""
    model, draft, runs, how = bigrams(0), bigrams(1), 1500, RandomSampler()
    hows = [RandomSampler(seed=seed) for seed in range(runs)]
    counts = Counter(told(generate(draft, [[1]] * runs, hows, Stop(1))))
    seen = torch.tensor([counts[(token,)] for token in range(WORDS)], dtype=torch.float64)
    hoped = torch.tensor([runs * chance_of(model, how, [1], (token,)) for token in range(WORDS)], dtype=torch.float64)
    assert likelihood(seen, hoped) < 1e-6


def test_a_sample_is_its_own_whatever_is_beside_it() -> None:
    model, draft = built(subject("llama")), DraftModel(built(subject("window")), ahead=3)
    hows = [RandomSampler(seed=seed) for seed in range(4)]
    found = told(generate(model, PROMPTS, hows, STOP, draft=draft))
    assert found[::-1] == told(generate(model, PROMPTS[::-1], hows[::-1], STOP, draft=draft))
    assert found[1:2] == told(generate(model, PROMPTS[1:2], hows[1], STOP, draft=draft))


# ---- ends


def continued(ids: list[int], longest: int) -> list[int]:
    """What followed the last earlier place of the newest tokens: of `longest` of them, or as many as are found."""
    for size in range(min(longest, len(ids) - 1), 0, -1):
        for start in range(len(ids) - size - 1, -1, -1):
            if ids[start : start + size] == ids[-size:]:
                return ids[start + size :]
    return []


def guesses(ids: list[int], longest: int, given: int, beside: tuple[int, ...] = ()) -> list[int]:
    """What is guessed after `ids`, of which all but the first `given` come token by token."""
    request = Request(0, ids[:given], Greedy(), Stop(), 64)
    finder = PromptLookup(99, longest, (beside,)).begin(request)
    for token in ids[given:]:
        finder.guess(99, 10)
        request.take(token, 0.0)
    return finder.guess(99, 10).tokens


def test_looking_up() -> None:
    assert guesses([1, 2, 3, 9, 1, 2, 3, 7, 5, 2, 3], 3, 4) == [7, 5, 2, 3]  # of (2, 3) the last place
    assert guesses([1, 2, 3, 9, 1, 2, 3], 3, 1) == [9, 1, 2, 3]
    assert guesses([1, 1, 1], 2, 2) == [1]
    assert guesses([1, 2, 3], 3, 2) == guesses([1], 3, 1) == []
    assert guesses([4, 7], 3, 1, beside=(5, 7, 8)) == [8, 4, 7]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.integers(1, 4), st.data())
def test_places_are_kept_as_they_would_be_found(ids: list[int], longest: int, data: st.DataObject) -> None:
    assert guesses(ids, longest, data.draw(st.integers(1, len(ids)))) == continued(ids, longest)


def test_the_context_holds_with_guesses() -> None:
    gpt, prompt = built(subject("gpt")), [[1, 2] * (CONTEXT // 2 - 2)]
    plain = generate(gpt, prompt, stop=Stop(20))
    for draft in (PromptLookup(), DraftModel(built(subject("gpt")), ahead=9)):
        assert generate(gpt, prompt, stop=Stop(20), draft=draft)[0].tokens == plain[0].tokens
    # a draft whose own context is shorter than the model's falls silent
    llama, long = built(subject("llama")), [list(range(20)) * 2]
    found = generate(llama, long, stop=Stop(5), draft=DraftModel(built(subject("gpt"))))
    assert told(found) == told(generate(llama, long, stop=Stop(5)))


def test_steps_come_one_by_one() -> None:
    steps = list(Job(built(subject("llama")), PROMPTS, Stop(4), draft=PromptLookup()).stream())
    assert [len(batch) for batch in steps] == [1] * 16
    assert [batch[0].row for batch in steps] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4


def test_no_prompts_no_continuations() -> None:
    assert generate(built(subject("llama")), [], draft=PromptLookup()) == []


@pytest.mark.parametrize("subject", sorted(set(MODELS) - set(REWINDING), key=str), ids=str)
def test_a_recurrent_model_takes_no_draft(subject: Subject) -> None:
    with pytest.raises(UserError, match=r"recurrent state cannot be set back; .* without a draft"):
        generate(built(subject), PROMPTS, stop=Stop(30), memory=memory_of(subject, [0, 1, 2, 3]), draft=PromptLookup())


def test_impossible_drafts_are_told() -> None:
    with pytest.raises(UserError, match=r"PromptLookup\(ahead=0\)"):
        PromptLookup(ahead=0)
    with pytest.raises(UserError, match=r"PromptLookup\(longest=0\)"):
        PromptLookup(longest=0)
    with pytest.raises(UserError, match=r"DraftModel\(ahead=0\)"):
        DraftModel(bigrams(0), ahead=0)
    with pytest.raises(UserError, match="draft model is in training mode"):
        DraftModel(bigrams(0).train())
    with pytest.raises(UserError, match="a draft model of 4 words for a model of 23"):
        generate(built(subject("llama")), [[1]], stop=Stop(4), draft=DraftModel(bigrams(0)))
