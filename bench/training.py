"""Training speed against peers on the same shapes, contenders in turn: `python bench/training.py` prints JSON.

Figures are real tokens (padding not counted) per CPU second, of the fastest round, one thread, AdamW in all of them.
Translators have the usual dropout of 0.1, which `nn.Transformer` has in its attention too and ours has not; the others
have none.  Lengths of pairs are those of Multi30k where it is beside the project, else drawn to look like it; the more
rows a batch has, the more random order pads.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.order import Buckets
from headway.data.train_tokenizer import train_bpe
from headway.nn.head import word_head
from headway.nn.model import Trunk
from headway.tasks.causal import CausalBatch
from headway.tasks.masked import MaskedBatch
from headway.tasks.pairs import pair_batch, said_after
from headway.tasks.task import Ragged
from headway.train.groups import groups
from headway.train.learner import Learner
from headway.train.memory import keep_memory
from headway.train.optimiser import AdamW, Optimiser
from headway.train.schedule import Constant
from headway.zoo import bert, gpt2, transformer

MULTI30K = Path(__file__).parents[2] / "shared" / "data" / "multi30k"
ROUNDS, SECONDS = 2, 60  # of a race: at least so many rounds, and more while it took less time
ROWS = (128, 256)  # of a batch of pairs, in the mean
BATCHES = 3
DIM, LAYERS, HEADS, VOCAB = 256, 3, 4, 8000  # of the translators

Batches = list[tuple[Callable[[], object], int]]  # a step and its real tokens


def main() -> None:
    keep_memory()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    lengths = pair_lengths()
    translators = {f"pairs, {rows} a batch": race(pairs(lengths, rows)) for rows in ROWS}
    found = {**translators, "masked words": race(masked()), "text": race(text())}
    print(json.dumps({**found, "share of the matrix product's rate": gemm_share(found["text"]["headway"])}))


def race(contenders: dict[str, Batches]) -> dict[str, float]:
    """Real tokens per CPU second of each, one after the other in each round; the first round warms up.

    The fastest round counts: whatever else the machine does can only slow one.
    """
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    begun, rounds = time.process_time(), 0
    while rounds <= ROUNDS or time.process_time() - begun < SECONDS:
        for name, steps in contenders.items():
            start = time.process_time()
            for step, _ in steps:
                step()
            speeds[name].append(sum(tokens for _, tokens in steps) / (time.process_time() - start))
        rounds += 1
    return {name: max(found[1:]) for name, found in speeds.items()}


def pairs(lengths: np.ndarray, size: int) -> dict[str, Batches]:
    """Translation: `nn.Transformer` on padded batches in random order and in order of length, and ours."""
    random = np.random.default_rng(0)
    rows = {row: tuple(random.integers(4, VOCAB, n) for n in lengths[row]) for row in range(len(lengths))}
    config = transformer.Config(vocab=VOCAB, dim=DIM, layers=LAYERS, heads=HEADS, tied="all", dropout=0.1)
    learner = learner_of(transformer.build(config), lambda model, batch: said_after(model, batch).loss(0.1))
    theirs = TorchTranslator()
    padded = [random.integers(0, len(rows), size) for _ in range(BATCHES)]
    buckets = Buckets(lengths, round(size * lengths.sum(1).mean()), 0).epoch(0)[:BATCHES]
    return {
        "nn.Transformer, random batches": [torch_step(theirs, [rows[i] for i in batch]) for batch in padded],
        "nn.Transformer, batches of like length": [torch_step(theirs, [rows[i] for i in batch]) for batch in buckets],
        "headway": [our_step(learner, pair_batch([rows[i] for i in batch], 1)) for batch in buckets],
    }


def pair_lengths() -> np.ndarray:
    """How many byte pairs, and an end, sources and targets have, R 2."""
    if not MULTI30K.exists():
        draw = np.random.default_rng(0).lognormal(2.65, 0.4, (29_000, 1))
        return np.clip(draw * [1.0, 1.05], 4, 60).astype(np.int64)
    texts = [gzip.decompress((MULTI30K / f"train.{side}.gz").read_bytes()).decode() for side in ("en", "de")]
    words = train_bpe([line for text in texts for line in text.splitlines()], VOCAB)
    return np.array([[len(row) + 1 for row in words.plain_batch(text.splitlines())] for text in texts]).T


class TorchTranslator(nn.Module):
    """The common way: tables, `nn.Transformer`, all logits, padding masked."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCAB, DIM)
        self.body = nn.Transformer(DIM, HEADS, LAYERS, LAYERS, 4 * DIM, 0.1, batch_first=True, norm_first=True)
        self.optimiser = torch.optim.AdamW(self.parameters(), fused=True)

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        shown, wanted = target[:, :-1], target[:, 1:]
        hide = nn.Transformer.generate_square_subsequent_mask(shown.shape[1])
        states = self.body(
            self.table(source),
            self.table(shown),
            tgt_mask=hide,
            src_key_padding_mask=source == 0,
            memory_key_padding_mask=source == 0,
            tgt_is_causal=True,
        )
        logits = F.linear(states, self.table.weight)
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=0, label_smoothing=0.1)


def torch_step(model: TorchTranslator, rows: list[tuple[np.ndarray, np.ndarray]]) -> tuple[Callable[[], object], int]:
    source, target = (
        nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in side], batch_first=True)
        for side in ([a for a, _ in rows], [np.concatenate([[1], b]) for _, b in rows])
    )

    def step() -> None:
        model.optimiser.zero_grad()
        model.loss(source, target).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        model.optimiser.step()

    return step, sum(len(a) + len(b) for a, b in rows)


def masked() -> dict[str, Batches]:
    """Masked words, vocabulary of 30,522: transformers' BERT with its logits of every token, and ours."""
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"vocab_size": 30_522, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    theirs = BertForMaskedLM(BertConfig(**sizes, intermediate_size=1024, **quiet))
    ours = learner_of(
        bert.build(bert.Config(dim=256, layers=4, heads=4, dropout=0.0, attention_dropout=0.0)), masked_loss
    )
    ids = torch.randint(5, 30_522, (16, 128))
    chosen = torch.rand(16, 128) < 0.15
    labels = ids.where(chosen, torch.tensor(-100))
    places = chosen.flatten().nonzero()[:, 0]
    batch = MaskedBatch(Ragged(ids, None), places, ids.flatten()[places])
    return {
        "transformers BERT": [hf_step(theirs, {"input_ids": ids, "labels": labels}, ids.numel())],
        "headway": [our_step(ours, batch)],
    }


def masked_loss(model: nn.Module, batch: MaskedBatch) -> Tensor:
    assert isinstance(model, Trunk)
    return word_head(model.head).loss(model.features(batch.read.ids).flatten(0, 1)[batch.chosen], batch.wanted)


def text() -> dict[str, Batches]:
    """nanoGPT's shape for letters: 6 layers, 384 wide, 256 letters, 65 signs."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 65, "n_positions": 256, "n_embd": 384, "n_layer": 6, "n_head": 6}
    theirs = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    config = gpt2.Config(vocab=65, context=256, dim=384, layers=6, heads=6, dropout=0.0, attention_dropout=0.0)
    ours = learner_of(gpt2.build(config), causal_loss)
    ids = torch.randint(0, 65, (8, 257))
    batch = CausalBatch(Ragged(ids[:, :-1].contiguous(), None), ids[:, 1:].flatten())
    given = {"input_ids": ids[:, :-1], "labels": ids[:, :-1]}
    return {"transformers GPT-2": [hf_step(theirs, given, 8 * 256)], "headway": [our_step(ours, batch)]}


def causal_loss(model: nn.Module, batch: CausalBatch) -> Tensor:
    assert isinstance(model, Trunk)
    return word_head(model.head).loss(model.features(batch.read.ids).flatten(0, 1), batch.wanted)


def gemm_share(tokens: float) -> float:
    """Operations of the text model at this speed, against those of its largest matrix product alone."""
    weights = 6 * 12 * 384**2 + 65 * 384
    attention = 6 * 2 * 256 / 2 * 384 * 2  # scores and sums, over half of the keys
    return tokens * (6 * weights + 3 * attention) / gemm_rate()


def gemm_rate() -> float:
    """Operations in a CPU second of 2048×384 by 384×1536."""
    a, b = torch.randn(2048, 384), torch.randn(384, 1536)
    for _ in range(5):
        a @ b
    start, count = time.process_time(), 60
    for _ in range(count):
        a @ b
    return 2 * 2048 * 384 * 1536 * count / (time.process_time() - start)


def hf_step(model: Any, given: dict[str, Tensor], tokens: int) -> tuple[Callable[[], object], int]:
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        optimiser.zero_grad()
        model(**given).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step, tokens


def learner_of(model: nn.Module, loss: Callable[[nn.Module, Any], Tensor]) -> Learner:
    return Learner(model, loss, Optimiser(AdamW(), groups(model)), Constant(), seed=0)


def our_step(learner: Learner, batch: Any) -> tuple[Callable[[], object], int]:
    numbers: Iterator[int] = iter(range(1, 10**9))
    return lambda: learner.learn(next(numbers), [batch]), batch.tokens


if __name__ == "__main__":
    main()
