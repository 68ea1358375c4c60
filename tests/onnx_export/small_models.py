"""A small model of every architecture, with random weights."""

from __future__ import annotations

from typing import Any

import torch

from headway.data.tokenizer import Tokenizer
from headway.model import Model
from headway.zoo import clip_image, llama, simmim, vit
from headway.zoo.build import architecture
from headway.zoo.deepseek import Experts, Latent

VOCAB, CONTEXT = 31, 24
WORDS = {"vocab": VOCAB, "context": CONTEXT}
ONE: dict[str, Any] = {"dim": 16, "layers": 1, "heads": 2}
SIZES: dict[str, Any] = {**ONE, "hidden": 24}
TEXT = {**WORDS, **SIZES}
DECODER = {"decoder_layers": 1, "decoder_heads": 2, "decoder_hidden": 24}
IMAGE = {"image": 16, "patch": 8}
STAGES: dict[str, Any] = {"image": 16, "dim": 8, "layers": (1, 1), "classes": 3}
WAVES = {"channels": (4, 4), "kernels": (10, 3), "strides": (5, 2), "vocab": VOCAB, "kernel": 5}
TOWERS = {**TEXT, **IMAGE, "image_dim": 16, "image_layers": 1, "image_heads": 2, "image_hidden": 24}
SMALL: dict[str, dict[str, Any]] = {
    "albert": {**TEXT, "width": 8},
    "ast": {**SIZES, "features": 8, "frames": 20, "patch": 4, "strides": (3, 3), "classes": 3},
    "bart": {**TEXT, **DECODER},
    "beit": {**SIZES, **IMAGE, "classes": 3},
    "bert": {**TEXT, "top": "words"},
    "blip": {**WORDS, **DECODER, "dim": 16, "encoder": vit.Config(**SIZES, **IMAGE, top="rows")},
    "bloom": {**WORDS, **ONE},
    "captioner": {"vocab": VOCAB, "image": 16, "widths": (4, 8), "dim": 6, "hidden": 8, "align": 6},
    "clip": {**TOWERS, "end": VOCAB - 1, "width": 6},
    "clip_image": {**SIZES, **IMAGE, "classes": 3},
    "clip_text": {**TEXT, "end": VOCAB - 1, "width": 6},
    "conformer": {**SIZES, "features": 5, "vocab": VOCAB, "kernel": 3},
    "convnext": {"image": 32, "widths": (8, 16), "layers": (1, 1), "classes": 3, "layer_scale": 0.5},
    "deberta": {**TEXT, "buckets": 4, "farthest": 9},
    "deepseek": {
        **TEXT,
        "layers": 2,
        "dense_layers": 1,
        "latent": Latent(latent=6, plain=3, turned=4, value=5, rank=7),
        "mixture": Experts(4, top=2, expert_hidden=8, groups=2, kept=1, routing="softmax"),
    },
    "deit": {**SIZES, **IMAGE, "classes": 3},
    "dinov2": {**ONE, **IMAGE, "registers": 2},
    "dinov3": {**SIZES, **IMAGE, "registers": 2, "classes": 3},
    "forecaster": {**SIZES, "features": 3, "context": 40},
    "gemma": {**TEXT, "kv_heads": 1, "head_dim": 8, "window": 4, "local_layers": (0,), "score_cap": 2.0},
    "gpt2": {**WORDS, **ONE},
    "gpt_neox": TEXT,
    "gpt_oss": {**TEXT, "kv_heads": 1, "head_dim": 8, "experts": 4, "top": 2, "window": 4, "local_layers": (0,)},
    "image_text": {**TEXT, "encoder": "resnet-18", "image": 32, "end": VOCAB - 1, "width": 6},
    "led": {**TEXT, **DECODER, "source_context": 40, "window": 3},
    "llama": {**TEXT, "kv_heads": 1, "window": 4},
    "longformer": {**TEXT, "window": 3, "top": "rows"},
    "xlnet": {"vocab": VOCAB, **SIZES, "top": "rows"},
    "llava": {
        "encoder": clip_image.Config(**SIZES, **IMAGE, top="vector"),
        "decoder": llama.Config(**{**TEXT, "context": 64}),
        **{"vocab": VOCAB, "image_token": 3, "taps": (1,)},
    },
    "lrnet": {**STAGES, "hidden": (4, 4), "widths": (8, 8), "size": 3, "share": 2},
    "mae": {**SIZES, **IMAGE, "decoder_dim": 8, "decoder_layers": 1, "decoder_heads": 2},
    "marian": {**TEXT, **DECODER},
    "mbart": {**TEXT, **DECODER},
    "mixtral": {**TEXT, "kv_heads": 1, "experts": 4},
    "modernbert": {**TEXT, "window": 8, "local_layers": (0,)},
    "mvit": {**STAGES, "heads": (1, 2), "stride": 2},
    "mvitv2": {**STAGES, "heads": (1, 2), "stride": 2},
    "olmo": {**TEXT, "kv_heads": 1, "clip": 0.5},
    "olmo2": {**TEXT, "kv_heads": 1},
    "qwen2_moe": {**TEXT, "kv_heads": 1, "experts": 4, "top": 2, "expert_hidden": 8, "shared_hidden": 12},
    "resnet": {**STAGES, "widths": (8, 16)},
    "rnn": {"vocab": VOCAB, "dim": 6, "hidden": 8, "align": 6, "readout": 5},
    "seq2seq": {"vocab": VOCAB, "target_vocab": None, "dim": 6, "hidden": 8, "layers": 1},
    "siglip": TOWERS,
    "siglip_image": {**SIZES, **IMAGE, "classes": 3},
    "simclr": {"encoder": "resnet-18", "image": 32, "width": 6},
    "simmim": {"encoder": simmim.Vit(**SIZES, **IMAGE)},
    "swin": {**STAGES, "patch": 4, "heads": (2, 2), "windows": (2, 2)},
    "swinv2": {**STAGES, "patch": 4, "heads": (2, 2), "windows": (2, 2)},
    "t5gemma": {**TEXT, "kv_heads": 1, "head_dim": 8, "window": 3, "local_layers": (0,), "score_cap": 5.0},
    "t5": {**SIZES, "vocab": VOCAB, "head_dim": 8, "buckets": 8, "longest": 12},
    "text_classifier": {**TEXT, "classes": 3},
    "transformer": {**SIZES, "vocab": VOCAB},
    "trocr": {**WORDS, **DECODER, "dim": 16, "encoder": vit.Config(**SIZES, **IMAGE, top="rows")},
    "vectors": {**SIZES, "features": 3, "classes": 3},
    "vit": {**SIZES, **IMAGE, "classes": 3},
    "vit_captioner": {**ONE, **IMAGE, "vocab": VOCAB, "decoder_layers": 1},
    "wav2vec2": {**SIZES, **WAVES, "groups": 2},
    "wav2vec2_conformer": {**SIZES, **WAVES},
    "whisper": {**SIZES, **DECODER, **WORDS, "mels": 5, "source_context": 12},
    "workbench": {**TEXT, "positions": "alibi"},
}


def small(name: str, tokenizer: Tokenizer | None = None, **more: Any) -> Model:
    """A small model, whose outputs are far from zero."""
    zoo = architecture(name)
    config = zoo.Config(**{**SMALL[name], **more})
    torch.manual_seed(0)
    model = zoo.build(config).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    return Model(model, config, name, tokenizer=tokenizer)
