"""BLIP's captioner in Hugging Face's layout; what answers questions or compares texts with images is refused by name.

The tokens that begin and end a caption stand there in the part that writes, where `read_settings` finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop import bert
from headway.interop.clip import BLOCK as CLIP_BLOCK
from headway.interop.config_reader import ACTIVATION, NUMBER, ConfigMap, Field, Options, refuse_fields
from headway.interop.encoders import norm
from headway.interop.keymap import KeyMap, Rule, linear, linears, qkv
from headway.interop.vit import FIELDS, Table
from headway.nn.ffn import ffn_width
from headway.zoo.bert import Config as Bert
from headway.zoo.blip import Config
from headway.zoo.vit import Config as ViT

ARCHITECTURE = "BlipForConditionalGeneration"
TEXT = ConfigMap(
    Field("vocab_size", "vocab", 30_524),
    Field("max_position_embeddings", "context", 512),
    Field("hidden_size", "dim", 768),
    Field("num_hidden_layers", "decoder_layers", 12),
    Field("num_attention_heads", "decoder_heads", 8),
    Field("intermediate_size", "decoder_hidden", 3072),
    Field("hidden_act", "act", "gelu", ACTIVATION),
    Field("layer_norm_eps", "eps", 1e-12),
    Field("hidden_dropout_prob", "dropout", 0.0, NUMBER),
    Field("attention_probs_dropout_prob", "attention_dropout", 0.0, NUMBER),
)
IMAGE = ConfigMap(
    *FIELDS.without("channels", "biased", "dropout", "attention_dropout").with_defaults(image=384, eps=1e-5).fields,
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
)
# a token of the part that writes: what it does, as settings of other models call it, and which it is unless told
TOKENS = {
    "bos_token_id": ("decoder_start_token_id", 30_522),
    "sep_token_id": ("eos_token_id", 102),
    "pad_token_id": ("pad_token_id", 0),
}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "blip")
    o.architecture(ARCHITECTURE)
    o.expect(tie_word_embeddings=True)
    o.ignore("projection_dim", "image_text_hidden_size", "logit_scale_init_value")  # of models that compare
    o.ignore("label_smoothing", "decoder_pad_token_id")
    image, text = part(o, "vision"), part(o, "text")
    image.expect(num_channels=3)
    text.expect(is_decoder=True, tie_word_embeddings=True)
    text.ignore("encoder_hidden_size", "label_smoothing")  # the width is the encoder's, whatever is said
    config = Config(**TEXT.read(text), encoder=ViT(**IMAGE.read(image), top="none"))
    for options in (image, text):
        options.ignore("projection_dim")
        options.done(config)
    return o.done(config)


def part(o: Options, name: str) -> Options:
    return Options(o.take(f"{name}_config", dict[str, Any]()), f"blip {name}")


def write_config(c: Config) -> dict[str, Any]:
    refuse_fields(c.encoder, "BLIP", {"pool": "", "channels": "", "biased": ""})
    return {
        "model_type": "blip",
        "architectures": [ARCHITECTURE],
        "text_config": {"model_type": "blip_text_model", **TEXT.write(c), "encoder_hidden_size": c.encoder.dim},
        "vision_config": {
            "model_type": "blip_vision_model",
            **IMAGE.write(c.encoder),
            "intermediate_size": ffn_width(c.encoder.dim, c.encoder.hidden),
        },
    }


def read_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The token that a caption is written after, which stands in place of the tokenizer's first, and its end."""
    text = part(Options(values, "blip"), "text")
    found = {name: text.take(theirs, usual) for theirs, (name, usual) in TOKENS.items()}
    return {**found, "bos_token_id": found["decoder_start_token_id"]}


def write_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json with these tokens where that library reads them."""
    ids = {theirs: values[name] for theirs, (name, _) in TOKENS.items() if values.get(name) is not None}
    for name, id in ids.items():
        if not isinstance(id, int):
            raise UserError(f"{TOKENS[name][0]} is {id!r:.60}, and BLIP has one there", do="use to=headway")
    others = {name: value for name, value in values.items() if not name.endswith("_token_id")}
    return {**others, "text_config": {**values["text_config"], **ids}}


def keymap(c: Config) -> KeyMap:
    words = bert.keymap(Bert(top="words"))
    eye, image, text = "vision_model.", "encoder.stack.blocks.*", "text_decoder."
    layer, cross = f"{text}bert.encoder.layer.*.crossattention", "decoder.stack.blocks.*.cross"
    places = "encoder.embed.token.position", "encoder.embed.position.table"
    return KeyMap(
        rules=(
            Rule(f"{eye}embeddings.class_embedding", "encoder.embed.token.token"),
            Rule(f"{eye}embeddings.position_embedding", places, (Table(c.encoder.image // c.encoder.patch),)),
            *linear(f"{eye}embeddings.patch_embedding", "encoder.embed.patches.project"),
            *qkv(f"{eye}encoder.layers.*.self_attn.qkv.", f"{image}.attn.body"),
            *linear(f"{eye}encoder.layers.*.self_attn.projection", f"{image}.attn.body.out"),
            *linears(f"{eye}encoder.layers.*", image, OTHERS),
            *linear(f"{eye}post_layernorm", "encoder.stack.norm"),
            *(rule.within(f"{text}{'' if rule.outside else 'bert.'}", "decoder.") for rule in words.rules),
            *linears(f"{layer}.self", f"{cross}.body", {"query": "q", "key": "k", "value": "v"}),
            *linear(f"{layer}.output.dense", f"{cross}.body.out"),
            *norm(f"{layer}.output.LayerNorm", f"{cross}.after"),
        ),
        ignored=(f"{text}bert.embeddings.position_ids",),
        ties={
            f"{text}cls.predictions.decoder.weight": f"{text}bert.embeddings.word_embeddings.weight",
            f"{text}cls.predictions.decoder.bias": f"{text}cls.predictions.bias",
        },
    )


OTHERS = {theirs: ours for theirs, ours in CLIP_BLOCK.items() if not theirs.startswith("self_attn")}
