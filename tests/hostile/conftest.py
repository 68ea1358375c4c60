"""Small whole models that the cases spoil."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.model import Model
from headway.ops.rotary import Llama3
from headway.zoo import llama
from headway.zoo.build import architecture

TEXT: dict[str, Any] = {"vocab": 20, "dim": 8, "layers": 1, "heads": 2, "hidden": 8}
BOTH: dict[str, Any] = {"decoder_layers": 1, "decoder_heads": 2, "decoder_hidden": 8}
IMAGE: dict[str, Any] = {"image": 8, "classes": 2}
STRETCHED = llama.Frequencies(10_000.0, Llama3(8.0, 1.0, 4.0, 8))
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {**TEXT, "context": 8, "top": "rows"},
    "albert": {**TEXT, "context": 8, "width": 4, "top": "words"},
    "gpt2": {**TEXT, "context": 8},
    "llama": {**TEXT, "context": 32, "kv_heads": 1, "rotary": STRETCHED},
    "mixtral": {**TEXT, "context": 8, "kv_heads": 1, "experts": 2},
    "t5": {**TEXT, "head_dim": 4},
    "bart": {**TEXT, **BOTH, "context": 8},
    "whisper": {**TEXT, **BOTH, "mels": 80, "context": 8, "source_context": 8},
    "vit": {**IMAGE, "patch": 4, "dim": 8, "layers": 1, "heads": 2, "hidden": 8},
    "swin": {**IMAGE, "patch": 2, "dim": 8, "layers": (1, 1), "heads": (1, 2), "windows": (2, 2)},
    "resnet": {"classes": 2, "dim": 8, "layers": (1, 1), "widths": (16, 16)},
}


def built(name: str) -> Model:
    known = architecture(name)
    config = known.Config(**CONFIGS[name])
    return Model(known.build(config).eval(), config, name)


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of every architecture in Hugging Face's layout, `hf-bert`, and in our own, `own-bert`."""
    folder = tmp_path_factory.mktemp("bases")
    for name in CONFIGS:
        model = built(name)
        model.save_hf(folder / f"hf-{name}")
        model.save(folder / f"own-{name}")
    return folder


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))
