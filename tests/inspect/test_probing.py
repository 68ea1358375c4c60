"""A probe is at the one minimum of its objective, and what it is tried on it has not seen."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from headway.errors import UserError
from headway.inspect.probing import ProbeSplit, fit_probe, objective


def clouds(count: int, classes: int = 3, width: int = 5, apart: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    targets = torch.arange(count) % classes
    return apart * torch.randn(classes, width)[targets] + torch.randn(count, width), targets


@pytest.mark.parametrize("ridge", [0.1, 1.0, 10.0])
def test_the_probe_is_where_no_step_helps(ridge: float) -> None:
    x, targets = clouds(60)
    x = 100 * x + 5  # in units of its own spread all the same
    probe = fit_probe(x, targets, 3, ridge)
    weight, bias = probe.weight.clone().requires_grad_(), probe.bias.clone().requires_grad_()
    told = (x.double() - probe.mean) / probe.spread
    objective(weight, bias, told, targets, ridge).backward()
    assert weight.grad is not None
    assert bias.grad is not None
    assert max(weight.grad.abs().max(), bias.grad.abs().max()) < 1e-4


def test_the_objective_is_the_sum_that_is_written() -> None:
    x, targets = clouds(7)
    weight, bias = torch.randn(3, 5), torch.randn(3)
    total = 0.0
    for row, label in zip(x, targets.tolist(), strict=True):
        logits = [float(weight[k] @ row + bias[k]) for k in range(3)]
        total += float(torch.tensor(logits).logsumexp(0)) - logits[label]
    total += 0.5 * 2.0 * float(weight.square().sum())
    assert float(objective(weight, bias, x, targets, 2.0)) == pytest.approx(total, rel=1e-5)


@pytest.mark.slow
def test_clouds_apart_are_told_apart_and_noise_is_not() -> None:
    x, targets = clouds(300)
    split = ProbeSplit.of([str(label) for label in targets.tolist()])
    assert split.probed(x).accuracy > 0.9
    noise = split.probed(torch.randn(300, 5))
    assert abs(noise.accuracy - 1 / 3) < 0.2


@pytest.mark.slow
def test_the_ridge_is_chosen_without_what_is_held_out() -> None:
    """Many numbers that mean nothing call for a large ridge, a few that do for a small one."""
    torch.manual_seed(2)
    x, targets = clouds(100, classes=2, apart=4.0)
    split = ProbeSplit.of([str(label) for label in targets.tolist()])
    assert split.best_ridge(torch.randn(100, 200)) == 1000.0
    assert split.best_ridge(x) < 100.0
    spoiled = x.clone()
    spoiled[split.held_out] = 1e6
    assert split.best_ridge(spoiled) == split.best_ridge(x)
    assert split.probed(x).ridge == split.best_ridge(x)


def test_what_never_changes_says_nothing() -> None:
    x, targets = clouds(60)
    flat = torch.cat([x, torch.full((60, 1), 3.0)], 1)
    assert_close(fit_probe(flat, targets, 3).weight[:, :5], fit_probe(x, targets, 3).weight, atol=1e-5, rtol=1e-4)


def test_a_fifth_of_each_class_is_held_out_and_always_the_same() -> None:
    names = ["a"] * 50 + ["b"] * 10 + ["c"]
    split, again = ProbeSplit.of(names), ProbeSplit.of(names)
    assert sorted([*split.training.tolist(), *split.held_out.tolist()]) == list(range(61))
    assert [(split.targets[split.held_out] == label).sum().item() for label in range(3)] == [10, 2, 0]
    assert torch.equal(split.held_out, again.held_out)
    assert split.majority == pytest.approx(10 / 12)


@pytest.mark.parametrize(
    ("names", "said"), [(["a"] * 9, "one class"), (["a", "b"], "more than one"), ([], "no samples")]
)
def test_what_cannot_be_told_apart_is_refused(names: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        ProbeSplit.of(names)
