"""DINOv2 in Hugging Face's layout.

Its files spell the parts of a block as they were called before the library's release 5; both spellings are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, NUMBER, SIDE, ConfigMap, Field, Options, written_as
from headway.interop.encoders import architecture, classes, labels, top
from headway.interop.keymap import KeyMap, Rule, Split, linear, linears
from headway.interop.vit import Table
from headway.zoo.dinov2 import Config

FIELDS = ConfigMap(
    Field("image_size", "image", 224, SIDE),
    Field("num_channels", "channels", 3),
    Field("patch_size", "patch", 14, SIDE),
    Field("hidden_size", "dim", 768),
    Field("num_hidden_layers", "layers", 12),
    Field("num_attention_heads", "heads", 12),
    Field("mlp_ratio", "ratio", 4.0, NUMBER),
    Field("hidden_act", "act", "gelu", ACTIVATION),
    Field("layer_norm_eps", "eps", 1e-6),
    Field("qkv_bias", "biased", True),
    Field("layerscale_value", "layer_scale", 1.0, NUMBER),
    Field("hidden_dropout_prob", "dropout", 0.0, NUMBER),
    Field("attention_probs_dropout_prob", "attention_dropout", 0.0, NUMBER),
    Field("drop_path_rate", "depth_dropout", 0.0, NUMBER),
)
FFNS = {False: "plain", True: "gated"}
KINDS = {"Model": "none", "ForImageClassification": "classes"}


def read_config(values: Mapping[str, Any]) -> Config:
    return read(Options(values, "dinov2"), "Dinov2", FIELDS, 0)


def read(o: Options, name: str, fields: ConfigMap, registers: int) -> Config:
    stands = top(o, {f"{name}{kind}": ours for kind, ours in KINDS.items()})
    # of backbones, and of what is hidden in training
    o.ignore("apply_layernorm", "reshape_hidden_states", "out_features", "out_indices", "stage_names")
    o.ignore("_out_features", "_out_indices", "use_mask_token")
    ffn, count = FFNS[o.take("use_swiglu_ffn", False)], classes(o) if stands == "classes" else Config.classes
    return o.done(Config(**fields.read(o), top=stands, classes=count, ffn=ffn, registers=registers))


def write_config(c: Config) -> dict[str, Any]:
    if c.registers:
        raise UserError(
            f"there, a DINOv2 has no registers, and here {c.registers}", do=written_as("dinov2_with_registers")
        )
    return write(c, "dinov2", "Dinov2")


def write(c: Config, family: str, name: str) -> dict[str, Any]:
    names = architecture(c.top, {f"{name}{kind}": ours for kind, ours in KINDS.items()}, family)
    sizes = FIELDS.write(c) | {"mlp_ratio": int(c.ratio) if c.ratio == int(c.ratio) else c.ratio}
    shown = labels("rows" if c.top == "classes" else c.top, c.classes)
    return {**names, **sizes, "use_swiglu_ffn": c.ffn == "gated", **shown}


def keymap(c: Config) -> KeyMap:
    return names(c, "dinov2.")


BLOCK = {
    "norm1": "attn.before",
    "attention.attention.query": "attn.body.q",
    "attention.attention.key": "attn.body.k",
    "attention.attention.value": "attn.body.v",
    "attention.output.dense": "attn.body.out",
    "norm2": "ffn.before",
    "mlp.fc1": "ffn.body.up",
    "mlp.fc2": "ffn.body.down",
    "mlp.weights_out": "ffn.body.down",
}
NEW_BLOCK = {
    "attention.q_proj": "attn.body.q",
    "attention.k_proj": "attn.body.k",
    "attention.v_proj": "attn.body.v",
    "attention.o_proj": "attn.body.out",
    "mlp.gate_proj": "ffn.body.gate",
    "mlp.up_proj": "ffn.body.up",
    "mlp.down_proj": "ffn.body.down",
}


def names(c: Config, prefix: str) -> KeyMap:
    there, here = "encoder.layer.*", "stack.blocks.*"
    feed_forward = {"plain": ("mlp.fc1", "mlp.fc2"), "gated": ("mlp.weights_out",)}[c.ffn]
    block = {theirs: ours for theirs, ours in BLOCK.items() if not theirs.startswith("mlp.") or theirs in feed_forward}
    places = "embed.token.position", "embed.position.table"
    inside = tuple(
        Rule(
            f"{there}.mlp.weights_in.{kind}",
            (f"{here}.ffn.body.gate.{kind}", f"{here}.ffn.body.up.{kind}"),
            (Split(2),),
        )
        for kind in ("weight", "bias")
    )
    return KeyMap(
        rules=(
            *linear("embeddings.patch_embeddings.projection", "embed.patches.project"),
            Rule("embeddings.cls_token", "embed.token.token"),
            Rule("embeddings.register_tokens", "embed.token.registers"),
            Rule("embeddings.position_embeddings", places, (Table(c.image // c.patch),)),
            *(inside if c.ffn == "gated" else ()),
            *linears(there, here, block),
            *linears(there, here, NEW_BLOCK),
            Rule(f"{there}.layer_scale1.lambda1", f"{here}.attn.inside.factor"),
            Rule(f"{there}.layer_scale2.lambda1", f"{here}.ffn.inside.factor"),
            *linear("layernorm", "stack.norm"),
            *(linear("classifier", "head.out", outside=True) if c.top == "classes" else ()),
        ),
        prefixes=(prefix,) if c.top == "classes" else ("", prefix),
        ignored=("embeddings.mask_token",),  # of training
    )
