"""WavLM in Hugging Face's layout: the model of wav2vec 2.0, with distances in the attention of its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ConfigMap, Field, Options, written_as
from headway.interop.keymap import KeyMap, Rule, linear
from headway.interop.wav2vec2 import FIELDS, names, read, write
from headway.zoo.wav2vec2 import Config

DISTANCES = ConfigMap(Field("num_buckets", "buckets", 320), Field("max_bucket_distance", "longest", 800))


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "wavlm")
    o.ignore("num_ctc_classes", "replace_prob", "freeze_feat_extract_train", "no_mask_channel_overlap")  # of training
    o.ignore("no_mask_time_overlap")
    return read(o, "WavLM", ConfigMap(*FIELDS.fields, *DISTANCES.fields))


def write_config(c: Config) -> dict[str, Any]:
    if not c.buckets:
        raise UserError("there, a WavLM has distances, and this model buckets=0", do=written_as("wav2vec2"))
    return write(c, "wavlm", "WavLM") | DISTANCES.write(c)


def keymap(c: Config) -> KeyMap:
    there, here = "encoder.layers.*.attention", "stack.blocks.*.attn.body"
    shared = "attention.rel_attn_embed.weight", "attn.body.logit_bias.table"
    rules = (
        Rule(f"encoder.layers.0.{shared[0]}", f"stack.blocks.0.{shared[1]}"),
        Rule(f"{there}.gru_rel_pos_const", f"{here}.scale"),
        *linear(f"{there}.gru_rel_pos_linear", f"{here}.gate"),
    )
    found = names(c, "wavlm.")
    return replace(found, rules=(*found.rules, *rules))
