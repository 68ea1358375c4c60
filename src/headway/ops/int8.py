"""A linear layer in int8: weights with one scale per output channel, activations with one scale per row.

`int8_linear` is the definition.  Its product of integers is exact, so that every evaluation of it gives the same sums,
and a row's result depends on nothing but the row.  `PackedInt8` evaluates it by fbgemm, where there is no library of
ours (`native/int8_linear.py`), which is faster: 128 rows of 3072×768 3.9 ms against 5.2, one 0.17 against 0.39 (AVX2).

Kernels without VNNI multiply unsigned by signed bytes and add two neighbouring products in 16 bits, which saturate:
255 · (127 + 127) is twice too large.  So a channel's scale is as large as keeps two neighbours of like sign within 128
together, besides each weight within 127.  That costs a little precision of some channels (mean cosine of MiniLM
embeddings to float32: 0.9965 against 0.9968), where activations of 7 bits, the usual way out, cost more (0.9930).

Axes:  … any   N rows   C inputs   O outputs
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 127  # on each side of 0
PAIR = 127.99  # two neighbours together: rounded, they reach 128 and not 129; 255 · 128 is below 2¹⁵
ZERO = 128  # of activations as unsigned bytes
BLOCK = 2**17  # weights that are quantised at a time, and stay in the second cache: 50257×768 0.15 s, all at once 0.71


def int8_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """(q(x) Wᵀ) · scale · s(x) + bias: … C, int8 O C, O, O → … O."""
    q, row_scale = quantise_rows(x)
    return rescaled(int8_product(q, weight, scale), row_scale, bias)


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """q = round(x / s), whole numbers from −127 to 127, and s = max |x| / 127 of each row: … C → … C, … 1."""
    x = x.float()
    # rows of zeros stay zeros
    row_scale = x.abs().amax(-1, keepdim=True).div_(LEVELS).clamp_(min=torch.finfo(torch.float32).tiny)
    return (x / row_scale).round_(), row_scale


def quantise_channels(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers round(W / scale) and the scale of each output channel: O C → int8 O C, O."""
    weight, outputs = weight.detach(), len(weight)
    whole = torch.empty(weight.shape, dtype=torch.int8, device=weight.device)  # dense, where W is transposed too
    scale = torch.empty(outputs, device=weight.device)
    rows = max(1, BLOCK // weight.shape[1])
    for block in (slice(first, first + rows) for first in range(0, outputs, rows)):
        some = weight[block].to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        scale[block] = channel_scale(some)
        whole[block] = some.div_(scale[block, None]).round_()
    return whole, scale


def channel_scale(weight: Tensor) -> Tensor:
    """The scale of each channel, with which its weights are within 127, and two neighbours of like sign within 128."""
    even, odd = (F.pad(weight, (0, weight.shape[1] % 2))[:, first::2] for first in (0, 1))
    above = (even.clamp(min=0) + odd.clamp(min=0)).amax(1)
    below = (even.clamp(max=0) + odd.clamp(max=0)).amin(1)
    together = torch.maximum(above, -below)
    scale = torch.maximum(weight.abs().amax(1) / LEVELS, together / PAIR)
    return scale.clamp(min=torch.finfo(torch.float32).tiny)


def has_small_pairs(weight: Tensor) -> bool:
    """Whether two neighbours of like sign are within 128 together, as `quantise_channels` makes them: int8 O C."""
    even = F.pad(weight, (0, weight.shape[1] % 2))
    least, most = (even[:, ::2].to(torch.int16) + even[:, 1::2]).aminmax()
    return int(least) >= -ZERO and int(most) <= ZERO


def int8_product(q: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """q Wᵀ · scale, the sums exact: float64 holds every whole number to 2⁵³."""
    return (q.double() @ weight.double().mT).float() * scale


def rescaled(product: Tensor, row_scale: Tensor, bias: Tensor | None) -> Tensor:
    """product · s(x) + bias, in place."""
    return product.mul_(row_scale) if bias is None else torch.addcmul(bias, product, row_scale, out=product)


class PackedInt8:
    """Weights as fbgemm reads them: `packed(q)` is `int8_product(q, weight, scale)` bit for bit, if pairs are small."""

    def __init__(self, weight: Tensor, scale: Tensor):
        quantized: Any = torch.backends.quantized
        engine = quantized.engine
        with warnings.catch_warnings(action="ignore"):  # torch intends to remove tensors of its quantised types
            weight = torch._make_per_channel_quantized_tensor(  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
                weight.contiguous(), scale.double(), torch.zeros(len(scale), dtype=torch.long), 0
            )
        quantized.engine = "fbgemm"  # packing asks which engine will read it
        try:
            self.weight: Any = torch.ops.quantized.linear_prepack(weight, None)
        finally:
            quantized.engine = engine

    def __call__(self, q: Tensor) -> Tensor:
        # quantises with a scale of 1, which leaves whole numbers as they are
        return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(q, 1.0, ZERO, self.weight)


def has_int8_kernel() -> bool:
    """Whether `PackedInt8` works here: fbgemm is built for x86 CPUs."""
    return "fbgemm" in torch.backends.quantized.supported_engines
