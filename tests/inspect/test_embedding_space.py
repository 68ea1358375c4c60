"""Neighbours and directions against loops over all vectors."""

from __future__ import annotations

import pytest
import torch

from headway.errors import UserError
from headway.inspect.embedding_space import nearest_rows
from headway.inspect.steering import DirectionResult, mean_difference


def test_neighbours_are_at_the_smallest_angles() -> None:
    torch.manual_seed(2)
    table, queries = torch.randn(20, 4), torch.randn(3, 4)
    cosines, rows = nearest_rows(queries, table, 5)
    for at, query in enumerate(queries):
        angles = [float(query @ row / (query.norm() * row.norm())) for row in table]
        order = sorted(range(20), key=lambda row: -angles[row])[:5]
        assert rows[at].tolist() == order
        assert cosines[at].tolist() == pytest.approx([angles[row] for row in order], rel=1e-5)


def test_as_many_neighbours_as_there_are() -> None:
    assert nearest_rows(torch.randn(1, 4), torch.randn(2, 4), 9)[1].shape == (1, 2)


def test_a_direction_is_between_the_means() -> None:
    way = mean_difference(torch.tensor([[3.0, 1.0], [4.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]]))
    assert way.difference.tolist() == [3.0, 0.0]
    # each from the midpoint of the others' means: 0.75 and 2.25 on their own sides, twice
    assert way.d_prime == pytest.approx((1.5 + 1.5) / 1.125**0.5)
    assert (way.accuracy, way.above_chance) == (1.0, False)  # 4 of 4 are 1 in 16
    assert way.moved(torch.tensor([1.0, 1.0]), -0.5).tolist() == [-0.5, 1.0]


def test_each_is_judged_by_the_others_alone() -> None:
    torch.manual_seed(3)
    groups = torch.randn(6, 3) + 0.4, torch.randn(5, 3)
    right = 0
    for own, other in (groups, groups[::-1]):
        for at in range(len(own)):
            fellows = torch.stack([row for n, row in enumerate(own) if n != at]).double().mean(0)
            theirs = other.double().mean(0)
            way = fellows - theirs
            here, middle = float(own[at].double() @ way), float((fellows + theirs) @ way / 2)
            right += here > middle
    assert mean_difference(*groups).accuracy == pytest.approx(right / 11)
    assert 0 < right < 11


def test_noise_is_not_told_apart() -> None:
    """In many dimensions the difference of two means tells just these samples apart, but no others."""
    torch.manual_seed(4)
    way = mean_difference(torch.randn(20, 500), torch.randn(20, 500))
    assert way.accuracy < 0.75
    assert abs(way.d_prime) < 1  # along the difference of all it would be above 3
    assert not way.above_chance
    far = mean_difference(torch.randn(20, 500) + 1, torch.randn(20, 500))
    assert (far.accuracy, far.above_chance) == (1.0, True)
    assert far.d_prime > 3


def test_a_direction_that_is_worse_than_chance_has_a_negative_distance_and_a_warning() -> None:
    """Two of each, alike across the groups: each is nearer to the other group's mean."""
    rows = torch.diag(torch.tensor([1.0, 1.1, 0.9, 1.0]))
    way = mean_difference(rows[:2], rows[2:])
    assert (way.accuracy, way.above_chance) == (0.0, False)
    assert way.d_prime < 0
    found = DirectionResult("a", "b", (2, 2), {"0.out": way}, None)
    assert "warning: the groups are not told apart better than by chance in any layer" in found.to_text()
    assert found.to_dict()["layers"][0]["above_chance"] is False


def test_one_sample_tells_no_direction() -> None:
    with pytest.raises(UserError, match="groups of 1 and 2"):
        mean_difference(torch.randn(1, 3), torch.randn(2, 3))
