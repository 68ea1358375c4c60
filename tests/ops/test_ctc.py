"""CTC against the sum over all paths, and the best of them, written out.

Axes:  B batch   T frames   V symbols   U targets
"""

from __future__ import annotations

from itertools import product
from math import inf

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.ops.ctc import AlignedSpan, align, collapse, ctc_loss, frames_needed, symbol_spans
from tests.laws.subjects import cases

SYMBOLS = 3


def drawn(batch: int, frames: int, seed: int, symbols: int = SYMBOLS) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(batch, frames, symbols, generator=draw, dtype=torch.float64)).log_softmax(-1)


def paths(log_probs: Tensor, symbols: list[int]) -> list[tuple[float, tuple[int, ...]]]:
    """Every path of one row (T V) that collapses to the symbols, and its log-probability."""
    found = []
    for path in product(range(log_probs.shape[1]), repeat=len(log_probs)):
        if plainly_collapsed(path) == symbols:
            found.append((sum(float(log_probs[t, symbol]) for t, symbol in enumerate(path)), path))
    return found


def plainly_collapsed(path: tuple[int, ...]) -> list[int]:
    return [now for before, now in zip((0, *path), path, strict=False) if now not in (0, before)]


targets = st.lists(st.integers(1, SYMBOLS - 1), max_size=3)


@given(symbols=targets, frames=st.integers(1, 5), seed=st.integers(0, 99))
@cases(25)
def test_the_loss_is_the_sum_over_all_paths(symbols: list[int], frames: int, seed: int) -> None:
    log_probs = drawn(1, frames, seed).requires_grad_()
    row = torch.tensor([symbols or [0]])
    loss = ctc_loss(log_probs, torch.tensor([frames]), row, torch.tensor([len(symbols)]))
    found = [score for score, _ in paths(log_probs[0].detach(), symbols)]
    expected = -torch.tensor(found or [-inf], dtype=torch.float64).logsumexp(0)
    assert_close(loss[0], expected)
    assert bool(found) == (frames >= frames_needed(symbols))


def test_rows_of_a_batch_have_their_own_lengths() -> None:
    log_probs = drawn(3, 5, seed=1)
    rows, lengths, frames = torch.tensor([[1, 2], [2, 0], [1, 1]]), [2, 1, 2], [5, 2, 4]
    loss = ctc_loss(log_probs, torch.tensor(frames), rows, torch.tensor(lengths))
    alone = [
        -torch.tensor([score for score, _ in paths(row[:count], target[:length].tolist())]).logsumexp(0)
        for row, count, target, length in zip(log_probs, frames, rows, lengths, strict=True)
    ]
    assert_close(loss, torch.stack(alone).double(), atol=1e-6, rtol=1e-6)


@given(symbols=targets, frames=st.integers(1, 5), seed=st.integers(0, 99))
@cases(25)
def test_an_alignment_is_the_best_path(symbols: list[int], frames: int, seed: int) -> None:
    log_probs = drawn(1, frames, seed)[0]
    if frames < frames_needed(symbols):
        with pytest.raises(UserError, match="have no path in"):
            align(log_probs, symbols)
    else:
        assert tuple(align(log_probs, symbols)) == max(paths(log_probs, symbols))[1]


def test_what_a_path_says() -> None:
    path = [0, 3, 3, 0, 0, 3, 2, 2, 2, 0]
    assert collapse(path) == [3, 3, 2]
    assert symbol_spans(path) == [AlignedSpan(3, 1, 3), AlignedSpan(3, 5, 6), AlignedSpan(2, 6, 9)]
    assert symbol_spans([]) == symbol_spans([0, 0]) == []
    assert [frames_needed(x) for x in ([], [1], [1, 2], [1, 1], [1, 1, 1, 2])] == [0, 1, 2, 3, 6]


def test_an_alignment_by_eye() -> None:
    """The second 1 must wait for a blank, though every frame would rather say 1."""
    log_probs = torch.tensor([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.1, 0.9]]).log()
    assert align(log_probs, [1]) == [1, 1, 1, 1]
    assert align(log_probs, [1, 1]) == [1, 1, 0, 1]
    assert align(log_probs, []) == [0, 0, 0, 0]
