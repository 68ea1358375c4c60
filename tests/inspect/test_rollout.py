"""Rollout is the sum over all paths from layer to layer.  Brute force walks them one by one."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.inspect.rollout import gradient_rollout, rollout

H, T, LAYERS = 3, 4, 3


def maps(seed: int = 0) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.rand(H, T, T, generator=draw, dtype=torch.float64).softmax(-1) for _ in range(LAYERS)]


def paths(steps: list[list[list[float]]], last: int, first: int) -> float:
    """The weight of all ways from a token after the last step down to a token of the input."""
    total = 0.0
    for between in product(range(T), repeat=len(steps) - 1):
        places = [first, *between, last]
        weight = 1.0
        for at, step in enumerate(steps):
            weight *= step[places[at + 1]][places[at]]
        total += weight
    return total


def test_rollout_is_the_sum_over_all_paths() -> None:
    given = maps()
    steps = [
        [[0.5 * sum(float(a[h, q, k]) for h in range(H)) / H + 0.5 * (q == k) for k in range(T)] for q in range(T)]
        for a in given
    ]
    found = rollout(given)
    for upto in range(1, LAYERS + 1):
        expected = [[paths(steps[:upto], q, k) for k in range(T)] for q in range(T)]
        assert_close(found[upto - 1], torch.tensor(expected, dtype=torch.float64))


def test_rows_sum_to_one_also_where_a_token_sees_nothing() -> None:
    given = maps()
    given[1][:, 2] = 0.0
    for layer in rollout(given):
        assert_close(layer.sum(-1), torch.ones(T, dtype=torch.float64))


def test_a_mean_over_heads_may_be_given() -> None:
    given = maps()
    assert_close(rollout([a.mean(0) for a in given]), rollout(given))


def test_two_layers_that_can_be_checked_by_eye() -> None:
    back = torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # both look at the first token
    first, second = rollout([back, back])
    assert_close(first, torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    assert_close(second, torch.tensor([[1.0, 0.0], [0.75, 0.25]]))


def test_gradients_choose_what_is_followed() -> None:
    given, signs = maps(), [torch.randn(H, T, T, dtype=torch.float64) for _ in range(LAYERS)]
    steps = []
    for a, g in zip(given, signs, strict=True):
        step = [[float(q == k) for k in range(T)] for q in range(T)]
        for q, k, h in product(range(T), range(T), range(H)):
            step[q][k] += max(0.0, float(a[h, q, k] * g[h, q, k])) / H
        steps.append(step)
    found = gradient_rollout(given, signs)
    expected = [[paths(steps, q, k) for k in range(T)] for q in range(T)]
    assert_close(found[-1], torch.tensor(expected, dtype=torch.float64))


def test_nothing_is_relevant_where_nothing_speaks_for_the_score() -> None:
    given = maps()
    assert_close(gradient_rollout(given, [-a for a in given])[-1], torch.eye(T, dtype=torch.float64))


@pytest.mark.parametrize("shapes", [[(2, 3, 4)], [(3, 3), (4, 4)]])
def test_what_does_not_follow_on_is_refused(shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(UserError, match="cannot be rolled out"):
        rollout([torch.rand(shape) for shape in shapes])


def test_maps_and_gradients_belong_together() -> None:
    with pytest.raises(UserError, match="1 gradients"):
        gradient_rollout(maps(), maps()[:1])
