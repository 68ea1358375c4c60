"""A safetensors file, told in pieces: eight bytes of length, a header in JSON, then the bytes of the tensors.

It is written here and not by the library, whose writer can neither be hashed on the way nor be stopped between two
writes; the library reads it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from headway.errors import UserError

TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
PIECE = 2**20  # bytes that are written at a time: they are still in the cache when they are read back


def pieces(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """The file's bytes, in order; at most one tensor is copied at a time."""
    # Widest first, so that each tensor begins at a multiple of its width, as those need who map the file.
    ordered = sorted(tensors.items(), key=lambda pair: (-pair[1].element_size(), pair[0]))
    yield memoryview(header(ordered))
    for _, tensor in ordered:
        data = data_of(tensor)
        for start in range(0, len(data), PIECE):
            yield data[start : start + PIECE]


def header(ordered: list[tuple[str, Tensor]]) -> bytes:
    told: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, tensor in ordered:
        if tensor.dtype not in TYPES or name in told:
            raise UserError(f"a tensor {name!r} of {tensor.dtype} cannot be stored in a checkpoint")
        end = start + tensor.numel() * tensor.element_size()
        told[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(told, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def data_of(tensor: Tensor) -> memoryview:
    assert sys.byteorder == "little", "the format is; a machine that is not would need its bytes turned"
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
