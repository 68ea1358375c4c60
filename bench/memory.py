"""The peak memory of one job at one length: `python bench/memory.py forward|read LENGTH` prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from headway.nn.attention import SelfAttention
from headway.nn.trace import record
from headway.ops.attention_map import Readable
from headway.ops.pattern import Causal

HEADS, HEAD_DIM = 8, 64


def forward(model: SelfAttention, x: torch.Tensor) -> None:
    model(x)


def read(model: SelfAttention, x: torch.Tensor) -> None:
    """The same call while a recording asks the whole map for its entropy and for the mass that each key receives."""
    with record(model, "weights") as trace:
        model(x)
    amap = trace["weights"]
    assert isinstance(amap, Readable)
    entropy, received = amap.entropy(), amap.received()
    assert abs(received.sum().item() / entropy.numel() - 1) < 1e-4  # every query gives away a mass of one


JOBS: dict[str, Callable[[SelfAttention, torch.Tensor], None]] = {"forward": forward, "read": read}


def memory(field: str) -> float:
    """A line of the kernel's account of this process, in MiB: VmRSS is now, VmHWM the highest since the reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


@torch.no_grad()
def main(job: str, length: int) -> None:
    dim = HEADS * HEAD_DIM
    model, x = SelfAttention(dim, HEADS, pattern=Causal()).eval(), torch.randn(1, length, dim)
    JOBS[job](model, x[:, :512])  # kernels load and threads start before the count begins
    Path("/proc/self/clear_refs").write_text("5")
    before, start = memory("VmRSS"), time.perf_counter()
    JOBS[job](model, x)
    print(json.dumps({"MiB": memory("VmHWM") - before, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
