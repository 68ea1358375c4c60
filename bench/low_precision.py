"""int8 against fp32, in turn: `python bench/low_precision.py` prints JSON.

Each figure is the ratio of fp32's CPU time to int8's, medians over rounds; above 1 int8 is faster.  One thread, random
weights in the shapes of BERT-base, ViT-B/16 and GPT-2.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import nn

from headway import Context, FixedState
from headway.generate.session import arrange
from headway.nn.low_precision import pack, quantise
from headway.system import keep_memory
from headway.zoo.build import build, config_of

ROUNDS = 7
Call = Callable[[nn.Module], object]


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    keep_memory()
    print(json.dumps({**encoders(), **decoder()}, indent=1, ensure_ascii=False))


def encoders() -> dict[str, float]:
    found = dict[str, float]()
    pair = both("bert-base")
    for batch in (1, 8):
        tokens = torch.randint(0, 30_000, (batch, 128))
        found[f"BERT-base, {batch} × 128 tokens"] = ratio(pair, lambda model, x=tokens: model(x))
    tokens = torch.randint(0, 30_000, (1, 8))
    found["BERT-base, 1 × 8 tokens"] = ratio(pair, lambda model: model(tokens))
    pair = both("vit-b16")
    for batch in (1, 8):
        images = torch.randn(batch, 3, 224, 224)
        found[f"ViT-B/16, {batch} images"] = ratio(pair, lambda model, x=images: model(x))
    return found


def decoder() -> dict[str, float]:
    found, pair = dict[str, float](), both("gpt2")
    prompt = torch.randint(0, 50_000, (1, 128))
    found["GPT-2, a prompt of 128 tokens"] = ratio(pair, lambda model: model.features(prompt))
    for batch in (1, 8):
        states = {model: FixedState(capacity=256) for model in pair}
        for model, state in states.items():
            model(prompt.expand(batch, -1), Context(state=state))
        token = torch.zeros(batch, 1, dtype=torch.long)
        found[f"GPT-2, a step of {batch} rows"] = ratio(
            pair, lambda model, token=token, states=states: model(token, Context(state=states[model]))
        )
    return found


def both(preset: str) -> tuple[nn.Module, nn.Module]:
    full = build(config_of(preset)).eval()
    low = deepcopy(full)
    quantise(low)
    for model in (full, low):
        arrange(model)
    pack(low)
    return full, low


def ratio(pair: tuple[nn.Module, nn.Module], call: Call) -> float:
    spent: dict[nn.Module, list[float]] = {model: [] for model in pair}
    for _ in range(ROUNDS + 1):  # the first round warms up
        for model in pair:
            start = time.process_time()
            call(model)
            spent[model].append(time.process_time() - start)
    full, low = (statistics.median(spent[model][1:]) for model in pair)
    return round(full / low, 2)


if __name__ == "__main__":
    main()
