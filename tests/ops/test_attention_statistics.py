"""The numbers of heads against loops over every query and key, and however the map comes in bands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import hypot, log

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.ops import attention_map as reading
from headway.ops import attention_statistics as module
from headway.ops.attention_map import AttentionMap, Band, Readable, Weights
from headway.ops.attention_statistics import STATISTICS, CellGrid, HeadStatistics, MapFacts, TokenPositions, statistics
from headway.ops.pattern import Causal, Full, Pattern, Positions

H, T = 3, 9
TOKENS = [5, 2, 7, 5, 2, 2, 7, 9, 5]
SPECIAL = (0, 4)


def amap(pattern: Pattern = Full(), seed: int = 0) -> AttentionMap:
    torch.manual_seed(seed)
    stand = Positions.run(0, T)
    return AttentionMap(2 * torch.randn(1, H, T, 4), torch.randn(1, H, T, 4), stand, stand, pattern)


Weight = Callable[[int, int], float]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def by_loops(w: Weight) -> dict[str, float]:
    """All numbers of one head as their definitions read."""
    at = range(T)
    entropy = mean([-sum(w(q, k) * log(w(q, k)) for k in at if w(q, k) > 0) for q in at])
    distance = mean([sum(w(q, k) * abs(q - k) for k in at) for q in at])
    special = mean([sum(w(q, k) for k in SPECIAL) for q in at])
    previous = mean([w(q, q - 1) for q in at if q > 0])
    same = {q: [k for k in range(q) if TOKENS[k] == TOKENS[q]] for q in at}
    duplicate = mean([sum(w(q, k) for k in keys) for q, keys in same.items() if keys])
    after = {q: [k + 1 for k in keys if k + 1 < q] for q, keys in same.items()}
    induction = mean([sum(w(q, k) for k in keys) for q, keys in after.items() if keys])
    return dict(zip(STATISTICS, (entropy, distance, special, previous, duplicate, induction), strict=True))


def check(found: HeadStatistics, full: Tensor) -> None:
    for head in range(H):
        expected = by_loops(lambda q, k, head=head: float(full[0, head, q, k]))
        assert {name: float(getattr(found, name)[head]) for name in STATISTICS} == pytest.approx(expected, rel=1e-5)


KNOWN = MapFacts(SPECIAL, TokenPositions.in_order(T), torch.tensor(TOKENS))


@pytest.mark.parametrize("pattern", [Full(), Causal(), Causal(window=3)], ids=repr)
@pytest.mark.parametrize("cells", [1, 2 * H * T, 2**23])
def test_numbers_are_those_of_loops(pattern: Pattern, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CELLS", cells)  # bands of one row, of two, of all
    check(statistics(amap(pattern), KNOWN), amap(pattern).full())


def test_an_induction_head_is_found() -> None:
    """a b c a b: from the second a to the first b, from the second b to c."""
    weights = torch.eye(5)[None, None].clone()
    for q, k in ((3, 1), (4, 2)):
        weights[0, 0, q] = torch.eye(5)[k]
    found = statistics(Weights(weights), MapFacts((), None, torch.tensor([0, 1, 2, 0, 1])))
    assert found.induction is not None
    assert found.duplicate is not None
    assert (found.induction.tolist(), found.duplicate.tolist()) == ([1.0], [0.0])


def test_a_token_behind_its_twin_is_no_induction() -> None:
    """a a: what follows the first a is the second itself."""
    known = MapFacts((), None, torch.tensor([0, 0]))
    found = statistics(Weights(torch.eye(2)[None, None]), known)
    assert found.induction is not None
    assert found.induction.isnan().all()


def test_what_cannot_be_asked_is_not_answered() -> None:
    found = statistics(amap(), MapFacts())
    assert [getattr(found, name) for name in STATISTICS[1:]] == [None] * 5


def test_distances_on_grids_are_between_cells_and_leave_out_what_has_no_place() -> None:
    rows, cols = 2, 3
    weights = torch.rand(1, 1, 7, 7).softmax(-1)
    grid = CellGrid((rows, cols), first=1)
    found = statistics(Weights(weights), MapFacts((0,), TokenPositions.on_grids(grid, grid)))
    total = whole = 0.0
    for q in range(6):
        for k in range(6):
            w = float(weights[0, 0, q + 1, k + 1])
            total += w * hypot(q // cols - k // cols, q % cols - k % cols)
            whole += w
    assert found.distance is not None
    assert float(found.distance) == pytest.approx(total / whole, rel=1e-5)


def test_two_grids_lie_on_the_same_picture() -> None:
    """A pooled key in the middle of four cells is half a cell's diagonal from each."""
    weights = torch.ones(1, 1, 4, 1)
    found = statistics(Weights(weights), MapFacts((), TokenPositions.on_grids(CellGrid((2, 2)), CellGrid((1, 1)))))
    assert found.distance is not None
    assert float(found.distance) == pytest.approx(hypot(0.5, 0.5))


@dataclass(frozen=True, eq=False)
class Narrow(Readable):
    """A map that gives bands of a few rows and refuses to be whole."""

    map: Readable

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.map.shape

    def band(self, first: int, last: int) -> Band:
        assert last - first <= 2
        return self.map.band(first, last)


def test_no_map_is_ever_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CELLS", 2 * H * T)
    check(statistics(Narrow(amap()), KNOWN), amap().full())


def test_a_batch_is_a_mean_over_its_rows() -> None:
    one, two = (amap(seed=seed).full() for seed in (1, 2))
    both = statistics(Weights(torch.cat([one, two])), KNOWN)
    each = [statistics(Weights(full), KNOWN) for full in (one, two)]
    for name in STATISTICS:
        assert_close(getattr(both, name), (getattr(each[0], name) + getattr(each[1], name)) / 2, rtol=1e-5, atol=1e-6)


def test_every_number_has_its_place() -> None:
    assert tuple(module.HeadStatistics.__annotations__) == STATISTICS
