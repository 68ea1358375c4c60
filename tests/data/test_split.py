"""Laws of the split: decided by each text alone, and bounded."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headway.data.split import held_out, share_for

TEXTS = [f"sentence number {number}" for number in range(5000)]


@given(text=st.text(), seed=st.integers(), share=st.floats(0, 1), more=st.floats(0, 1))
def test_a_larger_share_holds_out_no_less(text: str, seed: int, share: float, more: float) -> None:
    low, high = sorted((share, more))
    assert held_out(text, low, seed) <= held_out(text, high, seed)
    assert not held_out(text, 0.0, seed)
    assert held_out(text, 1.0, seed)


@given(text=st.text(), seed=st.integers(0, 9))
def test_white_space_moves_no_text_to_the_other_side(text: str, seed: int) -> None:
    assert held_out(f"  {text}\t", 0.5, seed) == held_out(text, 0.5, seed)


def test_the_share_is_kept() -> None:
    for seed in range(3):
        count = sum(held_out(text, 0.1, seed) for text in TEXTS)
        assert abs(count - 500) < 5 * 22  # five standard deviations


def test_seeds_hold_out_different_texts() -> None:
    one, two = ({text for text in TEXTS if held_out(text, 0.1, seed)} for seed in (0, 1))
    assert abs(len(one & two) - 50) < 40


def test_the_choice_is_the_same_everywhere() -> None:
    assert [number for number in range(40) if held_out(f"text {number}", 0.1, 0)] == [3, 21]


@given(
    texts=st.lists(st.text(max_size=1), max_size=30),
    share=st.floats(0, 1),
    least=st.integers(0, 5),
    most=st.integers(0, 20),
)
def test_never_more_than_most(texts: Sequence[str], share: float, least: int, most: int) -> None:
    chosen = share_for(iter(texts), share, 0, least=least, most=most)
    assert sum(held_out(text, chosen, 0) for text in texts) <= most


@given(texts=st.sets(st.integers(), min_size=6, max_size=60), share=st.floats(0, 1))
def test_distinct_texts_are_held_out_as_wished_within_the_bounds(texts: set[int], share: float) -> None:
    chosen = share_for(map(str, texts), share, 0, least=2, most=5)
    wished = sum(held_out(str(text), share, 0) for text in texts)
    assert sum(held_out(str(text), chosen, 0) for text in texts) == min(max(wished, 2), 5)


def test_the_cap_is_met_exactly() -> None:
    share = share_for(TEXTS, 0.1, 0, most=100)
    assert sum(held_out(text, share, 0) for text in TEXTS) == 100
    assert share_for(TEXTS, 0.01, 0, most=1000) == 0.01
