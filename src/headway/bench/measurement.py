"""One run of one contender: CPU and wall-clock time, and the peak of memory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from headway.bench.suite import Case, Run
from headway.system import lines_of, peak_memory, resident_memory


def timed(run: Run, case: Case) -> dict[str, Any]:
    """CPU and wall-clock seconds of a run, its peak of memory in bytes, above what was there before too; its answer."""
    before, traced = resident_memory(), reset_peak()
    cpu, wall = cpu_seconds(), time.perf_counter()
    answer = run(case)
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    peak = high_water() if traced else peak_memory()
    return {"cpu": cpu, "wall": wall, "peak": peak, "above": max(0, peak - before), "answer": answer}


def cpu_seconds() -> float:
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def reset_peak() -> bool:
    """Lets Linux count the peak anew; False where it cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def high_water() -> int:
    """The peak since the last reset, in bytes."""
    words = (line.split() for line in lines_of(Path("/proc/self/status")))
    return next((int(one[1]) << 10 for one in words if one[:1] == ["VmHWM:"]), peak_memory())
