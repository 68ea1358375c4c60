"""Training speed against peers on the same shapes: `python bench/training.py` prints JSON; a race's name runs it alone.

Figures are real tokens (padding not counted) per CPU second, one thread, AdamW in all of them.  Translators have the
usual dropout of 0.1, which `nn.Transformer` has in its attention too and ours has not; the others have none.  Lengths
of pairs are those of Multi30k where it is beside the project, else drawn to look like it; the more rows a batch has,
the more random order pads.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.race import Batches, Peer, learner_of, our_step, raced
from headway.data.order import Buckets
from headway.data.tokenizer_training import train_bpe
from headway.nn.head import word_head
from headway.nn.trunk import Trunk
from headway.tasks.batches import PackedBatch
from headway.tasks.causal_lm import CausalBatch
from headway.tasks.masked_lm import MaskedBatch
from headway.tasks.seq2seq import pair_batch, target_predictions
from headway.zoo import bert, gpt2, transformer

MULTI30K = Path(__file__).parents[2] / "shared" / "data" / "multi30k"
ROWS = (128, 256)  # of a batch of pairs, in the mean
BATCHES = 3
DIM, LAYERS, HEADS, VOCAB = 256, 3, 4, 8000  # of the translators


def main() -> None:
    translators = {f"pairs, {rows} a batch": partial(pairs, rows) for rows in ROWS}
    print(json.dumps(raced({**translators, "masked words": masked, "text": text})))


def pairs(size: int) -> dict[str, Batches]:
    """Translation: `nn.Transformer` on padded batches in random order and in order of length, and ours."""
    lengths = pair_lengths()
    random = np.random.default_rng(0)
    rows = {row: tuple(random.integers(4, VOCAB, n) for n in lengths[row]) for row in range(len(lengths))}
    config = transformer.Config(vocab=VOCAB, dim=DIM, layers=LAYERS, heads=HEADS, tied="all", dropout=0.1)
    learner = learner_of(transformer.build(config), lambda model, batch: target_predictions(model, batch).loss(0.1))
    theirs = TorchTranslator()
    peer = Peer(theirs)

    def steps(batches: Iterable[Iterable[int]]) -> Batches:
        return [torch_step(peer, theirs, [rows[i] for i in batch]) for batch in batches]

    padded = [random.integers(0, len(rows), size) for _ in range(BATCHES)]
    buckets = Buckets(lengths, round(size * lengths.sum(1).mean()), 0).epoch(0)[:BATCHES]
    return {
        "nn.Transformer, random batches": steps(padded),
        "nn.Transformer, batches of like length": steps(buckets),
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


def torch_step(
    peer: Peer, model: TorchTranslator, rows: list[tuple[np.ndarray, np.ndarray]]
) -> tuple[Callable[[], object], int]:
    source, target = (
        nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in side], batch_first=True)
        for side in ([a for a, _ in rows], [np.concatenate([[1], b]) for _, b in rows])
    )
    return peer.step(lambda: model.loss(source, target), sum(len(a) + len(b) for a, b in rows))


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
    batch = MaskedBatch(PackedBatch(ids, None), places, ids.flatten()[places])
    return {
        "transformers BERT": [Peer(theirs).step(lambda: theirs(ids, labels=labels).loss, ids.numel())],
        "headway": [our_step(ours, batch)],
    }


def masked_loss(model: nn.Module, batch: MaskedBatch) -> Tensor:
    assert isinstance(model, Trunk)
    return word_head(model.head).loss(model.features(batch.read.ids).flatten(0, 1)[batch.chosen], batch.wanted)


def text() -> dict[str, Batches]:
    """nanoGPT's shape for letters: 6 layers, 384 wide, 256 letters, 65 signs; and what no model can reach."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 65, "n_positions": 256, "n_embd": 384, "n_layer": 6, "n_head": 6}
    theirs = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    config = gpt2.Config(vocab=65, context=256, dim=384, layers=6, heads=6, dropout=0.0, attention_dropout=0.0)
    ours = learner_of(gpt2.build(config), causal_loss)
    ids = torch.randint(0, 65, (8, 257))
    batch = CausalBatch(PackedBatch(ids[:, :-1].contiguous(), None), ids[:, 1:].flatten())
    shown = ids[:, :-1]
    return {
        "transformers GPT-2": [Peer(theirs).step(lambda: theirs(shown, labels=shown).loss, 8 * 256)],
        "headway": [our_step(ours, batch)],
        "as many operations, in one kind of product": [product(8 * 256)],
    }


def causal_loss(model: nn.Module, batch: CausalBatch) -> Tensor:
    assert isinstance(model, Trunk)
    return word_head(model.head).loss(model.features(batch.read.ids).flatten(0, 1), batch.wanted)


def product(tokens: int) -> tuple[Callable[[], object], int]:
    """As many operations as learning from so many letters takes, all in products of 2048×384 by 384×1536."""
    weights = 6 * 12 * 384**2 + 65 * 384
    attention = 6 * 2 * 256 / 2 * 384 * 2  # scores and sums, over half of the keys
    count = round(tokens * (6 * weights + 3 * attention) / (2 * 2048 * 384 * 1536))
    a, b = torch.randn(2048, 384), torch.randn(384, 1536)

    def step() -> None:
        for _ in range(count):
            torch.mm(a, b)

    return step, tokens


if __name__ == "__main__":
    main()
