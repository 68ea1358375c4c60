"""The masked autoencoder over ViT in Hugging Face's layout, as it is pre-trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import ConfigMap, Field, Options
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.interop.vit import BLOCK, FIELDS, NEW_BLOCK, Table, encoder_rules, write_sizes
from headway.nn.ffn import ffn_width
from headway.zoo.mae import Config

ARCHITECTURE = "ViTMAEForPreTraining"


DECODER = ConfigMap(
    Field("decoder_hidden_size", "decoder_dim", 512),
    Field("decoder_num_hidden_layers", "decoder_layers", 8),
    Field("decoder_num_attention_heads", "decoder_heads", 16),
    Field("decoder_intermediate_size", "decoder_hidden", 2048),
    Field("norm_pix_loss", "normalised", False),
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "vit_mae")
    o.architecture(ARCHITECTURE)
    o.ignore("mask_ratio")  # how many patches are hidden is told in each call
    return o.done(Config(**FIELDS.read(o), **DECODER.read(o)))


def write_config(c: Config) -> dict[str, Any]:
    return {
        "model_type": "vit_mae",
        "architectures": [ARCHITECTURE],
        **write_sizes(c),
        **DECODER.write(c),
        "decoder_intermediate_size": ffn_width(c.decoder_dim, c.decoder_hidden),
    }


def keymap(c: Config) -> KeyMap:
    layers, blocks = "decoder.decoder_layers.*", "decoder.stack.blocks.*"
    places = "decoder.first", "decoder.position.table"
    return KeyMap(
        rules=(
            *encoder_rules(c, "vit.", "encoder."),
            *linear("decoder.decoder_embed", "decoder.narrow"),
            Rule("decoder.mask_token", "decoder.hidden"),
            Rule("decoder.decoder_pos_embed", places, (Table(c.image // c.patch),)),
            *linears(layers, blocks, BLOCK),
            *linears(layers, blocks, NEW_BLOCK),
            *linears("decoder.decoder_encoder.layer.*", blocks, BLOCK),  # as transformers 5 writes it, by a slip
            *linear("decoder.decoder_norm", "decoder.stack.norm"),
            *linear("decoder.decoder_pred", "decoder.out"),
        )
    )
