"""One update: several batches are one large one, and numbers that are not finite change nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headway.data.order import random_for
from headway.errors import UserError
from headway.nn.moe import MoE
from headway.training.build import learner_of
from headway.training.learner import Learner, StepResult
from headway.training.plan import Plan
from tests.train.disks import same_tensors
from tests.train.models import same, weights
from tests.train.runs import data_in, planned

TASKS = ["transformer", "rnn", "gpt2", "mixtral", "masked", "spans", "classes", "tags"]


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("data")) as folder:
        yield folder
    still.cache_clear()
    lively.cache_clear()


@cache
def still(name: str) -> Plan:
    """A run without dropout, and without an average."""
    off = {"model.attention_dropout": "0"} if name in ("transformer", "mixtral") else {}
    return planned(name, **off, **{"train.ema_decay": "0", "train.dropout": "None" if name == "mixtral" else "0"})


@cache
def lively(name: str) -> Plan:
    return planned(name)


def rows_of(made: Plan, count: int) -> list[Any]:
    """The first rows of different lengths of the first epoch."""
    batches = made.encoded.batches(40, 1)
    numbers = [number for rows in batches.steps.order.epoch(0) for number in rows.tolist()][:count]
    return batches.examples.rows(numbers)


def collated(made: Plan, parts: Sequence[Sequence[Any]]) -> list[Any]:
    """A batch of each part; what is drawn for a row is the same, however rows are parted."""
    random = random_for("rows")
    return [made.task.collate(part, random) for part in parts]


# Several batches are one.


def learned(made: Plan, batches: list[Any]) -> tuple[StepResult, dict[str, Tensor]]:
    """What an update is, and the gradients that it takes, in float64."""
    learner = learner_of(made)
    learner.balance = 0.0  # which is each batch's own
    learner.model.double()
    taken: dict[str, Tensor] = {}

    def step() -> None:
        taken.update({name: p.grad.clone() for name, p in learner.optimiser.named.items() if p.grad is not None})

    learner.optimiser.step = step  # type: ignore[method-assign]
    return learner.learn(1, batches), taken


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_several_batches_are_one_large_one(name: str) -> None:
    made = still(name)
    rows = rows_of(made, 9)
    whole, expected = learned(made, collated(made, [rows]))
    assert expected
    assert whole.targets > 1
    for parts in ([rows[:1], rows[1:]], [rows[:4], rows[4:6], rows[6:]], [[row] for row in rows]):
        update, found = learned(made, collated(made, parts))
        assert (update.targets, update.tokens) == (whole.targets, whole.tokens)
        assert update.loss == pytest.approx(whole.loss, rel=1e-10)
        assert update.norm == pytest.approx(whole.norm, rel=1e-10)
        assert found.keys() == expected.keys()
        for parameter, gradient in found.items():
            torch.testing.assert_close(gradient, expected[parameter], rtol=0, atol=1e-10, msg=parameter)


@pytest.mark.slow
def test_a_step_is_the_same_whatever_ran_before_it() -> None:
    made = lively("transformer")
    batches = collated(made, [rows_of(made, 4), rows_of(made, 8)[4:]])
    first, second = learner_of(made), learner_of(made)
    torch.rand(17)
    second.model.eval()
    assert first.learn(3, batches) == second.learn(3, batches)
    assert kept(first) == kept(second)
    assert learner_of(made).learn(4, batches).loss != learner_of(made).learn(3, batches).loss  # other numbers drop out
    assert dropped_differently(made, batches[0])


def dropped_differently(made: Plan, batch: Any) -> bool:
    """Whether the same batch, first and second in a step, has two losses."""
    losses: list[float] = []
    learner = learner_of(made)
    loss = learner.loss
    learner.loss = lambda model, one: noted(losses, loss(model, one))
    learner.learn(1, [batch, batch])
    return losses[0] != losses[1]


def noted(losses: list[float], loss: Tensor) -> Tensor:
    losses.append(loss.item())
    return loss


@pytest.mark.slow
def test_batches_without_a_target_change_no_number_to_nan() -> None:
    made = still("gpt2")
    alone = [(row[:1],) for (row,) in rows_of(made, 2)]
    update = learner_of(made).learn(1, collated(made, [alone]))
    assert (update.targets, update.loss, update.norm, update.skipped) == (0, 0.0, 0.0, False)


# Numbers that are not finite.


def kept(learner: Learner) -> dict[str, bytes]:
    """All that a step changes, bit for bit."""
    return {
        f"{part}:{name}": tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()
        for part, named in learner.tensors().items()
        for name, tensor in named.items()
    }


@dataclass(frozen=True)
class Fault:
    """Something that breaks in a step, by changing a learner."""

    name: str
    plant: Callable[[Learner], Any]

    def __str__(self) -> str:
        return self.name


def in_loss(value: float, at: int) -> Callable[[Learner], None]:
    """The loss of one batch of a step."""

    def plant(learner: Learner) -> None:
        loss, calls = learner.loss, iter(range(100))
        learner.loss = lambda model, batch: loss(model, batch) + (value if next(calls) == at else 0.0)

    return plant


def in_both_losses(learner: Learner) -> None:
    loss, values = learner.loss, iter([math.inf, -math.inf])
    learner.loss = lambda model, batch: loss(model, batch) + next(values)


def in_gradient(value: float, which: int) -> Callable[[Learner], None]:
    """One number of the gradient of one parameter."""

    def change(gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        gradient.view(-1)[-1] = value
        return gradient

    return lambda learner: learner.optimiser.parameters[which].register_hook(change)


def in_forward(value: float, kind: type[nn.Module]) -> Callable[[Learner], None]:
    """What a part of the model makes, in one place."""

    def plant(learner: Learner) -> None:
        part = next(part for part in learner.model.modules() if isinstance(part, kind))
        part.register_forward_hook(
            lambda module, args, out: out + torch.full_like(out, 0.0).index_fill(-1, ZERO, value)
        )

    return plant


ZERO = torch.tensor([0])


def in_root(learner: Learner) -> None:
    """A loss that is finite and whose gradient is not: √0."""
    loss, weight = learner.loss, learner.optimiser.parameters[0]
    learner.loss = lambda model, batch: loss(model, batch) + (weight * 0.0).sum().sqrt()


def in_square(learner: Learner) -> None:
    """A gradient whose numbers overflow."""
    loss, weight = learner.loss, learner.optimiser.parameters[1]
    learner.loss = lambda model, batch: loss(model, batch) + 3e38 * (weight * 100.0).sum()


FAULTS = [
    Fault("nan in the first batch's loss", in_loss(math.nan, 0)),
    Fault("inf in the last batch's loss", in_loss(math.inf, 1)),
    Fault("-inf in the first batch's loss", in_loss(-math.inf, 0)),
    Fault("inf and -inf in both", in_both_losses),
    Fault("nan in the first parameter's gradient", in_gradient(math.nan, 0)),
    Fault("inf in the last parameter's gradient", in_gradient(math.inf, -1)),
    Fault("-inf in a middle parameter's gradient", in_gradient(-math.inf, 5)),
    Fault("nan out of a linear layer", in_forward(math.nan, nn.Linear)),
    Fault("inf out of a norm", in_forward(math.inf, nn.LayerNorm)),
    Fault("-inf out of an embedding", in_forward(-math.inf, nn.Embedding)),
    Fault("an infinite slope of a finite loss", in_root),
    Fault("a gradient that overflows", in_square),
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("steps", [0, 2])
def test_a_step_that_is_not_finite_changes_nothing(fault: Fault, steps: int) -> None:
    made = lively("transformer")
    batches = collated(made, [rows_of(made, 4), rows_of(made, 8)[4:]])
    learner = learner_of(made)
    for step in range(steps):
        assert not learner.learn(step + 1, batches).skipped
    before = kept(learner)
    fault.plant(learner)
    update = learner.learn(steps + 1, batches)
    assert update.skipped
    assert not (math.isfinite(update.loss) and math.isfinite(update.norm))
    assert kept(learner) == before
    assert all(parameter.grad is None for parameter in learner.model.parameters())


def test_so_it_is_where_a_router_is_not_finite() -> None:
    made = lively("mixtral")
    learner, batches = learner_of(made), collated(made, [rows_of(made, 4)])
    before = kept(learner)
    router = next(part for part in learner.model.modules() if isinstance(part, MoE)).router
    router.register_forward_hook(lambda module, args, out: out.index_fill(-1, ZERO, math.nan))
    assert learner.learn(1, batches).skipped
    assert kept(learner) == before


def test_routers_learn_to_be_even() -> None:
    made = still("mixtral")
    batches = collated(made, [rows_of(made, 4)])
    even, plain = learner_of(made), learner_of(made)
    plain.balance = 0.0
    first, second = even.learn(1, batches), plain.learn(1, batches)
    assert (first.loss, first.targets) == (second.loss, second.targets)  # what is told is the task's loss alone
    assert first.norm != second.norm


def test_a_restored_learner_goes_on_as_it_was() -> None:
    made = lively("transformer")
    batches = collated(made, [rows_of(made, 4)])
    one, other = learner_of(made), learner_of(made)
    for step in (1, 2):
        one.learn(step, batches)
    other.restore({part: {name: t.clone() for name, t in named.items()} for part, named in one.tensors().items()})
    assert one.learn(3, batches) == other.learn(3, batches)
    assert all(same_tensors(one.tensors()[part], other.tensors()[part]) for part in ("model", "optimiser", "average"))


@pytest.mark.parametrize("other", [{"model.dim": "24"}, {"model.layers": "2"}])
def test_the_checkpoint_of_another_model_is_refused_before_anything_changes(other: dict[str, str]) -> None:
    learner, found = learner_of(still("gpt2")), learner_of(planned("gpt2", **{"train.ema_decay": "0"}, **other))
    before = weights(learner.model)
    for mine, theirs in ((learner, found), (found, learner)):
        with pytest.raises(UserError, match=r"^the checkpoint does not fit the model at .*; use the model that it was"):
            mine.restore(theirs.tensors())
    assert same(before, weights(learner.model))
