"""Runs with LoRA: only what is new learns, is kept, and is written; and cut runs are those that were not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from headway.errors import UserError
from headway.interop.adapter import WEIGHTS
from headway.interop.weights import read_safetensors
from headway.loading import load
from headway.nn.low_rank import DoRALinear, LoRALinear, adapted
from headway.nn.trunk import tensors_of
from headway.training.api import train
from headway.training.build import learner_of
from headway.training.lora import LoRA, attach
from headway.training.plan import Plan, plan
from headway.training.recipe_sources import check_recipe, read_layers, resolve
from tests.train.disks import same
from tests.train.models import tiny_gpt
from tests.train.runs import FAMILIES, IMAGES, LABELS, PACE, PAIRS, STEPS, TEXT, Trial, data_in

DATA = {"transformer": PAIRS, "classes": LABELS, "gpt2": TEXT, "vit": IMAGES}


@pytest.fixture(scope="module", autouse=True)
def bases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Models to start from, in the current folder."""
    with data_in(tmp_path_factory.mktemp("data")):
        for name in DATA:
            made = plan(read_layers({**FAMILIES[name], **PACE, "out": name}, environ={}))
            made.as_model(made.build()).save(f"{name}-base")
        yield


LOW = "rank=2,alpha=4,dropout=0.1"


def with_lora(name: str, lora: str = LOW) -> Plan:
    own = {key: value for key, value in DATA[name].items() if key != "data.tokenizer"}
    given = {**own, **PACE, "model.from": f"{name}-base", "model.lora": lora, "out": "run"}
    return plan(read_layers(given, environ={}))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*DATA, "gpt2 with DoRA"])
def test_a_run_cut_twice_is_the_run_that_was_not(name: str, memory: Path) -> None:
    name, *dora = name.split(" with ")
    lora = LOW + ",dora=true" * len(dora)
    whole, cut = Trial(with_lora(name, lora), memory / "whole"), Trial(with_lora(name, lora), memory / "cut")
    for trial in (whole, cut):
        trial.folder.mkdir()
    assert whole.run().step == STEPS
    cut.run(7)
    cut.run(13, resume=True)
    cut.made = with_lora(name, lora)
    cut.run(resume=True)
    assert cut.left()[1] == whole.left()[1]
    assert same(cut.left()[0], whole.left()[0])


def test_checkpoints_and_optimiser_hold_what_learns_alone() -> None:
    made = with_lora("gpt2")
    learner = learner_of(made)
    own = {f"{name}.lora_{part}" for name in adapted(learner.model) for part in "ab"}
    assert len(own) == 12  # q, k, v, out, up and down of one layer
    found = learner.tensors()
    assert found["model"].keys() == own
    assert found["average"].keys() - {"/updates"} == own
    sizes = sum(tensor.numel() for name, tensor in learner.model.named_parameters() if name in own)
    assert sum(one.numel() for one in learner.optimiser.parameters) == sizes
    learner.learn(1, next(iter(made.encoded.batches(192, 1).between(1, 2))))
    state = learner.optimiser.state_tensors()
    assert sum(one.numel() for one in state.values()) < 2.1 * sizes


def test_dora_learns_in_mixed_precision() -> None:
    made = with_lora("gpt2", "rank=2,dora=true,targets=q+v,dropout=0.5")
    learner = learner_of(replace(made, recipe=replace(made.recipe, train=replace(made.recipe.train, dtype="bf16"))))
    lengths = [one.lora_magnitude for one in adapted(learner.model).values() if isinstance(one, DoRALinear)]
    before = [one.detach().clone() for one in lengths]
    assert not learner.learn(1, next(iter(made.encoded.batches(192, 1).between(1, 2)))).skipped
    assert len(lengths) == 2
    assert not any(torch.equal(one, other) for one, other in zip(lengths, before, strict=True))


def test_the_base_stays_and_a_new_head_learns() -> None:
    Path("renamed.csv").write_text(Path("labels.csv").read_text().replace("up", "north").replace("down", "south"))
    before = {name: tensor.clone() for name, tensor in tensors_of(load("classes-base").model).items()}
    found = train("renamed.csv", model="classes-base", lora=2, steps=6, batch=80, out="renamed", quiet=True)
    written = read_safetensors(Path("renamed") / WEIGHTS)
    others = {name for name in written if "lora_" not in name}
    assert others == {"base_model.model.classifier.weight", "base_model.model.classifier.bias"}
    again, text = load("renamed"), "the cat sees the dog"
    assert again.predict(text).to_dict()["probabilities"] == pytest.approx(
        found.predict(text).to_dict()["probabilities"]
    )
    layers = {f"stack.{name}.weight" for name, part in again.model.stack.named_modules() if type(part) is nn.Linear}  # type: ignore[union-attr]
    now = tensors_of(again.model)
    changed = {name for name, tensor in before.items() if not torch.equal(now[name], tensor)}
    assert changed == {*layers, "head.out.weight", "head.out.bias"}


def test_targets_are_names_ends_of_names_and_patterns() -> None:
    def layers_of(*targets: str) -> set[str]:
        model = tiny_gpt()
        attach(model, LoRA(1, 1.0, 0.0, targets), tensors_of(model))
        return set(adapted(model))

    block = "stack.blocks"
    assert layers_of("q") == {f"{block}.{at}.attn.body.q" for at in range(3)}
    assert layers_of("blocks.1.*.up") == {f"{block}.1.ffn.body.up"}
    assert layers_of(f"{block}.2.*") == {name for name in layers_of() if name.startswith(f"{block}.2.")}
    assert len(layers_of()) == 18
    with pytest.raises(UserError, match=r"no linear layer is called 'query'; allowed: names such as q, k, v, out"):
        layers_of("q", "query")


def test_dpo_with_lora_remembers_what_learns_alone() -> None:
    from headway.tasks.preferences import PreferenceLM
    from tests.tasks.learners import words

    model = tiny_gpt()
    attach(model, LoRA(2, 4.0), tensors_of(model))
    remembered = PreferenceLM(words()).memory(model)
    assert remembered is not None
    assert all("lora_" in name for name in remembered)
    assert sum(isinstance(part, LoRALinear) for part in model.modules()) == len(remembered) / 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rank=0", "model.lora rank=0; allowed: a number from 1 to 16,384"),
        ("0", "model.lora rank=0; allowed"),
        ("rank=2.5", "model.lora rank=2.5; allowed: a whole number"),
        ("alpha=8", "model.lora alpha=8; allowed: rank=8"),
        ("rank=8,beta=1", "model.lora rank=8,beta=1; allowed: rank=8"),
        ("rank=8,rank=9", "model.lora rank=8,rank=9; allowed: rank=8"),
        ("rank=8,alpha=many", "model.lora alpha=many; allowed: a number"),
        ("rank=8,dropout=1", "model.lora dropout=1; allowed: a number from 0 to 0.99"),
        ("rank=8,dora=yes", "model.lora dora=yes; allowed: true or false"),
    ],
)
def test_settings_that_make_no_sense_are_refused(words: str, said: str) -> None:
    recipe = resolve(
        read_layers({"data.path": "labels.csv", "model.from": "classes-base", "model.lora": words}, None, {})
    )
    with pytest.raises(UserError) as caught:
        check_recipe(recipe)
    assert said in str(caught.value)


def test_lora_needs_a_model_and_leaves_nothing_to_freeze() -> None:
    with pytest.raises(UserError, match=r"model\.lora needs a model whose weights stay as they are"):
        check_recipe(resolve(read_layers({"data.path": "labels.csv", "model.lora": "8"}, None, {})))
    with pytest.raises(UserError, match=r"model\.freeze and model\.lora are both given"):
        read_layers({"model.from": "classes-base", "model.lora": "8", "model.freeze": "1"}, None, {})


def test_what_is_said_of_lora_is_read() -> None:
    assert LoRA.of([8]) == LoRA(8, 16.0)
    assert LoRA.of(["rank=4", "alpha=2", "dropout=0.1", "targets=q+v"]) == LoRA(4, 2.0, 0.1, ("q", "v"))
    assert LoRA.of(["rank=4", "dora=true"]) == LoRA(4, 8.0, dora=True)
    assert LoRA(4, 2.0).scale == 0.5
