"""T5 in Hugging Face's layout, versions 1.0 and 1.1, whole or encoder only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from headway.errors import UserError, listed
from headway.interop.config_reader import ACTIVATIONS, SPELLED, ConfigMap, Field, Options, without_aliases
from headway.interop.keymap import KeyMap, Rule
from headway.zoo.t5 import Config

WHOLE, ENCODER_ONLY = "ForConditionalGeneration", "EncoderModel"
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 32_128),
    Field("d_model", "dim", 512),
    Field("num_layers", "layers", 6),
    Field("num_decoder_layers", "decoder_layers", None),
    Field("num_heads", "heads", 8),
    Field("d_kv", "head_dim", 64),
    Field("d_ff", "hidden", 2048),
    Field("feed_forward_proj", "ffn", "relu"),
    Field("tie_word_embeddings", "tied", True),
    Field("relative_attention_num_buckets", "buckets", 32),
    Field("relative_attention_max_distance", "longest", 128),
    Field("layer_norm_epsilon", "eps", 1e-6),
    Field("dropout_rate", "dropout", 0.1),
)
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}


def read_config(values: Mapping[str, Any]) -> Config:
    return read(values, "t5", "T5", absent={})


def read(values: Mapping[str, Any], family: str, name: str, absent: Mapping[str, Any]) -> Config:
    """The config of a model_type whose classes begin with `name`; `absent` is taken where an option is absent."""
    o = Options({**absent, **without_aliases(values, ALIASES, family)}, family)
    o.ignore("n_positions", "classifier_dropout", "dense_act_fn", "is_gated_act")  # the latter two repeat others
    o.expect(tie_encoder_decoder=False, is_decoder=False)
    found = FIELDS.read(o)
    found["ffn"], found["act"] = feed_forward(found["ffn"], family)
    there = o.architecture(*(f"{name}{kind}" for kind in (WHOLE, "Model", "WithLMHeadModel", ENCODER_ONLY)))
    if there == name + ENCODER_ONLY or not o.take("is_encoder_decoder", True):
        found["decoder_layers"] = 0
    elif found["decoder_layers"] is None:
        found["decoder_layers"] = found["layers"]
    # files of the library's version 5 say `tie_word_embeddings` in any case; whether the output is scaled tells then
    found["tied"] = o.take("scale_decoder_outputs", found["tied"])
    return o.done(Config(**found, attention_dropout=found["dropout"]))  # one rate for all there


def feed_forward(told: str, family: str) -> tuple[str, str]:
    """Our names of the layer and of its activation, out of `relu`, `gated-gelu` and their like."""
    gate, _, act = told.rpartition("-")
    known = ACTIVATIONS | ({"gelu": "gelu_tanh"} if gate else {})  # T5 means the approximation where it is gated
    if gate not in ("", "gated") or act not in known:
        allowed = f"one of {listed(ACTIVATIONS, 20)}, or gated- and one of them"
        raise UserError(f"feed_forward_proj={told!r} is not supported for {family} models", allowed=allowed)
    return "gated" if gate else "plain", known[act]


def write_config(c: Config) -> dict[str, Any]:
    return write(c, "t5", "T5")


def write(c: Config, family: str, name: str) -> dict[str, Any]:
    alone = c.decoder_layers == 0
    gated = {"gelu_tanh": "gelu", "gelu": "gelu_python"}
    return {
        "model_type": family,
        "architectures": [name + (ENCODER_ONLY if alone else WHOLE)],
        **FIELDS.write(c),
        "num_decoder_layers": c.layers if alone or c.decoder_layers is None else c.decoder_layers,
        "feed_forward_proj": f"gated-{gated.get(c.act, c.act)}" if c.ffn == "gated" else SPELLED[c.act],
        "is_encoder_decoder": not alone,
    }


def keymap(c: Config) -> KeyMap:
    encoder, decoder = side("encoder", "encoder.", c.ffn), side("decoder", "decoder.", c.ffn)
    tables = tuple(f"{name}.weight" for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head"))
    if c.decoder_layers == 0:
        ignored = (*(rule.theirs for rule in decoder), *UNUSED, *tables[1:])
        rules = (Rule("shared.weight", "embed.token.weight"), *side("encoder", "", c.ffn))
        return KeyMap(rules, ignored=ignored, ties={tables[0]: "shared.weight"})
    words = Rule("shared.weight", "encoder.embed.token.weight")
    if c.tied:
        return KeyMap((words, *encoder, *decoder), ignored=UNUSED, ties=dict.fromkeys(tables, "shared.weight"))
    return KeyMap(
        (words, *encoder, *decoder, Rule("lm_head.weight", "decoder.head.weight")),
        ignored=UNUSED,
        ties=dict.fromkeys(tables[:2], "shared.weight"),
        absent={"lm_head.weight": ("shared.weight", Tensor.clone)},
    )


UNUSED = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)  # in the published files
SUBLAYERS = {
    "encoder": (("SelfAttention", "attn"), ("DenseReluDense", "ffn")),
    "decoder": (("SelfAttention", "attn"), ("EncDecAttention", "cross"), ("DenseReluDense", "ffn")),
}
ATTENTION = {part: part for part in "qkv"} | {"o": "out"}
FEED_FORWARD = {"plain": {"wi": "up", "wo": "down"}, "gated": {"wi_0": "gate", "wi_1": "up", "wo": "down"}}


def side(name: str, prefix: str, ffn: str) -> tuple[Rule, ...]:
    """The layers of one side; ours begin with `prefix`."""
    bias = "SelfAttention.relative_attention_bias.weight"
    return (
        *(
            rule
            for i, (theirs, ours) in enumerate(SUBLAYERS[name])
            for rule in sublayer(f"{name}.block.*.layer.{i}", theirs, f"{prefix}stack.blocks.*.{ours}", ffn)
        ),
        Rule(f"{name}.block.0.layer.0.{bias}", f"{prefix}stack.blocks.0.attn.body.logit_bias.table"),
        Rule(f"{name}.final_layer_norm.weight", f"{prefix}stack.norm.weight"),
    )


def sublayer(there: str, theirs: str, here: str, ffn: str) -> tuple[Rule, ...]:
    parts = FEED_FORWARD[ffn] if here.endswith("ffn") else ATTENTION
    return (
        *(Rule(f"{there}.{theirs}.{part}.weight", f"{here}.body.{own}.weight") for part, own in parts.items()),
        Rule(f"{there}.layer_norm.weight", f"{here}.before.weight"),
    )
