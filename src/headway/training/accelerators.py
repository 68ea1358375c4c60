"""Accelerators as their makers describe them: what `headway plan` computes with, as plain data.

Products are dense ones of 16-bit numbers (bf16, fp16 where a device has no bf16), without structured sparsity.  A link
is that of one device to the others of its node, one way; the network is that of the maker's reference system (DGX, HGX)
or of usual servers, one way and for each device.  Others are given as `headway plan --network`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from time import perf_counter

import torch

from headway.errors import UserError, listed, nearest
from headway.system import memory_limit

TERA, GIGA = 1e12, 1e9
MAX_DEVICES = 2**20


@dataclass(frozen=True)
class Accelerator:
    """A device: FLOP/s, bytes, and bytes a second.

    `sustained` is the share of its peak that training reaches where nothing waits for other devices.
    """

    name: str
    flops: float
    memory: float
    bandwidth: float
    link: float
    network: float
    sustained: float
    per_node: int = 8
    number_bytes: int = 2  # of a number in products


def accelerator(
    name: str, teraflops: float, gigabytes: float, bandwidth: float, link: float, network: float, sustained: float
) -> Accelerator:
    """From the units of data sheets: TFLOP/s, GB, and GB/s three times."""
    speeds = (bandwidth * GIGA, link * GIGA, network * GIGA)
    return Accelerator(name, teraflops * TERA, gigabytes * GIGA, *speeds, sustained)


# Sustained shares: 0.21 on the V100 is GPT-3's (Chowdhery et al. 2022, table 3), which holds all its waiting too.  0.49
# on the A100 is that of LLaMA 65B (1,022,362 GPU hours for 1.4e12 tokens: Touvron et al. 2023), and 0.43 on the H100
# the upper end of Llama 3 (38 to 43 %: Grattafiori et al. 2024, table 4).  Of the others no report was at hand: older
# ones are taken to be like the V100, those of the A100's time like it, and later ones like the H100.
ACCELERATORS = {
    one.name: one
    for one in (
        accelerator("V100", 125, 32, 900, 150, 12.5, 0.21),
        accelerator("T4", 65, 16, 300, 16, 6.25, 0.21),
        accelerator("A10", 125, 24, 600, 32, 12.5, 0.49),
        accelerator("A100-40GB", 312, 40, 1555, 300, 25, 0.49),
        accelerator("A100", 312, 80, 2039, 300, 25, 0.49),
        accelerator("L4", 121, 24, 300, 32, 12.5, 0.49),
        accelerator("L40S", 362, 48, 864, 32, 25, 0.49),
        accelerator("RTX4090", 165, 24, 1008, 32, 1.25, 0.49),
        accelerator("H100-PCIe", 756, 80, 2000, 64, 25, 0.43),
        accelerator("H100", 989, 80, 3350, 450, 50, 0.43),
        accelerator("H200", 989, 141, 4800, 450, 50, 0.43),
        accelerator("B200", 2250, 180, 7700, 900, 50, 0.43),
        accelerator("MI250X", 383, 128, 3277, 150, 25, 0.43),
        accelerator("MI300X", 1307, 192, 5300, 448, 50, 0.43),
    )
}
CPU = "cpu"  # a process on this machine, whose speed is measured
CPU_SUSTAINED = 0.6  # of products of 1024 × 1024: a guess, which bench/planned_steps.py compares with trainings
LOOPBACK, MEMORY_SPEED = 2 * GIGA, 10 * GIGA  # bytes a second between processes here, and of main memory, roughly


def devices(text: str) -> tuple[int, Accelerator]:
    """How many of which: 64xH100, or H100 for one."""
    found = re.fullmatch(r"(?:([-+]?[\d_,.]+(?:e\d+)?)\s*[x×*]\s*)?([A-Za-z][\w.-]*)", text.strip(), re.I)
    if not found:
        raise UserError(f"devices {text!r}", allowed="a number and a name, as in 64xH100", do="see headway plan --help")
    count, name = found.groups()
    names = {one.casefold(): one for one in (*ACCELERATORS, CPU)}
    if name.casefold() not in names:
        meant = nearest(name.casefold(), names)
        raise UserError(
            f"no device {name!r} is known", allowed=listed((*names.values(),), 20), meant=meant and names[meant]
        )
    try:
        number = int((count or "1").replace("_", "").replace(",", ""))
    except ValueError:
        number = 0
    if not 1 <= number <= MAX_DEVICES:
        raise UserError(
            f"{count} devices", allowed=f"a whole number from 1 to {MAX_DEVICES:,}, as in 64x{names[name.casefold()]}"
        )
    chosen = names[name.casefold()]
    return number, this_machine(number) if chosen == CPU else ACCELERATORS[chosen]


def this_machine(processes: int) -> Accelerator:
    """One of the processes that share this machine's cores and memory; products of 32-bit numbers are measured."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // processes))
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)

    def seconds() -> float:
        start = perf_counter()
        torch.mm(a, b)
        return perf_counter() - start

    seconds()
    peak = 2 * 1024**3 / min(seconds() for _ in range(20))
    torch.set_num_threads(threads)
    memory = (memory_limit() or 8 * GIGA) / processes
    return Accelerator(
        CPU,
        peak,
        memory,
        MEMORY_SPEED,
        LOOPBACK,
        LOOPBACK,
        CPU_SUSTAINED,
        per_node=1,
        number_bytes=4,
    )
