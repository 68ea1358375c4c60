"""How several processes take one step of training, by torch's own engines.

DDP: each process has the whole model and its share of the step; gradients are averaged as they are computed, in
buckets that are the same in each step, so that a resumed run adds them in the same order.

FSDP2 (`fully_shard`): each process keeps a part of every parameter, gradient and optimiser state; the parameters of a
block are gathered while it computes.  What is read and written outside of a step, such as a checkpoint, is whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any, Protocol

from torch import Tensor, nn

from headway.nn.recompute import innermost_blocks

Loss = Callable[..., Any]
DDP, FSDP = "ddp", "fsdp"


class StepLoss(nn.Module):
    """The loss of a batch as a module, which torch's engines wrap: tasks call more of a model than its `forward`."""

    def __init__(self, model: nn.Module, loss: Loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *inputs: Any) -> Any:
        return self.loss(self.model, *inputs)


class ParallelEngine(Protocol):
    """Computes losses whose gradients are exchanged in the backward pass.

    `whole_model` is what is evaluated: the model, or a copy of it where processes have parts of its parameters.
    """

    whole_model: nn.Module

    def loss(self, model: nn.Module, *inputs: Any) -> Any:
        """The loss of a batch by the model that the engine was made for."""
        ...

    def exchange(self, exchanged: bool) -> AbstractContextManager[object]:
        """The context of a forward and backward pass after which gradients are the mean over all processes, or not."""
        ...


class SingleProcess:
    """That of a process alone."""

    def __init__(self, model: nn.Module, loss: Loss):
        self.whole_model, self.step_loss = model, loss

    def loss(self, model: nn.Module, *inputs: Any) -> Any:
        return self.step_loss(model, *inputs)

    def exchange(self, exchanged: bool) -> AbstractContextManager[object]:
        return nullcontext()


class DataParallel:
    """DDP."""

    def __init__(self, model: nn.Module, loss: Loss):
        from torch.nn.parallel import DistributedDataParallel

        self.whole_model = model
        with warnings.catch_warnings():  # newer versions have another name for it
            warnings.filterwarnings("ignore", message="`broadcast_buffers`", category=FutureWarning)
            # experts without tokens have no gradient; and without it, buckets would change after the first step
            self.wrapped = DistributedDataParallel(
                StepLoss(model, loss), broadcast_buffers=False, find_unused_parameters=True
            )

    def loss(self, model: nn.Module, *inputs: Any) -> Any:
        return self.wrapped(*inputs)

    def exchange(self, exchanged: bool) -> AbstractContextManager[object]:
        return nullcontext() if exchanged else self.wrapped.no_sync()


class FullyShardedDataParallel:
    """FSDP2; the parameters of the model become DTensors."""

    def __init__(self, model: nn.Module, loss: Loss):
        from torch.distributed.fsdp import fully_shard

        self.whole_model = deepcopy(model)
        for block in innermost_blocks(model):
            fully_shard(block)
        self.wrapped: Any = fully_shard(StepLoss(model, loss))

    def loss(self, model: nn.Module, *inputs: Any) -> Any:
        return self.wrapped(*inputs)

    def exchange(self, exchanged: bool) -> AbstractContextManager[object]:
        self.wrapped.set_requires_gradient_sync(exchanged)
        return nullcontext()


ENGINES: Mapping[str | None, Callable[[nn.Module, Loss], ParallelEngine]] = {
    None: SingleProcess,
    DDP: DataParallel,
    FSDP: FullyShardedDataParallel,
}


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that processes have parts of; all of them call it."""
    if not hasattr(tensor, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    return tensor.full_tensor().detach()


def part_like(tensor: Tensor, own: Tensor) -> Tensor:
    """The part of a whole tensor that this process has of its own one; all of them call it."""
    if not hasattr(own, "full_tensor") or tensor.shape != own.shape:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(own, DTensor)
    return distribute_tensor(tensor.detach().to(own.device), own.device_mesh, own.placements)
