"""One run of one contender: CPU and wall-clock time, and the peak of memory, with those of its child processes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from headway.bench.suite import Case, Run, SampledAnswer
from headway.system import lines_of, peak_memory


def timed(run: Run, case: Case) -> dict[str, Any]:
    """CPU and wall-clock seconds of a run, its peak of memory in bytes, above what was there before too; its answer."""
    before, traced = memory("VmRSS"), reset_peak()
    cpu, wall = cpu_seconds(), time.perf_counter()
    found = run(case)
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    peak = memory("VmHWM") if traced else peak_memory()
    answer, samples = found if isinstance(found, SampledAnswer) else (found, {})
    spent = {"cpu": cpu, "wall": wall, "peak": peak, "above": max(0, peak - before)}
    return {**spent, "answer": answer, "samples": samples}


def cpu_seconds() -> float:
    spent = os.times()
    running = sum(sum(map(int, times_of(pid))) for pid in children(os.getpid())) / os.sysconf("SC_CLK_TCK")
    return time.process_time() + spent.children_user + spent.children_system + running


def times_of(pid: int) -> list[str]:
    """Ticks of a process and of its children that have ended, for itself and by the system."""
    stat = " ".join(lines_of(Path(f"/proc/{pid}/stat")))
    return stat.rpartition(")")[2].split()[11:15]


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run, and theirs; none where the system does not tell."""
    lines = [line for file in Path(f"/proc/{pid}/task").glob("*/children") for line in lines_of(file)]
    own = [int(word) for line in lines for word in line.split()]
    return [*own, *(one for child in own for one in children(child))]


def reset_peak() -> bool:
    """Lets Linux count the peak anew; False where it cannot."""
    try:
        for pid in (os.getpid(), *children(os.getpid())):
            Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def memory(name: str) -> int:
    """Bytes that Linux tells by this name, of this process and its children: VmRSS now, VmHWM at most since a reset."""
    pids = (os.getpid(), *children(os.getpid()))
    words = (line.split() for pid in pids for line in lines_of(Path(f"/proc/{pid}/status")))
    return sum(int(one[1]) << 10 for one in words if one[:1] == [f"{name}:"]) or peak_memory()
