"""Memory layout of weights for decoding one prompt at a time.

A step of decoding multiplies one vector with every matrix, and takes as long as reading them.  Three things make them
faster to read; shapes and values stay.  Measured on one thread:

- Where a matrix has no fewer outputs than inputs, its transpose is made contiguous.  ms for 1, 8 and 128 rows:
  50257×768 13.2 → 7.5, 33 → 39; 3072×768 0.78 → 0.52, 1.37 → 1.71, 9.1 → 9.0; 768×768 0.195 → 0.175, 0.31 → 0.36,
  2.08 → 2.11.  768×3072 would lose: 0.54 → 0.71.
- The queries', keys' and values' matrices of a self-attention lie side by side, so that they are read as one
  (`nn.fused_linear`): three of 768×768 0.50 → 0.37 ms.
- All of them lie in one block of large pages, so that fewer addresses are looked up: GPT-2's matrices 28.6 → 27.0 ms.
"""

from __future__ import annotations

import mmap

import torch
from torch import Tensor, nn

from headway.nn.attention import SelfAttention
from headway.nn.fused_linear import bias_of
from headway.nn.head import LMHead

LINE = 64  # bytes that a processor reads at once


def arrange(model: nn.Module) -> None:
    """Lays the matrices of `model` out for single rows; batches of 4 to 32 rows lose about a tenth by it."""
    blocks = [block for block in blocks_of(model) if block[0].device.type == "cpu"]
    sizes = [-(-sum(x.numel() * x.element_size() for x in block) // LINE) * LINE for block in blocks]
    room, first = large_pages(sum(sizes)), 0
    for block, size in zip(blocks, sizes, strict=True):
        total = sum(x.numel() for x in block)
        flat = room[first : first + total * block[0].element_size()].view(block[0].dtype)
        place_block(block, flat)
        first += size


def blocks_of(model: nn.Module) -> list[list[Tensor]]:
    """The matrices of a model, those together that are read together, and their bias vectors; each once."""
    blocks: list[list[Tensor]] = []
    for part in model.modules():
        if isinstance(part, SelfAttention) and (layers := fusable_layers(part)):
            blocks.append([layer.weight for layer in layers])
            if bias_of(layers[0]) is not None:
                blocks.append([layer.bias for layer in layers])
    joined = {weight for block in blocks for weight in block}
    single = {part.weight: None for part in model.modules() if isinstance(part, nn.Linear | LMHead)}
    return [*blocks, *([weight] for weight in single if weight not in joined)]


def fusable_layers(part: SelfAttention) -> list[nn.Linear]:
    """The layers of queries, keys and values, where they can be laid side by side."""
    layers = [layer for layer in (part.q, part.k, part.v) if type(layer) is nn.Linear]
    weights = [layer.weight for layer in layers]
    alike = len({(x.shape[1], x.dtype, x.device) for x in weights}) == 1
    biased = {bias_of(layer) is None for layer in layers}
    tall = sum(layer.out_features for layer in layers) >= layers[0].in_features if layers else False
    return layers if len(layers) == 3 == len(set(weights)) and alike and len(biased) == 1 and tall else []


def place_block(block: list[Tensor], flat: Tensor) -> None:
    """Puts the parameters of a block side by side into the numbers of `flat`."""
    if block[0].dim() == 1:
        for x, place in zip(block, flat.split([len(x) for x in block]), strict=True):
            x.data = place.copy_(x.data)
        return
    widths, inputs = [x.shape[0] for x in block], block[0].shape[1]
    tall = sum(widths) >= inputs
    place = flat.view(inputs, -1).t() if tall else flat.view(-1, inputs)
    for x, part in zip(block, place.split(widths), strict=True):
        x.data = part.copy_(x.data)
        if len(block) > 1 and x.requires_grad:
            x.register_post_accumulate_grad_hook(copy_out_of_block)


def copy_out_of_block(weight: Tensor) -> None:
    """Takes a weight that learns out of its block: torch's fused optimisers would write over what lies beside it."""
    weight.data = weight.data.contiguous()


def large_pages(size: int) -> Tensor:
    """`size` bytes, in large pages where the system has them."""
    if size == 0 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8)
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(block, dtype=torch.uint8)
