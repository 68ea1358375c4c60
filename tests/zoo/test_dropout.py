"""Rates of dropout: what a config says of attention reaches every attention of its model, and nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from torch import nn

from headway.nn.attention import Attention

TINY = {"vocab": 11, "dim": 16, "layers": 2, "heads": 2, "hidden": 24}
SIZES: dict[str, dict[str, Any]] = {
    "albert": {"width": 8},
    "bart": {"decoder_layers": 1, "decoder_heads": 2, "decoder_hidden": 24},
    "bert": {},
    "gpt2": {},
    "llama": {},
    "marian": {"decoder_layers": 1, "decoder_heads": 2, "decoder_hidden": 24},
    "mixtral": {"kv_heads": 1, "experts": 2},
    "t5": {"head_dim": 8},
    "transformer": {},
}
PUBLISHED = {"bart": 0.1, "bert": 0.1, "gpt2": 0.1, "t5": 0.1}  # the others 0


def built(name: str, **rates: float) -> nn.Module:
    zoo = import_module(f"headway.zoo.{name}")
    return zoo.build(zoo.Config(**TINY, **SIZES[name], **rates))


def attentions(model: nn.Module) -> set[float]:
    return {part.dropout for part in model.modules() if isinstance(part, Attention)}


def others(model: nn.Module) -> set[float]:
    return {part.p for part in model.modules() if isinstance(part, nn.Dropout)}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_the_rate_of_attention_is_its_own(name: str) -> None:
    assert attentions(built(name)) == {PUBLISHED.get(name, 0.0)}
    model = built(name, attention_dropout=0.37)
    assert attentions(model) == {0.37}
    assert others(model) == others(built(name))


@pytest.mark.parametrize("name", ["bart", "marian", "transformer"])
def test_the_rate_inside_feed_forward_layers_is_its_own(name: str) -> None:
    model: Any = built(name, act_dropout=0.42)
    blocks = [*model.encoder.stack.blocks, *model.decoder.stack.blocks]
    assert {block.ffn.body.drop.p for block in blocks} == {0.42}
    assert {block.ffn.drop.p for block in blocks} == {0.1}
