"""`headway plan … --devices cpu` beside short trainings in one process: python bench/planned_steps.py [THREADS]"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from large_text import write

import headway
from headway.training.cluster_plan import cluster_plan

CONTEXT, BATCH, STEPS = 256, 4096, 30
PRESETS = ("gpt-micro", "gpt-mini", "gpt-baby")


def main() -> None:
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="headway-planned-") as place:
        text = Path(place, "text")
        text.mkdir()
        write(text, 2, 1)
        for name in PRESETS:
            out = Path(place, name)
            train = {"batch": BATCH, "steps": STEPS, "evaluate_every": STEPS, "log_every": 1, "dtype": "fp32"}
            headway.train(
                [str(text)],
                preset=name,
                out=out,
                **{f"train.{key}": value for key, value in {**train, "threads": threads}.items()},
                **{"data.max_length": CONTEXT, "model.context": CONTEXT},
            )
            lines = [json.loads(line) for line in (out / "times.jsonl").read_text().splitlines()]
            steps = [line for line in lines if "tokens" in line][5:]
            measured = sum(line["tokens"] for line in steps) / sum(line["seconds"] for line in steps)
            sizes = {"vocab": headway.load(out).config.vocab, "context": CONTEXT}
            plan = cluster_plan(name, "cpu", BATCH * STEPS, batch=BATCH, length=CONTEXT, sizes=sizes)
            best = plan.best
            planned = best.layout.rows * best.work.units / best.time
            peak = best.device.flops / 1e9
            share = measured * best.work.flops / best.work.units / best.device.flops
            print(
                f"{name}: planned {planned:,.0f} tokens/s, measured {measured:,.0f} ({len(steps)} steps), ratio "
                f"{planned / measured:.2f}; products {peak:,.0f} GFLOP/s, MFU {100 * share:.1f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
