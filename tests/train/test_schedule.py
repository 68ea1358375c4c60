"""Schedules: what each is at the steps that name it, and what all of them have in common."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import UserError
from headway.training.optimiser import WSD, Constant, CosineDecay, InverseSqrt, Noam, Schedule

TOTAL = 200


def all_of(warmup: int, floor: float, decay: float) -> list[Schedule]:
    return [
        Constant(warmup),
        CosineDecay(warmup, TOTAL, floor),
        InverseSqrt(warmup),
        Noam(64, warmup),
        WSD(warmup, TOTAL, decay, floor),
    ]


warmups, floors = st.integers(0, TOTAL - 1), st.sampled_from([0.0, 0.1, 1.0])


@pytest.mark.slow
@given(warmup=warmups, floor=floors, decay=st.sampled_from([0.1, 0.5, 1.0]))
def test_all_rise_to_the_end_of_warm_up_and_never_rise_again(warmup: int, floor: float, decay: float) -> None:
    for schedule in all_of(warmup, floor, decay):
        factors = [schedule.factor(step) for step in range(1, TOTAL + 50)]
        peak = max(warmup, 1)
        assert all(factor >= 0.0 for factor in factors)
        assert factors[0] > 0.0
        assert factors[:peak] == sorted(factors[:peak])
        assert factors[peak - 1 :] == sorted(factors[peak - 1 :], reverse=True)
        assert max(factors) == pytest.approx(factors[peak - 1])
        if not isinstance(schedule, Noam):
            assert schedule.factor(warmup or 1) == pytest.approx(1.0, abs=0.02 if not warmup else 1e-9)


@given(warmup=warmups, floor=floors, decay=st.sampled_from([0.1, 0.5, 1.0]))
def test_none_jumps(warmup: int, floor: float, decay: float) -> None:
    """No step changes the factor by more than the steepest straight part of it would."""
    for schedule in (CosineDecay(warmup, TOTAL, floor), WSD(warmup, TOTAL, decay, floor), Constant(warmup)):
        fall = max(
            1, TOTAL - max(warmup, TOTAL - round(decay * TOTAL)) if isinstance(schedule, WSD) else TOTAL - warmup
        )
        steepest = max(1 / max(warmup, 1), 1.6 / fall)
        factors = [schedule.factor(step) for step in range(1, TOTAL + 5)]
        assert all(abs(b - a) <= steepest + 1e-9 for a, b in pairwise(factors))


@given(warmup=warmups, floor=floors)
def test_cosine_and_wsd_end_at_the_floor(warmup: int, floor: float) -> None:
    for schedule in (CosineDecay(warmup, TOTAL, floor), WSD(warmup, TOTAL, 0.2, floor)):
        assert schedule.factor(TOTAL) == pytest.approx(floor)
        assert schedule.factor(10 * TOTAL) == pytest.approx(floor)


def test_literally() -> None:
    assert [Constant(4).factor(step) for step in (1, 2, 4, 5, 99)] == [0.25, 0.5, 1.0, 1.0, 1.0]
    assert Constant().factor(1) == 1.0
    cosine = CosineDecay(warmup=10, total=110, floor=0.2)
    assert [cosine.factor(step) for step in (5, 10, 60, 110)] == pytest.approx([0.5, 1.0, 0.6, 0.2])
    root = InverseSqrt(100)
    assert [root.factor(step) for step in (50, 100, 400, 10_000)] == pytest.approx([0.5, 1.0, 0.5, 0.1])
    stable = WSD(warmup=10, total=100, decay=0.2, floor=0.0)
    assert [stable.factor(step) for step in (1, 10, 80, 90, 100)] == pytest.approx([0.1, 1.0, 1.0, 0.5, 0.0])


def test_the_paper_s_own_numbers() -> None:
    paper = Noam(512, 4000)
    assert paper.factor(4000) == pytest.approx(6.987712e-4)  # 512^−½ · 4000^−½
    assert paper.factor(1) == pytest.approx(1.746928e-7)
    assert paper.factor(100_000) == pytest.approx(1.397542e-4)
    assert Noam(512, 4000, scale=2.0).factor(4000) == pytest.approx(2 * paper.factor(4000))


def test_inverse_root_is_the_paper_s_without_its_scale() -> None:
    paper, root = Noam(256, 300), InverseSqrt(300)
    for step in (1, 17, 300, 301, 5000):
        assert paper.factor(step) / paper.factor(300) == pytest.approx(root.factor(step))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Constant(-1), "a warm-up of -1"),
        (lambda: CosineDecay(11, 10), "a warm-up of 11 in 10 steps"),
        (lambda: CosineDecay(0, 0), "in 0 steps"),
        (lambda: WSD(1, 10, decay=1.5), "a decay over 1.5"),
        (lambda: CosineDecay(1, 10, floor=-0.1), "a floor of -0.1"),
        (lambda: Noam(0), "dim=0"),
    ],
)
def test_impossible_numbers_are_told(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(UserError, match=said):
        make()
