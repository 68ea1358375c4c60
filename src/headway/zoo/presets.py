"""Published sizes, by name: what each architecture's config is given.  Plain data, so that it is read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from headway.errors import UserError, listed, nearest

Size = int | float | str | bool | tuple[int, ...] | Mapping[str, int | float | str | tuple[int, ...]]


class Preset(NamedTuple):
    """Sizes for a file of the zoo; fields that are not here are that file's own."""

    architecture: str
    sizes: Mapping[str, Size]


def preset(name: str) -> Preset:
    if name not in PRESETS:
        do = "see headway list"
        family = [one for one in PRESETS if one.partition("-")[0] == name.partition("-")[0]]
        meant = nearest(name, PRESETS, 0.85) or nearest(name, family or PRESETS)
        raise UserError(f"no preset {name!r}", allowed=listed(PRESETS), do=do, meant=meant)
    return PRESETS[name]


def of(architecture: str, /, **sizes: Size) -> Preset:
    return Preset(architecture, sizes)


def sized(architecture: str, dim: int, layers: int, heads: int, **more: Size) -> Preset:
    return of(architecture, dim=dim, layers=layers, heads=heads, **more)


transformer = partial(sized, "transformer")
vit, mae = partial(sized, "vit"), partial(sized, "mae")
conformer = partial(sized, "conformer")
bert = partial(sized, "bert", top="pooler")
text_classifier = partial(sized, "text_classifier")
roberta = partial(bert, vocab=50_265, first=2, segments=1, eps=1e-5)
gpt2 = partial(sized, "gpt2", context=1024)
gpt3 = partial(gpt2, context=2048)


def albert(dim: int, layers: int, heads: int) -> Preset:
    return of("albert", width=128, dim=dim, layers=layers, heads=heads, top="pooler")


def llama(dim: int, layers: int, heads: int, hidden: int, **more: Size) -> Preset:
    return sized("llama", dim, layers, heads, hidden=hidden, **more)


llama2 = partial(llama, context=4096, eps=1e-5)
llama3 = partial(llama, kv_heads=8, vocab=128_256, context=8192, rotary={"kind": "Frequencies", "base": 5e5}, eps=1e-5)


QWEN3 = llama(
    1024,
    28,
    16,
    3072,
    kv_heads=8,
    head_dim=128,
    vocab=151_936,
    context=40_960,
    rotary={"kind": "Frequencies", "base": 1e6},
    qk_norm="heads",
    tied=True,
)
SECOND_GEMMA: dict[str, Size] = {
    "window": 4096,
    "local_layers": tuple(range(0, 26, 2)),
    "score_dim": 256,
    "score_cap": 50.0,
    "logit_cap": 30.0,
}
GEMMA2 = sized("gemma", 2304, 26, 8, hidden=9216, **SECOND_GEMMA)


NLLB = sized(
    "mbart",
    1024,
    12,
    16,
    vocab=256_206,
    decoder_layers=12,
    decoder_heads=16,
    positions="sinusoidal, fairseq",
    embed_norm=False,
    head_bias=False,
    act="relu",
)


def t5(dim: int, layers: int, heads: int, hidden: int, head_dim: int = 64, **more: Size) -> Preset:
    return sized("t5", dim, layers, heads, head_dim=head_dim, hidden=hidden, **more)


t5_v1_1 = partial(t5, ffn="gated", act="gelu_tanh", tied=False)


def bart(dim: int, layers: int, heads: int, hidden: int) -> Preset:
    decoder = {"decoder_layers": layers, "decoder_heads": heads, "decoder_hidden": hidden}
    return sized("bart", dim, layers, heads, hidden=hidden, **decoder)


def mvitv2(*layers: int, **more: Size) -> Preset:
    return of("mvitv2", layers=layers, **more)


def resnet(*layers: int, **more: Size) -> Preset:
    return of("resnet", layers=layers, **more)


def whisper(dim: int, layers: int, heads: int, vocab: int = 51_865, mels: int = 80, **more: Size) -> Preset:
    decoder = {"decoder_layers": layers, "decoder_heads": heads, "decoder_hidden": 4 * dim, **more}
    return of("whisper", vocab=vocab, mels=mels, dim=dim, layers=layers, heads=heads, hidden=4 * dim, **decoder)


def rnn(dim: int, hidden: int, **more: Size) -> Preset:
    return of("rnn", vocab=8000, dim=dim, hidden=hidden, readout=dim, directions=2, **more)


def simmim(kind: str, **sizes: int | tuple[int, ...]) -> Preset:
    return of("simmim", encoder={"kind": kind, **sizes})


def swin(dim: int, third: int, heads: int, *, architecture: str = "swin", **more: Size) -> Preset:
    """`third` layers in the third stage, two in the others; heads of 32, as many in the first stage as given."""
    stages = (heads, 2 * heads, 4 * heads, 8 * heads)
    return of(architecture, dim=dim, layers=(2, 2, third, 2), heads=stages, **more)


swinv2 = partial(swin, architecture="swinv2")


def captioner(dim: int, hidden: int, **more: Size) -> Preset:
    widths = (32, 64, 128, 256)
    return of("captioner", vocab=4000, image=128, widths=widths, dim=dim, hidden=hidden, align=dim, **more)


def clip(patch: int, image_dim: int, image_layers: int, dim: int = 512, width: int = 512, **more: Size) -> Preset:
    """Heads of 64, and 12 layers for the texts."""
    image = {"patch": patch, "image_dim": image_dim, "image_layers": image_layers, "image_heads": image_dim // 64}
    return of("clip", **image, dim=dim, layers=12, heads=dim // 64, width=width, **more)


GREY: Mapping[str, Size] = {"image": 28, "channels": 1, "classes": 10}
SMALL: Mapping[str, Size] = {"stem": "small", "block": "basic", "dim": 32}

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
    # as wide and deep as these, pre-norm, with logits that begin as naive Bayes: to classify texts from scratch
    "text-classifier-tiny": text_classifier(128, 2, 2),
    "text-classifier-mini": text_classifier(256, 4, 4),
    "text-classifier-small": text_classifier(512, 4, 8),
    "text-classifier-medium": text_classifier(512, 8, 8),
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
    "mixtral-8x7b": sized("mixtral", 4096, 32, 32, kv_heads=8, hidden=14_336, experts=8, top=2),
    # Qwen team 2025; Riviere et al. 2024; Groeneveld et al. 2024; Walsh et al. 2024; Biderman et al. 2023;
    # Le Scao et al. 2022
    "qwen3-0.6b": QWEN3,
    "gemma2-2b": GEMMA2,
    "olmo-1b": of("olmo"),
    "olmo2-1b": sized("olmo2", 2048, 16, 16, hidden=8192),
    "pythia-160m": sized("gpt_neox", 768, 12, 12, hidden=3072),
    "bloom-560m": sized("bloom", 1024, 24, 16),
    # Qwen team 2024; OpenAI 2025; DeepSeek-AI 2024
    "qwen1.5-moe-a2.7b": of("qwen2_moe"),
    "gpt-oss-20b": of("gpt_oss"),
    "deepseek-v3": of("deepseek"),
    # He et al. 2021; Beltagy et al. 2020; Warner et al. 2024; Yang et al. 2019; NLLB team 2022
    "deberta-v3-base": sized("deberta", 768, 12, 12, top="none"),
    "led-base-16384": of("led"),
    "longformer-base-4096": sized("longformer", 768, 12, 12, top="none"),
    "modernbert-base": sized("modernbert", 768, 22, 12, hidden=1152, top="none"),
    "xlnet-base": of("xlnet", top="none"),
    "nllb-600m": NLLB,
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
    "t5gemma-2b-2b": of("t5gemma", **SECOND_GEMMA),
    # Lewis et al. 2019; Junczys-Dowmunt et al. 2018 in the size of the OPUS models
    "bart-base": bart(768, 6, 12, 3072),
    "bart-large": bart(1024, 12, 16, 4096),
    "marian": sized("marian", 512, 6, 8, hidden=2048),
    # Dosovitskiy et al. 2020; Ti and S: Touvron et al. 2021; nano and micro: for 28×28 grey and 32×32 coloured images
    "vit-nano": vit(64, 4, 4, image=28, channels=1, patch=4, classes=10),
    "vit-micro": vit(128, 6, 4, image=32, patch=4, classes=10),
    "vit-ti16": vit(192, 12, 3),
    "vit-s16": vit(384, 12, 6),
    "vit-b16": vit(768, 12, 12),
    "vit-l16": vit(1024, 24, 16),
    "vit-h14": vit(1280, 32, 16, patch=14),
    "dinov2-s14": sized("dinov2", 384, 12, 6),
    # Siméoni et al. 2025; Touvron et al. 2021, with its teacher's token; Bao et al. 2021
    "dinov3-s16": sized("dinov3", 384, 12, 6),
    "dinov3-b16": sized("dinov3", 768, 12, 12, hidden=3072),
    "deit-ti16": sized("deit", 192, 12, 3),
    "deit-b16": sized("deit", 768, 12, 12),
    "beit-b16": sized("beit", 768, 12, 12),
    "beit-l16": sized("beit", 1024, 24, 16, hidden=4096, layer_scale=1e-5),
    # every pixel a token; 128: the size at which lectures count what its attention would take
    "pixels-nano": vit(64, 4, 4, image=28, channels=1, patch=1, classes=10, pool="mean"),
    "pixels-128": vit(1024, 48, 16, image=128, patch=1, pool="mean"),
    # He et al. 2021
    "mae-nano": mae(64, 4, 4, image=28, channels=1, patch=4, decoder_dim=32, decoder_layers=2, decoder_heads=4),
    "mae-b16": mae(768, 12, 12),
    "mae-l16": mae(1024, 24, 16),
    "mae-h14": mae(1280, 32, 16, patch=14),
    # Xie et al. 2021
    "simmim-nano": simmim("Vit", dim=64, layers=4, heads=4, image=28, channels=1, patch=4),
    "simmim-b16": simmim("Vit", dim=768, layers=12, heads=12),
    "simmim-swin-b": simmim(
        "Swin", dim=128, layers=(2, 2, 18, 2), heads=(4, 8, 16, 32), image=192, windows=(6, 6, 6, 6)
    ),
    # Liu et al. 2022; V2: Woo et al. 2023
    "convnext-t": of("convnext", depth_dropout=0.1),
    "convnext-b": of("convnext", layers=(3, 3, 27, 3), widths=(128, 256, 512, 1024), depth_dropout=0.5),
    "convnextv2-t": of("convnext", ffn="normed", layer_scale=0.0, depth_dropout=0.2),
    # Liu et al. 2021; nano: for 28×28 grey images on a laptop
    "swin-nano": of(
        "swin", image=28, channels=1, patch=2, dim=48, layers=(2, 2), heads=(3, 6), windows=(7, 7), classes=10
    ),
    "swin-t": swin(96, 6, 3, depth_dropout=0.2),
    "swin-s": swin(96, 18, 3, depth_dropout=0.3),
    "swin-b": swin(128, 18, 4, depth_dropout=0.5),
    "swin-l": swin(192, 18, 6, depth_dropout=0.2),
    # Liu et al. 2022, with windows of 8
    "swinv2-t": swinv2(96, 6, 3, depth_dropout=0.2),
    "swinv2-s": swinv2(96, 18, 3, depth_dropout=0.3),
    "swinv2-b": swinv2(128, 18, 4, depth_dropout=0.5),
    # Xu et al. 2015, with features learned from the beginning; small: for 128 pixels and 4000 words on a laptop
    "captioner": of("captioner", vocab=10_000, dim=512, hidden=1800, align=512),
    "captioner-small": captioner(192, 384),
    "captioner-small-hard": captioner(192, 384, attention="hard"),
    "vit-captioner-small": of(
        "vit_captioner", vocab=4000, image=128, patch=16, dim=192, layers=4, decoder_layers=3, heads=6
    ),
    # Radford et al. 2021; nano: for 128 pixels and 4000 words on a laptop
    "clip-nano": of(
        "clip",
        vocab=4000,
        end=2,
        context=64,
        dim=128,
        layers=3,
        heads=4,
        image=128,
        patch=16,
        image_dim=128,
        image_layers=4,
        image_heads=4,
        width=128,
        act="gelu",
    ),
    "clip-vit-b32": clip(32, 768, 12),
    "clip-vit-b16": clip(16, 768, 12),
    "clip-vit-l14": clip(14, 1024, 24, dim=768, width=768),
    "clip-vit-l14-336": clip(14, 1024, 24, dim=768, width=768, image=336),
    # Zhai et al. 2023
    "siglip-b16": of("siglip"),
    "clip-resnet-18": of(
        "image_text",
        encoder="resnet-18",
        image=128,
        vocab=4000,
        end=2,
        context=40,
        dim=128,
        layers=3,
        heads=4,
        width=128,
    ),
    # Chen et al. 2020; nano: for 28×28 grey images on a laptop
    "simclr-nano": of("simclr", encoder="resnet-nano", image=28, channels=1, width=64),
    "simclr-resnet-50": of("simclr", encoder="resnet-50"),
    # Fan et al. 2021; Li et al. 2022; nano, here and below: for 28×28 grey images on a laptop
    "mvit-b": of("mvit", dim=96, layers=(1, 2, 11, 2)),
    "mvit-nano": mvitv2(1, 2, 1, **GREY, patch=2, dim=32, heads=(1, 2, 4), stride=2, depth_dropout=0.0),
    "mvitv2-t": mvitv2(1, 2, 5, 2, depth_dropout=0.1),
    "mvitv2-s": mvitv2(1, 2, 11, 2, depth_dropout=0.1),
    "mvitv2-b": mvitv2(2, 3, 16, 3, depth_dropout=0.3),
    # He et al. 2015, and with attention between the stages
    "resnet-nano": resnet(1, 1, 1, **GREY, **SMALL, widths=(32, 64, 128)),
    "resnet-nano-attention": resnet(1, 1, 1, **GREY, **SMALL, widths=(32, 64, 96), attention=(2, 3), heads=4),
    "resnet-18": resnet(2, 2, 2, 2, block="basic", widths=(64, 128, 256, 512)),
    "resnet-26": resnet(2, 2, 2, 2),
    "resnet-50": resnet(3, 4, 6, 3),
    "resnet-50-attention": resnet(3, 4, 6, 3, attention=(2, 3)),
    # Hu et al. 2019
    "lrnet-nano": of(
        "lrnet", **GREY, dim=32, stem="small", layers=(2, 2, 2), hidden=(32, 64, 96), widths=(64, 128, 256), prior=True
    ),
    "lrnet-26": of("lrnet", layers=(2, 2, 2, 2)),
    "lrnet-50": of("lrnet", layers=(3, 4, 6, 3)),
    # Sutskever et al. 2014; Cho et al. 2014 and Bahdanau et al. 2015, as compared in the latter; small: for a laptop
    "seq2seq-lstm": of("seq2seq", vocab=160_000, target_vocab=80_000, dim=1000, hidden=1000, layers=4, cell="lstm"),
    "rnn-small": rnn(128, 256, score="fixed"),
    "rnnsearch-small": rnn(128, 256, score="additive", align=256),
    "rnnencdec-50": of("rnn", vocab=30_000, dim=620, hidden=1000, readout=500, directions=1, score="fixed"),
    "rnnsearch-50": of(
        "rnn", vocab=30_000, dim=620, hidden=1000, readout=500, directions=2, score="additive", align=1000
    ),
    # Gulati et al. 2020, with 1024 symbols for CTC; nano: for spoken digits at 8 kHz on a laptop; Baevski et al. 2020
    "conformer-nano": conformer(64, 4, 4, features=40, hidden=128, kernel=15, channels=32, vocab=32, decoder_layers=2),
    "conformer-s": conformer(144, 16, 4),
    "conformer-m": conformer(256, 16, 4),
    "conformer-l": conformer(512, 17, 8),
    "wav2vec2-base": of("wav2vec2"),
    "wav2vec2-conformer-large": sized("wav2vec2_conformer", 1024, 24, 16, hidden=4096),
    # Radford et al. 2022; of English alone: .en
    "whisper-tiny": whisper(384, 4, 6),
    "whisper-tiny.en": whisper(384, 4, 6, vocab=51_864),
    "whisper-base": whisper(512, 6, 8),
    "whisper-base.en": whisper(512, 6, 8, vocab=51_864),
    "whisper-small": whisper(768, 12, 12),
    "whisper-small.en": whisper(768, 12, 12, vocab=51_864),
    "whisper-medium": whisper(1024, 24, 16),
    "whisper-medium.en": whisper(1024, 24, 16, vocab=51_864),
    "whisper-large": whisper(1280, 32, 20),
    "whisper-large-v2": whisper(1280, 32, 20),
    "whisper-large-v3": whisper(1280, 32, 20, vocab=51_866, mels=128),
    "whisper-turbo": whisper(1280, 32, 20, vocab=51_866, mels=128, decoder_layers=4),
    # series and sets of vectors, and what comes next in rows of numbers, for a laptop
    "vectors-small": sized("vectors", 64, 3, 4),
    "forecaster-small": sized("forecaster", 64, 3, 4),
    # norm, feed-forward layer, positions and mixer by name, as headway compare compares them
    "workbench-nano": sized("workbench", 64, 2, 4, context=128),
    "workbench": sized("workbench", 128, 4, 4, context=256),
}
