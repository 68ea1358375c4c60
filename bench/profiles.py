"""Where a training step spends its time: `python bench/profiles.py [bf16] [WORK …]`, by torch.profiler, one thread.

With bf16 the steps are in mixed precision.  Shares are of elapsed time in operations, so a busy machine blurs them; in
brackets calls in a step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.steps import causal_loss, learner_of, masked_loss, step_on
from headway.system import keep_memory
from headway.tasks.batches import PackedBatch
from headway.tasks.causal_lm import CausalBatch
from headway.tasks.masked_lm import MaskedBatch
from headway.tasks.seq2seq import pair_batch, target_predictions
from headway.zoo import bert, gpt2
from headway.zoo.build import build, config_of

STEPS, SHOWN = 3, 16
Learning = tuple[nn.Module, Callable[[Any, Any], Tensor], Any]  # a model, its loss and a batch


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    keep_memory()
    dtype = torch.bfloat16 if "bf16" in names else torch.float32
    for name in [name for name in names if name != "bf16"] or list(WORKS):
        torch.manual_seed(0)
        model, loss, batch = WORKS[name]()
        step = step_on(learner_of(model, loss, dtype), batch)
        step()
        step()
        with profile(activities=[ProfilerActivity.CPU]) as found:
            for _ in range(STEPS):
                step()
        events = sorted(found.key_averages(), key=lambda one: -one.self_cpu_time_total)
        total = sum(one.self_cpu_time_total for one in events)
        shares = [(one.key.removeprefix("aten::"), one.self_cpu_time_total / total, one.count) for one in events]
        told = ", ".join(f"{key} {share:.1%} ({count // STEPS})" for key, share, count in shares[:SHOWN])
        print(f"{name}: {told}", flush=True)


def text(dim: int, layers: int, heads: int, rows: int, length: int) -> Learning:
    config = gpt2.Config(vocab=65, context=length, dim=dim, layers=layers, heads=heads, attention_dropout=0.0)
    ids = torch.randint(0, 65, (rows, length + 1))
    batch = CausalBatch(PackedBatch(ids[:, :-1].contiguous(), None), ids[:, 1:].flatten())
    return gpt2.build(replace(config, dropout=0.1)), causal_loss, batch


def pairs() -> Learning:
    """128 pairs as long as those of Multi30k, of like length."""
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.lognormal(2.65, 0.1, (128, 1)) * [1.0, 1.05], 4, 60).astype(np.int64)
    rows = [(draw.integers(4, 8000, one), draw.integers(4, 8000, other)) for one, other in lengths]
    model = build(replace(cast(Any, config_of("transformer-small")), dropout=0.1))
    return model, lambda model, batch: target_predictions(model, batch).loss(0.1), pair_batch(rows, 1)


def masked() -> Learning:
    ids = torch.randint(5, 30_522, (16, 128))
    places = (torch.rand(16, 128) < 0.15).flatten().nonzero()[:, 0]
    batch = MaskedBatch(PackedBatch(ids, None), places, ids.flatten()[places])
    model = bert.build(bert.Config(dim=256, layers=4, heads=4, dropout=0.1, attention_dropout=0.0))
    return model, masked_loss, batch


@dataclass(frozen=True)
class Images:
    pixels: Tensor
    classes: Tensor

    @property
    def tokens(self) -> int:
        return len(self.classes)

    targets = tokens


def images(preset: str, rows: int) -> Learning:
    config = cast(Any, config_of(preset))
    pixels = torch.randn(rows, config.channels, config.image, config.image)
    batch = Images(pixels, torch.randint(0, config.classes, (rows,)))

    def loss(model: nn.Module, batch: Images) -> Tensor:
        return F.cross_entropy(model(batch.pixels), batch.classes, reduction="sum")

    return build(config), loss, batch


WORKS: dict[str, Callable[[], Learning]] = {
    "gpt-nano": lambda: text(48, 3, 3, 16, 128),
    "gpt 6 layers/384": lambda: text(384, 6, 6, 4, 256),
    "transformer-small": pairs,
    "bert 4 layers/256": masked,
    "vit-nano": lambda: images("vit-nano", 64),
    "swin-nano": lambda: images("swin-nano", 32),
}

if __name__ == "__main__":
    main(sys.argv[1:])
