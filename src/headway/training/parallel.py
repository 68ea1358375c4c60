"""How several processes take one step of training, by torch's own engines.

DDP: each process has the whole model and its share of the step; gradients are averaged as they are computed, in
buckets that are the same in each step, so that a resumed run adds them in the same order.

FSDP2 (`fully_shard`): each process keeps a part of every parameter, gradient and optimiser state; the parameters of a
block are gathered while it computes.  HSDP: so does each of several groups of processes, and gradients are averaged
over them.

Tensor parallelism (`parallelize_module`): each process keeps and computes a part of every attention and feed-forward
layer, for the same rows as the others, by the plan of `zoo/tensor_parallel.py`.

What is computed outside of a step, such as an evaluation, is computed with whole weights, which are there for as long.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from torch import Tensor, nn, no_grad

from headway.nn.attention import Attention
from headway.nn.block import Identity
from headway.nn.recompute import innermost_blocks
from headway.nn.trunk import device_of, tensors_of
from headway.ops.attention_map import Bias
from headway.ops.pattern import Positions
from headway.recipe import TrainSettings
from headway.zoo.tensor_parallel import PLANS, Split, split_parts

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

AnyTensor = TypeVar("AnyTensor", bound=Tensor)
Loss = Callable[..., Any]
DDP = "ddp"


@dataclass(frozen=True)
class ProcessLayout:
    """`replicas` × `shards` × `tensor` processes, the last of them side by side.

    The shards of a replica have a part of every parameter each, and `tensor` processes a part of every layer.
    """

    replicas: int = 1
    shards: int = 1
    tensor: int = 1

    @property
    def data(self) -> int:
        """Among how many the rows of a step are shared out."""
        return self.replicas * self.shards

    @property
    def splits_parameters(self) -> bool:
        return self.shards > 1 or self.tensor > 1

    @property
    def name(self) -> str:
        data = "DDP" if self.shards == 1 else "FSDP" if self.replicas == 1 else f"HSDP {self.replicas} × {self.shards}"
        tensor = f"tensor parallel {self.tensor}"
        return " × ".join([data] * (self.data > 1) + [tensor] * (self.tensor > 1))


def layout_of(train: TrainSettings, processes: int) -> ProcessLayout:
    """How a recipe shares a run among so many processes; one has all of it."""
    if processes == 1:
        return ProcessLayout()
    data = processes // train.tensor_parallel
    replicas = data if train.parallel == DDP else train.replicas
    return ProcessLayout(replicas, data // replicas, train.tensor_parallel)


class StepLoss(nn.Module):
    """The loss of a batch as a module, which torch's engines wrap: tasks call more of a model than its `forward`."""

    def __init__(self, model: nn.Module, loss: Loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *inputs: Any) -> Any:
        return self.loss(self.model, *inputs)


class ParallelEngine(Protocol):
    """Computes losses whose gradients are exchanged in the backward pass.

    `whole_model` is what is evaluated: the model, or, where processes have parts of its parameters, a copy of it that
    has memory for its weights from `gather` to `release` alone.
    """

    whole_model: nn.Module
    splits_parameters: bool

    def gather(self) -> None:
        """Gives `whole_model` the weights of the model; all processes call it."""
        ...

    def release(self) -> None:
        """Frees what only `whole_model` needs."""
        ...

    def loss(self, model: nn.Module, *inputs: Any) -> Any:
        """The loss of a batch by the model that the engine was made for."""
        ...

    def exchange(self, exchanged: bool) -> AbstractContextManager[object]:
        """The context of a forward and backward pass after which gradients are the mean over all processes, or not."""
        ...


class WholeModel:
    """What engines have in common whose processes have the whole model."""

    splits_parameters = False

    def gather(self) -> None:
        pass

    def release(self) -> None:
        pass


class SingleProcess(WholeModel):
    """That of a process alone."""

    def __init__(self, model: nn.Module, loss: Loss):
        self.whole_model, self.step_loss = model, loss

    def loss(self, model: nn.Module, *inputs: Any) -> Any:
        return self.step_loss(model, *inputs)

    def exchange(self, exchanged: bool) -> AbstractContextManager[object]:
        return nullcontext()


class DataParallel(WholeModel):
    """DDP."""

    def __init__(self, model: nn.Module, loss: Loss):
        from torch.nn.parallel import DistributedDataParallel

        self.whole_model = model
        with warnings.catch_warnings():  # newer versions have another name for it
            warnings.filterwarnings("ignore", message="`broadcast_buffers`", category=FutureWarning)
            # experts without tokens have no gradient; and without it, buckets would change after the first step
            step = StepLoss(model, loss)
            self.wrapped = DistributedDataParallel(
                step, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )

    def loss(self, model: nn.Module, *inputs: Any) -> Any:
        return self.wrapped(*inputs)

    def exchange(self, exchanged: bool) -> AbstractContextManager[object]:
        return nullcontext() if exchanged else self.wrapped.no_sync()


class ShardedParallel:
    """FSDP2 or HSDP, tensor parallelism, or both; the parameters of the model become DTensors."""

    splits_parameters = True

    def __init__(self, model: nn.Module, loss: Loss, layout: ProcessLayout):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        # torch advises other layouts where a part that is split twice is gathered, and warns of views, to which nobody
        # adds in place here
        logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
        self.model, self.whole_model, names = model, deepcopy(model), ("replicate", "shard", "tensor")
        storages = (tensor.untyped_storage() for tensor in tensors_of(self.whole_model).values())
        self.storages = {one.data_ptr(): (one, one.nbytes()) for one in storages if one.nbytes()}.values()
        self.release()
        sizes = (layout.replicas, layout.shards, layout.tensor)
        mesh = init_device_mesh(device_of(model).type, sizes, mesh_dim_names=names)
        if layout.tensor > 1:
            split(model, mesh["tensor"])
        self.wrapped: Any = StepLoss(model, loss)
        self.sharded = layout.data > 1
        if self.sharded:
            shards = mesh["replicate", "shard"] if layout.replicas > 1 else mesh["shard"]
            blocks = innermost_blocks(model)
            count = Counter(part for block in blocks for part in block.modules())
            common = [part for part, times in count.items() if times > 1 and list(part.parameters(recurse=False))]
            for part in (*common, *blocks):  # a bias that several blocks share is gathered by itself
                fully_shard(part, mesh=shards)
            fully_shard(self.wrapped, mesh=shards)

    @no_grad()
    def gather(self) -> None:
        for storage, size in self.storages:
            storage.resize_(size)
        copies = tensors_of(self.whole_model)
        for name, tensor in tensors_of(self.model).items():  # one after the other: together they are another copy
            copies[name].copy_(whole(tensor))

    def release(self) -> None:
        for storage, _ in self.storages:
            storage.resize_(0)

    def loss(self, model: nn.Module, *inputs: Any) -> Any:
        return self.wrapped(*inputs)

    def exchange(self, exchanged: bool) -> AbstractContextManager[object]:
        if self.sharded:
            self.wrapped.set_requires_gradient_sync(exchanged)
        return nullcontext()


def engine_of(layout: ProcessLayout, model: nn.Module, loss: Loss) -> ParallelEngine:
    """What the processes of a layout compute and exchange."""
    if layout == ProcessLayout():
        return SingleProcess(model, loss)
    return ShardedParallel(model, loss, layout) if layout.splits_parameters else DataParallel(model, loss)


def split(model: nn.Module, mesh: DeviceMesh) -> None:
    """Gives this process its part of the layers that `zoo.tensor_parallel` names, and its heads."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        ParallelStyle,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    styles: dict[Split, Callable[[], ParallelStyle]] = {
        Split.OUTPUTS: ColwiseParallel,
        Split.INPUTS: RowwiseParallel,
        Split.HEADS: lambda: SequenceParallel(sequence_dim=1, use_local_output=True),  # of B H T D
    }

    def cut(_: object, __: object, values: Tensor) -> Tensor:
        return own_heads(values, mesh)

    learned = set[nn.Module]()  # biases, which may be those of many layers
    for part in split_parts(model).values():
        layers = {name: how for name, how in PLANS[type(part)].items() if not isinstance(getattr(part, name), Identity)}
        parallelize_module(part, mesh, {name: styles[how]() for name, how in layers.items()})
        if isinstance(part, Attention):
            part.heads, part.kv_heads = part.heads // mesh.size(), part.kv_heads // mesh.size()
            if isinstance(part.logit_bias, nn.Module):
                learned.add(part.logit_bias)
            elif part.logit_bias is not None:
                part.logit_bias = OwnHeads(part.logit_bias, mesh)
    for bias in learned:
        bias.register_forward_hook(cut)


@dataclass(frozen=True, eq=False)
class OwnHeads:
    """A bias of logits for the heads of this process."""

    bias: Bias
    mesh: DeviceMesh

    def __call__(self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        return own_heads(self.bias(q, k, q_pos, k_pos), self.mesh)


def own_heads(bias: Tensor, mesh: DeviceMesh) -> Tensor:
    """Of a bias for all heads, B|1 H T S, that for the heads of this process; its gradient is that of all."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    return DTensor.from_local(bias, mesh, [Replicate()], run_check=False).redistribute(mesh, [Shard(1)]).to_local()


def alike(tensors: Iterable[AnyTensor]) -> list[list[AnyTensor]]:
    """Tensors that torch takes together: those of one process, and those of each mesh of processes."""
    found = defaultdict[object, list[AnyTensor]](list)
    for tensor in tensors:
        found[getattr(tensor, "device_mesh", None)].append(tensor)
    return list(found.values())


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


def owners(tensors: Mapping[str, Tensor], processes: int) -> dict[str, int]:
    """Which process writes each tensor: the largest first, each by the one that has the least to write."""
    load, found = [0] * processes, dict[str, int]()
    for name, tensor in sorted(tensors.items(), key=lambda pair: (-pair[1].numel() * pair[1].element_size(), pair[0])):
        found[name] = min(range(processes), key=lambda one: load[one])
        load[found[name]] += tensor.numel() * tensor.element_size()
    return found
