"""Reductions over a vocabulary are torch's own."""

from __future__ import annotations

from math import inf

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from headway.generate.sampling import WIDTH, forbid_tokens, largest, largest_but, logprobs_at


@given(st.integers(1, 3), st.integers(1, 12 * WIDTH), st.integers(1, 8), st.integers(0, 9), st.booleans())
def test_the_largest_are_the_largest(rows: int, vocab: int, count: int, seed: int, coarse: bool) -> None:
    """Also among equals, and where much is −∞."""
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))
    logits = torch.where(logits > 0.5, logits.round(), -inf) if coarse else logits
    values, ids = largest(logits, count)
    assert_close(values, logits.topk(min(count, vocab)).values, atol=0, rtol=0)
    assert_close(logits.gather(1, ids), values, atol=0, rtol=0)
    assert all(len(set(row)) == len(row) for row in ids.tolist())


@given(
    st.integers(1, 12 * WIDTH),
    st.integers(1, 8),
    st.sets(st.integers(0, 12 * WIDTH - 1), max_size=80),
    st.integers(0, 9),
)
def test_the_largest_of_what_is_allowed(vocab: int, count: int, forbidden: set[int], seed: int) -> None:
    logits = torch.randn(2, vocab, generator=torch.Generator().manual_seed(seed))
    logits[:, : vocab // 2] = logits.gather(1, logits.topk(vocab // 2).indices)  # the largest are forbidden, too
    tokens = tuple(token for token in forbidden if token < vocab)
    masked = forbid_tokens(logits, tokens)
    values, ids = largest_but(logits, tokens, count)
    assert_close(values, masked.topk(min(count, vocab)).values, atol=0, rtol=0)
    assert_close(masked.gather(1, ids), values, atol=0, rtol=0)


@pytest.mark.parametrize("vocab", [7, 3000])
def test_log_probabilities_are_those_of_the_whole(vocab: int) -> None:
    logits, ids = torch.randn(200, vocab) * 5, torch.randint(0, vocab, (200, 3))
    assert_close(logprobs_at(logits, ids), logits.log_softmax(-1).gather(1, ids))
    logits[3, 0] = float("nan")
    assert logprobs_at(logits, ids)[3].isnan().all()
