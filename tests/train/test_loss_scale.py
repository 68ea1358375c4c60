"""Mixed precision in fp16: scales are those of torch, an overflow is skipped, and a resumed run is the same run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from headway.dtype import FP16
from headway.errors import UserError
from headway.recipe import flat, from_flat
from headway.training import loss_scale
from headway.training.build import batches_of, learner_of
from headway.training.calibration import with_dtype
from headway.training.learner import Learner
from headway.training.loss_scale import FIRST_SCALE, LossScale
from headway.training.plan import Plan
from headway.training.store import Store
from tests.simulated_device import moved, simulated_device
from tests.train.disks import same, same_tensors
from tests.train.runs import Trial, data_in, planned

STEPS = 3


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("scales")) as folder:
        yield folder


def in_fp16(made: Plan) -> Plan:
    return replace(made, recipe=from_flat({**flat(made.recipe), "train.dtype": FP16}))


def test_scales_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "GROWTH_INTERVAL", 3)
    theirs, ours = torch.amp.GradScaler("cpu", growth_interval=3), LossScale()
    weight = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=0.0)
    for finite in [True] * 7 + [False] * 2 + [True, True, False] + [True] * 4:
        theirs.scale(weight.sum()).backward()
        assert weight.grad is not None
        if not finite:
            weight.grad.fill_(math.inf)
        theirs.step(optimiser)
        theirs.update()
        optimiser.zero_grad()
        ours.update(finite=finite)
        assert ours.scale == theirs.get_scale()


def test_a_scale_ends_at_one() -> None:
    one = LossScale()
    lowered = [one.update(finite=False) for _ in range(20)]
    assert lowered == [True] * 16 + [False] * 4
    assert one.scale == 1.0


def updated(made: Plan, scale: LossScale | None) -> dict[str, Any]:
    """What some steps in float32 make of a model."""
    learner = learner_of(made)
    learner.loss_scale = scale
    for step, batches in enumerate(batches_of(made)(1, 1 + STEPS), 1):
        assert not learner.learn(step, batches).skipped
    return {part: dict(named) for part, named in learner.tensors().items() if part != "loss_scale"}


@pytest.mark.parametrize("family", ["transformer", "mixtral", "resnet", "conformer"])
def test_in_float32_a_scale_changes_nothing(family: str) -> None:
    made = planned(family, **{"train.dtype": "fp32"})
    plain, scaled = updated(made, None), updated(made, LossScale())
    assert all(same_tensors(plain[part], scaled[part]) for part in plain)


@pytest.mark.parametrize("family", ["gpt2", "classes"])
def test_on_another_device_it_is_the_same(family: str) -> None:
    """That device has no autocast, so the products are those of float32; an overflow is skipped there too."""
    made = planned(family, **{"train.dtype": "fp32", "train.dropout": "0", "train.eps": "1"})
    plain = updated(made, None)
    with simulated_device():
        model = moved(made.build())
    with simulated_device(), patch.object(Plan, "build", lambda _: model):
        scaled = updated(made, LossScale())
        for name, tensor in plain["model"].items():
            torch.testing.assert_close(scaled["model"][name].cpu(), tensor, rtol=1e-5, atol=1e-5)
        learner = learner_of(made)
        learner.loss_scale = LossScale(2.0**200)
        result = learner.learn(1, next(batches_of(made)(1, 2)))
        assert (result.skipped, result.overflowed, learner.loss_scale.scale) == (True, True, 2.0**199)


def test_steps_in_fp16_are_near_those_in_float32() -> None:
    exact, made = planned("gpt2", **{"train.dtype": "fp32"}), in_fp16(planned("gpt2"))
    found = list[list[float]]()
    for one in (exact, made):
        learner = learner_of(one)
        assert (learner.loss_scale is None) == (one is exact)
        results = [learner.learn(step, batches) for step, batches in enumerate(batches_of(one)(1, 1 + STEPS), 1)]
        assert not any(result.skipped for result in results)
        found.append([result.loss / result.targets for result in results])
    assert found[1] == pytest.approx(found[0], rel=0.02)
    assert found[1] != found[0]


def test_an_overflow_changes_nothing_but_the_scale_and_ends_no_run() -> None:
    made = in_fp16(planned("gpt2"))
    learner = learner_of(made)
    learner.loss_scale = LossScale(2.0**40)
    before = {part: {n: x.clone() for n, x in named.items()} for part, named in learner.tensors().items()}
    results = [learner.learn(step, batches) for step, batches in enumerate(batches_of(made)(1, 6), 1)]
    assert all(result.skipped and result.overflowed for result in results)  # more of them than end a run otherwise
    assert learner.loss_scale.scale == 2.0**35
    after = learner.tensors()
    assert all(same_tensors(before[part], after[part]) for part in ("model", "optimiser"))


def test_a_loss_that_is_no_number_is_no_overflow() -> None:
    made = in_fp16(planned("gpt2"))
    learner = learner_of(made)
    with torch.no_grad():
        next(learner.model.parameters()).fill_(math.nan)
    result = learner.learn(1, next(batches_of(made)(1, 2)))
    assert (result.skipped, result.overflowed) == (True, False)
    assert learner.loss_scale == LossScale()


@pytest.mark.slow
def test_a_run_in_fp16_that_is_resumed_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With overflows at its beginning, and a scale that grows: both are in the checkpoint."""
    monkeypatch.setattr(loss_scale, "GROWTH_INTERVAL", 5)
    monkeypatch.setattr("headway.training.build.LossScale", partial(LossScale, 2.0**27))
    made = in_fp16(planned("gpt2"))
    whole, cut = (Trial(made, tmp_path / name) for name in ("whole", "cut"))
    for one in (whole, cut):
        one.folder.mkdir()
    assert whole.run().signal is None
    assert cut.run(3).signal == 15
    assert cut.run(14, resume=True).signal == 15
    cut.run(resume=True)
    assert same(whole.left()[0], cut.left()[0])
    assert whole.left()[1] == cut.left()[1]
    assert b'"skipped"' in whole.left()[1]
    kept = Store(tmp_path / "whole" / "checkpoints").latest()
    assert kept is not None
    assert 1.0 < float(kept[0].tensors["loss_scale"]["scale"]) < 2.0**27
    assert float(kept[0].tensors["loss_scale"]["scale"]) != FIRST_SCALE or int(kept[0].tensors["loss_scale"]["good"])


def test_a_processor_has_none() -> None:
    with pytest.raises(UserError, match=r"^train\.dtype=fp16 on a processor; allowed: fp32 and bf16, or device=cuda"):
        with_dtype(in_fp16(planned("gpt2")))


def test_it_is_restored_as_it_was() -> None:
    learner: Learner = learner_of(in_fp16(planned("gpt2")))
    learner.loss_scale = LossScale(2.0**31, 1234)
    tensors = {part: {n: x.clone() for n, x in named.items()} for part, named in learner.tensors().items()}
    other = learner_of(in_fp16(planned("gpt2")))
    other.restore(tensors)
    assert other.loss_scale == LossScale(2.0**31, 1234)
