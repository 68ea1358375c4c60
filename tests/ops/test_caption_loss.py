"""What captioners learn by besides words: numbers by hand, and the estimate of REINFORCE against the true gradient."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from headway.errors import UserError
from headway.ops.losses import Baseline, doubly_stochastic, per_caption, reinforce


def test_the_penalty_by_hand() -> None:
    """Two words, three places: the first is looked at 1.5 times, the second 0.5 times, the third never."""
    weights = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]])
    assert float(doubly_stochastic(weights)) == pytest.approx(0.25 + 0.25 + 1.0)
    assert float(doubly_stochastic(weights[:, None])) == pytest.approx(1.5)
    assert float(doubly_stochastic(weights, torch.tensor([[True, False]]))) == pytest.approx(0.0 + 1.0 + 1.0)


def test_as_many_words_as_places_can_look_everywhere() -> None:
    assert float(doubly_stochastic(torch.eye(4)[None])) == 0.0
    assert float(doubly_stochastic(torch.full((3, 4, 4), 0.25))) == 0.0


def test_captions_count_alone() -> None:
    weights, real = torch.rand(3, 5, 4), torch.rand(3, 5) < 0.6
    alone = [doubly_stochastic(weights[i : i + 1], real[i : i + 1]) for i in range(3)]
    assert_close(doubly_stochastic(weights, real), torch.stack(alone).sum())


def test_the_baseline_moves_by_a_tenth() -> None:
    first = Baseline().updated(torch.tensor([-10.0, -20.0]))
    assert first == Baseline(-15.0, 0.1, 1)
    assert first.updated(torch.tensor([-5.0, -5.0])) == Baseline(pytest.approx(-14.0), 0.1, 2)


def test_reinforce_by_hand() -> None:
    """A caption 2 better than expected and one 3 worse; choices of chance ½ and ¼."""
    chance = torch.tensor([0.5, 0.25]).log().requires_grad_()
    entropy = torch.tensor([0.7, 0.1], requires_grad=True)
    good = torch.tensor([-8.0, -13.0], requires_grad=True)
    loss, after = reinforce(good, chance, entropy, Baseline(-10.0, 0.1, 3), reward=0.5, curiosity=0.2)
    loss.backward()
    assert_close(chance.grad, torch.tensor([-0.5 * 2.0, 0.5 * 3.0]))
    assert_close(entropy.grad, torch.tensor([-0.2, -0.2]))
    assert good.grad is None  # how good a caption became is no function of where it looked
    assert after == Baseline(pytest.approx(0.9 * -10.0 + 0.1 * -10.5), 0.1, 4)


@pytest.mark.parametrize("value", [-50.0, 0.0, 3.0])
def test_the_estimate_is_the_gradient_whatever_the_baseline(value: float) -> None:
    """Over all choices, each by its chance, the estimates sum to the gradient of the expected log-likelihood."""
    logits = torch.tensor([0.3, -1.0, 0.8], dtype=torch.double, requires_grad=True)
    good = torch.tensor([-4.0, -2.0, -7.0], dtype=torch.double)
    (true,) = torch.autograd.grad((logits.softmax(0) * good).sum(), logits)
    estimate = torch.zeros_like(logits)
    for place, chance in enumerate(logits.softmax(0).detach()):
        log_chance = logits.log_softmax(0)[place : place + 1]
        told = good[place : place + 1]
        loss, _ = reinforce(told, log_chance, torch.zeros(1), Baseline(value, 0.1, 1), curiosity=0.0)
        estimate -= chance * torch.autograd.grad(loss, logits)[0]
    assert_close(estimate, true)


def test_words_are_gathered_by_caption() -> None:
    found = per_caption(torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([0, 2, 0, 2]), 3)
    assert found.tolist() == [5.0, 0.0, 10.0]


def test_mistakes_are_told() -> None:
    with pytest.raises(UserError, match="the weights of captions are 2×3; allowed: B T S"):
        doubly_stochastic(torch.ones(2, 3))
    with pytest.raises(UserError, match="captions were given as 2, 3, 2"):
        reinforce(torch.ones(2), torch.ones(3), torch.ones(2), Baseline())
