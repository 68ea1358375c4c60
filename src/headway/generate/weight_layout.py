"""How weights lie in memory for decoding one prompt at a time.

A step of decoding multiplies one vector with every matrix, and takes as long as reading them.  Three things make them
faster to read; shapes and values stay.  Measured on one thread:

- Where a matrix has no fewer outputs than inputs, its transpose is made contiguous.  ms for 1, 8 and 128 rows:
  50257×768 13.2 → 7.5, 33 → 39; 3072×768 0.78 → 0.52, 1.37 → 1.71, 9.1 → 9.0; 768×768 0.195 → 0.175, 0.31 → 0.36,
  2.08 → 2.11.  768×3072 would lose: 0.54 → 0.71.
- The queries', keys' and values' matrices of a self-attention lie side by side, so that they are read as one
  (`nn.fused_linear.fuse`): three of 768×768 0.50 → 0.37 ms.
- All of them lie in one block of large pages, so that fewer addresses are looked up: GPT-2's matrices 28.6 → 27.0 ms.

To move 500 MB takes 0.2 s, where to map their file takes 2 ms.  So `load` leaves weights in their files, and they are
moved when they are first used (`arrange_later`, `arrange_waiting`).
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from headway.native.library import is_watched, large_pages
from headway.nn.attention import SelfAttention
from headway.nn.fused_linear import bias_of
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk

LINE = 64  # bytes that a processor reads at once
WAITING: WeakKeyDictionary[nn.Module, ref[nn.Module]] = WeakKeyDictionary()  # a part: the model that is moved with it
MOVING = Lock()


def arrange_later(model: nn.Module) -> None:
    """Lets `model` be arranged when it, or a trunk of it, is first used."""
    for part in model.modules():
        if part is model or isinstance(part, Trunk):
            WAITING[part] = ref(model)


def arrange_waiting(part: nn.Module) -> None:
    """Arranges the model of `part`, if it waits for that; other threads that come to use it wait until it is done."""
    if part not in WAITING or is_watched():
        return
    with MOVING, torch.inference_mode(False), torch.no_grad():
        if part in WAITING:
            model = WAITING[part]() or part
            arrange(model)
            for one in model.modules():
                WAITING.pop(one, None)


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
    # int8 weights have a layout of their own
    return [*blocks, *([x] for x in single if x not in joined and x.dtype != torch.int8)]


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
