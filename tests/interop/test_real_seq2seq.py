"""A translation model that fairseq trained, read and run: Manding in Latin letters to N'Ko."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.testing import assert_close

from headway import Context
from headway.interop.fairseq import keymap, read_config
from headway.nn.state import FixedState
from headway.nn.trunk import EncoderDecoder
from headway.zoo.transformer import Config, build
from tests.interop.parity import load

PAD, END, UNKNOWN, WORDS = 1, 2, 3, 4  # fairseq's; the dictionary's own words follow
LONGEST = 200


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    return shared / "weights" / "transformer_nqo"


@pytest.mark.slow
def test_names_read_both_ways(folder: Path) -> None:
    theirs = load_file(folder / "model.safetensors")
    config = read_config(theirs, heads=8)
    assert (config.layers, config.decoder_layers, config.dim, config.hidden) == (5, 5, 128, 512)
    assert (config.norms, config.tied, config.source_vocab, config.vocab) == ("pre", "target", 776, 832)
    names = keymap(config)
    back = names.save(names.load(theirs))
    assert set(theirs) - set(back) == {
        "decoder.output_projection.weight",  # tied
        *(f"{side}.{name}" for side in ("encoder", "decoder") for name in ("version", "embed_positions._float_tensor")),
    }
    assert_close(back, {name: theirs[name] for name in back}, atol=0, rtol=0)


@pytest.mark.parametrize("tied", ["none, unbiased", "target", "all"])
@pytest.mark.parametrize("norms", ["pre", "post"])
def test_what_the_tensors_show_is_the_config(tied: str, norms: str) -> None:
    waves = {"layout": "halves", "steps": 3, "first": 2}
    config = Config(11, 11, 8, 2, 1, 2, 16, norms=norms, tied=tied, **waves)
    model, names = build(config), keymap(config)
    stored = names.save(dict(model.named_parameters()))
    for repeated, original in reversed((names.ties or {}).items()):  # fairseq writes both
        stored[repeated] = stored[original]
    assert read_config(stored, heads=2) == config
    load(model, names.load(stored))


@pytest.mark.slow
def test_it_translates_as_it_was_trained_to(folder: Path) -> None:
    from sacrebleu import corpus_chrf

    theirs = load_file(folder / "model.safetensors")
    config = read_config(theirs, heads=8)
    model = build(config).eval()
    load(model, keymap(config).load(theirs))
    sources, references = (lines(folder / f"sample.{name}") for name in ("roman", "nqo"))
    source_words, target_words = (words(folder / f"dict.{name}.txt") for name in ("roman", "nqo"))
    merges = {tuple(line.split()): rank for rank, line in enumerate(lines(folder / "bpe.code")[1:])}
    pieces = [[piece for word in line.lower().split() for piece in split(word, merges)] for line in sources]
    ids = [[source_words.get(piece, UNKNOWN) for piece in row] + [END] for row in pieces]
    spelled = {number: word for word, number in target_words.items()}
    found = [" ".join(spelled.get(i, "<unk>") for i in row).replace("@@ ", "") for row in greedy(model, ids)]
    assert corpus_chrf(found, [references]).score >= 95


def greedy(model: EncoderDecoder, ids: list[list[int]]) -> list[list[int]]:
    """The likeliest next word, again and again, all rows at once."""
    source = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids], batch_first=True, padding_value=PAD)
    with torch.inference_mode():
        ctx = model.remember(source, Context(keep=(source != PAD)[:, None]), Context(state=FixedState(LONGEST)))
        last, steps = torch.full((len(ids), 1), END), list[Tensor]()
        done = torch.zeros(len(ids), dtype=torch.bool)
        while not done.all() and len(steps) < LONGEST:
            last = model.decoder(last, ctx)[:, -1:].argmax(-1)
            steps.append(last[:, 0])
            done |= last[:, 0] == END
    rows = torch.stack(steps, 1).tolist()
    return [row[: row.index(END)] if END in row else row for row in rows]


def split(word: str, merges: dict[tuple[str, ...], int]) -> list[str]:
    """The pieces of a word as subword-nmt makes them: neighbours join in the order in which that was learned."""
    pieces = [*word[:-1], word[-1] + "</w>"]
    while len(pieces) > 1:
        rank, i = min((merges.get(pair, len(merges)), i) for i, pair in enumerate(pairwise(pieces)))
        if rank == len(merges):
            break
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    return [*(f"{piece}@@" for piece in pieces[:-1]), pieces[-1].removesuffix("</w>")]


def words(path: Path) -> dict[str, int]:
    return {line.split(" ")[0]: WORDS + i for i, line in enumerate(lines(path))}


def lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
