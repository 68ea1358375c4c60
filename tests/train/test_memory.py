"""Whether a run fits into memory is known before any weight is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from headway.errors import UserError
from headway.recipe import Recipe
from headway.system import cgroup_limits, memory_errors, memory_limit
from headway.training import defaults
from headway.training.build import batches_of, learner_of
from headway.training.dataset import EncodedDataset
from headway.training.defaults import TrainingMemory, fitted_to_memory, training_memory
from headway.zoo.build import config_of, on_meta
from headway.zoo.cost import activation_bytes, address
from headway.zoo.presets import PRESETS
from tests.train.runs import data_in, planned

GIB = 2**30


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("data")) as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "t5", "rnn", "tags", "resnet", "captions", "conformer", "forecast"])
def test_activations_are_those_of_a_step(name: str) -> None:
    made = planned(name)
    learner, saved = learner_of(made), dict[int, Tensor]()
    weights = {address(weight) for weight in learner.model.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        if address(tensor) not in weights:
            saved[address(tensor)] = tensor
        return tensor

    batch = next(batches_of(made)(1, 2))[0]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        learner.loss(learner.model, batch)
    real = sum(tensor.untyped_storage().nbytes() for tensor in saved.values())
    found = training_memory(made.config, made.recipe, made.encoded).activations
    assert 0.5 < found * batch.tokens / (made.recipe.train.batch or 1) / real < 2


@pytest.mark.slow
def test_weights_gradients_and_optimiser_are_counted() -> None:
    made = planned("gpt2", **{"train.ema_decay": "0"})
    learner = learner_of(made)
    count = sum(weight.numel() for weight in learner.model.parameters())
    learner.learn(1, next(batches_of(made)(1, 2)))
    state = sum(tensor.numel() for tensor in learner.optimiser.state_tensors().values() if tensor.dim() > 0)
    found = training_memory(made.config, made.recipe, made.encoded)
    assert (found.weights, found.gradients, found.optimiser) == (4 * count, 4 * count, 4 * state)
    average = training_memory(made.config, planned("gpt2").recipe, made.encoded)
    assert average.weights == 2 * found.weights


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sizes"), [("gpt-nano", {"attention_dropout": 0.0}), ("llama3-8b", {"layers": 1})])
def test_attention_keeps_no_weights_for_the_gradient(name: str, sizes: dict[str, Any]) -> None:
    """Its kernel does not, so a token of a long row keeps as much as one of a short row."""
    config: Any = replace(cast(Any, config_of(name)), context=4096, **sizes)
    short, long = (activation_bytes(config, on_meta(config), "tokens", length) for length in (64, 4096))
    assert long < 1.1 * short


def test_what_the_process_has_is_counted_and_nothing_more() -> None:
    assert defaults.resident_memory() < TrainingMemory(0, 0, 0).total < defaults.resident_memory() + 2**27


ENCODED = EncodedDataset(lambda tokens, accumulation: NotImplemented, (), 100_000, 1)


def asked(preset: str, batch: int = 512) -> Recipe:
    recipe = Recipe()
    data, model = replace(recipe.data, max_length=256), replace(recipe.model, preset=preset)
    return replace(recipe, data=data, model=model, train=replace(recipe.train, batch=batch))


def refused(preset: str, limit: float, monkeypatch: pytest.MonkeyPatch, batch: int = 512) -> str:
    monkeypatch.setattr(defaults, "memory_limit", lambda: round(limit))
    others = ((name, config_of(name)) for name in PRESETS if name in ("gpt2-large", "gpt2", "gpt-mini"))
    with pytest.raises(UserError) as caught:
        fitted_to_memory(config_of(preset), asked(preset, batch), ENCODED, sorted(others, reverse=True))
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "weights"), [("llama-7b", "25.1 GiB"), ("gpt3", "650.5 GiB")])
def test_a_model_that_does_not_fit_is_refused_and_one_that_does_is_named(
    preset: str, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(preset, 6 * GIB, monkeypatch)
    assert f"training {preset} needs " in said
    assert f"(weights {weights}, gradients {weights}, optimiser " in said
    assert said.endswith("and there are 6.0 GiB; model.preset gpt2 fits")


@pytest.mark.slow
def test_a_batch_that_does_not_fit_is_refused_and_one_that_does_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused("gpt-mini", 4 * GIB, monkeypatch, batch=1_000_000)
    batch = int(said.rsplit(" ", 1)[1])
    assert 1000 < batch < 1_000_000
    fitted_to_memory(config_of("gpt-mini"), asked("gpt-mini", batch), ENCODED, [])


@pytest.mark.slow
def test_what_fits_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "memory_limit", lambda: 8 * GIB)
    for preset in ("gpt-nano", "gpt2"):
        fitted_to_memory(config_of(preset), asked(preset), ENCODED, [])


# What the machine has.


def test_limits_of_cgroups_are_found_in_both_versions(tmp_path: Path) -> None:
    told = tmp_path / "cgroup"
    told.write_text("4:memory:/jobs/7\n3:cpu:/\n0::/jobs/7\n")
    for folder, name, value in (
        ("memory/jobs/7", "memory.limit_in_bytes", "9223372036854771712"),
        ("memory", "memory.limit_in_bytes", "5000"),  # as a container sees its own
        ("jobs/7", "memory.max", "max"),
        ("jobs", "memory.max", "7000"),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text(f"{value}\n")
    assert sorted(cgroup_limits(told, tmp_path)) == [5000, 7000, 9223372036854771712]
    assert cgroup_limits(tmp_path / "none", tmp_path) == []


def test_this_machine_has_some() -> None:
    assert (memory_limit() or GIB) >= 2**28


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(12, "Cannot allocate memory"), RuntimeError("... can't allocate memory: you tried")],
)
def test_memory_that_runs_out_is_told_in_a_sentence(error: Exception) -> None:
    with (
        pytest.raises(UserError, match=r"^out of memory: this process can have .* GiB; use less$"),
        memory_errors("use less"),
    ):
        raise error


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes"), memory_errors("use less"):
        raise RuntimeError("shapes")
