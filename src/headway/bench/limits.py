"""What this machine can do at most: matrix products by precision, and reading memory; and what it is."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from headway.bench.answers import VECTORS
from headway.bench.benchmark import MachineLimits
from headway.bench.measurement import cpu_seconds
from headway.bench.suite import Case, Contender, Run, Suite, Workspace
from headway.native.library import CAPABILITY
from headway.system import describe_cores, describe_processor, describe_python, lines_of

SIDE = 1024  # of the matrices
READ = 64 * 2**20  # numbers of four bytes that are read, more than caches hold
TIMES = 7  # each is measured so often, and the best counts
TURNS = tuple(f"turn {number}" for number in range(10))  # before a suite, and after each of its cases
AVX2_ONLY = {  # what keeps torch and headway, oneDNN, MKL and CTranslate2 from wider vectors
    CAPABILITY: "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "CT2_FORCE_CPU_ISA": "AVX2",
}
FEATURES = ("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd")
OF_AVX2 = ("avx2", "fma", "f16c")


def prepare(work: Workspace) -> Run:
    import torch

    from headway.dtype import slow_dtype
    from headway.native.library import large_pages
    from headway.ops.int8 import has_int8_kernel
    from headway.ops.linear import linear

    torch.set_num_threads(work.threads)
    a, b, block = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE), large_pages(4 * READ).view(torch.float32).fill_(1.0)
    products: dict[str, Callable[[], object]] = {"fp32": lambda: linear(a, b)}
    if slow_dtype("bf16") is None:
        low = a.bfloat16()
        products["bf16"] = lambda: low @ low
    if has_int8_kernel() and CAPABILITY not in os.environ:  # fbgemm, which it is, cannot be held to some instructions
        packed = torch.ops.quantized.linear_prepack(torch.quantize_per_tensor(b, 0.1, 0, torch.qint8), None)
        products["int8"] = lambda: torch.ops.quantized.linear_dynamic(a, packed, True)

    def run(case: Case) -> dict[str, Any]:
        speeds = {name: 2 * SIDE**3 / best_time(call) / 1e9 for name, call in products.items()}
        return {"gflops": speeds, "bandwidth": 4 * READ / best_time(block.sum) / 1e9}

    return run


def best_time(call: Callable[[], object]) -> float:
    """The least CPU seconds of a call."""

    def once() -> float:
        start = cpu_seconds()
        call()
        return cpu_seconds() - start

    call()
    return min(once() for _ in range(TIMES))


def merge_limits(*found: Mapping[str, Any] | None) -> MachineLimits:
    """The best of several measurements."""
    known = [one for one in found if one]
    names = {name: None for one in known for name in one["gflops"]}
    speeds = {name: max(one["gflops"].get(name, 0.0) for one in known) for name in names}
    return MachineLimits(speeds, max(one["bandwidth"] for one in known))


def processor_flags(avx2: bool = False) -> set[str]:
    """The features of the processor, as Linux names them; `avx2`: those that are used of AVX2 alone."""
    lines = lines_of(Path("/proc/cpuinfo"))
    found = next((set(line.split()) for line in lines if line.startswith(("flags", "Features"))), set[str]())
    return found & set(OF_AVX2) if avx2 else found


def machine(threads: int, avx2: bool = False) -> dict[str, str]:
    """The processor, the features that are used, and the versions of the system's software."""
    flags = processor_flags(avx2)
    return {
        "processor": describe_processor(),
        "features": ", ".join(name for name in FEATURES if name in flags) or platform.machine(),
        **({"held": "AVX2"} if avx2 else {}),
        "cores": describe_cores(),
        "threads": str(threads),
        "python": describe_python(),
    }


def commit() -> str:
    """The last commit of the sources that run, and whether they have changed since; empty: not from a repository."""
    root = Path(str(files("headway.bench"))).parents[2]
    if not (root / ".git").exists():
        return ""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words, "--", "src"], cwd=root, capture_output=True, text=True, check=True).stdout

    try:
        return git("log", "-1", "--format=%h").strip() + (" with changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


LIMITS = Suite(
    "limits",
    "What the machine can do",
    write=lambda work: None,
    cases=lambda sizes: tuple(Case(name, 1, "run") for name in TURNS),
    contenders=(Contender("machine", prepare),),
    sizes={},
    tiny={},
    comparison=VECTORS,
)
