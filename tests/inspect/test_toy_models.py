"""Where features are always there, the most important have a dimension each; where they are rare, more share them."""

from __future__ import annotations

from dataclasses import replace
from math import tau

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.inspect.toy_models import ToyFeatures, ToyRepresentation, ToyTraining, train_toy_models

SHORT = ToyTraining(steps=700, batch=256, lr=3e-2, restarts=4)


@pytest.fixture(scope="module")
def learned() -> dict[float, ToyRepresentation]:
    """Five features in two dimensions, of which none is more important than the one before."""
    sparsities = (0.0, 0.7, 0.97)
    found = train_toy_models(ToyFeatures(5, 2, sparsities, decay=0.8), SHORT)
    return dict(zip(sparsities, found, strict=True))


@pytest.mark.slow
def test_dense_features_get_a_dimension_each_and_the_most_important_ones_do(
    learned: dict[float, ToyRepresentation],
) -> None:
    dense = learned[0.0]
    assert_close(dense.gram[:2, :2], torch.eye(2), atol=0.05, rtol=0)
    assert dense.norms[2:].max() < 0.2
    assert dense.count == 2
    assert dense.dimensions_per_feature == pytest.approx(1.0, abs=0.05)
    assert_close(dense.dimensionality[:2], torch.ones(2), atol=0.05, rtol=0)


@pytest.mark.slow
def test_rarer_features_share_dimensions(learned: dict[float, ToyRepresentation]) -> None:
    counts = [one.count for one in learned.values()]
    per_feature = [one.dimensions_per_feature for one in learned.values()]
    assert counts == sorted(counts)
    assert counts[-1] > 2
    assert per_feature == sorted(per_feature, reverse=True)
    assert per_feature[-1] < 0.5


@pytest.mark.slow
def test_features_between_dense_and_rare_lie_back_to_back(learned: dict[float, ToyRepresentation]) -> None:
    pairs = learned[0.7]
    assert pairs.count == 4
    present = pairs.dimensionality[pairs.norms > 0.5]
    assert_close(present, torch.full((4,), 0.5), atol=0.05, rtol=0)


@pytest.mark.slow
def test_five_rare_features_in_a_plane_make_a_pentagon() -> None:
    [found] = train_toy_models(ToyFeatures(5, 2, (0.97,), decay=1.0), SHORT)
    angles = turned(found.weight)
    assert_close(angles, torch.full((5,), tau / 5), atol=0.06, rtol=0)
    assert found.norms.max() / found.norms.min() < 1.05
    assert_close(found.dimensionality, torch.full((5,), 0.4), atol=0.02, rtol=0)


def turned(weight: Tensor) -> Tensor:
    """The angle from each direction to the next, all the way round."""
    angles = torch.atan2(weight[:, 1], weight[:, 0]).sort().values
    return torch.cat([angles, angles[:1] + tau]).diff()


def test_numbers_of_known_shapes() -> None:
    root = 3**0.5 / 2
    shape = 2 * torch.tensor([[1.0, 0.0], [-0.5, root], [-0.5, -root], [0.0, 0.0]])
    triangle = ToyRepresentation(0.9, shape, torch.zeros(4), 0.0)
    assert_close(triangle.dimensionality, torch.tensor([2 / 3, 2 / 3, 2 / 3, 0.0]))
    assert_close(triangle.interference, torch.tensor([2.0, 2.0, 2.0, 0.0]), atol=1e-5, rtol=0)
    assert triangle.dimensions_per_feature == pytest.approx(2 / 12)
    assert triangle.count == 3
    assert_close(triangle.gram[0], torch.tensor([4.0, -2.0, -2.0, 0.0]))


@pytest.mark.slow
def test_what_is_learned_of_a_sparsity_does_not_depend_on_the_others() -> None:
    brief = replace(SHORT, steps=60)
    alone = train_toy_models(ToyFeatures(4, 2, (0.9,)), brief)[0]
    among = train_toy_models(ToyFeatures(4, 2, (0.0, 0.9, 0.5)), brief)[1]
    assert_close(alone.weight, among.weight, atol=1e-4, rtol=0)


@pytest.mark.slow
def test_a_seed_decides_every_bit() -> None:
    world, brief = ToyFeatures(4, 2, (0.5, 0.9)), replace(SHORT, steps=30)
    once, again = train_toy_models(world, brief), train_toy_models(world, brief)
    other = train_toy_models(world, replace(brief, seed=1))
    assert all(torch.equal(a.weight, b.weight) and a.loss == b.loss for a, b in zip(once, again, strict=True))
    assert not torch.equal(once[0].weight, other[0].weight)


@pytest.mark.slow
def test_a_better_try_is_taken() -> None:
    world, brief = ToyFeatures(6, 2, (0.95,)), replace(SHORT, steps=100)
    [one], [best] = (train_toy_models(world, replace(brief, restarts=restarts)) for restarts in (1, 8))
    assert best.loss <= one.loss


@pytest.mark.parametrize(
    "wrong",
    [{"features": 0}, {"hidden": 0}, {"sparsities": ()}, {"sparsities": (1.0,)}, {"sparsities": (-0.1,)}, {"decay": 0}],
    ids=str,
)
def test_what_cannot_be_is_told(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError, match="allowed"):
        ToyFeatures(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["steps", "batch", "restarts"])
def test_nothing_is_learned_in_no_steps(wrong: str) -> None:
    with pytest.raises(UserError, match=f"{wrong}=0; allowed: 1 or more"):
        ToyTraining(**{wrong: 0})
