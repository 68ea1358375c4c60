"""Decoding of CTC against all paths written out: greedy is the best path, a wide beam the best symbols.

Axes:  B batch   T frames   V symbols
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from math import exp, log

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.generate.ctc_decoding import PrefixBeam, ctc_greedy
from tests.laws.subjects import cases
from tests.ops.test_ctc import drawn, plainly_collapsed

EXACT = PrefixBeam(width=10_000, candidates=None)
frames_seed = given(frames=st.integers(1, 5), seed=st.integers(0, 999))


def probabilities(log_probs: Tensor) -> dict[tuple[int, ...], float]:
    """What each row of symbols has, over all paths of one row (T V)."""
    found: dict[tuple[int, ...], float] = defaultdict(float)
    for path in product(range(log_probs.shape[1]), repeat=len(log_probs)):
        found[tuple(plainly_collapsed(path))] += exp(sum(float(log_probs[t, s]) for t, s in enumerate(path)))
    return found


@frames_seed
@cases(25)
def test_greedy_is_the_best_path(frames: int, seed: int) -> None:
    log_probs = drawn(1, frames, seed)
    (heard,) = ctc_greedy(log_probs)
    path = max(product(range(3), repeat=frames), key=lambda p: sum(float(log_probs[0, t, s]) for t, s in enumerate(p)))
    assert list(heard.symbols) == plainly_collapsed(path)
    assert heard.score == pytest.approx(sum(float(log_probs[0, t, s]) for t, s in enumerate(path)))


@pytest.mark.slow
@frames_seed
@cases(25)
def test_a_wide_beam_finds_every_answer_and_its_probability(frames: int, seed: int) -> None:
    log_probs = drawn(1, frames, seed)
    (found,) = EXACT(log_probs)
    expected = sorted(probabilities(log_probs[0]).items(), key=lambda pair: -pair[1])
    assert [heard.symbols for heard in found] == [symbols for symbols, _ in expected]
    assert_close([exp(heard.score) for heard in found], [p for _, p in expected])


@given(frames=st.integers(1, 5), seed=st.integers(0, 99), shortest=st.integers(0, 3), more=st.integers(0, 2))
@cases(25)
def test_limits_leave_the_best_of_what_they_allow(frames: int, seed: int, shortest: int, more: int) -> None:
    assume(shortest <= frames)
    log_probs = drawn(1, frames, seed)
    beam = PrefixBeam(width=10_000, candidates=None, shortest=shortest, longest=shortest + more)
    allowed = {
        symbols: p for symbols, p in probabilities(log_probs[0]).items() if shortest <= len(symbols) <= shortest + more
    }
    (found,) = beam(log_probs)
    assert {heard.symbols for heard in found} == set(allowed)
    assert_close([exp(heard.score) for heard in found], sorted(allowed.values(), reverse=True))


@pytest.mark.slow
@given(width=st.integers(1, 4), seed=st.integers(0, 99), shortest=st.integers(0, 6))
@cases(25)
def test_a_narrow_beam_keeps_its_limits_and_claims_no_more_than_there_is(width: int, seed: int, shortest: int) -> None:
    log_probs = drawn(1, 6, seed)
    (found,) = PrefixBeam(width=width, candidates=2, shortest=shortest)(log_probs)
    true = probabilities(log_probs[0])
    assert 1 <= len(found) <= width
    assert [heard.score for heard in found] == sorted((heard.score for heard in found), reverse=True)
    for heard in found:
        assert len(heard.symbols) >= shortest
        assert exp(heard.score) <= true[heard.symbols] * (1 + 1e-9)


def textbook(log_probs: Tensor, width: int) -> list[tuple[tuple[int, ...], float]]:
    """Hannun's prefix beam search of one row (T V), with every symbol tried at every frame, in plain probabilities."""
    beams = {(): (1.0, 0.0)}  # ending in a blank, in a symbol
    for scores in log_probs.exp().tolist():
        later: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for symbols, (blank, said) in beams.items():
            later[symbols][0] += (blank + said) * scores[0]
            for symbol in range(1, len(scores)):
                again = symbols[-1:] == (symbol,)
                later[(*symbols, symbol)][1] += (blank if again else blank + said) * scores[symbol]
                later[symbols][1] += said * scores[symbol] if again else 0.0
        best = sorted(later.items(), key=lambda pair: -sum(pair[1]))[:width]
        beams = {symbols: (ends[0], ends[1]) for symbols, ends in best if sum(ends)}
    return [(symbols, sum(ends)) for symbols, ends in beams.items()]


@given(width=st.integers(1, 6), seed=st.integers(0, 999), frames=st.integers(1, 12), symbols=st.integers(2, 6))
@cases(40)
def test_what_is_skipped_would_not_have_been_kept(width: int, seed: int, frames: int, symbols: int) -> None:
    log_probs = drawn(1, frames, seed, symbols)
    (found,) = PrefixBeam(width=width, candidates=None)(log_probs)
    expected = textbook(log_probs[0], width)
    assert [heard.symbols for heard in found] == [answer for answer, _ in expected]
    assert_close([exp(heard.score) for heard in found], [p for _, p in expected])


def test_rows_of_a_batch_are_heard_alone() -> None:
    log_probs, frames = drawn(3, 6, seed=3, symbols=5), [6, 2, 0]
    beam = PrefixBeam(width=4)
    for row, count in enumerate(frames):
        part = log_probs[row : row + 1, :count]
        assert ctc_greedy(log_probs, frames)[row] == ctc_greedy(part)[0]
        assert beam(log_probs, frames)[row] == beam(part)[0]
    assert ctc_greedy(log_probs, frames)[2].symbols == ()


def test_the_best_path_is_not_the_best_answer() -> None:
    """The path of two blanks has 0.36 and is the likeliest; all paths that say 1 have 0.64 together."""
    log_probs = torch.tensor([[[0.6, 0.4], [0.6, 0.4]]]).log()
    assert ctc_greedy(log_probs)[0].symbols == ()
    (best, other), *_ = PrefixBeam()(log_probs)
    assert (best.symbols, other.symbols) == ((1,), ())
    assert_close([best.score, other.score], [log(0.64), log(0.36)], atol=1e-6, rtol=0)


def test_mistakes_are_told() -> None:
    log_probs = drawn(2, 3, seed=0)
    for call in (ctc_greedy, PrefixBeam()):
        with pytest.raises(UserError, match=r"are 3×3; allowed: B T V"):
            call(log_probs[0])
        with pytest.raises(UserError, match=r"frames \[4, 1\].*0 to 3"):
            call(log_probs, [4, 1])
        with pytest.raises(UserError, match="one number for each row"):
            call(log_probs, [3])
    with pytest.raises(UserError, match="no 4 symbols or more were heard in 3 frames"):
        PrefixBeam(shortest=4)(log_probs)
    with pytest.raises(UserError, match="width and candidates"):
        PrefixBeam(width=0)
    with pytest.raises(UserError, match="shortest ≤ longest"):
        PrefixBeam(shortest=3, longest=2)
