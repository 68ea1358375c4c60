"""LED in Hugging Face's layout, without the global attention that a caller may ask for there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.interop.bart import tied
from headway.interop.config_reader import ConfigMap, Field, Options
from headway.interop.fairseq import SIDES, check_sides, side
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.interop.longformer import GLOBALS, read_window, write_window
from headway.zoo.led import Config

FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 50_265),
    Field("max_decoder_position_embeddings", "context", 1024),
    Field("max_encoder_position_embeddings", "source_context", 16_384),
    *SIDES.fields,
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "led")
    o.architecture("LEDForConditionalGeneration", "LEDModel")
    o.expect(tie_encoder_decoder=False, tie_word_embeddings=True, is_decoder=False)
    o.ignore("classif_dropout", "classifier_dropout", "max_position_embeddings", "onnx_export")
    check_sides(o)
    fields = FIELDS.read(o)
    return o.done(Config(**fields, window=read_window(o, fields["layers"])))


def write_config(c: Config) -> dict[str, Any]:
    names = {"model_type": "led", "architectures": ["LEDForConditionalGeneration"], "is_encoder_decoder": True}
    return {**names, **FIELDS.write(c), **write_window(c.window, c.layers)}


ENCODER = {
    **{f"self_attn.longformer_self_attn.{name}": f"attn.body.{part}" for name, part in GLOBALS.items()},
    "self_attn.longformer_self_attn.query": "attn.body.q",
    "self_attn.longformer_self_attn.key": "attn.body.k",
    "self_attn.longformer_self_attn.value": "attn.body.v",
    "self_attn.output": "attn.body.out",
    "self_attn_layer_norm": "attn.after",
    "fc1": "ffn.body.up",
    "fc2": "ffn.body.down",
    "final_layer_norm": "ffn.after",
}


def keymap(c: Config) -> KeyMap:
    embeds = (
        rule
        for one in ("encoder", "decoder")
        for rule in (
            Rule(f"{one}.embed_positions.weight", f"{one}.embed.position.table.weight"),
            *linear(f"{one}.layernorm_embedding", f"{one}.embed.norm"),
        )
    )
    encoder = linears("encoder.layers.*", "encoder.stack.blocks.*", ENCODER)
    decoder = side("decoder", {"self_attn": "attn", "encoder_attn": "cross"}, "after")
    found = tied(*embeds, *encoder, *decoder, ignored=("encoder.version", "decoder.version"))
    return replace(found, prefixes=("led.", ""))
