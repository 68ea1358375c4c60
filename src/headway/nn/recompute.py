"""Activation checkpointing: blocks whose activations are computed again for the gradient, instead of kept for it.

A step then holds the inputs of all blocks and the activations of one, at the price of one more forward pass.  The
gradients are the same, bit for bit: dropout draws the same random numbers again, and running statistics are not
updated a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headway.nn.block import Block

Forward = Callable[..., Tensor]


def innermost_blocks(model: nn.Module) -> list[Block]:
    """The blocks that hold no other block: the layers of a model."""
    blocks = [part for part in model.modules() if isinstance(part, Block)]
    return [block for block in blocks if not any(isinstance(part, Block) for part in list(block.modules())[1:])]


@contextmanager
def called_by(model: nn.Module, run: Callable[[Block, Forward], Forward]) -> Generator[None]:
    """Within it, each innermost block's `forward` is what `run(block, forward)` returns."""
    with ExitStack() as restored:
        for block in innermost_blocks(model):
            forward = run(block, block.forward)
            block.forward = forward  # of this one alone, above that of its class
            restored.callback(block.__dict__.pop, "forward")
        yield


def recomputed(model: nn.Module) -> AbstractContextManager[None]:
    """Within it, activations of the model's blocks are not kept; the backward pass may be outside."""
    return called_by(model, recomputed_forward)


def recomputed_forward(block: Block, forward: Forward) -> Forward:
    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), own_buffers(block)

    return partial(checkpoint, forward, use_reentrant=False, context_fn=contexts)


@contextmanager
def own_buffers(block: nn.Module) -> Generator[None]:
    """Within it, what a block writes into its buffers, such as running statistics, is lost."""
    kept = list(buffers_of(block))
    for part, name, buffer in kept:
        part._buffers[name] = buffer.clone()  # pyright: ignore[reportPrivateUsage]
    try:
        yield
    finally:
        for part, name, buffer in kept:
            part._buffers[name] = buffer  # pyright: ignore[reportPrivateUsage]


def buffers_of(block: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    for part in block.modules():
        own: dict[str, Any] = part._buffers  # pyright: ignore[reportPrivateUsage]
        yield from ((part, name, buffer) for name, buffer in own.items() if buffer is not None)
