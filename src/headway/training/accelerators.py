"""Accelerators as their makers describe them: what `headway plan` computes with, as plain data.

Products are dense ones of 16-bit numbers (bf16, fp16 where a device has no bf16), without structured sparsity.  A link
is that of one device to the others of its node, one way; the network is that of the maker's reference system (DGX, HGX)
or of usual servers, one way and for each device.  Others are given as `headway plan --network`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from statistics import median
from time import perf_counter

import torch
import torch.nn.functional as F

from headway.errors import UserError, listed, nearest
from headway.ops.linear import linear
from headway.system import keep_memory, memory_limit, usable_cores
from headway.zoo.build import build, config_to_train, on_meta
from headway.zoo.cost import TRAINING, activation_bytes, cost

TERA, GIGA = 1e12, 1e9
MAX_DEVICES = 2**20


@dataclass(frozen=True)
class Accelerator:
    """A device: FLOP/s, bytes, and bytes a second.

    `sustained` is the share of its peak that training reaches where nothing waits for other devices.  Where that is 1,
    `activations` is the speed of all that is not a product: bytes a second of what a forward pass keeps.
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
    activations: float = inf


def accelerator(
    name: str, teraflops: float, gigabytes: float, bandwidth: float, link: float, network: float, sustained: float
) -> Accelerator:
    """From the units of data sheets: TFLOP/s, GB, and GB/s three times."""
    speeds = (bandwidth * GIGA, link * GIGA, network * GIGA)
    return Accelerator(name, teraflops * TERA, gigabytes * GIGA, *speeds, sustained)


# Sustained shares are those of device hours: FLOPs of a whole training over what the devices could have done, so that
# restarts and evaluations are in them.  0.21 on the V100 is GPT-3's (Chowdhery et al. 2022, table 3), which holds all
# its waiting too.  0.49 on the A100 is that of LLaMA 65B (1,022,362 hours for 1.4e12 tokens: Touvron et al. 2023), and
# 0.36 on the H100 that of Llama 3.1 405B (30.84e6 hours for 15.6e12 tokens by its model card; of its steps alone 38 to
# 43 % are reported: Grattafiori et al. 2024, table 4).  Of the others no report was at hand: older ones are taken to be
# like the V100, those of the A100's time like it, and later ones like the H100.
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
        accelerator("H100-PCIe", 756, 80, 2000, 64, 25, 0.36),
        accelerator("H100", 989, 80, 3350, 450, 50, 0.36),
        accelerator("H200", 989, 141, 4800, 450, 50, 0.36),
        accelerator("B200", 2250, 180, 7700, 900, 50, 0.36),
        accelerator("MI250X", 383, 128, 3277, 150, 25, 0.36),
        accelerator("MI300X", 1307, 192, 5300, 448, 50, 0.36),
    )
}
CPU = "cpu"  # a process on this machine, whose speed is measured
LOOPBACK = 2 * GIGA  # bytes a second between processes here: a guess
SIDE = 1024  # of the matrices that are multiplied
COPIED = 2**24  # numbers that are read and written, more than caches hold
MEASURED_SECONDS = 0.5  # of each measurement, in at least three calls
# a training step that stands for others: what it takes besides its products, for each byte that it keeps
REFERENCE, REFERENCE_ROWS, REFERENCE_LENGTH = "gpt-mini", 8, 256
REFERENCE_SIZES = {"layers": 2, "vocab": 512, "context": REFERENCE_LENGTH}


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
    """One of the processes that share this machine's cores and memory, whose speed is measured while all of them work.

    A step takes the time of its products at the speed of large ones, and for all else a time by the bytes of
    activations that it keeps.  That is measured on a small GPT.
    """
    together = min(processes, max(1, usable_cores()))
    a, b, numbers = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE), torch.zeros(COPIED)
    flops = 2 * SIDE**3 / seconds_of(lambda: linear(a, b), together)
    keep_memory()  # as trainings do
    config = config_to_train(REFERENCE, **REFERENCE_SIZES)
    kept = activation_bytes(config, on_meta(config), "tokens", REFERENCE_LENGTH) * REFERENCE_ROWS * REFERENCE_LENGTH
    products = TRAINING * cost(config, batch=REFERENCE_ROWS).total.flops / flops
    step = seconds_of(reference_step(build(config)), together)
    bandwidth = 2 * 4 * COPIED / seconds_of(lambda: torch.add(numbers, 1.0), together)
    share = together / processes
    return Accelerator(
        CPU,
        flops * share,
        (memory_limit() or 8 * GIGA) / processes,
        bandwidth * share,
        LOOPBACK,
        LOOPBACK,
        sustained=1.0,
        per_node=1,
        number_bytes=4,
        activations=share * kept / max(step - products, step / 100),
    )


def reference_step(model: torch.nn.Module) -> Callable[[], object]:
    """The loss of a batch and its gradients, which each call computes anew: several threads may."""
    vocab = REFERENCE_SIZES["vocab"]
    tokens = torch.randint(vocab, (REFERENCE_ROWS, REFERENCE_LENGTH))
    weights = list(model.parameters())
    return lambda: torch.autograd.grad(F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()), weights)


def seconds_of(call: Callable[[], object], together: int) -> float:
    """The median time of a call while so many threads make it, each on its share of the cores."""
    threads = torch.get_num_threads()

    def timed(_: int) -> list[float]:
        torch.set_num_threads(max(1, threads // together))
        call()
        found, begun = list[float](), perf_counter()
        while len(found) < 3 or perf_counter() - begun < MEASURED_SECONDS:
            start = perf_counter()
            call()
            found.append(perf_counter() - start)
        return found

    with ThreadPoolExecutor(together) as pool:
        times = [one for found in pool.map(timed, range(together)) for one in found]
    torch.set_num_threads(threads)
    return median(times)
