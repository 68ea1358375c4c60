"""Activation checkpointing: the same gradients, bit for bit, in less memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.recompute import innermost_blocks, recomputed
from headway.recipe import Recipe
from headway.training import defaults
from headway.training.build import StepTiming, batches_of, describe_timing, learner_of
from headway.training.dataset import EncodedDataset
from headway.training.defaults import fitted_to_memory, training_memory
from headway.training.plan import OwnParts, Plan, plan
from headway.training.recipe_sources import read_layers
from headway.training.resuming import resumed_plan
from headway.training.run import begin
from headway.zoo.build import build, config_of
from headway.zoo.cost import activation_bytes, address
from tests.train.models import same, weights
from tests.train.runs import FAMILIES, MORE, PACE, PAIRS, data_in, planned

ON = {"train.recompute": "true"}
DEEP = {"model.layers": "3"}
STAGES = {"model.layers": "[2, 2]"}
# dropout, stochastic depth, cross-attention, tied and shared blocks, routers, batch norms, windows, convolutions
CASES: dict[str, dict[str, str]] = {
    "transformer": DEEP,
    "t5": DEEP,
    "gpt2": DEEP,
    "mixtral": {"model.layers": "2"},
    "masked": DEEP,
    "vit": DEEP,
    "resnet": STAGES,
    "mae": DEEP,
    "simmim swin": {},
    "conformer": {"model.layers": "2"},
    "speech": {"model.layers": "2"},
    "described": {"model.layers": "2"},
    "clip over a swin": {},
    "dictation": {},
    "forecast": DEEP,
}


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("data")) as folder:
        yield folder


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_three_steps_are_the_same_bit_for_bit(name: str, dtype: str) -> None:
    """Losses, gradients' norms, weights and running statistics, with two batches in each step."""
    plain = learner_of(planned(name, **CASES[name], **{"train.dtype": dtype}))
    again = learner_of(planned(name, **CASES[name], **{"train.dtype": dtype}, **ON))
    assert again.recompute
    assert innermost_blocks(again.model)
    for step, batches in enumerate(batches_of(planned(name, **CASES[name]))(1, 4), 1):
        assert plain.learn(step, batches) == again.learn(step, batches)
    kept, others = ({**one.tensors()["model"], **one.tensors()["optimiser"]} for one in (plain, again))
    assert same(dict(kept), dict(others))


@pytest.mark.slow
def test_dropout_draws_the_same_numbers_again_and_no_more() -> None:
    made = planned("gpt2", **DEEP, **ON, **{"train.dropout": "0.3"})
    learner, [batch, *_] = learner_of(made), next(iter(batches_of(made)(1, 2)))
    learner.backward(1, 0, batch, batch.targets)
    after = torch.get_rng_state()
    plain = learner_of(planned("gpt2", **DEEP, **{"train.dropout": "0.3"}))
    plain.backward(1, 0, batch, batch.targets)
    assert torch.equal(after, torch.get_rng_state())
    grads = ({name: weight.grad for name, weight in one.model.named_parameters()} for one in (learner, plain))
    assert same(*cast(Any, tuple(grads)))


def test_each_block_is_computed_twice_and_the_model_is_left_as_it_was() -> None:
    model = build(replace(cast(Any, config_of("gpt-nano")), vocab=20))
    calls, before = list[nn.Module](), weights(model)
    for block in innermost_blocks(model):
        attention = block.get_submodule("attn")
        attention.register_forward_hook(lambda part, given, out: calls.append(part))
    with recomputed(model):
        loss = model(torch.randint(0, 20, (2, 9))).sum()
    assert len(calls) == 3
    assert not any("forward" in vars(part) for part in model.modules())
    loss.backward()
    assert calls[3:] == calls[:3][::-1]
    assert same(before, weights(model))


def test_nothing_is_recomputed_after_an_error() -> None:
    model = build(replace(cast(Any, config_of("gpt-nano")), vocab=20))
    with pytest.raises(RuntimeError, match="wrong"), recomputed(model):
        raise RuntimeError("wrong")
    assert not any("forward" in vars(part) for part in model.modules())


# ---- memory


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "t5", "vit", "conformer"])
def test_what_a_step_keeps_is_estimated(name: str) -> None:
    """The inputs of blocks, and what is outside of them, are kept; beside them the activations of one block."""
    sizes = {"model.layers": "6", **ON}
    made = planned(name, **sizes)
    learner, batch = learner_of(made), next(iter(batches_of(made)(1, 2)))[0]
    own = {address(weight) for weight in learner.model.parameters()}
    outside, inputs, inside = dict[int, Tensor](), dict[int, Tensor](), list[dict[int, Tensor]]()

    def keep(into: dict[int, Tensor], tensor: Tensor) -> Tensor:
        if address(tensor) not in own:
            into[address(tensor)] = tensor
        return tensor

    def noted(block: nn.Module, given: tuple[Any, ...]) -> None:
        keep(inputs, given[0])

    for block in innermost_blocks(learner.model):
        block.register_forward_pre_hook(noted)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: keep(outside, x), lambda x: x), learner.forward_pass():
        learner.loss(learner.model, batch)
    for block in innermost_blocks(learner.model)[:1]:
        inside.append({})
        plain = next(iter(inputs.values())).detach().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda x: keep(inside[-1], x), lambda x: x):
            block(plain)
    held = {**outside, **inputs, **inside[0]}
    real = sum(tensor.untyped_storage().nbytes() for tensor in held.values())
    found = training_memory(made.config, made.recipe, made.encoded).activations
    assert 0.5 < found * batch.tokens / (made.recipe.train.batch or 1) / real < 2


@pytest.mark.slow
def test_the_estimate_grows_with_depth_by_the_inputs_of_blocks_alone() -> None:
    def found(layers: int, recompute: bool) -> float:
        config: Any = replace(cast(Any, config_of("gpt-mini")), vocab=65, layers=layers)
        return activation_bytes(config, build_meta(config), "tokens", 256, recompute=recompute)

    dim = cast(Any, config_of("gpt-mini")).dim
    assert found(9, True) - found(8, True) == pytest.approx(4 * dim)
    assert found(8, True) < 0.35 * found(8, False)


def build_meta(config: Any) -> nn.Module:
    with torch.device("meta"):
        return build(config)


ENCODED = EncodedDataset(lambda tokens, accumulation: NotImplemented, (), 1_000_000, 1000)


def asked(checkpointing: bool | None, batch: int) -> Recipe:
    recipe = Recipe()
    model, data = replace(recipe.model, preset="gpt-mini"), replace(recipe.data, max_length=256)
    train = replace(recipe.train, batch=batch, recompute=checkpointing)
    return replace(recipe, data=data, model=model, train=train)


@pytest.mark.slow
def test_it_is_chosen_where_the_memory_does_not_suffice_without(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("gpt-mini")
    plain, less = (training_memory(config, asked(on, 20_000), ENCODED).total for on in (False, True))
    assert less < plain
    monkeypatch.setattr(defaults, "memory_limit", lambda: round((plain + less) / 2))
    assert fitted_to_memory(config, asked(None, 20_000), ENCODED, []).train.recompute is True
    assert fitted_to_memory(config, asked(None, 64), ENCODED, []).train.recompute is False
    assert fitted_to_memory(config, asked(True, 64), ENCODED, []).train.recompute is True
    with pytest.raises(UserError, match="training gpt-mini needs "):
        fitted_to_memory(config, asked(False, 20_000), ENCODED, [])
    monkeypatch.setattr(defaults, "memory_limit", lambda: round(0.9 * less))
    with pytest.raises(UserError, match="training gpt-mini needs "):
        fitted_to_memory(config, asked(None, 20_000), ENCODED, [])


def test_the_plan_tells_it() -> None:
    for given, told in (({}, False), (ON, True), ({"train.recompute": "false"}, False)):
        made: Plan = planned("gpt2", **given)
        assert made.recipe.train.recompute is told
        lines = describe_timing(made, StepTiming(0.1, 0.1, 10))
        assert any("the activations of each block are recomputed" in line for line in lines) is told


@pytest.mark.slow
def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(UserError, match=r"^train\.recompute: EncoderDecoder has no blocks "):
        planned("rnn", **ON)
    own = OwnParts(module=nn.Linear(3, 3))
    with pytest.raises(UserError, match=r"^train\.recompute: Linear has no blocks to recompute; "):
        plan(read_layers({**PAIRS, **PACE, **ON}, environ={}), own=own)
    assert plan(read_layers({**PAIRS, **PACE}, environ={}), own=own).recipe.train.recompute is False
    assert planned("rnn").recipe.train.recompute is False


def test_a_resumed_run_may_recompute_what_it_kept_before(tmp_path: Path) -> None:
    made = planned("gpt2", out=str(tmp_path / "run"))
    begin(made)
    for given in (True, False):
        layers = read_layers({"out": str(made.out), "train.recompute": given}, environ={})
        assert resumed_plan(layers).recipe.train.recompute is given


@pytest.mark.parametrize("value", ["maybe", "2"])
def test_a_bad_value_is_refused(value: str) -> None:
    with pytest.raises(UserError, match=rf"^--train\.recompute {value} is not true or false$"):
        read_layers({"train.recompute": value}, environ={})


@pytest.mark.long
def test_all_but_recurrent_models_have_blocks() -> None:
    without = {name for name in (*FAMILIES, *MORE) if not innermost_blocks(planned(name).shape())}
    assert without == {"rnn", "seq2seq", "captions", "glimpses"}
