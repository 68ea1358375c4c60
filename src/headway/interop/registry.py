"""Which file reads which `model_type` of a Hugging Face config.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch import nn

from headway.errors import UserError, listed, nearest
from headway.interop.config_reader import WITH_SEGMENTS, unchanged
from headway.interop.timm_folder import is_timm

if TYPE_CHECKING:
    from headway.interop.keymap import KeyMap


@dataclass(frozen=True)
class Family:
    """How one architecture is spelled there: its config both ways, and its names."""

    architecture: str  # the file in `zoo`
    read_config: Callable[[Mapping[str, Any]], Any]
    write_config: Callable[[Any], dict[str, Any]]
    keymap: Callable[[Any], KeyMap]
    build: Callable[[Any], nn.Module]
    settle: Callable[[Any, Collection[str]], Any]  # the config, mended by the names of the tensors that are there
    read_settings: Callable[[Mapping[str, Any]], dict[str, Any]]  # of generation, where the config alone tells them
    write_settings: Callable[[Mapping[str, Any]], Mapping[str, Any]]  # a config.json with them in their places
    write_processor: Callable[[Any], dict[str, Any]]  # what a processor_config.json says, where there is one
    write_tokenizer: Callable[[Mapping[str, Any]], dict[str, Any]]  # what a tokenizer_config.json says of a config.json


# model_type: the file in `zoo`; the file here has the name of the model_type, with _ for -
FAMILIES = {
    "albert": "albert",
    "audio-spectrogram-transformer": "ast",
    "bart": "bart",
    "beit": "beit",
    "bert": "bert",
    "blip": "blip",
    "bloom": "bloom",
    "camembert": "bert",
    "clip": "clip",
    "clip_text_model": "clip_text",
    "clip_vision_model": "clip_image",
    "convnext": "convnext",
    "convnextv2": "convnext",
    "deberta": "deberta",
    "deberta-v2": "deberta",
    "deepseek_v2": "deepseek",
    "deepseek_v3": "deepseek",
    "deit": "deit",
    "dinov2": "dinov2",
    "dinov2_with_registers": "dinov2",
    "dinov3_vit": "dinov3",
    "distilbert": "bert",
    "electra": "bert",
    "falcon": "gpt_neox",
    "gemma": "gemma",
    "gemma2": "gemma",
    "gemma3_text": "gemma",
    "gpt2": "gpt2",
    "gpt_neo": "gpt2",
    "gpt_neox": "gpt_neox",
    "gpt_oss": "gpt_oss",
    "gptj": "gpt_neox",
    "granite": "llama",
    "hubert": "wav2vec2",
    "led": "led",
    "llama": "llama",
    "longformer": "longformer",
    "llava": "llava",
    "m2m_100": "mbart",
    "marian": "marian",
    "mbart": "mbart",
    "mistral": "llama",
    "mixtral": "mixtral",
    "modernbert": "modernbert",
    "mpnet": "bert",
    "mpt": "bloom",
    "mt5": "t5",
    "mvitv2": "mvitv2",
    "olmo": "olmo",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "opt": "gpt2",
    "pegasus": "mbart",
    "phi": "gpt_neox",
    "phi3": "llama",
    "qwen2": "llama",
    "qwen2_moe": "qwen2_moe",
    "qwen3": "llama",
    "qwen3_moe": "mixtral",
    "resnet": "resnet",
    "roberta": "bert",
    "siglip": "siglip",
    "siglip_vision_model": "siglip_image",
    "smollm3": "llama",
    "stablelm": "gpt_neox",
    "starcoder2": "gpt_neox",
    "swin": "swin",
    "swinv2": "swinv2",
    "t5": "t5",
    "t5gemma": "t5gemma",
    "timm_resnet": "resnet",
    "timm_swin": "swin",
    "timm_swinv2": "swinv2",
    "timm_vit": "vit",
    "vision-encoder-decoder": "trocr",
    "vit": "vit",
    "vit_mae": "mae",
    "wav2vec2": "wav2vec2",
    "wav2vec2-conformer": "wav2vec2_conformer",
    "wavlm": "wav2vec2",
    "whisper": "whisper",
    "xlm-roberta": "bert",
    "xlnet": "xlnet",
}
# what is not read though its family's name is known, and what is instead
UNREAD = dict.fromkeys(
    ("siglip2", "siglip2_vision_model"),
    ("SigLIP 2's NaFlex, of images of any shape", "take a SigLIP 2 of a fixed size, whose type is 'siglip'"),
)
# the first word of an architecture that a config.json of timm's names
TIMM = {
    "mvitv2": "mvitv2",
    **dict.fromkeys(("resnet18", "resnet26", "resnet34", "resnet50", "resnet101", "resnet152"), "timm_resnet"),
    "swin": "timm_swin",
    "swinv2": "timm_swinv2",
    "vit": "timm_vit",
}
# how the names of transformers' classes begin
CLASSES = {
    "AST": "audio-spectrogram-transformer",
    "Albert": "albert",
    "Bart": "bart",
    "Beit": "beit",
    "Bert": "bert",
    "Blip": "blip",
    "Bloom": "bloom",
    "CLIP": "clip",
    "CLIPText": "clip_text_model",
    "CLIPVision": "clip_vision_model",
    "Camembert": "camembert",
    "ConvNext": "convnext",
    "ConvNextV2": "convnextv2",
    "Deberta": "deberta",
    "DebertaV2": "deberta-v2",
    "DeepseekV2": "deepseek_v2",
    "DeepseekV3": "deepseek_v3",
    "DeiT": "deit",
    "Dinov2": "dinov2",
    "Dinov2WithRegisters": "dinov2_with_registers",
    "DINOv3ViT": "dinov3_vit",
    "DistilBert": "distilbert",
    "Electra": "electra",
    "Falcon": "falcon",
    "GPT2": "gpt2",
    "GPTJ": "gptj",
    "GPTNeo": "gpt_neo",
    "GPTNeoX": "gpt_neox",
    "Gemma": "gemma",
    "Gemma2": "gemma2",
    "Gemma3Text": "gemma3_text",
    "GptOss": "gpt_oss",
    "Granite": "granite",
    "Hubert": "hubert",
    "LED": "led",
    "Llama": "llama",
    "Longformer": "longformer",
    "Llava": "llava",
    "M2M100": "m2m_100",
    "MBart": "mbart",
    "MPNet": "mpnet",
    "MT5": "mt5",
    "Marian": "marian",
    "Mistral": "mistral",
    "Mixtral": "mixtral",
    "ModernBert": "modernbert",
    "Mpt": "mpt",
    "OPT": "opt",
    "Olmo": "olmo",
    "Olmo2": "olmo2",
    "Olmo3": "olmo3",
    "Pegasus": "pegasus",
    "Phi": "phi",
    "Phi3": "phi3",
    "Qwen2": "qwen2",
    "Qwen2Moe": "qwen2_moe",
    "Qwen3": "qwen3",
    "Qwen3Moe": "qwen3_moe",
    "ResNet": "resnet",
    "Roberta": "roberta",
    "Siglip": "siglip",
    "SiglipVision": "siglip_vision_model",
    "SmolLM3": "smollm3",
    "StableLm": "stablelm",
    "Starcoder2": "starcoder2",
    "Swin": "swin",
    "Swinv2": "swinv2",
    "T5": "t5",
    "T5Gemma": "t5gemma",
    "ViT": "vit",
    "ViTMAE": "vit_mae",
    "Wav2Vec2": "wav2vec2",
    "Wav2Vec2Conformer": "wav2vec2-conformer",
    "WavLM": "wavlm",
    "Whisper": "whisper",
    "XLMRoberta": "xlm-roberta",
    "XLNet": "xlnet",
}
CLASS = re.compile(
    rf"({'|'.join(CLASSES)})(?:For[A-Z]\w+|(?:MT|Encoder|LMHead|WithLMHead|DoubleHeads)?Model(?:WithProjection)?)"
)


def model_type_of(values: Mapping[str, Any]) -> str | None:
    """Which of the families a config.json is of; timm's names an architecture instead of a model_type.

    Where it has no model_type, its first class in `architectures` tells; None where there is none.
    """
    if is_timm(values):
        named = values["architecture"]
        first = named.partition("_")[0]
        if first not in TIMM:
            raise UserError(f"timm's {named!r} is not known", allowed=f"those that begin with {listed(TIMM, 20)}")
        return TIMM[first]
    if "model_type" not in values:
        given = values.get("architectures") or [""]
        found = CLASS.fullmatch(given[0]) if isinstance(given, list) and isinstance(given[0], str) else None
        return CLASSES[found[1]] if found else None
    model_type = values["model_type"]
    if not isinstance(model_type, str):
        allowed = f"one of {listed(FAMILIES, 20)}"
        raise UserError(f"config.json says model_type={model_type!r:.60}", allowed=allowed)
    return model_type


def family(model_type: str) -> Family:
    if model_type in UNREAD:
        what, do = UNREAD[model_type]
        raise UserError(f"models of type {model_type!r} are {what}, which is not computed here", do=do)
    if model_type not in FAMILIES:
        meant = nearest(model_type, FAMILIES)
        raise UserError(f"models of type {model_type!r} are not known", allowed=listed(FAMILIES, 20), meant=meant)
    there = import_module(f"headway.interop.{model_type.replace('-', '_')}")
    here = import_module(f"headway.zoo.{FAMILIES[model_type]}")
    settle = getattr(there, "settle", as_told)
    settings = getattr(there, "read_settings", nothing), getattr(there, "write_settings", unchanged)
    inputs = getattr(there, "write_processor", nothing), getattr(there, "write_tokenizer", segments_of)
    there_and_back = there.read_config, there.write_config, there.keymap
    return Family(FAMILIES[model_type], *there_and_back, here.build, settle, *settings, *inputs)


def type_for(architecture: str) -> str | None:
    """As which model_type an architecture of ours is written: that of its name, else the one that is read as it."""
    if architecture in FAMILIES:
        return architecture
    return next((model_type for model_type, ours in FAMILIES.items() if ours == architecture), None)


def as_told(config: Any, names: Collection[str]) -> Any:
    """Most configs leave nothing open."""
    return config


def segments_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Models of several segments are told of them."""
    return {**WITH_SEGMENTS} if values.get("type_vocab_size", 0) > 1 else {}


def nothing(values: Any) -> dict[str, Any]:
    """Most say all at the top of their config.json."""
    return {}
