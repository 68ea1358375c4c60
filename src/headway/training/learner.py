"""One training step: the gradients of its batches, and the optimiser's update.

The loss of a step is the sum over the targets of all its batches, divided by their count, so gradient accumulation
equals one large batch.  (Only the load-balancing loss of MoE routers is per batch.)  Random numbers (dropout) are keyed
by seed, step and batch, so a step does not depend on what ran before it.  If a loss or gradient is not finite, nothing
changes; the running statistics of batch norms are restored too.  Batch norms with frozen weights do not update their
running statistics.  State that a task carries from batch to batch (`memory`) is passed to its loss and returned by it,
and is part of a checkpoint.

In mixed precision (`dtype` bf16 or fp16) the forward pass is autocast: products of matrices and convolutions take
copies of weights and activations in it, and add in float32; softmax, norms and losses are computed in float32.
Weights, gradients, optimiser state and EMA are float32, so that a checkpoint does not know of it, but for the scale of
the loss in fp16 (`loss_scale.py`), and evaluations compute in float32.

One of several processes computes the gradients of its `StepShare` of the step, which torch averages over all of them
(`training/parallel.py`); counts of targets, losses and the routers' loads are summed over all, so that the update is
that of a single process.  A batch norm normalises by the rows of its own process, as by those of one of several
batches, and its running statistics are the mean of all.

The learner also keeps the exponential moving average of the weights (EMA); `mean_tensors` is the mean of checkpoints.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.data.order import WHOLE, StepShare, UncountedBatch, keyed
from headway.distributed.world import ALONE, World
from headway.errors import UserError, listed
from headway.interop.weights import DescribedTensors, described
from headway.nn.low_rank import learned_tensors
from headway.nn.moe import MoE, load_balance
from headway.nn.recompute import recomputed
from headway.nn.trace import Trace, record
from headway.nn.trunk import device_of
from headway.tasks.batches import to_device
from headway.training.loss_scale import LossScale
from headway.training.optimiser import Optimiser, Schedule, clip_grad_norm
from headway.training.parallel import ParallelEngine, SingleProcess, owners, part_like, whole

LOAD, PROBS = ".load", ".probs"  # of a mixture of experts, which its load-balancing loss is computed of
UPDATES = "/updates"  # no parameter's name begins so


@dataclass(frozen=True)
class StepResult:
    """Numbers of a step; `skipped`: loss or gradient were not finite, and nothing was changed.

    `overflowed` says that this may be due to the scale of the loss, which is smaller in the next step.
    """

    step: int
    loss: float  # sum over targets
    targets: int
    tokens: int
    norm: float  # of the gradient, before clipping
    lr: float
    skipped: bool
    overflowed: bool = False


class Learner:
    """A model, its optimiser and the EMA of its weights: everything that a step changes."""

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        optimiser: Optimiser,
        schedule: Schedule,
        *,
        seed: int,
        max_grad_norm: float = 1.0,
        balance: float = 0.01,
        average: EMA | None = None,
        memory: Mapping[str, Tensor] | None = None,
        dtype: torch.dtype = torch.float32,
        loss_scale: LossScale | None = None,
        recompute: bool = False,
        world: World = ALONE,
        share: StepShare = WHOLE,
        engine: ParallelEngine | None = None,
    ):
        """`loss(model, batch)` is that of a task; `balance` is the weight of the routers' load-balancing loss.

        `dtype` is that of products in the forward pass, `loss_scale` is for fp16; `recompute` is activation
        checkpointing.

        `share` is what this process of the `world` computes of each step, and `engine` exchanges the gradients.

        With a `memory` it is `loss(model, batch, memory)` and returns the memory after the batch, too.
        """
        self.model, self.loss, self.optimiser, self.schedule = model, loss, optimiser, schedule
        self.seed, self.max_grad_norm, self.average, self.memory = seed, max_grad_norm, average, memory
        self.dtype, self.loss_scale, self.recompute, self.device = dtype, loss_scale, recompute, device_of(model)
        self.world, self.share = world, share
        self.alike = max(1, world.size // share.processes)  # that read the same rows; 1 where steps are timed alone
        self.engine = engine or SingleProcess(model, loss)
        self.balance = balance if any(isinstance(part, MoE) for part in model.modules()) else 0.0
        set_training(model)

    @property
    def whole_model(self) -> nn.Module:
        """The model that is evaluated and written; from `engine.gather` to `engine.release` it has weights."""
        return self.engine.whole_model

    def learn(self, step: int, batches: Sequence[Any]) -> StepResult:
        """Makes the update of `step`, counted from 1."""
        if not self.model.training:  # after an evaluation; visiting all modules in every step would take time
            set_training(self.model)
        before, memory = [buffer.clone() for buffer in self.model.buffers()], self.memory
        here = sum(batch.targets for batch in batches), sum(batch.tokens for batch in batches)
        targets, tokens = (int(total) // self.alike for total in self.world.totals(*here))
        self.optimiser.zero_grad()
        last, loss = len(batches) - 1, 0.0
        for at, batch in enumerate(batches):
            with self.engine.exchange(at == last):
                loss += self.backward(step, at, batch, targets)
        loss = self.world.totals(loss)[0] / self.alike
        self.average_statistics()
        if self.loss_scale is not None:
            self.loss_scale.unscale(one.grad for one in self.optimiser.parameters if one.grad is not None)
        norm = clip_grad_norm(self.optimiser.parameters, self.max_grad_norm)
        lr = self.optimiser.set_lr(self.schedule.factor(step))
        skipped, overflowed = not (math.isfinite(loss) and math.isfinite(norm)), False
        if self.loss_scale is not None and math.isfinite(loss):
            overflowed = self.loss_scale.update(finite=not skipped)
        if skipped:
            for buffer, saved in zip(self.model.buffers(), before, strict=True):
                buffer.copy_(saved)
            self.memory = memory
        else:
            self.optimiser.step()
            if self.average is not None:
                self.average.update(self.model)
        self.optimiser.zero_grad()
        return StepResult(step, loss, targets, tokens, norm, lr, skipped, overflowed)

    def backward(self, step: int, at: int, batch: Any, targets: int) -> float:
        """Accumulates the gradients of a batch; its loss, summed over its targets."""
        torch.manual_seed(keyed(self.seed, "step", step, self.share.number(at), *self.share.key))
        counts = not isinstance(batch, UncountedBatch)
        read = to_device(batch if counts else batch.batch, self.device)
        with ExitStack() as recording:  # open for the backward pass too, in which blocks may be computed again
            trace = recording.enter_context(record(self.model, f"*{LOAD}", f"*{PROBS}")) if self.balance else None
            with self.forward_pass():
                if self.memory is None:
                    loss = self.loss(self.model, read)
                else:
                    loss, self.memory = self.loss(self.model, read, self.memory)
            # a text of unknown characters may have no targets; gradients are averaged over processes, and losses summed
            targets_each = max(1, targets) / self.share.processes
            total = loss / targets_each
            if trace is not None:
                total = total + self.balance * self.balance_loss(trace, batch.targets) / targets_each
            scale = 1.0 if self.loss_scale is None else self.loss_scale.scale
            (scale * total if counts else 0.0 * total).backward()
        return loss.item() if counts else 0.0

    def balance_loss(self, trace: Trace, targets: int) -> Tensor:
        """The mean over the routers of their load-balancing losses for a batch, times its targets.

        Where processes split the batch, the load is that of all its tokens, and the losses of all processes add up to
        that of the whole batch.
        """
        routers = [name.removesuffix(LOAD) for name in trace.values if name.endswith(LOAD)]
        loads, probs = (
            [value for name in routers for value in trace.all(name + what) if isinstance(value, Tensor)]
            for what in (LOAD, PROBS)
        )
        if not self.share.split:
            return torch.stack([load_balance(*one) for one in zip(loads, probs, strict=True)]).mean() * targets
        tokens = torch.tensor([float(len(one)) for one in probs], device=self.device)[:, None] * (targets > 0)
        summed = torch.cat([torch.stack(loads) * tokens, tokens, torch.full_like(tokens, targets)], 1)  # routers, E + 2
        self.world.add([summed])
        counted = summed[:, -2:-1].clamp(min=1)
        losses = [load_balance(*one) for one in zip(summed[:, :-2] / counted, probs, strict=True)]
        return (torch.stack(losses) * (tokens / counted)[:, 0]).mean() * summed[0, -1]

    def average_statistics(self) -> None:
        """Gives batch norms the mean of the running statistics of all processes."""
        if self.world.size > 1:
            with torch.no_grad():
                for buffer in running_statistics(self.model):
                    self.world.add([buffer])
                    buffer /= self.world.size

    @contextmanager
    def forward_pass(self) -> Generator[None]:
        """The context of a forward pass in training: its precision, and what it keeps for the gradient."""
        low = torch.autocast(self.device.type, self.dtype) if self.dtype is not torch.float32 else nullcontext()
        with low, recomputed(self.model) if self.recompute else nullcontext():
            yield

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Everything that a step changes, by file of a checkpoint."""
        return {part: {name: whole(tensor) for name, tensor in own.items()} for part, own in self.parts().items()}

    def own_tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Copies of those that this process writes of a checkpoint which all write together; all of them call it."""
        kept: dict[str, Mapping[str, Tensor]] = {}
        for part, named in self.parts().items():
            owner, own = owners(named, self.world.size), dict[str, Tensor]()
            for name, tensor in named.items():
                found = whole(tensor)  # of all processes together: one after the other, each in turn
                if owner[name] == self.world.rank:
                    own[name] = found.detach().to("cpu", copy=True)
            kept[part] = own
        return kept

    def parts(self) -> dict[str, Mapping[str, Tensor]]:
        """Everything that a step changes, as this process has it."""
        kept: dict[str, Mapping[str, Tensor]] = {
            "model": learned_tensors(self.model),
            "optimiser": self.optimiser.state_tensors(),
        }
        if self.memory is not None:
            kept["memory"] = self.memory
        if self.loss_scale is not None:
            kept["loss_scale"] = self.loss_scale.tensors()
        return kept if self.average is None else {**kept, "average": self.average.tensors()}

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restores what `tensors` gave, in all processes what process 0 has; all of them call it."""
        tensors = tensors if self.world.size == 1 else sent_tensors(tensors, self.world)
        shapes = {name: tensor.shape for name, tensor in learned_tensors(self.model).items()}
        check(shapes, tensors["model"], "the checkpoint")
        fill(self.model, tensors["model"])
        self.optimiser.load_state_tensors(tensors["optimiser"])
        if self.average is not None:
            self.average.load(tensors["average"])
        if self.loss_scale is not None:
            self.loss_scale.load(tensors["loss_scale"])
        if self.memory is not None:
            self.memory = {name: tensor.clone() for name, tensor in tensors["memory"].items()}


class SentTensors(DescribedTensors):
    """Tensors of process 0, each of which is sent when all processes ask for it, so that few are held at once."""

    def __init__(self, told: Mapping[str, tuple[Sequence[int], str]], own: Mapping[str, Tensor], world: World):
        self.described = {
            name: (shape, getattr(torch, dtype.removeprefix("torch."))) for name, (shape, dtype) in told.items()
        }
        self.own, self.world = own, world

    def __getitem__(self, name: str) -> Tensor:
        shape, dtype = self.described[name]
        here = self.world.first
        tensor = self.own[name].detach().cpu().contiguous() if here else torch.empty(shape, dtype=dtype, device="cpu")
        self.world.send([tensor])
        return tensor


def sent_tensors(tensors: Mapping[str, Mapping[str, Tensor]], world: World) -> dict[str, SentTensors]:
    """The tensors of process 0, by part and name; all processes ask for the same ones in the same order."""
    own = {
        part: {name: (list(shape), str(dtype)) for name, (shape, dtype) in described(kept).items()}
        for part, kept in tensors.items()
    }
    told: dict[str, dict[str, tuple[list[int], str]]] = json.loads(world.told(json.dumps(own)))
    return {part: SentTensors(shapes, tensors.get(part, {}), world) for part, shapes in told.items()}


def running_statistics(model: nn.Module) -> list[Tensor]:
    """The running means and variances of batch norms."""
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]  # pyright: ignore[reportPrivateUsage]
    found = [buffer for norm in norms for buffer in (norm.running_mean, norm.running_var)]
    return [buffer for buffer in found if buffer is not None]


def set_training(model: nn.Module) -> None:
    """Training mode for all modules except batch norms with frozen weights: their running statistics stay."""
    model.train()
    for part in model.modules():
        own = list(part.parameters(recurse=False))
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and own:  # pyright: ignore[reportPrivateUsage]
            part.train(any(parameter.requires_grad for parameter in own))


# ---- averages of weights


class EMA:
    """Exponential moving average: kept ← d · kept + (1 − d) · weights after each update; tied parameters count once.

    Running statistics of batch norms are averaged too; of integers the last value is kept.  After t updates d is
    min(`decay`, (1 + t) / (10 + t)), so that the first weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float):
        if not 0.0 <= decay < 1.0:
            raise UserError(f"an average with decay={decay:g}", allowed="from 0 up to, but not, 1")
        self.decay, self.updates = decay, 0
        self.kept = {name: wide(tensor.detach()).clone() for name, tensor in learned_tensors(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, tensor in learned_tensors(model).items():
            if tensor.is_floating_point():
                self.kept[name].lerp_(wide(tensor), 1.0 - decay)
            else:
                self.kept[name].copy_(tensor)

    @contextmanager
    def applied(self, model: nn.Module) -> Generator[None]:
        """A context in which the model has the average as its weights; afterwards, bit for bit, its own."""
        own = {name: tensor.detach().clone() for name, tensor in learned_tensors(model).items()}
        try:
            fill(model, self.kept)
            yield
        finally:
            fill(model, own)

    def tensors(self) -> dict[str, Tensor]:
        """The average by parameter name, and the number of updates."""
        return {**self.kept, UPDATES: torch.tensor(self.updates)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `tensors` gave."""
        expected = {**{name: kept.shape for name, kept in self.kept.items()}, UPDATES: torch.Size()}
        check(expected, tensors, "the average")
        for name, kept in self.kept.items():
            kept.copy_(tensors[name])
        self.updates = int(tensors[UPDATES])


def mean_tensors(several: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of the tensors of checkpoints, by name: summed in float64, in the dtype of the first."""
    if not several:
        raise UserError("the mean of no checkpoints", allowed="one or more")
    first = several[0]
    for other in several[1:]:
        check({name: tensor.shape for name, tensor in first.items()}, other, "a checkpoint to be averaged")
    means: dict[str, Tensor] = {}
    for name, tensor in first.items():
        total = tensor.double().clone()
        for other in several[1:]:
            total += other[name]
        means[name] = (total / len(several)).to(tensor.dtype)
    return means


@torch.no_grad()
def fill(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copies `tensors` into the parameters and buffers of a model."""
    for name, tensor in learned_tensors(model).items():
        tensor.copy_(part_like(tensors[name], tensor))


def wide(tensor: Tensor) -> Tensor:
    """In float32 or wider: in bf16 the small steps of an average would be lost.  Integers stay as they are."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32)) if tensor.is_floating_point() else tensor


def check(expected: Mapping[str, torch.Size], tensors: Mapping[str, Tensor], whose: str) -> None:
    found = {name: torch.Size(shape) for name, (shape, _) in described(tensors).items()}
    wrong = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    if wrong:
        raise UserError(f"{whose} does not fit the model at {listed(wrong, 4)}", do="use the model that it was made of")
