"""Training with and without activation checkpointing: `python bench/recompute.py` prints a table.

GPT of 6 layers, 384 wide, dropout 0.1, one thread, 4,096 tokens a step.  Memory is the highest of the process beyond
what it had before its first step, beside the estimate of the plan; each row is a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

TOKENS, STEPS = 4096, 3


def main() -> None:
    print("| rows × length | recomputed | peak MiB | estimated activations MiB | CPU s a step |")
    print("| --- | --- | ---: | ---: | ---: |")
    for length in (256, 2048):
        for recompute in (False, True):
            command = [sys.executable, __file__, str(length), str(int(recompute))]
            found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
            numbers = f"{found['peak']:,.0f} | {found['estimate']:,.0f} | {found['seconds']:.2f}"
            rows = f"{TOKENS // length} × {length:,}"
            print(f"| {rows} | {'yes' if recompute else 'no'} | {numbers} |", flush=True)


def measure(length: int, recompute: bool) -> None:
    import torch

    from bench.memory import memory
    from bench.steps import causal_loss, learner_of
    from headway.system import keep_memory
    from headway.tasks.batches import PackedBatch
    from headway.tasks.causal_lm import CausalBatch
    from headway.zoo import gpt2
    from headway.zoo.build import on_meta
    from headway.zoo.cost import activation_bytes

    torch.set_num_threads(1)
    keep_memory()
    config = gpt2.Config(vocab=65, context=length, dim=384, layers=6, heads=6, dropout=0.1, attention_dropout=0.0)
    learner, ids = learner_of(gpt2.build(config), causal_loss), torch.randint(0, 65, (TOKENS // length, length + 1))
    learner.recompute = recompute
    short = CausalBatch(PackedBatch(ids[:1, :16].contiguous(), None), ids[0, 1:17])
    learner.learn(1, [short])  # kernels load, and the optimiser has its state
    batch = CausalBatch(PackedBatch(ids[:, :-1].contiguous(), None), ids[:, 1:].flatten())
    Path("/proc/self/clear_refs").write_text("5")
    before, seconds = memory("VmRSS"), list[float]()
    for step in range(2, STEPS + 2):
        start = time.process_time()
        learner.learn(step, [batch])
        seconds.append(time.process_time() - start)
    estimate = TOKENS * activation_bytes(config, on_meta(config), "tokens", length, recompute=recompute) / 2**20
    print(json.dumps({"peak": memory("VmHWM") - before, "estimate": estimate, "seconds": median(seconds)}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]), bool(int(sys.argv[2])))
    else:
        main()
