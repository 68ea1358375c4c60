"""What this machine has, and for each thing that is amiss what mends it."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headway import __version__
from headway.console import binary
from headway.distributed.launcher import rendezvous_problem
from headway.dtype import BF16, has_instructions
from headway.native.library import CAPABILITY, PERMITTED, NativeLibrary, native_library
from headway.system import describe_cores, describe_python, describe_waiting, lines_of, usable_cores

NEEDED = (
    "torch",
    "numpy",
    "tokenizers",
    "safetensors",
    "cyclopts",
    "pyyaml",
    "pillow",
    "soundfile",
    "matplotlib",
    "rich",
    "platformdirs",
    "sacrebleu",
    "babel",
)
# What headway does more with, by the name to import: the name to install, and what for
EXTRAS = {
    "transformers": ("transformers", "to compare converted models with"),
    "tensorboard": ("tensorboard", "to watch curves in TensorBoard"),
}
MISSING = "missing"
OLDEST = (3, 11)
LITTLE_MEMORY, LITTLE_SPACE = 2 << 30, 2 << 30
SLOW = 5.0  # GFLOP/s of a core, below which something else is running or the build is wrong
SIDE, SECONDS = 512, 1.0  # of the speed test


@dataclass(frozen=True)
class MachineCheck:
    """What was looked at, what was found, and what mends it; what is not `needed` may be missing."""

    name: str
    found: str
    fix: str | None = None
    needed: bool = True

    @property
    def ok(self) -> bool:
        return self.fix is None

    def line(self, width: int) -> str:
        mark = "ok " if self.ok else "fix" if self.needed else "add"
        first = f"{mark}  {self.name.ljust(width)}  {self.found}"
        return first if self.ok else f"{first}\n     {' ' * width}  {self.fix}"


@dataclass(frozen=True)
class MachineReport:
    checks: tuple[MachineCheck, ...]

    def to_dict(self) -> dict[str, Any]:
        told = [{**asdict(one), "ok": one.ok} for one in self.checks]
        return {"ok": all(one.ok or not one.needed for one in self.checks), "findings": told}

    def to_text(self) -> str:
        width = max(len(one.name) for one in self.checks)
        return "\n".join(one.line(width) for one in self.checks)

    def missing(self) -> list[str]:
        """The packages that headway needs and this machine lacks."""
        return [one.name for one in self.checks if one.needed and one.found == MISSING]


def doctor() -> MachineReport:
    """Versions, cores, memory, disk, extras and speed of this machine."""
    return MachineReport(tuple(findings()))


def findings() -> Iterator[MachineCheck]:
    yield python()
    yield MachineCheck("headway", __version__)
    for package in NEEDED:
        yield needed(package)
    for module, (package, use) in EXTRAS.items():
        yield extra(module, package, use)
    yield native_step()
    yield cores()
    yield memory()
    yield space("disk here", here(), "change to a folder of yours, or give --out to headway train")
    yield cache()
    if find_spec("torch") and here():  # MKL ends the process where the current folder is gone
        yield from computing()
        yield processes()


def python() -> MachineCheck:
    least = ".".join(map(str, OLDEST))
    return MachineCheck(
        "python", describe_python(), None if sys.version_info >= OLDEST else f"install Python {least} or newer"
    )


def needed(package: str) -> MachineCheck:
    try:
        return MachineCheck(package, version(package))
    except PackageNotFoundError:
        return MachineCheck(package, MISSING, f"pip install {package}")


def extra(module: str, package: str, use: str) -> MachineCheck:
    if find_spec(module):
        return MachineCheck(package, f"{version(package)}, {use}")
    return MachineCheck(package, f"not installed; only needed {use}", f"pip install {package}", needed=False)


def native_step() -> MachineCheck:
    """The library that decodes, and the instructions that it uses here."""
    library = native_library()
    if not isinstance(library, NativeLibrary):
        told = f"{library.reason}; models decode by torch, which is slower"
        do = "install gcc or clang, then headway again (make setup, or pip install)"
        return MachineCheck("native step", told, do, needed=False)
    lacking = f"; this processor has no {' and no '.join(library.missing)}" if library.missing else ""
    held = f" ({CAPABILITY}={os.environ[CAPABILITY]})" if os.environ.get(CAPABILITY) in PERMITTED else ""
    return MachineCheck("native step", f"{library.sets[library.best]}{held}, for decoding on the CPU{lacking}")


def processes() -> MachineCheck:
    """Whether two processes of this machine find each other, as those of a training do."""
    problem = rendezvous_problem()
    if problem is None:
        return MachineCheck("processes", "two of them have met and added numbers by gloo (--processes)")
    do = "see that the loopback interface is up and that nothing filters its ports"
    return MachineCheck("processes", f"two of them cannot train together: {problem}", do, needed=False)


def cores() -> MachineCheck:
    usable, wished = usable_cores(), os.environ.get("OMP_NUM_THREADS", "")
    many = wished.isdigit() and int(wished) > usable
    fix = f"set OMP_NUM_THREADS to {usable} or fewer: more threads than cores are slow" if many else None
    return MachineCheck("cores", describe_cores(), fix)


def memory() -> MachineCheck:
    """Free memory where the system tells it."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return MachineCheck("memory", "this system does not tell")
    free = max(free, available())
    fix = "close other programs, or train with a smaller --train.batch" if free < LITTLE_MEMORY else None
    return MachineCheck("memory", f"{binary(free)} free of {binary(total)}", fix)


def available() -> int:
    """What Linux would free for a program, files it keeps in memory included; 0 elsewhere."""
    told = (line.split() for line in lines_of(Path("/proc/meminfo")))
    return next((int(words[1]) << 10 for words in told if words[:1] == ["MemAvailable:"]), 0)


def here() -> Path | None:
    """The current folder, unless somebody removed it."""
    try:
        return Path.cwd()
    except OSError:
        return None


def space(name: str, folder: Path | None, remedy: str) -> MachineCheck:
    """Free space of a folder, or of the nearest above it that exists; `remedy` where it cannot be written to."""
    there = next((one for one in (folder, *folder.parents) if one.exists()), None) if folder else None
    if folder is None or there is None or not folder.is_absolute():
        return MachineCheck(name, "there is no such folder", remedy)
    free = shutil.disk_usage(there).free
    told = f"{binary(free)} free in {folder}"
    if not os.access(there, os.W_OK):
        return MachineCheck(name, f"{told}, which cannot be written to", remedy)
    return MachineCheck(name, told, "make room: data and checkpoints are large" if free < LITTLE_SPACE else None)


def cache() -> MachineCheck:
    from headway.data.shard_cache import wanted_folder

    return space("cache", wanted_folder(), "set HEADWAY_CACHE to a folder of yours")


def computing() -> Iterator[MachineCheck]:
    """The devices of torch, and how fast it multiplies matrices."""
    import torch

    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    yield MachineCheck("device", f"{device or 'cpu'}, threads: {torch.get_num_threads()}")
    bf16 = "this CPU has instructions for it" if has_instructions(BF16) else "this CPU has no instructions for it"
    yield MachineCheck("bf16", f"{bf16} (--train.dtype)")
    yield MachineCheck("waiting", f"{describe_waiting()}, for threads that wait for one another")
    a, product = torch.randn(SIDE, SIDE), torch.empty(SIDE, SIDE)
    torch.mm(a, a, out=product)  # the first also makes the threads
    started, rounds = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        torch.mm(a, a, out=product)
        rounds += 1
    speed = 2 * SIDE**3 * rounds / (time.perf_counter() - started) / 1e9
    slow = speed < SLOW * torch.get_num_threads()
    fix = "stop what else is running, or set OMP_NUM_THREADS to the cores that are free" if slow else None
    yield MachineCheck("speed", f"{speed:.0f} GFLOP/s in products of matrices", fix)
