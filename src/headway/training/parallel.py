"""How several processes take one step of training, by torch's own engines.

DDP: each process has the whole model and its share of the step; gradients are averaged as they are computed, in
buckets that are the same in each step, so that a resumed run adds them in the same order.

"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn

Loss = Callable[..., Any]
Exchange = Callable[[bool], AbstractContextManager[object]]


def without_exchange(exchanged: bool) -> AbstractContextManager[object]:
    """That of a process alone."""
    return nullcontext()


class StepLoss(nn.Module):
    """The loss of a batch as a module, which torch's engines wrap: tasks call more of a model than its `forward`."""

    def __init__(self, model: nn.Module, loss: Loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *inputs: Any) -> Any:
        return self.loss(self.model, *inputs)


class DataParallel:
    """A loss whose gradients are the mean over all processes after the backward pass, unless they are held back."""

    def __init__(self, model: nn.Module, loss: Loss):
        from torch.nn.parallel import DistributedDataParallel

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
