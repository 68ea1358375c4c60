"""Recurrent encoder–decoders as the zoo assembles them: their sizes, their equations, and one call as many.

Axes:  B batch   S source   T target
"""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.context import Context, PackedLengths
from headway.nn.state import State
from headway.nn.trace import record
from headway.nn.trunk import EncoderDecoder
from headway.zoo import rnn, seq2seq
from headway.zoo.build import build
from headway.zoo.choices import CELLS

VOCAB, WORDS, B, S, T = 19, 17, 3, 7, 6
SMALL = {"vocab": VOCAB, "target_vocab": WORDS, "dim": 8, "hidden": 10}
close = {"atol": 5e-6, "rtol": 1e-5}

CONFIGS: dict[str, rnn.Config | seq2seq.Config] = {
    **{
        f"{cell}, {score}, {directions} way": rnn.Config(
            **SMALL, cell=cell, score=score, directions=directions, align=5, readout=4
        )
        for cell, score, directions in product(CELLS, rnn.LOOKS, rnn.READINGS)
    },
    **{
        f"{score}, the output in the query": rnn.Config(
            **SMALL, score=score, query="state and output", align=5, readout=4
        )
        for score in ("additive", "bilinear", "dot")
    },
    "deep encoder": rnn.Config(**SMALL, layers=2, align=5, readout=4),
    **{f"{cell}, going on": seq2seq.Config(**SMALL, cell=cell, layers=2) for cell in CELLS},
}
every = pytest.mark.parametrize("name", CONFIGS)


def built(name: str) -> EncoderDecoder:
    model = build(CONFIGS[name])
    assert isinstance(model, EncoderDecoder)
    return model.eval()


def sentences() -> tuple[Tensor, Tensor, Tensor]:
    """Sources of 7, 4 and 1 words, the mask of what is no padding, and targets."""
    keep = torch.arange(S) < torch.tensor([7, 4, 1])[:, None]
    return torch.randint(1, VOCAB, (B, S)).where(keep, 0), keep[:, None], torch.randint(WORDS, (B, T))


@every
def test_word_by_word_is_the_whole(name: str) -> None:
    model, (source, keep, target) = built(name), sentences()
    whole = model(source, target, Context(keep=keep))
    ctx = model.remember(source, Context(keep=keep), Context(state=State()))
    steps = [model.decoder(target[:, t : t + 1], ctx) for t in range(T)]
    assert whole.shape == (B, T, WORDS)
    assert_close(torch.cat(steps, 1), whole, **close)


@every
def test_padding_and_neighbours_change_nothing(name: str) -> None:
    model, (source, keep, target) = built(name), sentences()
    whole = model(source, target, Context(keep=keep))
    for row, length in enumerate((7, 4, 1)):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        assert_close(whole[row : row + 1], alone, **close)
    rows = PackedLengths.of([7, 4, 1])
    assert_close(model(rows.pack(source), target, Context(rows=rows)), whole, **close)


@every
def test_the_source_is_heard_and_all_learns(name: str) -> None:
    model, (source, _, target) = built(name), sentences()
    logits = model(source, target)
    assert (logits - model(source.flip(0), target)).abs().max() > 1e-4
    logits.square().mean().backward()
    still = [path for path, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0]
    assert still == []


def test_going_on_is_torchs_lstm_continued() -> None:
    model, (source, _, target) = built("lstm, going on"), sentences()
    there, back = (trunk.stack.rnn for trunk in (model.encoder, model.decoder))
    assert isinstance(there, nn.LSTM)
    _, end = there(model.encoder.embed(source))
    states, _ = back(model.decoder.embed(target), end)
    assert_close(model(source, target), model.decoder.head(states))


def test_alignments_are_read() -> None:
    model, (source, keep, target) = built("gru, additive, 2 way"), sentences()
    with record(model, "decoder.attention.weights") as trace:
        model(source, target, Context(keep=keep))
    weights = trace.joined("decoder.attention").full()  # B 1 T S
    assert weights.shape == (B, 1, T, S)
    assert_close(weights.sum(-1), torch.ones(B, 1, T))
    assert weights[1, :, :, 4:].abs().max() == 0


def test_rnnsearch_has_the_sizes_of_its_paper() -> None:
    with torch.device("meta"):
        model = build("rnnsearch-50")
    words = 2 * 30_000 * 620
    encoder = 2 * (3 * 1000 * (620 + 1000) + 2 * 3000)
    decoder = 3 * 1000 * (620 + 2000 + 1000) + 2 * 3000
    alignment = 1000 * 1000 + 2000 * 1000 + 1000
    start = 1000 * 1000 + 1000
    maxout = 2 * 500 * (1000 + 2000 + 620) + 1000
    output = 500 * 30_000 + 30_000
    parts = words + encoder + decoder + alignment + start + maxout + output
    assert sum(p.numel() for p in model.parameters()) == parts == 80_451_000


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"cell": "gruu"}, "no recurrent cell 'gruu'; allowed: gru, lstm, rnn; did you mean 'gru'"),
        ({"score": "aditive"}, "no score 'aditive'; allowed: additive, bilinear, dot, fixed; did you mean 'additive'"),
        ({"directions": 3}, "directions=3 in a config; allowed: numbers from 1 to 2"),
    ],
)
def test_choices_that_are_not_there_are_told(sizes: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build("rnnsearch-50", **sizes)


def test_a_memory_of_another_width_is_told() -> None:
    decoder = built("gru, going on").decoder
    with pytest.raises(UserError, match="the memory is 10 wide; allowed: B S 20, the hidden state of all layers"):
        decoder(torch.zeros(1, 2, dtype=torch.long), Context(memory=torch.zeros(1, 3, 10)))


def test_an_encoder_of_the_end_is_not_called_in_chunks() -> None:
    encoder = built("gru, going on").encoder
    with pytest.raises(UserError, match="cannot be called in chunks"):
        encoder(torch.zeros(1, 2, dtype=torch.long), Context(state=State()))


def test_the_previous_output_is_in_the_score() -> None:
    """ATT(h, s, y): with y in the query its weights differ by y alone, and its matrix is wider by the embedding."""
    made = {query: build(rnn.Config(**SMALL, query=query, align=5, readout=4)).eval() for query in rnn.QUERIES}
    widths = {query: model.decoder.stack.attention.q.in_features for query, model in made.items()}  # type: ignore[union-attr]
    assert widths == {"state": 10, "state and output": 18}
    source = torch.randint(1, VOCAB, (1, S))
    first: dict[str, list[Tensor]] = {}
    for query, model in made.items():
        for word in (1, 2):
            with record(model, "*.weights") as trace:
                model(source, torch.tensor([[word]]))
            first.setdefault(query, []).append(trace["decoder.attention.weights"].full())
    assert torch.equal(*first["state"])
    assert not torch.equal(*first["state and output"])
    with pytest.raises(UserError, match="no query 'stat'; allowed: state, state and output; did you mean 'state'"):
        build("rnnsearch-small", query="stat")
