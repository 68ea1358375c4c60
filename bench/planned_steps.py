"""`headway plan … --devices cpu` beside short trainings in one process and in two, of one thread each.

python bench/planned_steps.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from large_text import write

import headway
from headway.training.cluster_plan import cluster_plan

CONTEXT, BATCH, STEPS, WARM = 256, 4096, 30, 5
PRESETS = ("gpt-micro", "gpt-mini", "gpt-baby")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headway-planned-") as place:
        text = Path(place, "text")
        text.mkdir()
        write(text, 2, 1)
        for name in PRESETS:
            for processes in (1, 2):
                print(compared(name, processes, text, Path(place, f"{name}-{processes}")), flush=True)


def compared(name: str, processes: int, text: Path, out: Path) -> str:
    """A line with what was planned and what a training reached."""
    asked = {"batch": BATCH, "steps": STEPS, "evaluate-every": STEPS, "log-every": 1, "dtype": "fp32", "threads": 1}
    settings = {**{f"train.{key}": value for key, value in asked.items()}, "data.max-length": CONTEXT}
    settings |= {"model.context": CONTEXT, "preset": name, "out": out, "processes": processes}
    words = [str(word) for key, value in settings.items() for word in (f"--{key}", value)]
    subprocess.run([sys.executable, "-m", "headway", "train", str(text), *words], check=True, capture_output=True)
    lines = [json.loads(line) for line in (out / "times.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "tokens" in line][WARM:]
    measured = sum(line["tokens"] for line in steps) / sum(line["seconds"] for line in steps)
    sizes = {"vocab": headway.load(out).config.vocab, "context": CONTEXT}
    torch.set_num_threads(processes)  # which the plan shares out among its processes
    best = cluster_plan(name, f"{processes}xcpu", BATCH * STEPS, batch=BATCH, length=CONTEXT, sizes=sizes).best
    planned, share = best.layout.rows * best.work.units / best.time, processes * best.device.flops
    mfu = measured * best.work.flops / best.work.units / share
    return (
        f"{name}, {processes} × 1 thread: planned {planned:,.0f} tokens/s, measured {measured:,.0f} ({len(steps)} "
        f"steps), ratio {planned / measured:.2f}; products {share / 1e9:,.0f} GFLOP/s, MFU {100 * mfu:.1f} %"
    )


if __name__ == "__main__":
    main()
