"""Laws of beam search, and the best of all continuations where all can be listed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.decoding import generate
from headway.generate.request import Generated, Reason, Stop
from headway.generate.session import DecodingSession
from headway.generate.speculative import PromptLookup
from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.head import LMHead
from headway.nn.trace import record
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal
from headway.ops.rotary import Rotary
from tests.generate.models import MODELS, PROMPTS, beam_search, built, memory_of, subject, told
from tests.laws.subjects import CONTEXT, Subject

pytestmark = pytest.mark.slow

writing = pytest.mark.parametrize("subject", MODELS, ids=str)
STOP = Stop(6, tokens=(5, 8))
close = {"atol": 1e-5, "rtol": 1e-5}


def same(a: list[Generated], b: list[Generated]) -> None:
    assert [(one.tokens, one.reason) for one in a] == [(one.tokens, one.reason) for one in b]
    for one, other in zip(a, b, strict=True):
        assert_close(torch.tensor(one.logprobs), torch.tensor(other.logprobs), **close)
        assert_close(torch.tensor(one.score), torch.tensor(other.score), **close)


@writing
def test_one_beam_is_greedy(subject: Subject) -> None:
    memory = memory_of(subject, [0, 1, 2, 3])
    greedy = generate(built(subject), PROMPTS, stop=STOP, memory=memory)
    for alpha in (0.0, 0.6, 2.0):
        assert told(generate(built(subject), PROMPTS, Beam(1, alpha), STOP, memory=memory)) == told(greedy)


@writing
@pytest.mark.parametrize("how", [Beam(3, best=3), Beam(4, alpha=1.0, best=2, early=False)], ids=["early", "patient"])
def test_a_batch_is_its_prompts(subject: Subject, how: Beam) -> None:
    """In any order, with searches that end at different steps."""
    model = built(subject)
    alone = [beam_search(model, [p], how, STOP, memory=memory_of(subject, [i]))[0] for i, p in enumerate(PROMPTS)]
    order = [2, 0, 3, 1]
    found = beam_search(model, [PROMPTS[row] for row in order], how, STOP, memory=memory_of(subject, order), chunk=3)
    for many, row in zip(found, order, strict=True):
        same(many, alone[row])


@writing
def test_scores_are_those_of_the_text(subject: Subject) -> None:
    """Read again in one piece, a continuation has the log-probabilities and the score that were told."""
    how = Beam(3, alpha=0.8, best=3)
    for prompt, many in zip(
        PROMPTS, beam_search(built(subject), PROMPTS, how, STOP, memory=memory_of(subject, [1] * 4)), strict=True
    ):
        assert [one.score for one in many] == sorted((one.score for one in many), reverse=True)
        assert len({one.tokens for one in many}) == len(many)
        for one in many:
            with torch.no_grad():
                logits = built(subject)(torch.tensor([[*prompt, *one.tokens]]), memory_of(subject, [1]))
            logprobs = logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            expected = logprobs.gather(1, torch.tensor(one.tokens)[:, None])[:, 0]
            assert_close(torch.tensor(one.logprobs), expected, atol=2e-5, rtol=1e-4)
            assert one.score == pytest.approx(float(expected.sum()) / ((5 + len(one.tokens)) / 6) ** 0.8, abs=1e-4)


# ---- against a list of everything

WORDS, END, MOST = 4, 0, 4


def tiny(seed: int) -> Trunk:
    torch.manual_seed(seed)
    attention = SelfAttention(8, 2, pattern=Causal(), rotary=Rotary(4))
    model = Trunk(TokenEmbed(WORDS, 8), Stack([Block(attn=Residual(attention))]), LMHead(8, WORDS)).eval()
    with torch.no_grad():
        model.head.weight.normal_(std=0.8)  # type: ignore[union-attr]
    return model


def all_continuations(model: Trunk, prompt: list[int], alpha: float) -> list[tuple[float, tuple[int, ...]]]:
    """Every way to go on until the end or for MOST tokens, the best first."""
    found = dict[tuple[int, ...], float]()
    for whole in product(range(WORDS), repeat=MOST):
        tokens = whole[: whole.index(END) + 1] if END in whole else whole
        if tokens not in found:
            with torch.no_grad():
                logits = model(torch.tensor([[*prompt, *tokens]]))[0, len(prompt) - 1 : -1]
            total = float(logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).sum())
            found[tokens] = total / ((5 + len(tokens)) / 6) ** alpha
    return sorted(((score, tokens) for tokens, score in found.items()), reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5, -0.5])
@pytest.mark.parametrize("early", [True, False])
def test_a_wide_beam_finds_the_best_of_all(alpha: float, early: bool) -> None:
    for seed in range(1, 3):
        model, prompt = tiny(seed), [1, 2, seed % WORDS]
        expected = all_continuations(model, prompt, alpha)
        how = Beam(WORDS**MOST, alpha, best=10, early=early)
        (found,) = beam_search(model, [prompt], how, Stop(MOST, tokens=(END,)))
        assert told(found) == [tokens for _, tokens in expected[:10]]
        assert_close(torch.tensor([one.score for one in found]), torch.tensor([score for score, _ in expected[:10]]))


@given(st.integers(0, 50), st.integers(1, 6), st.sampled_from([0.0, 0.6, 2.0, -1.0]))
@settings(max_examples=30)
def test_patience_misses_nothing(seed: int, width: int, alpha: float) -> None:
    """A search that ends when nothing open can win finds what one that runs to the last token finds."""
    model, stop = tiny(seed), Stop(6, tokens=(END,))
    how = Beam(width, alpha, best=width, early=False)
    (found,) = beam_search(model, [[1]], how, stop)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.generate.beam.Search.is_done", lambda search, length, total: length >= search.room)
        (whole,) = beam_search(model, [[1]], how, stop)
    assert told(found) == told(whole)


def test_early_ends_when_as_many_have_finished_as_there_are_beams() -> None:
    for seed in range(8):
        stop = Stop(30, tokens=(END, 1))
        (early,) = beam_search(tiny(seed), [[2]], Beam(3, 2.0, best=3), stop)
        (patient,) = beam_search(tiny(seed), [[2]], Beam(3, 2.0, best=3, early=False), stop)
        assert len(early) == len(patient) == 3
        assert patient[0].score >= early[0].score


# ---- what beams share


@pytest.mark.parametrize("subject", [s for s in MODELS if memory_of(s, [0]).memory is not None], ids=str)
def test_beams_of_a_sentence_share_its_memory(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a memory gave is there once for each prompt, and the answers are those of copies for each beam."""
    how, memory, kept = Beam(4, best=4, early=False), memory_of(subject, [0, 1, 2, 3]), list[int]()
    step = DecodingSession.step

    def counted(feed: DecodingSession, tokens: Tensor) -> Tensor:
        kept.extend(len(x) * how.width - len(tokens) for given in feed.state.kept.values() for x in given)
        return step(feed, tokens)

    with monkeypatch.context() as patch:
        patch.setattr(DecodingSession, "step", counted)
        shared = beam_search(built(subject), PROMPTS, how, STOP, memory=memory)
    monkeypatch.setattr(DecodingSession, "shares", False)
    for one, other in zip(shared, beam_search(built(subject), PROMPTS, how, STOP, memory=memory), strict=True):
        same(one, other)
    if subject.name == "t5 decoder":
        assert kept
        assert set(kept) == {0}


def test_a_recording_sees_each_beam_by_itself() -> None:
    t5 = subject("t5 decoder")
    with record(built(t5), "*.cross.weights") as trace:
        beam_search(built(t5), [[1]], Beam(3), Stop(3), memory=memory_of(t5, [0]))
    name = next(iter(trace.values))
    assert [value.shape[:3] for value in trace.all(name)] == [(1, 4, 1), (3, 4, 1), (3, 4, 1)]


# ---- ends


def letters(tokens: Sequence[int]) -> str:
    return "".join("abcd"[token] for token in tokens)


@given(st.integers(0, 20), st.sampled_from(["b", "cb", "dd", "bcb"]), st.integers(0, 3))
@settings(max_examples=15)
def test_a_beam_ends_where_its_text_holds_a_stop_string(seed: int, string: str, least: int) -> None:
    """A wide beam finds the best of all continuations that end with the token which completes the string."""
    model, stop = tiny(seed), Stop(MOST, strings=(string,), min_new_tokens=least, decode=letters)
    how = Beam(WORDS**MOST, alpha=0.0, best=5, early=False)
    (found,) = beam_search(model, [[1]], how, stop)
    wholes = torch.tensor(list(product(range(WORDS), repeat=MOST)))
    with torch.no_grad():
        logprobs = model(torch.cat([torch.ones_like(wholes[:, :1]), wholes[:, :-1]], 1)).log_softmax(-1)
    paid = logprobs.gather(2, wholes[..., None])[..., 0].cumsum(1)  # how much each beginning of each costs
    texts = [cut(letters(whole), string, least) for whole in wholes.tolist()]
    scores = {text: float(row[len(text) - 1]) for text, row in zip(texts, paid, strict=True)}
    expected = sorted(((score, text) for text, score in scores.items()), reverse=True)[:5]
    assert [letters(one.tokens) for one in found] == [text for _, text in expected]
    for one in found:
        held = string in letters(one.tokens) and len(one.tokens) >= least
        assert one.reason is (Reason.STRING if held else Reason.LENGTH)
        assert stop.text(one.tokens) == (letters(one.tokens).split(string)[0] if held else letters(one.tokens))


def cut(text: str, string: str, least: int) -> str:
    """A text up to where a stop string ends it."""
    ends = (end for end in range(max(least, 1), len(text)) if string in text[:end])
    return text[: next(ends, len(text))]


def test_the_best_is_what_generate_returns() -> None:
    model = built(subject("llama"))
    many = beam_search(model, PROMPTS, Beam(3, best=3), STOP)
    assert generate(model, PROMPTS, Beam(3, best=3), STOP) == [best[0] for best in many]


def test_no_end_before_the_least_length() -> None:
    stop = Stop(5, min_new_tokens=3, tokens=(END,))
    for one in beam_search(tiny(1), [[1]], Beam(4, best=4), stop)[0]:
        assert END not in one.tokens[:3]


def test_the_context_ends_a_search() -> None:
    gpt = built(subject("gpt"))
    (full,), (short,) = beam_search(gpt, [[1] * (CONTEXT - 1), [1]], Beam(3), Stop(4))
    assert (len(full.tokens), full.reason) == (2, Reason.CONTEXT)
    assert (len(short.tokens), short.reason) == (4, Reason.LENGTH)


def test_no_prompts_no_continuations() -> None:
    assert beam_search(tiny(0), []) == []


def test_impossible_settings_are_told() -> None:
    with pytest.raises(UserError, match=r"Beam\(width=0\)"):
        Beam(0)
    with pytest.raises(UserError, match="the best 1 to 2"):
        Beam(2, best=3)
    with pytest.raises(UserError, match="a beam search with a draft"):
        generate(tiny(0), [[1]], Beam(), draft=PromptLookup())
