"""Optimisers: a resumed one goes on as if nothing had happened, clipping touches nothing that is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor, nn

from headway.errors import UserError
from headway.ops.cross_entropy import linear_cross_entropy
from headway.training.groups import freeze, groups
from headway.training.optimiser import (
    Adafactor,
    Adam,
    AdamW,
    Muon,
    Optimiser,
    OptimiserChoice,
    OrthogonalMomentum,
    clip_grad_norm,
    orthogonal,
    slots_of,
)
from tests.train.models import random_gradients, same, tiny_gpt, tiny_rnn, tiny_t5, weights

CHOICES: list[OptimiserChoice] = [AdamW(1e-2), Adam(1e-2), Adafactor(1e-2), Muon(1e-2)]
each_choice = pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: type(choice).__name__)


def optimiser(model: nn.Module, choice: OptimiserChoice, layer_decay: float = 0.9) -> Optimiser:
    return Optimiser(choice, groups(model, layer_decay=layer_decay))


def advance(model: nn.Module, made: Optimiser, steps: range) -> None:
    for step in steps:
        random_gradients(model, step)
        clip_grad_norm(made.parameters, 1.0)
        made.set_lr(1.0 / step)
        made.step()
        made.zero_grad()


def stored(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors after a journey through a file."""
    return load(save({name: tensor.contiguous() for name, tensor in tensors.items()}))


@pytest.mark.slow
@each_choice
@pytest.mark.parametrize("build", [tiny_gpt, tiny_t5])
def test_resumed_it_makes_the_same_updates(choice: OptimiserChoice, build: Callable[[], nn.Module]) -> None:
    model = build()
    made = optimiser(model, choice)
    advance(model, made, range(1, 4))
    kept, state = weights(model), stored(made.state_tensors())
    advance(model, made, range(4, 9))

    again = build()
    again.load_state_dict(kept, strict=False)
    resumed = optimiser(again, choice)
    resumed.load_state_tensors(state)
    assert same(resumed.state_tensors(), state)
    advance(again, resumed, range(4, 9))
    assert same(weights(again), weights(model))
    assert same(resumed.state_tensors(), made.state_tensors())


@each_choice
def test_without_its_state_it_does_not(choice: OptimiserChoice) -> None:
    model = tiny_gpt()
    made = optimiser(model, choice)
    advance(model, made, range(1, 4))
    again = tiny_gpt()
    again.load_state_dict(weights(model), strict=False)
    advance(model, made, range(4, 5))
    advance(again, optimiser(again, choice), range(4, 5))
    assert not same(weights(again), weights(model))


@each_choice
def test_the_same_gradients_make_the_same_bits(choice: OptimiserChoice) -> None:
    torch.manual_seed(3)
    one = tiny_gpt()
    torch.manual_seed(3)
    other = tiny_gpt()
    advance(one, optimiser(one, choice), range(1, 5))
    advance(other, optimiser(other, choice), range(1, 5))
    assert same(weights(one), weights(other))


@each_choice
def test_what_is_remembered_is_what_is_expected(choice: OptimiserChoice) -> None:
    model = tiny_t5()
    made = optimiser(model, choice)
    assert {name.rpartition("/")[2] for name in made.state_tensors()} == {"fresh"}
    advance(model, made, range(1, 2))
    shapes: dict[str, torch.Size] = {}
    for name, parameter in made.named.items():
        shapes |= {f"{name}/{slot}": shape for slot, shape in slots_of(made.owners[parameter], parameter).items()}
    assert {name: tensor.shape for name, tensor in made.state_tensors().items()} == shapes
    assert {name.rpartition("/")[0] for name in shapes} == set(weights(model))


def test_a_parameter_without_gradients_stays_fresh() -> None:
    model = tiny_gpt()
    made = optimiser(model, AdamW())
    random_gradients(model, 0)
    name, parameter = next(iter(made.named.items()))
    before = parameter.detach().clone()
    parameter.grad = None
    made.step()
    state = made.state_tensors()
    assert f"{name}/fresh" in state
    assert torch.equal(parameter, before)
    made.load_state_tensors(state)
    assert same(made.state_tensors(), state)


@pytest.mark.parametrize("spoil", ["another shape", "a slot less", "a parameter less", "a parameter more", "no name"])
def test_a_state_that_does_not_fit_is_refused_whole(spoil: str) -> None:
    model = tiny_gpt()
    made = optimiser(model, AdamW())
    advance(model, made, range(1, 3))
    kept = made.state_tensors()
    state, name = stored(kept), "stack.norm.weight"
    if spoil == "another shape":
        state[f"{name}/exp_avg"] = torch.zeros(7)
    elif spoil == "a slot less":
        del state[f"{name}/exp_avg_sq"]
    elif spoil == "a parameter less":
        state = {key: tensor for key, tensor in state.items() if not key.startswith(f"{name}/")}
    elif spoil == "a parameter more":
        name = "head.weight"
        state[f"{name}/step"] = torch.zeros(())
    else:
        name = "a nameless tensor"
        state["step"] = torch.zeros(())
    before = {key: tensor.clone() for key, tensor in kept.items()}
    with pytest.raises(UserError, match=f"does not fit at {name}"):
        made.load_state_tensors(state)
    assert same(made.state_tensors(), before)


def test_another_optimiser_s_state_is_refused() -> None:
    model = tiny_gpt()
    made = optimiser(model, AdamW())
    advance(model, made, range(1, 2))
    with pytest.raises(UserError, match=r"does not fit at .* and 48 more"):
        optimiser(model, Adafactor()).load_state_tensors(made.state_tensors())


def test_adam_literally() -> None:
    """The first update of Adam is the rate in the direction of the gradient's sign; AdamW also shrinks matrices."""
    for choice, kept in ((Adam(0.1), 1.0), (AdamW(0.1, weight_decay=0.5), 1.0 - 0.1 * 0.5)):
        model = nn.Linear(2, 2)
        with torch.no_grad():
            model.weight.fill_(1.0)
            model.bias.fill_(1.0)
        made = Optimiser(choice, groups(model))
        model.weight.grad = torch.tensor([[3.0, -3.0], [1.0, -1.0]])
        model.bias.grad = torch.tensor([2.0, -2.0])
        made.step()
        torch.testing.assert_close(model.weight.detach(), kept - 0.1 * torch.tensor([[1.0, -1.0], [1.0, -1.0]]))
        torch.testing.assert_close(model.bias.detach(), 1.0 - 0.1 * torch.tensor([1.0, -1.0]))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
@pytest.mark.parametrize("shape", [(24, 24), (32, 8), (8, 40)])
def test_muon_is_torch_s(shape: tuple[int, int]) -> None:
    start = torch.randn(shape)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    group = {"params": [ours], "weight_decay": 0.1}
    pair = [
        (ours, OrthogonalMomentum([group], lr=0.1)),
        (theirs, torch.optim.Muon([theirs], lr=0.1, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")),
    ]
    for step in range(5):
        for parameter, made in pair:
            parameter.grad = torch.randn(shape, generator=torch.Generator().manual_seed(step))
            made.step()
    moved = (theirs - start).norm()
    assert (ours - theirs).norm() < 0.03 * moved  # theirs rounds to bf16


@given(rows=st.integers(1, 20), columns=st.integers(1, 20))
def test_orthogonal_brings_singular_values_near_to_one(rows: int, columns: int) -> None:
    values = torch.linalg.svdvals(orthogonal(torch.linalg.qr(torch.randn(rows, columns)).Q + 0.0))
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_muon_takes_the_matrices_of_layers_and_adamw_the_rest() -> None:
    model = tiny_gpt()
    made = optimiser(model, Muon())
    by_muon = {name for name, p in made.named.items() if isinstance(made.owners[p], OrthogonalMomentum)}
    assert by_muon == {name for name, p in model.named_parameters() if ".blocks." in name and p.dim() == 2}
    with pytest.raises(UserError, match="use AdamW"):
        optimiser(tiny_rnn(), Muon())


def test_rates_follow_schedule_and_depth() -> None:
    model = tiny_gpt()
    made = optimiser(model, AdamW(0.8), layer_decay=0.5)
    assert made.set_lr(0.25) == pytest.approx(0.2)
    rates = {p: group["lr"] for part in made.parts for group in part.param_groups for p in group["params"]}
    named = {name: rates[p] for name, p in model.named_parameters()}
    assert named["stack.norm.weight"] == pytest.approx(0.2)
    assert named["stack.blocks.2.attn.body.q.weight"] == pytest.approx(0.1)
    assert named["stack.blocks.0.attn.body.q.weight"] == pytest.approx(0.025)
    assert named["embed.token.weight"] == pytest.approx(0.0125)


def test_frozen_parameters_are_neither_updated_nor_remembered() -> None:
    model = tiny_gpt()
    frozen = freeze(model, 1)
    made = optimiser(model, AdamW(0.1))
    before = weights(model)
    advance(model, made, range(1, 3))
    assert [name for name, weight in weights(model).items() if torch.equal(weight, before[name])] == frozen
    assert not any(name.rpartition("/")[0] in frozen for name in made.state_tensors())


def parameters(*gradients: list[float] | None) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.zeros(2)) for _ in gradients]
    for parameter, gradient in zip(made, gradients, strict=True):
        parameter.grad = None if gradient is None else torch.tensor(gradient)
    return made


def test_clipping_literally() -> None:
    given = parameters([3.0, 0.0], None, [0.0, 4.0])
    assert clip_grad_norm(given, 10.0) == pytest.approx(5.0)
    assert [p.grad.tolist() for p in given if p.grad is not None] == [[3.0, 0.0], [0.0, 4.0]]
    assert clip_grad_norm(given, 1.0) == pytest.approx(5.0)
    torch.testing.assert_close(given[0].grad, torch.tensor([0.6, 0.0]))
    torch.testing.assert_close(given[2].grad, torch.tensor([0.0, 0.8]))
    assert clip_grad_norm(given, 0.0) == pytest.approx(1.0)
    large = parameters([30.0, 40.0])
    assert clip_grad_norm(large, 0.0) == pytest.approx(50.0)
    assert clip_grad_norm(large, 0.0) == pytest.approx(50.0)
    assert clip_grad_norm(parameters(None), 1.0) == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_is_told_and_left(bad: float) -> None:
    given = parameters([3.0, 0.0], [bad, 4.0])
    assert not math.isfinite(clip_grad_norm(given, 1.0))
    assert given[0].grad is not None
    assert given[0].grad.tolist() == [3.0, 0.0]


def test_a_large_finite_gradient_is_finite() -> None:
    given = parameters([1e30, 0.0], [1e30, 0.0])
    assert clip_grad_norm(given, 1.0) == pytest.approx(2**0.5 * 1e30)
    assert clip_grad_norm(given, 0.0) == pytest.approx(1.0)


@pytest.mark.slow
@each_choice
def test_several_batches_are_one_to_the_optimiser(choice: OptimiserChoice) -> None:
    torch.manual_seed(1)
    one = tiny_gpt().double()
    torch.manual_seed(1)
    other = tiny_gpt().double()
    ids, wanted = torch.randint(30, (6, 10)), torch.randint(30, (6, 10))

    def learn(model: nn.Module, parts: list[slice]) -> None:
        made = optimiser(model, choice)
        for step in range(1, 4):
            for part in parts:
                features = model.features(ids[part]).flatten(0, 1)
                loss = linear_cross_entropy(features, model.head.weight, None, wanted[part].flatten(), smoothing=0.1)
                (loss / wanted.numel()).backward()
            clip_grad_norm(made.parameters, 0.5)
            made.set_lr(1.0 / step)
            made.step()
            made.zero_grad()

    for model in (one, other):
        model.eval()
    learn(one, [slice(0, 6)])
    learn(other, [slice(0, 1), slice(1, 4), slice(4, 6)])
    for name, weight in weights(one).items():
        torch.testing.assert_close(weights(other)[name], weight, rtol=1e-6, atol=1e-8)


def test_an_impossible_rate_is_told() -> None:
    with pytest.raises(UserError, match="a learning rate of -1"):
        optimiser(tiny_gpt(), AdamW(-1.0))
