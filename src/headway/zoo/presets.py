"""Published sizes, by name: what each architecture's config is given.  Plain data, so that it is read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headway.errors import UserError, listed, nearest

Size = int | float | str | bool | Mapping[str, int | float | str]


class Preset(NamedTuple):
    """Sizes for a file of the zoo; fields that are not here are that file's own."""

    architecture: str
    sizes: Mapping[str, Size]


def preset(name: str) -> Preset:
    if name not in PRESETS:
        do = "see headway list"
        raise UserError(f"no preset {name!r}", allowed=listed(PRESETS), do=do, meant=nearest(name, PRESETS))
    return PRESETS[name]


def transformer(dim: int, layers: int, heads: int, **more: Size) -> Preset:
    return Preset("transformer", {"dim": dim, "layers": layers, "heads": heads, **more})


def bert(dim: int, layers: int, heads: int, **more: Size) -> Preset:
    return Preset("bert", {"dim": dim, "layers": layers, "heads": heads, "top": "pooler", **more})


def roberta(dim: int, layers: int, heads: int) -> Preset:
    return bert(dim, layers, heads, vocab=50_265, first=2, segments=1, eps=1e-5)


def albert(dim: int, layers: int, heads: int) -> Preset:
    return Preset("albert", {"width": 128, "dim": dim, "layers": layers, "heads": heads, "top": "pooler"})


def gpt2(dim: int, layers: int, heads: int, context: int = 1024) -> Preset:
    return Preset("gpt2", {"dim": dim, "layers": layers, "heads": heads, "context": context})


def gpt3(dim: int, layers: int, heads: int) -> Preset:
    return gpt2(dim, layers, heads, context=2048)


def llama(dim: int, layers: int, heads: int, hidden: int, **more: Size) -> Preset:
    return Preset("llama", {"dim": dim, "layers": layers, "heads": heads, "hidden": hidden, **more})


def llama2(dim: int, layers: int, heads: int, hidden: int, **more: Size) -> Preset:
    return llama(dim, layers, heads, hidden, context=4096, eps=1e-5, **more)


def llama3(dim: int, layers: int, heads: int, hidden: int) -> Preset:
    rotary = {"kind": "Frequencies", "base": 5e5}
    return llama(dim, layers, heads, hidden, kv_heads=8, vocab=128_256, context=8192, rotary=rotary, eps=1e-5)


def t5(dim: int, layers: int, heads: int, hidden: int, head_dim: int = 64, **more: Size) -> Preset:
    sizes = {"dim": dim, "layers": layers, "heads": heads, "head_dim": head_dim, "hidden": hidden}
    return Preset("t5", {**sizes, **more})


def t5_v1_1(dim: int, layers: int, heads: int, hidden: int) -> Preset:
    return t5(dim, layers, heads, hidden, ffn="gated", act="gelu_tanh", tied=False)


def bart(dim: int, layers: int, heads: int, hidden: int) -> Preset:
    decoder = {"decoder_layers": layers, "decoder_heads": heads, "decoder_hidden": hidden}
    return Preset("bart", {"dim": dim, "layers": layers, "heads": heads, "hidden": hidden, **decoder})


def rnn(dim: int, hidden: int, **more: Size) -> Preset:
    return Preset("rnn", {"vocab": 8000, "dim": dim, "hidden": hidden, "readout": dim, "directions": 2, **more})


# dim, layers, heads, and for some the feed-forward width
PRESETS: dict[str, Preset] = {
    # Vaswani et al. 2017; base is written with two vocabularies of their own, big with one; below base: for a laptop
    "transformer-nano": transformer(64, 2, 4, vocab=1000, tied="all"),
    "transformer-tiny": transformer(128, 2, 4, vocab=8000, tied="all"),
    "transformer-small": transformer(256, 4, 4, vocab=8000, tied="all"),
    "transformer-base": transformer(512, 6, 8, vocab=37_000),
    "transformer-big": transformer(1024, 6, 16, vocab=37_000, tied="all", dropout=0.3),
    # Turc et al. 2019, Devlin et al. 2018
    "bert-tiny": bert(128, 2, 2),
    "bert-mini": bert(256, 4, 4),
    "bert-small": bert(512, 4, 8),
    "bert-medium": bert(512, 8, 8),
    "bert-base": bert(768, 12, 12),
    "bert-large": bert(1024, 24, 16),
    # Liu et al. 2019
    "roberta-base": roberta(768, 12, 12),
    "roberta-large": roberta(1024, 24, 16),
    # Lan et al. 2019
    "albert-base": albert(768, 12, 12),
    "albert-large": albert(1024, 24, 16),
    "albert-xlarge": albert(2048, 24, 16),
    "albert-xxlarge": albert(4096, 12, 64),
    # Radford et al. 2019
    "gpt2": gpt2(768, 12, 12),
    "gpt2-medium": gpt2(1024, 24, 16),
    "gpt2-large": gpt2(1280, 36, 20),
    "gpt2-xl": gpt2(1600, 48, 25),
    # those of minGPT and nanoGPT, for a laptop
    "gpt-nano": gpt2(48, 3, 3, context=128),
    "gpt-micro": gpt2(128, 4, 4, context=128),
    "gpt-mini": gpt2(192, 6, 6, context=256),
    "gpt-baby": gpt2(384, 6, 6, context=256),
    # Brown et al. 2020, whose table has 24 heads of 128 at width 2048 and the width 5140 for 40 heads of 128:
    # neither can be, so these two are 16 heads and the width 5120
    "gpt3-small": gpt3(768, 12, 12),
    "gpt3-medium": gpt3(1024, 24, 16),
    "gpt3-large": gpt3(1536, 24, 16),
    "gpt3-xl": gpt3(2048, 24, 16),
    "gpt3-2.7b": gpt3(2560, 32, 32),
    "gpt3-6.7b": gpt3(4096, 32, 32),
    "gpt3-13b": gpt3(5120, 40, 40),
    "gpt3": gpt3(12_288, 96, 96),
    # Touvron et al. 2023, two papers; Dubey et al. 2024
    "llama-7b": llama(4096, 32, 32, 11_008),
    "llama-13b": llama(5120, 40, 40, 13_824),
    "llama-30b": llama(6656, 60, 52, 17_920),
    "llama-65b": llama(8192, 80, 64, 22_016),
    "llama2-7b": llama2(4096, 32, 32, 11_008),
    "llama2-13b": llama2(5120, 40, 40, 13_824),
    "llama2-70b": llama2(8192, 80, 64, 28_672, kv_heads=8),
    "llama3-8b": llama3(4096, 32, 32, 14_336),
    "llama3-70b": llama3(8192, 80, 64, 28_672),
    # Jiang et al. 2023 and 2024
    "mistral-7b": llama(4096, 32, 32, 14_336, kv_heads=8, context=32_768, window=4096, eps=1e-5),
    "mixtral-8x7b": Preset(
        "mixtral", {"dim": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "hidden": 14_336, "experts": 8, "top": 2}
    ),
    # Raffel et al. 2020, and its version 1.1; tiny and mini: Tay et al. 2021
    "t5-tiny": t5(256, 4, 4, 1024),
    "t5-mini": t5(384, 4, 8, 1536),
    "t5-small": t5(512, 6, 8, 2048),
    "t5-base": t5(768, 12, 12, 3072),
    "t5-large": t5(1024, 24, 16, 4096),
    "t5-3b": t5(1024, 24, 32, 16_384, head_dim=128),
    "t5-11b": t5(1024, 24, 128, 65_536, head_dim=128),
    "t5-v1.1-small": t5_v1_1(512, 8, 6, 1024),
    "t5-v1.1-base": t5_v1_1(768, 12, 12, 2048),
    "t5-v1.1-large": t5_v1_1(1024, 24, 16, 2816),
    "t5-v1.1-xl": t5_v1_1(2048, 24, 32, 5120),
    "t5-v1.1-xxl": t5_v1_1(4096, 24, 64, 10_240),
    # Lewis et al. 2019; Junczys-Dowmunt et al. 2018 in the size of the OPUS models
    "bart-base": bart(768, 6, 12, 3072),
    "bart-large": bart(1024, 12, 16, 4096),
    "marian": Preset("marian", {"dim": 512, "layers": 6, "heads": 8, "hidden": 2048}),
    # Sutskever et al. 2014; Cho et al. 2014 and Bahdanau et al. 2015, as compared in the latter; small: for a laptop
    "seq2seq-lstm": Preset(
        "seq2seq", {"vocab": 160_000, "target_vocab": 80_000, "dim": 1000, "hidden": 1000, "layers": 4, "cell": "lstm"}
    ),
    "rnn-small": rnn(128, 256, score="fixed"),
    "rnnsearch-small": rnn(128, 256, score="additive", align=256),
    "rnnencdec-50": Preset(
        "rnn", {"vocab": 30_000, "dim": 620, "hidden": 1000, "readout": 500, "directions": 1, "score": "fixed"}
    ),
    "rnnsearch-50": Preset(
        "rnn",
        {
            "vocab": 30_000,
            "dim": 620,
            "hidden": 1000,
            "readout": 500,
            "directions": 2,
            "score": "additive",
            "align": 1000,
        },
    ),
}
