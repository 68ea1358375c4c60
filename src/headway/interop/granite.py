"""Granite in Hugging Face's layout: a Llama that multiplies embedding, changes, scores and logits by constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import NUMBER, ConfigMap, Field, Options
from headway.interop.llama import (
    SETS,
    keymap,
    named_top,
    read_decoder,
    refuse_others,
    settle,
    write_biases,
    write_named,
)
from headway.nn.attention import share
from headway.zoo.llama import Config, Multipliers

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent
ABSENT = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "intermediate_size": 11_008, "rope_theta": 10_000.0}
MULTIPLIERS = ConfigMap(
    Field("embedding_multiplier", "embed", 1.0, NUMBER),
    Field("residual_multiplier", "residual", 1.0, NUMBER),
    Field("attention_multiplier", "score", 1.0, NUMBER),
    Field("logits_scaling", "logit_divisor", 1.0, NUMBER),
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "granite")
    biases = SETS[o.take("attention_bias", False), o.take("mlp_bias", False)]
    multipliers = Multipliers(**MULTIPLIERS.read(o))
    return o.done(Config(**read_decoder(o), **named_top(o, "Granite"), biases=biases, multipliers=multipliers))


def write_config(c: Config) -> dict[str, Any]:
    refuse_others(c, "Granite", "biases", "multipliers")
    usual = (share(c.dim, c.heads) if c.head_dim is None else c.head_dim) ** -0.5
    multipliers = MULTIPLIERS.write(c.multipliers)
    if c.multipliers.score is None:
        multipliers["attention_multiplier"] = usual
    return {**write_named(c, "granite", "Granite"), **write_biases(c, "Granite"), **multipliers}
