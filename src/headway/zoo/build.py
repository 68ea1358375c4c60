"""From a preset's name, or a config, to a model.  Architectures are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from torch import nn

from headway.errors import UserError
from headway.zoo.config_io import from_plain
from headway.zoo.presets import preset

ARCHITECTURES = {
    "albert": "headway.zoo.albert",
    "bart": "headway.zoo.bart",
    "bert": "headway.zoo.bert",
    "captioner": "headway.zoo.captioner",
    "clip": "headway.zoo.clip",
    "clip_image": "headway.zoo.clip_image",
    "conformer": "headway.zoo.conformer",
    "forecaster": "headway.zoo.forecaster",
    "gpt2": "headway.zoo.gpt2",
    "image_text": "headway.zoo.image_text",
    "llama": "headway.zoo.llama",
    "lrnet": "headway.zoo.lrnet",
    "mae": "headway.zoo.mae",
    "marian": "headway.zoo.marian",
    "mixtral": "headway.zoo.mixtral",
    "mvit": "headway.zoo.mvit",
    "mvitv2": "headway.zoo.mvitv2",
    "resnet": "headway.zoo.resnet",
    "rnn": "headway.zoo.rnn",
    "seq2seq": "headway.zoo.seq2seq",
    "simclr": "headway.zoo.simclr",
    "simmim": "headway.zoo.simmim",
    "swin": "headway.zoo.swin",
    "swinv2": "headway.zoo.swinv2",
    "t5": "headway.zoo.t5",
    "transformer": "headway.zoo.transformer",
    "vectors": "headway.zoo.vectors",
    "vit": "headway.zoo.vit",
    "whisper": "headway.zoo.whisper",
    "vit_captioner": "headway.zoo.vit_captioner",
    "wav2vec2_conformer": "headway.zoo.wav2vec2_conformer",
    "workbench": "headway.zoo.workbench",
}


class Architecture(Protocol):
    """What a file of the zoo holds."""

    Config: type
    build: Callable[[Any], nn.Module]


def build(preset_or_config: str | object, **sizes: object) -> nn.Module:
    """The model of a preset (`build("gpt2", layers=2)`) or of a config, with its first weights.

    `sizes` replace fields of the config.
    """
    config = config_of(preset_or_config, **sizes)
    return architecture(architecture_of(config)).build(config)


def config_of(preset_or_config: str | object, **sizes: object) -> object:
    """The config of a preset, or the one given, where `sizes` replace some fields."""
    if isinstance(preset_or_config, str):
        chosen = preset(preset_or_config)
        return from_plain(architecture(chosen.architecture).Config, {**chosen.sizes, **sizes})
    architecture_of(preset_or_config)
    given = {field.name: getattr(preset_or_config, field.name) for field in fields(cast(Any, preset_or_config))}
    return from_plain(type(preset_or_config), {**given, **sizes})


def architecture_of(config: object) -> str:
    """The name of the architecture whose config this is."""
    home = type(config).__module__
    names = [name for name, module in ARCHITECTURES.items() if module == home]
    if not names or not is_dataclass(config):
        do = "give a preset's name (headway list shows them) or a Config of headway.zoo"
        raise UserError(f"cannot build a model from {type(config).__name__} {config!r:.60}", do=do)
    return names[0]


def architecture(name: str) -> Architecture:
    return cast(Architecture, import_module(ARCHITECTURES[name]))
