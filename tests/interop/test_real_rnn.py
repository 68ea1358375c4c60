"""A real recurrent encoder–decoder, letters to phonemes, built from our parts and read through a table of rules."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy
import pytest
import torch

from headway.generate.beam import Beam
from headway.generate.decoding import generate
from headway.generate.request import Stop
from headway.generate.sampling import GREEDY, Sampler
from headway.generate.session import encode_sources
from headway.interop.keymap import KeyMap, Rule
from headway.nn.trunk import EncoderDecoder
from headway.zoo.seq2seq import Config, build

VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
STRESSED = [f"{vowel}{stress}" for vowel in VOWELS.split() for stress in range(3)]
PHONEMES = sorted([*CONSONANTS.split(), "UW", *STRESSED])
LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
SOUNDS = ["<pad>", "<unk>", "<s>", "</s>", *PHONEMES]

SIDES = {"enc": "encoder", "dec": "decoder"}
G2P = KeyMap(
    (
        *(Rule(f"{side}_emb", f"{ours}.embed.token.weight") for side, ours in SIDES.items()),
        *(
            Rule(f"{side}_{kind}_{gate}", f"{ours}.stack.rnn.{word}_{gate}_l0")
            for side, ours in SIDES.items()
            for kind, word in (("w", "weight"), ("b", "bias"))
            for gate in ("ih", "hh")
        ),
        Rule("fc_w", "decoder.head.weight"),
        Rule("fc_b", "decoder.head.bias"),
    )
)


@pytest.fixture(scope="module")
def speaker(shared: Path) -> EncoderDecoder:
    with numpy.load(shared / "weights" / "g2p_gru" / "checkpoint20.npz") as file:
        theirs = {name: torch.from_numpy(file[name]) for name in file.files}
    model = build(Config(vocab=len(LETTERS), target_vocab=len(SOUNDS), dim=256, hidden=256, layers=1, cell="gru"))
    model.load_state_dict(G2P.load(theirs))
    assert G2P.save(model.state_dict()).keys() == theirs.keys()
    return model.eval()


def spoken(model: EncoderDecoder, words: list[str], how: Sampler | Beam = GREEDY) -> list[str]:
    """What the model says to all words at once, whatever their lengths."""
    starts, stop = [[SOUNDS.index("<s>")]] * len(words), Stop(20, tokens=(SOUNDS.index("</s>"),))
    found = generate(model.decoder, starts, how, stop, memory=encode_sources(model, [spelled(word) for word in words]))
    return [" ".join(SOUNDS[i] for i in one.body) for one in found]


def spelled(word: str) -> list[int]:
    return [LETTERS.index(letter) for letter in [*word, "</s>"]]


SAID = {
    "transformer": "T R AE0 N S F AO1 R M ER0",
    "attention": "AH0 T EH1 N SH AH0 N",
    "headway": "HH EH1 D W EY2",
    "lecture": "L EH1 K CH ER0",
    "phoneme": "F OW1 N IY0 M",
}


@pytest.mark.parametrize("word", SAID)
def test_words_are_spoken(speaker: EncoderDecoder, word: str) -> None:
    assert spoken(speaker, [word]) == [SAID[word]]


@pytest.mark.parametrize("how", [GREEDY, Beam(width=3)], ids=["greedy", "beam"])
def test_a_batch_is_its_words(speaker: EncoderDecoder, how: Sampler | Beam) -> None:
    assert spoken(speaker, list(SAID), how) == list(SAID.values())


def test_whole_and_step_by_step_are_one(speaker: EncoderDecoder) -> None:
    source = torch.tensor([spelled("transformer")])
    target = torch.tensor([[SOUNDS.index(sound) for sound in ["<s>", *SAID["transformer"].split()]]])
    with torch.no_grad():
        said = speaker(source, target).argmax(-1)[0].tolist()
    assert [SOUNDS[i] for i in said] == [*SAID["transformer"].split(), "</s>"]


@pytest.mark.slow
def test_most_of_a_dictionary_is_right(speaker: EncoderDecoder, shared: Path) -> None:
    """Every 250th word of the dictionary that it was trained on: 312 of 463, stresses included."""
    with gzip.open(shared / "data" / "cmudict" / "cmudict.tsv.gz", "rt") as lines:
        pairs = [line.rstrip("\n").split("\t") for line in lines]
    pairs = [pair for pair in pairs if pair[0].isascii() and pair[0].isalpha() and pair[0].islower()][::250]
    said = spoken(speaker, [word for word, _ in pairs])
    right = sum(answer == sounds for answer, (_, sounds) in zip(said, pairs, strict=True))
    assert right / len(pairs) > 0.6
