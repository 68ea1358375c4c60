"""Training steps that are timed: headway's learner, and other libraries' models trained in the common way.

All have AdamW with the same settings, gradients clipped at 1, and no dropout unless said.  The answer of a run is the
loss of its first step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from headway.bench.peers import Peer
from headway.bench.suite import BF16, FP32, Case, Contender, Run, Workspace
from headway.distributed.world import ALONE, World
from headway.recipe import TrainSettings

if TYPE_CHECKING:
    from torch import Tensor, nn


def in_both(
    name: str, prepare: Callable[[str], Callable[[Workspace], Run]], peer: Peer | None = None, *, same: bool = True
) -> tuple[Contender, Contender]:
    """A contender in fp32, and one in mixed precision where the processor has bf16; `same`: their weights are ours."""
    exact = f"{name} {FP32}" if peer is None else name
    return (
        Contender(exact, prepare(FP32), peer=peer, same_weights=same),
        Contender(f"{name} bf16", prepare("bf16"), "bf16", peer, same_weights=same, cpu=BF16),
    )


def headway_steps(
    work: Workspace,
    model: nn.Module,
    loss: Callable[[Any, Any], Tensor],
    batches: Sequence[Any],
    precision: str = FP32,
    world: World = ALONE,
    parallel: Literal["ddp", "fsdp"] = "ddp",
) -> Run:
    """A run learns from each of the batches; `loss` is the sum over targets, `parallel` is how processes share it."""
    import torch

    from headway.data.order import StepShare
    from headway.dtype import DTYPES
    from headway.training.groups import groups
    from headway.training.learner import Learner
    from headway.training.optimiser import AdamW, Constant, Optimiser
    from headway.training.parallel import engine_of, layout_of

    torch.set_num_threads(work.threads)
    layout = layout_of(TrainSettings(parallel=parallel), world.size)
    dtype, numbers, engine = getattr(torch, DTYPES[precision]), count(1), engine_of(layout, model, loss)
    optimiser, share = Optimiser(AdamW(), groups(model)), StepShare(world.rank, world.size, split=True)
    parts = (model, engine.loss, optimiser, Constant())
    learner = Learner(*parts, seed=0, dtype=dtype, world=world, share=share, engine=engine)

    def run(case: Case) -> list[list[float]]:
        found = [learner.learn(next(numbers), [batch]) for batch in batches]
        return [[found[0].loss / found[0].targets]]

    return run


def built(work: Workspace, config: Any) -> nn.Module:
    """A headway model with the suite's weights, as a training builds it."""
    from headway.loading import load
    from headway.nn.trunk import tensors_of
    from headway.system import keep_memory
    from headway.training.learner import fill
    from headway.zoo.build import build

    keep_memory()
    model = build(config)
    fill(model, tensors_of(load(work.folder).model))
    return model


def common_steps(
    work: Workspace, model: nn.Module, losses: Sequence[Callable[[], Tensor]], precision: str = FP32
) -> Run:
    """A run makes a step by each of the mean losses; bf16 is torch's autocast."""
    import torch
    from torch import nn

    torch.set_num_threads(work.threads)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True)

    def run(case: Case) -> list[list[float]]:
        found = list[float]()
        for loss in losses:
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext():
                value = loss()
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            found.append(value.item())
        return [found[:1]]

    return run


def load_to_train(work: Workspace, name: str, **options: Any) -> Any:
    """A model of transformers with the suite's weights."""
    import torch

    from headway.bench.peers import library

    return getattr(library("transformers"), name).from_pretrained(work.folder, dtype=torch.float32, **options)
