"""Suites of training on pairs of texts: a Transformer against `nn.Transformer`, a recurrent model against a loop.

A run is an epoch over the same pairs.  Peers pad their batches, which are random, or of pairs of like lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.bench.answers import LOSSES
from headway.bench.peers import TORCH
from headway.bench.suite import FP32, Case, Contender, Run, Suite, Workspace
from headway.bench.training_steps import common_steps, headway_steps, in_both

if TYPE_CHECKING:
    from torch import Tensor

START = 1
SMOOTHING = 0.1
Pairs = list[tuple[Any, Any]]


def pairs_of(sizes: Mapping[str, int]) -> Pairs:
    """Random pairs whose lengths are about those of Multi30k."""
    import numpy as np

    random = np.random.default_rng(0)
    drawn = random.lognormal(2.65, 0.4, (sizes["pairs"], 1)) * [1.0, 1.05]
    lengths = np.clip(drawn, 4, 60).astype(np.int64)
    return [(random.integers(4, sizes["vocab"], a), random.integers(4, sizes["vocab"], b)) for a, b in lengths]


def batches_of(sizes: Mapping[str, int], ordered: bool) -> list[Pairs]:
    """All pairs in batches: in random order, or `ordered` as headway trains, by Buckets of like lengths."""
    import numpy as np

    from headway.data.order import Buckets

    pairs, size = pairs_of(sizes), sizes["batch"]
    if not ordered:
        return [pairs[at : at + size] for at in range(0, len(pairs), size)]
    lengths = np.array([[len(a), len(b)] for a, b in pairs])
    return [[pairs[at] for at in batch] for batch in Buckets(lengths, round(size * lengths.sum(1).mean()), 0).epoch(0)]


def pair_cases(sizes: Mapping[str, int]) -> tuple[Case, ...]:
    tokens = sum(len(a) + len(b) for a, b in pairs_of(sizes))
    return (Case(f"{sizes['pairs']} pairs, {sizes['batch']} a batch", tokens, "token"),)


def padded_pairs(rows: Pairs) -> tuple[Tensor, Tensor]:
    """Sources and targets behind a start, B T, padded with zeros."""
    import numpy as np
    import torch
    from torch import nn

    sides = [a for a, _ in rows], [np.concatenate([[START], b]) for _, b in rows]
    source, target = (
        nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in side], batch_first=True) for side in sides
    )
    return source, target


def smoothed_loss(logits: Tensor, wanted: Tensor) -> Tensor:
    import torch

    rows, cross_entropy = logits.flatten(0, 1).float(), torch.nn.functional.cross_entropy
    return cross_entropy(rows, wanted.flatten(), ignore_index=0, label_smoothing=SMOOTHING)


def headway_pairs(config: Callable[[Workspace], Any], precision: str) -> Callable[[Workspace], Run]:
    def prepare(work: Workspace) -> Run:
        import torch

        from headway.system import keep_memory
        from headway.tasks.seq2seq import pair_batch, target_predictions
        from headway.zoo.build import build

        keep_memory()
        torch.manual_seed(0)
        batches = [pair_batch(rows, START) for rows in batches_of(work.sizes, ordered=True)]
        model = build(config(work))

        def loss(model: Any, batch: Any) -> Tensor:
            return target_predictions(model, batch, SMOOTHING).loss()

        return headway_steps(work, model, loss, batches, precision)

    return prepare


# ---- Transformer


def transformer_config(work: Workspace) -> Any:
    from headway.zoo import transformer

    return transformer.Config(**work.given("vocab", "dim", "layers", "heads"), tied="all", dropout=0.1)


def torch_transformer(ordered: bool, precision: str = FP32) -> Callable[[Workspace], Run]:
    """Tables, `nn.Transformer`, all logits, padding masked."""

    def prepare(work: Workspace) -> Run:
        from torch import nn

        sizes = work.sizes
        dim, layers = sizes["dim"], sizes["layers"]
        words = nn.Embedding(sizes["vocab"], dim)
        body = nn.Transformer(dim, sizes["heads"], layers, layers, 4 * dim, 0.1, batch_first=True, norm_first=True)

        def loss(source: Tensor, target: Tensor) -> Tensor:
            shown, wanted = target[:, :-1], target[:, 1:]
            states = body(
                words(source),
                words(shown),
                tgt_mask=nn.Transformer.generate_square_subsequent_mask(shown.shape[1]),
                src_key_padding_mask=source == 0,
                memory_key_padding_mask=source == 0,
                tgt_is_causal=True,
            )
            return smoothed_loss(nn.functional.linear(states, words.weight), wanted)

        losses = [partial(loss, *padded_pairs(rows)) for rows in batches_of(sizes, ordered)]
        return common_steps(work, nn.ModuleList([words, body]), losses, precision)

    return prepare


SEQ2SEQ = Suite(
    "train-seq2seq",
    "Training a Transformer of 3 + 3 layers of 256 on pairs, 8,000 tokens, dropout 0.1",
    lambda work: None,
    pair_cases,
    (
        *in_both("headway", partial(headway_pairs, transformer_config)),
        Contender("nn.Transformer, random batches", torch_transformer(False), peer=TORCH, same_weights=False),
        *in_both("nn.Transformer, like lengths", partial(torch_transformer, True), TORCH, same=False),
    ),
    {"vocab": 8000, "dim": 256, "layers": 3, "heads": 4, "pairs": 512, "batch": 128},
    {"vocab": 99, "dim": 32, "layers": 1, "heads": 2, "pairs": 8, "batch": 4},
    LOSSES,
    memory=True,
)


# ---- recurrent


def recurrent_config(work: Workspace) -> Any:
    from headway.zoo import rnn

    hidden, dim = work.sizes["hidden"], work.sizes["dim"]
    return rnn.Config(vocab=work.sizes["vocab"], dim=dim, hidden=hidden, align=hidden, readout=dim)


def torch_loop(ordered: bool, precision: str = FP32) -> Callable[[Workspace], Run]:
    """RNNsearch (Bahdanau et al. 2015) as tutorials write it: a cell and an additive attention, step by step."""

    def prepare(work: Workspace) -> Run:
        import torch
        from torch import nn

        sizes = work.sizes
        dim, hidden, vocab = sizes["dim"], sizes["hidden"], sizes["vocab"]
        source_words, target_words = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)
        encoder = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        cell, start = nn.GRUCell(dim + 2 * hidden, hidden), nn.Linear(hidden, hidden)
        of_state, of_key, score = nn.Linear(hidden, hidden), nn.Linear(2 * hidden, hidden), nn.Linear(hidden, 1)
        readout, output = nn.Linear(dim + 3 * hidden, 2 * dim), nn.Linear(dim, vocab)
        parts = [source_words, target_words, encoder, cell, start, of_state, of_key, score, readout, output]
        normalise = nn.Softmax(1)

        def loss(source: Tensor, target: Tensor) -> Tensor:
            shown, wanted = target[:, :-1], target[:, 1:]
            memory, last = encoder(source_words(source))
            hide, state, logits = (source == 0)[..., None], start(last[1]).tanh(), list[torch.Tensor]()
            for word in target_words(shown).unbind(1):
                scores = score((of_state(state)[:, None] + of_key(memory)).tanh()).masked_fill(hide, -1e9)
                context = (normalise(scores) * memory).sum(1)
                state = cell(torch.cat([word, context], 1), state)
                pieces = readout(torch.cat([word, context, state], 1)).unflatten(1, (-1, 2))
                logits.append(output(pieces.amax(2)))
            return smoothed_loss(torch.stack(logits, 1), wanted)

        losses = [partial(loss, *padded_pairs(rows)) for rows in batches_of(sizes, ordered)]
        return common_steps(work, nn.ModuleList(parts), losses, precision)

    return prepare


RNN = Suite(
    "train-rnn",
    "Training a recurrent encoder–decoder with additive attention, 256 wide, 4,000 tokens",
    lambda work: None,
    pair_cases,
    (
        *in_both("headway", partial(headway_pairs, recurrent_config)),
        Contender("torch, a loop over steps, random batches", torch_loop(False), peer=TORCH, same_weights=False),
        *in_both("torch, a loop over steps, like lengths", partial(torch_loop, True), TORCH, same=False),
    ),
    {"vocab": 4000, "dim": 256, "hidden": 256, "pairs": 128, "batch": 32},
    {"vocab": 99, "dim": 16, "hidden": 16, "pairs": 8, "batch": 4},
    LOSSES,
    memory=True,
)
