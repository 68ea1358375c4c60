"""What batch norms gather is part of a run: it is stored, taken up again, averaged, and never moved by mistake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.nn.trunk import tensors_of
from headway.training.groups import freeze, groups
from headway.training.learner import EMA, Learner
from headway.training.optimiser import AdamW, Constant, Optimiser
from headway.training.store import Snapshot, Store
from headway.zoo import resnet
from tests.train.models import same


@dataclass(frozen=True)
class Batch:
    images: Tensor
    classes: Tensor

    @property
    def targets(self) -> int:
        return len(self.classes)

    tokens = targets


def batch(key: int) -> Batch:
    draw = torch.Generator().manual_seed(key)
    return Batch(torch.randn(6, 1, 9, 7, generator=draw), torch.randint(0, 3, (6,), generator=draw))


def loss(model: nn.Module, given: Batch) -> Tensor:
    return F.cross_entropy(model(given.images), given.classes, reduction="sum")


def learner(*frozen: str) -> Learner:
    torch.manual_seed(1)
    model = resnet.build(
        resnet.Config(channels=1, dim=4, stem="small", layers=(1, 1), widths=(8, 8), attention=(1,), heads=2, classes=3)
    )
    if frozen:
        freeze(model, frozen)
    optimiser = Optimiser(AdamW(1e-2), groups(model))
    return Learner(model, loss, optimiser, Constant(0), seed=3, average=EMA(model, 0.9))


def kept(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors_of(model).items()}


def gathered(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


@pytest.mark.slow
def test_a_run_that_is_taken_up_again_is_the_same_to_the_bit(tmp_path: Path) -> None:
    whole, store = learner(), Store(tmp_path)
    for step in range(1, 4):
        whole.learn(step, [batch(step), batch(-step)])
        if step == 2:
            store.save(Snapshot(2, whole.tensors(), {}))
    again = learner()
    again.restore(store.load(2).tensors)
    again.learn(3, [batch(3), batch(-3)])
    assert gathered(whole.model)["embed.blocks.0.norm.num_batches_tracked"] == 6
    for part, tensors in whole.tensors().items():
        assert same(dict(again.tensors()[part]), dict(tensors)), part


def test_a_step_that_is_skipped_leaves_what_was_gathered() -> None:
    one = learner()
    one.learn(1, [batch(1)])
    before = kept(one.model)
    broken = batch(2)
    broken.images[0, 0, 0, 0] = float("nan")
    assert one.learn(2, [batch(3), broken]).skipped
    assert same(kept(one.model), before)


def test_what_is_frozen_gathers_nothing() -> None:
    one = learner("embed", "stack.blocks.0")
    before = gathered(one.model)
    one.learn(1, [batch(1)])
    moved = {name for name, buffer in gathered(one.model).items() if not torch.equal(buffer, before[name])}
    assert moved == {name for name in before if name.startswith("stack.blocks.1.")}


def test_an_average_has_statistics_of_its_own() -> None:
    one = learner()
    for step in range(1, 6):
        one.learn(step, [batch(step)])
    own, average = kept(one.model), one.average
    assert average is not None
    with average.applied(one.model):
        inside = kept(one.model)
    assert same(kept(one.model), own)
    counts = [name for name in own if name.endswith("num_batches_tracked")]
    assert counts
    assert all(inside[name] == own[name] == 5 for name in counts)
    means = [name for name in own if name.endswith("running_mean")]
    assert not any(torch.equal(inside[name], own[name]) for name in means)
    assert all(bool(inside[name].abs().max() > 0) for name in means)


@pytest.mark.parametrize("frozen", [(), ("embed",)])
def test_a_model_that_is_evaluated_gathers_nothing(frozen: tuple[str, ...]) -> None:
    one = learner(*frozen)
    one.learn(1, [batch(1)])
    before = gathered(one.model)
    one.model.eval()
    one.model(batch(2).images)
    assert same(gathered(one.model), before)
