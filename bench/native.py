"""The native step against torch's path and transformers, on the same weights: `python bench/native.py` prints JSON.

Greedy decoding end to end, batch 1, 128 tokens of prompt and 128 new ones, one thread; contenders take turns, and each
figure is the ratio of transformers' CPU time to ours, medians over rounds; and milliseconds of a later token.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch

from headway.nn.trunk import Trunk

PROMPT, NEW, ROUNDS = 128, 128, int(sys.argv[1]) if len(sys.argv) > 1 else 3


def main() -> None:
    torch.set_num_threads(1)
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    shape = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 2048}
    found = {
        "GPT-2, 124 M": measure(GPT2LMHeadModel(GPT2Config())),
        "Llama shape, 134 M": measure(LlamaForCausalLM(LlamaConfig(**shape, vocab_size=32_000))),
    }
    print(json.dumps(found))


def measure(theirs: Any) -> dict[str, dict[str, float]]:
    from headway.generate.decoding import generate
    from headway.generate.request import Stop
    from headway.generate.session import DecodingSession
    from headway.model import load

    theirs = theirs.eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours, low = load(folder).model, load(folder, dtype="int8").model
    assert isinstance(ours, Trunk)
    assert isinstance(low, Trunk)
    prompt = torch.randint(3, 30_000, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    options = {"do_sample": False, "pad_token_id": 0}

    def run_theirs(count: int) -> object:
        lengths = {"min_new_tokens": count, "max_new_tokens": count}
        return theirs.generate(prompt, attention_mask=torch.ones_like(prompt), **lengths, **options)

    def run_native(count: int) -> object:
        return generate(ours, prompt.tolist(), stop=Stop(count))

    def run_torch(count: int) -> object:
        with patch.object(DecodingSession, "native_step", lambda session, tokens: None):
            return generate(ours, prompt.tolist(), stop=Stop(count))

    def run_int8(count: int) -> object:
        return generate(low, prompt.tolist(), stop=Stop(count))

    runs: dict[str, Callable[[int], object]] = {"transformers": run_theirs, "torch": run_torch}
    runs |= {"native": run_native, "native int8": run_int8}
    for run in runs.values():
        run(2)
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            spent[name].append((seconds(run, 1), seconds(run, NEW)))
    first = {name: statistics.median(one for one, _ in pairs) for name, pairs in spent.items()}
    whole = {name: statistics.median(all_ for _, all_ in pairs) for name, pairs in spent.items()}
    return {
        name: {
            "times as fast": round(whole["transformers"] / whole[name], 2),
            "ms a token": round((whole[name] - first[name]) / (NEW - 1) * 1e3, 1),
            "prefill ms": round(first[name] * 1e3),
        }
        for name in runs
    }


def seconds(run: Callable[[int], object], count: int) -> float:
    start = time.process_time()
    run(count)
    return time.process_time() - start


if __name__ == "__main__":
    main()
