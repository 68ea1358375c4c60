"""Rollout is the sum over all paths from layer to layer.  Brute force walks them one by one."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.ops.attention_rollout import (
    CrossLayer,
    Reach,
    SelfLayer,
    gradient_rollout,
    gradient_rollout_across,
    rollout,
    rollout_across,
    row_normalised,
)

H, T, LAYERS = 3, 4, 3
S = 5  # tokens of a source


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


# ---- from a decoder to its encoder


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def decoder() -> list[SelfLayer | CrossLayer]:
    """Two layers, of which the second looks across before it looks at itself."""
    own, across = ([drawn(H, T, count, seed=seed).softmax(-1) for seed in (count, 9)] for count in (T, S))
    return [SelfLayer(own[0]), CrossLayer(across[0]), CrossLayer(across[1]), SelfLayer(own[1])]


def memory() -> Tensor:
    return rollout([drawn(H, S, S, seed=seed).softmax(-1) for seed in range(2)])[-1]


def test_across_is_the_rollout_of_source_and_target_as_one_set_of_tokens() -> None:
    """Layers of one side leave the tokens of the other as they are."""
    source = [drawn(S, S, seed=seed).softmax(-1) for seed in range(2)]
    whole = [torch.block_diag(map, torch.eye(T, dtype=torch.float64)) for map in source]
    for layer in decoder():
        both = torch.eye(S + T, dtype=torch.float64)
        both[S:] = 0.0
        seen = slice(S, None) if isinstance(layer, SelfLayer) else slice(S)
        both[S:, seen] = layer.weights.mean(0)
        whole.append(both)
    found = rollout_across(decoder(), rollout(source)[-1])
    for reach, joint in zip(found, rollout(whole)[len(source) :], strict=True):
        assert_close(torch.cat([reach.source, reach.target], -1), joint[S:])


def test_all_of_a_token_comes_from_target_and_source() -> None:
    layers = decoder()
    layers[1].weights[:, 2] = 0.0  # a token that may see nothing of the source keeps what it has
    before, after = rollout_across(layers, memory())[:2]
    for reach in rollout_across(layers, memory()):
        assert_close(reach.source.sum(-1) + reach.target.sum(-1), torch.ones(T, dtype=torch.float64))
    assert_close(after.target[2], before.target[2])
    assert_close(after.target[1], before.target[1] / 2)


def tensor(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float32)


def test_two_layers_of_a_decoder_that_can_be_checked_by_eye() -> None:
    first = tensor([1, 0], [1, 0])  # both tokens of the target look at its first one
    alike, last = tensor([1, 0], [0, 1]), tensor([0, 1], [0, 1])
    layers = [SelfLayer(first), CrossLayer(alike), SelfLayer(first), CrossLayer(last)]
    found = rollout_across(layers, tensor([1, 0], [0.5, 0.5]))
    expected = [
        Reach(tensor([1, 0], [0.5, 0.5]), torch.zeros(2, 2)),
        Reach(tensor([0.5, 0], [0.25, 0.25]), tensor([0.5, 0], [0.25, 0.25])),
        Reach(tensor([0.5, 0], [0.375, 0.125]), tensor([0.5, 0], [0.375, 0.125])),
        Reach(tensor([0.25, 0], [0.1875, 0.0625]), tensor([0.5, 0.25], [0.4375, 0.3125])),
    ]
    assert_close(found, expected)


def test_two_layers_with_gradients_that_can_be_checked_by_eye() -> None:
    """Weights of which each raises the score as much as it is large.  R̄ of the memory is [[1, 1], [0, 1]]."""
    layers = [
        SelfLayer(tensor([0, 0], [2, 0])),
        CrossLayer(tensor([0.5, 0], [0, 0.25])),
        SelfLayer(tensor([0, 0], [1, 0])),
        CrossLayer(tensor([0, 0], [1, 1])),
    ]
    found = gradient_rollout_across(layers, [torch.ones(2, 2)] * 4, tensor([1, 3], [0, 1]))
    expected = [
        Reach(tensor([1, 0], [2, 1]), torch.zeros(2, 2)),
        Reach(tensor([1, 0], [2, 1]), tensor([0.5, 0.75], [0, 0.25])),  # the first is a part of the second
        Reach(tensor([1, 0], [3, 1]), tensor([0.5, 0.75], [0.5, 1])),
        Reach(tensor([1, 0], [3, 1]), tensor([1.5, 2.75], [1.5, 3])),
    ]
    assert_close(found, expected)


def test_where_the_target_mixes_nothing_the_source_is_what_was_looked_at() -> None:
    layers, gradients = decoder(), [drawn(*layer.weights.shape, seed=7) - 0.5 for layer in decoder()]
    gradients[0], gradients[3] = -gradients[0].abs(), -gradients[3].abs()  # nothing in the target speaks for it
    *_, last = gradient_rollout_across(layers, gradients, memory())
    assert_close(last.target, torch.eye(T, dtype=torch.float64))
    first, second = ((layers[at].weights * gradients[at]).relu().mean(0) for at in (1, 2))
    assert_close(last.source, (first + second) @ row_normalised(memory()))


def test_nothing_of_the_source_is_relevant_where_nothing_speaks_for_the_score() -> None:
    for weight in (0.0, -1.0):
        found = gradient_rollout_across(decoder(), [weight * layer.weights for layer in decoder()], memory())
        for reach in found:
            assert_close(reach, Reach(torch.eye(T, dtype=torch.float64), torch.zeros(T, S, dtype=torch.float64)))


def test_relevance_is_normalised_by_rows() -> None:
    relevance = torch.eye(T, dtype=torch.float64) + drawn(T, T)
    assert_close(row_normalised(relevance).sum(-1), torch.full((T,), 2.0, dtype=torch.float64))
    assert_close(row_normalised(torch.eye(T)), torch.eye(T))  # nothing was mixed


@pytest.mark.parametrize(
    ("layers", "columns"),
    [
        ([SelfLayer(drawn(T, T)), CrossLayer(drawn(T, S))], S + 1),
        ([SelfLayer(drawn(T, T)), CrossLayer(drawn(T + 1, S))], S),
        ([SelfLayer(drawn(T, S))], S),
        ([], S),
    ],
)
def test_sides_that_do_not_fit_are_refused(layers: list[SelfLayer | CrossLayer], columns: int) -> None:
    with pytest.raises(UserError, match=r"cannot be (followed|rolled out)"):
        rollout_across(layers, torch.eye(columns))
