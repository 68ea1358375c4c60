"""Mixed precision in training: which products are computed in its dtype, and which sums in float32."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Sums over many keys, words or rows lose too much in bf16."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def dtype_of_products(x: Tensor) -> torch.dtype:
    """The dtype of products with `x`: its own, or that of mixed precision where it is on."""
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return x.dtype
    return torch.get_autocast_dtype(kind)


def no_autocast(x: Tensor) -> torch.autocast:
    """A context in which products keep the dtype of their inputs, in mixed precision too; `x` tells the device."""
    kind = x.device.type  # the meta device has no autocast
    return torch.autocast(kind if torch.amp.is_autocast_available(kind) else "cpu", enabled=False)
