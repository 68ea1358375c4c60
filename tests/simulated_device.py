"""A second device on a machine that has none: its tensors say that they are elsewhere, and refuse those that are not.

Numbers are computed by the processor, so they can be compared with those of an ordinary run to the last bit.  Tensors
of the device are of a type of their own, whose `device` is torch's "meta".  As on an accelerator, an operation on
tensors of both devices is an error, unless the one of the processor has no dimensions or is an index; and `numpy()` is
refused.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_iter, tree_map_only, tree_unflatten

DEVICE = torch.device("meta")
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}  # from one device to another
# operations that want lengths on the processor, or take them from there
WITH_LENGTHS = {
    aten._pack_padded_sequence.default,
    aten._pack_padded_sequence_backward.default,
    aten._pad_packed_sequence.default,
    aten.lstm.data,
}
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}


class DeviceTensor(Tensor):
    """A tensor of the simulated device; `inner` holds its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> DeviceTensor:
        made: Any = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
            requires_grad=inner.requires_grad,
        )
        made.inner = inner.detach()
        return made

    @property
    def is_meta(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """It has numbers, unlike other tensors of that name."""
        return False

    def tolist(self) -> Any:
        return self.inner.tolist()

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def __repr__(self, *, tensor_contents: None = None) -> str:
        return f"DeviceTensor({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class SimulatedDevice(TorchDispatchMode):
    """Makes tensors of the device where one is asked for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Constructors(TorchFunctionMode):
    """`torch.tensor` and its like, which make a tensor and move it below where a dispatch mode could see them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu") == DEVICE:
            return func(*args, **{**kwargs, "device": None}).to(DEVICE)
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], DeviceTensor):
            several = args[1] if isinstance(args[1], tuple) else (args[1],)
            index = tuple(torch.tensor(one) if isinstance(one, list) else one for one in several)
            args = (args[0], index, *args[2:])
        if func is Tensor.to and len(args) > 1 and isinstance(args[1], Tensor):
            args, kwargs = args[:1], {**kwargs, "device": args[1].device, "dtype": args[1].dtype}
        if func is Tensor.new_tensor and isinstance(args[0], DeviceTensor):
            return torch.tensor(args[1], dtype=kwargs.get("dtype", args[0].dtype)).to(DEVICE)
        if func.__name__ == "gru" and any(isinstance(x, DeviceTensor) for x in tree_iter(args)):
            leaves, spec = tree_flatten(args)
            at = [i for i, x in enumerate(leaves) if isinstance(x, DeviceTensor)]
            return Whole.apply(func, leaves, spec, at, *(leaves[i] for i in at))
        return func(*args, **kwargs)


class Whole(torch.autograd.Function):
    """An operation that torch takes apart under a mode, and wrongly: here it is one, with its own gradient."""

    @staticmethod
    def forward(ctx: Any, func: Any, leaves: list[Any], spec: Any, at: list[int], *ours: Any) -> Any:
        with _disable_current_modes(), torch.inference_mode(False), torch.enable_grad():
            inner = [x.inner.detach().clone().requires_grad_(x.requires_grad) for x in ours]
            given = dict(zip(at, inner, strict=True))
            found = func(*tree_unflatten([given.get(i, leaf) for i, leaf in enumerate(leaves)], spec))
        ctx.inner, ctx.found = inner, found
        return tuple(DeviceTensor(x.detach()) for x in found)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        asked = [x for x in ctx.inner if x.requires_grad]
        with _disable_current_modes():
            found = iter(torch.autograd.grad(ctx.found, asked, [x.inner for x in grads], allow_unused=True))
        each = (next(found) if x.requires_grad else None for x in ctx.inner)
        return (*[None] * 4, *(None if x is None else DeviceTensor(x) for x in each))


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [x for x in tree_iter((args, kwargs)) if isinstance(x, Tensor)]
    ours = [x for x in tensors if isinstance(x, DeviceTensor)]
    if func is aten.to.device:
        func, args, kwargs = aten._to_copy.default, args[:1], {"device": args[1], "dtype": args[2]}
    asked = kwargs.get("device")
    if asked is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if ours and func not in COPIES | WITH_LENGTHS:
        check(func, args, tensors)
    inner_args, inner_kwargs = tree_map_only(DeviceTensor, lambda x: x.inner, (args, kwargs))
    found = func(*inner_args, **inner_kwargs)
    there = bool(ours) if asked is None else torch.device(asked).type == DEVICE.type
    if func is aten.copy_.default:
        return args[0]
    if not there:
        return found
    if func is aten._pack_padded_sequence.default:
        return DeviceTensor(found[0]), found[1]
    # what an operation changes in place is the tensor itself
    known = {id(x.inner): x for x in ours}
    with torch.inference_mode(False):  # torch does not know what a view is of a tensor of the other kind
        return tree_map_only(Tensor, lambda x: known.get(id(x)) if id(x) in known else DeviceTensor(x), found)


def check(func: Any, args: Any, tensors: list[Tensor]) -> None:
    if func in INDEXED:
        tensors = [args[0], *(x for x in args[2:3] if isinstance(x, Tensor))]
    others = [x for x in tensors if not isinstance(x, DeviceTensor) and x.dim() > 0]
    if others:
        raise RuntimeError(f"{func}: tensors of both devices; of the processor: {[tuple(x.shape) for x in others]}")


def moved(model: nn.Module) -> nn.Module:
    """The model itself, with its tensors on the simulated device."""
    known: dict[int, Any] = {}
    for part in model.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                if id(parameter) not in known:
                    known[id(parameter)] = nn.Parameter(DeviceTensor(parameter.detach()), parameter.requires_grad)
                part._parameters[name] = known[id(parameter)]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = DeviceTensor(buffer)
    return model


@contextmanager
def simulated_device() -> Generator[torch.device]:
    with SimulatedDevice(), Constructors():
        yield DEVICE
