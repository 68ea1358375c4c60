"""What lessons measure with: a training loop, times, bytes kept for the gradient, chains of operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from headway.figures import Curve, CurveChart, Point


def fit(model: nn.Module, loss: Callable[[], Tensor], steps: int, lr: float = 3e-3) -> list[float]:
    """`steps` steps of AdamW with a short linear warm-up, and the loss of each."""
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=0.01)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1.0, (step + 1) / 20))
    losses = list[float]()
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss()
        value.backward()
        optimiser.step()
        warm_up.step()
        losses.append(float(value.detach()))
    return losses


def count(*modules: nn.Module) -> int:
    """Parameters, shared ones once."""
    return sum(p.numel() for p in {id(p): p for module in modules for p in module.parameters()}.values())


def seconds(call: Callable[[], object], rounds: int) -> float:
    """The shortest time of several calls, behind one that is not counted."""
    call()
    times = list[float]()
    for _ in range(rounds):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def saved_bytes(call: Callable[[], object]) -> int:
    """Bytes that a forward pass keeps for the gradient, each storage counted once, parameters not."""
    sizes = dict[int, int]()

    def keep(x: Tensor) -> Tensor:
        if not isinstance(x, nn.Parameter):
            sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    kept = list[object]()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        kept.append(call())
    return sum(sizes.values())


def longest_chain(output: Tensor) -> int:
    """The longest chain of operations, each of which needs the one before: the depth of the graph of the gradient."""
    depth = dict[Any, int]()
    stack: list[Any] = [output.grad_fn]
    while stack:
        node = stack[-1]
        ahead = [other for other, _ in node.next_functions if other is not None]
        missing = [other for other in ahead if other not in depth]
        if missing:
            stack += missing
        else:
            depth[node] = 1 + max((depth[other] for other in ahead), default=0)
            stack.pop()
    return depth[output.grad_fn]


def curve(name: str, xs: Iterable[float], ys: Iterable[float]) -> Curve:
    return Curve(name, [Point(x, y) for x, y in zip(xs, ys, strict=True)])


def loss_chart(title: str, losses: Mapping[str, Sequence[float]]) -> CurveChart:
    """The loss of each training against its steps, smoothed."""
    return CurveChart(title, [curve(name, range(1, len(one) + 1), smoothed(one)) for name, one in losses.items()])


def smoothed(losses: Sequence[float], window: int = 20) -> list[float]:
    """The mean of each loss and those before it, at most `window`."""
    parts = (losses[max(0, at + 1 - window) : at + 1] for at in range(len(losses)))
    return [math.fsum(part) / len(part) for part in parts]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def best(scores: dict[str, float]) -> str:
    """The name of the largest."""
    return max(scores, key=lambda name: scores[name])
