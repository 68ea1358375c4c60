"""TrOCR in Hugging Face's layout: a vision-encoder-decoder of a ViT or a DeiT and TrOCR's decoder.

Other pairs are refused by the name of what is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError, listed
from headway.interop import deit, vit
from headway.interop.config_reader import ACTIVATION, NUMBER, ConfigMap, Field, Options
from headway.interop.fairseq import side
from headway.interop.keymap import KeyMap, Rule, linear
from headway.zoo.trocr import Config
from headway.zoo.vit import Config as ViT

TYPE, ARCHITECTURE = "vision-encoder-decoder", "VisionEncoderDecoderModel"
ENCODERS = {"deit": deit, "vit": vit}
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 50_265),
    Field("max_position_embeddings", "context", 512),
    Field("d_model", "dim", 1024),
    Field("decoder_layers", "decoder_layers", 12),
    Field("decoder_attention_heads", "decoder_heads", 16),
    Field("decoder_ffn_dim", "decoder_hidden", 4096),
    Field("activation_function", "act", "gelu", ACTIVATION),
    Field("scale_embedding", "scaled", False),
    Field("layernorm_embedding", "normed", True),
    Field("tie_word_embeddings", "tied", True),
    Field("dropout", "dropout", 0.1, NUMBER),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
    Field("activation_dropout", "act_dropout", 0.0, NUMBER),
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, TYPE)
    o.architecture(ARCHITECTURE)
    o.ignore("tie_word_embeddings", "processor_class")
    encoder, decoder = (part(o.need(name), name) for name in ("encoder", "decoder"))
    there = encoder.get("model_type")
    if there not in ENCODERS:
        raise UserError(f"an encoder of type {there!r:.60} in a {TYPE}", allowed=listed(ENCODERS))
    if decoder.get("model_type") != "trocr":
        raise UserError(f"a decoder of type {decoder.get('model_type')!r:.60} in a {TYPE}", allowed="trocr")
    eye = replace(ENCODERS[there].read_config(encoder), top="none")
    words = Options(decoder, "trocr")
    words.architecture("TrOCRForCausalLM")
    words.expect(use_learned_position_embeddings=True)
    words.require("cross_attention_hidden_size", eye.dim, None, default=None)
    words.ignore("decoder_layerdrop", "init_std", "classifier_dropout", "hidden_size", "num_attention_heads")
    words.ignore("num_hidden_layers")
    found = words.done(Config(**FIELDS.read(words), encoder=eye))
    if words.take("cross_attention_hidden_size", None) is None and eye.dim != found.dim:
        raise UserError(f"an encoder {eye.dim} wide and a decoder {found.dim} wide that is not told so")
    return o.done(found)


def part(values: object, name: str) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise UserError(f"config.json: {name} is {values!r:.60}", allowed="the config of a model")
    return values


def write_config(c: Config) -> dict[str, Any]:
    return {
        "model_type": TYPE,
        "architectures": [ARCHITECTURE],
        "is_encoder_decoder": True,
        "tie_word_embeddings": False,
        "encoder": there(c).write_config(c.encoder),
        "decoder": {
            "model_type": "trocr",
            "architectures": ["TrOCRForCausalLM"],
            **FIELDS.write(c),
            "cross_attention_hidden_size": c.encoder.dim,
            "use_learned_position_embeddings": True,
            "is_decoder": True,
            "add_cross_attention": True,
        },
    }


def there(c: Config) -> Any:
    """The file of the encoder's family."""
    return ENCODERS["vit" if isinstance(c.encoder, ViT) else "deit"]


def keymap(c: Config) -> KeyMap:
    eye = there(c).keymap(c.encoder)
    before, words = "decoder.model.", "decoder.model.decoder.embed_tokens.weight"
    layers = side("decoder", {"self_attn": "attn", "encoder_attn": "cross"}, "after")
    return KeyMap(
        rules=(
            *(rule.within("encoder.", "encoder.") for rule in eye.rules),
            Rule(words, "decoder.embed.token.weight"),
            Rule(f"{before}decoder.embed_positions.weight", "decoder.embed.position.table.weight"),
            *(linear(f"{before}decoder.layernorm_embedding", "decoder.embed.norm") if c.normed else ()),
            *(rule.within(before, "") for rule in layers),
            *(() if c.tied else (Rule("decoder.output_projection.weight", "decoder.head.weight"),)),
        ),
        ignored=tuple(f"encoder.{name}" for name in eye.ignored),
        ties={"decoder.output_projection.weight": words} if c.tied else None,
    )
