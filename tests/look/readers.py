"""A tiny model of every kind that can be looked into, with something for it to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import soundfile
import torch
from PIL import Image
from torch import nn

from headway.data.preprocess import ImagePreprocess, NumberPreprocess, Preprocess, SoundPreprocess
from headway.data.tokenizer import Tokenizer
from headway.look.html_page import RecordingView
from headway.look.recording import Recording
from headway.model import Model
from headway.ops.mel import LogMel
from headway.zoo import simmim
from headway.zoo.build import architecture
from tests.cli.folders import CONTEXT, FOLDERS, made, sizes, words
from tests.generate.hearing import FIRST_TIME, MELS, SETTINGS, STEPS
from tests.generate.hearing import words as heard_words

TEXT = "the cat sat on the mat"
SIGHT = ImagePreprocess((20, 28), None, 3, (0.5,) * 3, (0.25,) * 3)  # no square, and no multiple of windows
RATE = 4000
SOUND = SoundPreprocess(LogMel(RATE, 8, n_fft=128, window=100, hop=40))
NAMES = {"id2label": {"0": "cat", "1": "dog", "2": "bird"}}
SQUARE = {"image": 20, "patch": 4, "dim": 16, "heads": 2, "layers": 2}
PYRAMID = {"image": 20, "patch": 2, "dim": 8, "layers": (2, 2), "heads": (1, 2), "classes": 3}
EAR = {"features": 8, "dim": 16, "layers": 2, "heads": 2, "hidden": 16, "kernel": 3, "factor": 2, "channels": 4}
EYE = {"image": 20, "dim": 16, "hidden": 12}


@dataclass(frozen=True)
class Reader:
    """How to make a model, what it is given, what kind of outcome it has, and names of some of its sites."""

    make: Callable[[], Model]
    given: Callable[[], str]
    kind: str
    sites: tuple[str, ...]


def built(name: str, ready: Preprocess | None = None, known: Tokenizer | None = None, **sizes: Any) -> Model:
    """A model with large weights, so that what it says depends on what it reads."""
    config = architecture(name).Config(**sizes)
    model = lively(architecture(name).build(config).eval())
    kept = NAMES if known is None else {"decoder_start_token_id": known.bos, "eos_token_id": known.eos}
    return Model(model, config, name, None, kept, known, preprocess=ready)


def lively(model: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    for parameter in model.parameters():
        if parameter.dim() > 1 or parameter.abs().max() == 0:  # norms that begin at zero would hide their layers
            nn.init.normal_(parameter, std=0.3)
    return model


@cache
def folder() -> Path:
    place = Path(mkdtemp())
    draw = np.random.default_rng(0)
    Image.fromarray(draw.integers(0, 255, (30, 40, 3), np.uint8)).save(place / "image.png")
    tones = [np.sin(np.arange(400) * (0.3 + 0.5 * tone)) for tone in range(3)]
    soundfile.write(place / "sound.wav", np.concatenate(tones) * 0.5, RATE)
    return place


def text() -> str:
    return TEXT


def image() -> str:
    return str(folder() / "image.png")


def sound() -> str:
    return str(folder() / "sound.wav")


def llama() -> Model:
    known = words("characters")
    config = architecture("llama").Config(vocab=known.vocab, context=64, kv_heads=1, **{**sizes, "layers": 2})
    return made("llama", config, known, {"bos_token_id": known.bos, "eos_token_id": known.eos})


def albert() -> Model:
    known = words("wordpiece", before=True, after=True)
    turns = {"vocab": known.vocab, "context": CONTEXT, "width": 8, "dim": 16, "layers": 4, "groups": 2, "heads": 2}
    return made("albert", architecture("albert").Config(**turns), known, {})


def marian() -> Model:
    known = words("words", after=True)
    both = {"decoder_layers": 1, "decoder_heads": 2, "decoder_hidden": 32, "context": CONTEXT}
    config = architecture("marian").Config(vocab=known.vocab, **both, **sizes)
    return made("marian", config, known, {"decoder_start_token_id": known.eos, "eos_token_id": known.eos})


def rnn(score: str) -> Model:
    known = words("words", after=True)
    config = architecture("rnn").Config(vocab=known.vocab, dim=8, hidden=8, align=6, readout=8, score=score)
    return made("rnn", config, known, {"decoder_start_token_id": known.bos, "eos_token_id": known.eos})


def captioner(attention: str) -> Model:
    known = words("words", after=True)
    own = {"widths": (8, 16), "align": 6, "attention": attention}
    return built("captioner", SIGHT, known, vocab=known.vocab, **EYE, **own)


def vit_captioner(encoder: str = "") -> Model:
    known = words("words", after=True)
    own = {"image": 20, "patch": 4, "layers": 1, "decoder_layers": 2, "heads": 2, "encoder": encoder}
    return built("vit_captioner", SIGHT, known, vocab=known.vocab, dim=16, **own)


def clip() -> Model:
    known = words("words", after=True)
    texts = {"vocab": known.vocab, "end": known.eos, "context": CONTEXT, "dim": 16, "layers": 1, "heads": 2}
    images = {"image": 20, "patch": 4, "image_dim": 16, "image_layers": 2, "image_heads": 2, "width": 8}
    return built("clip", SIGHT, known, **texts, **images)


def conformer(top: str) -> Model:
    known = words("characters", after=True) if top != "rows" else None
    vocab = 3 if known is None else known.vocab + (top == "ctc")
    return built("conformer", SOUND, known, top=top, vocab=vocab, classes=3, decoder_layers=1, **EAR)


def wav2vec2(top: str) -> Model:
    waves = {"channels": (4, 4), "kernels": (10, 3), "strides": (5, 2)}
    own = {"vocab": 9, "dim": 16, "layers": 2, "heads": 2, "hidden": 16, "kernel": 3, "width": 8, "classes": 3}
    return built("wav2vec2_conformer", top=top, **waves, **own)


def whisper() -> Model:
    heads = {"heads": 2, "decoder_heads": 2, "hidden": 16, "decoder_hidden": 16}
    shape = {"mels": MELS, "source_context": STEPS, "context": 24, "dim": 16, "layers": 1, "decoder_layers": 2}
    loaded = built("whisper", vocab=FIRST_TIME + STEPS + 1, **shape, **heads)
    return Model(loaded.model, loaded.config, "whisper", "whisper", SETTINGS, heard_words())


def hidden_swin() -> Model:
    config = simmim.Config(simmim.Swin(**{**PYRAMID, "classes": 0}, windows=(4, 4)))
    return Model(lively(simmim.build(config).eval()), config, "simmim", preprocess=SIGHT)


def numbers(order: str) -> Model:
    ready = NumberPreprocess((0.0, 1.0), (1.0, 2.0))
    return built("vectors", ready, features=2, classes=3, dim=16, layers=2, heads=2, order=order)


def forecaster() -> Model:
    ready = NumberPreprocess((0.0, 1.0), (1.0, 2.0))
    loaded = built("forecaster", ready, features=2, context=3, dim=16, layers=2, heads=2)
    return replace(loaded, extra_config={"columns": ["open", "close"]})


def told(make: Callable[[], Model], kind: str, *sites: str, given: Callable[[], str] = text) -> Reader:
    return Reader(make, given, kind, sites)


def seen(make: Callable[[], Model], kind: str, *sites: str) -> Reader:
    return Reader(make, image, kind, sites)


def heard(make: Callable[[], Model], kind: str, *sites: str) -> Reader:
    return Reader(make, sound, kind, sites)


ENCODER_DECODER = ("encoder.0.attn", "decoder.0.attn", "decoder.0.cross")
LOCAL = {"image": 20, "stem": "small", "dim": 8, "layers": (1, 1), "widths": (8, 16), "classes": 3}

READERS: dict[str, Reader] = {
    "gpt2": told(FOLDERS["causal"], "next", "0.attn", given=lambda: "the cat"),
    "llama": told(llama, "next", "0.attn", "1.attn"),
    "bert": told(FOLDERS["masked"], "fill", "0.attn", given=lambda: "the cat [MASK] on the [MASK]"),
    "bert, no mask": told(FOLDERS["masked"], "fill", "0.attn"),
    "albert": told(albert, "fill", "0.block.0.attn@0", "1.block.0.attn@1"),
    "text classes": told(FOLDERS["labels"], "classes", "0.attn"),
    "tags": told(FOLDERS["tags"], "tags", "0.attn"),
    "text vectors": told(FOLDERS["vectors"], "vector", "0.attn"),
    "transformer": told(FOLDERS["pairs"], "written", *ENCODER_DECODER),
    "bart": told(FOLDERS["narrow"], "written", *ENCODER_DECODER),
    "marian": told(marian, "written", *ENCODER_DECODER),
    "t5": told(FOLDERS["spans"], "written", *ENCODER_DECODER),
    "rnn": told(lambda: rnn("additive"), "written", "decoder.attention"),
    "rnn, bilinear": told(lambda: rnn("bilinear"), "written", "decoder.attention"),
    "vit": seen(lambda: built("vit", SIGHT, classes=3, **SQUARE), "classes", "0.attn", "1.attn"),
    "vit, mean": seen(lambda: built("vit", SIGHT, classes=3, pool="mean", **SQUARE), "classes", "1.attn"),
    "swin": seen(lambda: built("swin", SIGHT, windows=(4, 4), **PYRAMID), "classes", "0.1.attn.attention"),
    "swinv2": seen(lambda: built("swinv2", SIGHT, windows=(4, 4), **PYRAMID), "classes", "1.1.attn.attention"),
    "mvit": seen(lambda: built("mvit", SIGHT, stride=2, **PYRAMID), "classes", "0.0.attn", "1.1.attn"),
    "mvitv2": seen(lambda: built("mvitv2", SIGHT, stride=2, **PYRAMID), "classes", "0.0.attn", "1.1.attn"),
    "lrnet": seen(
        lambda: built("lrnet", SIGHT, hidden=(8, 8), size=3, share=4, prior=True, **LOCAL), "classes", "embed.1"
    ),
    "resnet, attention": seen(
        lambda: built("resnet", SIGHT, block="basic", attention=(2,), heads=2, **LOCAL), "classes", "1.1.attn"
    ),
    "mae": seen(
        lambda: built("mae", SIGHT, decoder_dim=16, decoder_layers=1, decoder_heads=2, **SQUARE),
        "vector",
        "encoder.0.attn",
    ),
    "simmim": seen(hidden_swin, "vector", "encoder.0.1.attn.attention"),
    "clip": seen(clip, "vector", "image.1.attn"),
    "simclr": seen(lambda: built("simclr", SIGHT, encoder="vit-nano", image=28, width=8), "vector", "3.attn"),
    "captioner, soft": seen(lambda: captioner("soft"), "written", "decoder.attention"),
    "captioner, hard": seen(lambda: captioner("hard"), "written", "decoder.attention"),
    "captioner, vit": seen(vit_captioner, "written", "encoder.0.attn", "decoder.1.cross"),
    "captioner, class token": seen(lambda: vit_captioner("vit-nano"), "written", "encoder.3.attn", "decoder.1.cross"),
    "conformer, classes": heard(lambda: conformer("rows"), "classes", "0.attn"),
    "conformer, ctc": heard(lambda: conformer("ctc"), "heard", "1.attn"),
    "conformer, decoder": heard(lambda: conformer("decoder"), "written", "encoder.0.attn", "decoder.0.cross"),
    "wav2vec2, ctc": heard(lambda: wav2vec2("ctc"), "heard", "1.attn"),
    "wav2vec2, classes": heard(lambda: wav2vec2("rows"), "classes", "1.attn"),
    "whisper": heard(whisper, "written", *ENCODER_DECODER),
    "series": told(lambda: numbers("series"), "classes", "1.attn", given=lambda: "0 1; 2 3; -1 0.5; 1e-3 4"),
    "forecast": told(forecaster, "foreseen", "1.attn", given=lambda: "0 1; 2 3; -1 0.5; 1e-3 4"),
    "sets": told(lambda: numbers("set"), "classes", "0.attn", given=lambda: "0 1; 2 3"),
}


@cache
def loaded(name: str) -> Model:
    return READERS[name].make()


@cache
def read(name: str) -> RecordingView:
    return loaded(name).attend(READERS[name].given())


@cache
def other(name: str) -> Model:
    """A model of the same form and words with other weights."""
    found = READERS[name].make()
    torch.manual_seed(8)
    for parameter in found.model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return found


def two_texts(model: Model, tokens: int) -> list[Recording]:
    """How a model reads two parts of our own README, each of nearly so many tokens."""
    assert model.tokenizer is not None
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8") * 2
    parts = [model.tokenizer.encode(part)[1 : tokens - 2] for part in (text, text[3000:])]
    return [model.attend(model.tokenizer.decode(part)) for part in parts]
