"""Averages: literally, lent out and given back bit for bit, and the same after a file."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headway.errors import UserError
from headway.training.learner import EMA, mean_tensors
from tests.train.models import same, tiny_gpt, tiny_transformer, weights


def shake(model: nn.Module, key: int) -> None:
    source = torch.Generator().manual_seed(key)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=source), alpha=0.1)


def test_literally() -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(0.0)
        average = EMA(model, 0.25)
        model.weight.fill_(11.0)
        average.update(model)  # decay 2/11, less than 1/4
        assert average.kept["weight"].item() == pytest.approx(9.0)
        model.weight.fill_(1.0)
        average.update(model)  # decay 3/12
        assert average.kept["weight"].item() == pytest.approx(3.0)
        model.weight.fill_(7.0)
        average.update(model)  # 4/13 is more than 1/4
    assert average.kept["weight"].item() == pytest.approx(6.0)


def test_of_weights_that_stay_it_is_these_weights() -> None:
    model = tiny_gpt()
    average = EMA(model, 0.99)
    for _ in range(5):
        average.update(model)
    assert same(average.kept, weights(model))


def test_tied_parameters_count_once() -> None:
    model = tiny_transformer()
    average = EMA(model, 0.5)
    shake(model, 0)
    average.update(model)
    assert set(average.kept) == {name for name, _ in model.named_parameters()}
    with average.applied(model):
        head, embedding = model.decoder.head.weight, model.encoder.embed.token.weight
        assert head is embedding
        assert torch.equal(head, average.kept["encoder.embed.token.weight"])


@pytest.mark.slow
def test_it_is_lent_and_the_model_has_its_own_weights_back() -> None:
    model = tiny_gpt()
    average = EMA(model, 0.9)
    shake(model, 0)
    average.update(model)
    own, kept = weights(model), {name: tensor.clone() for name, tensor in average.kept.items()}
    with average.applied(model):
        assert same(weights(model), kept)
    assert same(weights(model), own)
    with pytest.raises(ZeroDivisionError), average.applied(model):
        raise ZeroDivisionError
    assert same(weights(model), own)
    assert same(average.kept, kept)
    assert not same(own, kept)


def test_small_steps_in_bf16_are_not_lost() -> None:
    model = nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        model.weight.fill_(1.0)
        average = EMA(model, 0.999)
        average.updates = 100_000  # beyond the warm-up of the decay
        model.weight.fill_(2.0)
        for _ in range(1000):
            average.update(model)
    assert average.kept["weight"].item() == pytest.approx(2 - 0.999**1000, abs=1e-3)
    with average.applied(model):
        assert model.weight.dtype == torch.bfloat16
    assert model.weight.item() == 2.0


def test_resumed_it_goes_on_as_if_nothing_had_happened() -> None:
    model = tiny_gpt()
    average = EMA(model, 0.9)
    for key in range(3):
        shake(model, key)
        average.update(model)
    kept = {name: tensor.clone() for name, tensor in average.tensors().items()}
    again = EMA(model, 0.9)
    again.load(kept)
    for key in range(3, 6):
        shake(model, key)
        average.update(model)
        again.update(model)
    assert same(again.tensors(), average.tensors())


def test_what_does_not_fit_is_refused() -> None:
    average = EMA(tiny_gpt(), 0.9)
    tensors = average.tensors()
    for wrong in (
        {**tensors, "stack.norm.weight": torch.zeros(3)},
        {name: tensor for name, tensor in tensors.items() if name != "stack.norm.weight"},
    ):
        with pytest.raises(UserError, match=r"does not fit the model at stack\.norm\.weight"):
            average.load(wrong)
    with pytest.raises(UserError, match="decay=1"):
        EMA(tiny_gpt(), 1.0)


def test_the_mean_of_checkpoints() -> None:
    several = [{"a": torch.tensor([value, 1.0]), "n": torch.tensor(3)} for value in (1.0, 2.0, 6.0)]
    mean = mean_tensors(several)
    assert mean["a"].tolist() == [3.0, 1.0]
    assert mean["a"].dtype == torch.float32
    assert mean["n"].item() == 3
    assert several[0]["a"].tolist() == [1.0, 1.0]


def test_the_mean_is_exact_where_float32_is_not() -> None:
    large, small = torch.tensor([2.0**24]), torch.tensor([1.0])
    assert mean_tensors([{"a": large}, {"a": small}, {"a": small}, {"a": -large}])["a"].item() == 0.5
    one = tiny_gpt()
    assert same(mean_tensors([weights(one)] * 3), weights(one))


def test_checkpoints_of_different_models_have_no_mean() -> None:
    with pytest.raises(UserError, match="does not fit the model at b"):
        mean_tensors([{"a": torch.zeros(1)}, {"a": torch.zeros(1), "b": torch.zeros(1)}])
    with pytest.raises(UserError, match="no checkpoints"):
        mean_tensors([])
