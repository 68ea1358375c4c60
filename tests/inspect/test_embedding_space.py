"""Neighbours and directions against loops over all vectors."""

from __future__ import annotations

import pytest
import torch

from headway.errors import UserError
from headway.inspect.embedding_space import nearest_rows
from headway.inspect.steering import mean_difference


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
    assert way.d_prime == pytest.approx(3 / 0.5**0.5)  # means 3.5 and 0.5, variances 0.5 and 0.5
    assert way.accuracy == 1.0
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
    assert way.d_prime > 3
    assert way.accuracy < 0.75


def test_one_sample_tells_no_direction() -> None:
    with pytest.raises(UserError, match="groups of 1 and 2"):
        mean_difference(torch.randn(1, 3), torch.randn(2, 3))
