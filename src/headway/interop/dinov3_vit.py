"""DINOv3's vision transformers in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, NUMBER, SIDE, ConfigMap, Field, Options
from headway.interop.encoders import architecture, top
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.zoo.dinov3 import BIASES, Config

FIELDS = ConfigMap(
    Field("image_size", "image", 224, SIDE),
    Field("num_channels", "channels", 3),
    Field("patch_size", "patch", 16, SIDE),
    Field("hidden_size", "dim", 384),
    Field("num_hidden_layers", "layers", 12),
    Field("num_attention_heads", "heads", 6),
    Field("intermediate_size", "hidden", 1536),
    Field("num_register_tokens", "registers", 0),
    Field("hidden_act", "act", "gelu", ACTIVATION),
    Field("layer_norm_eps", "eps", 1e-5),
    Field("rope_theta", "base", 100.0, NUMBER),
    Field("layerscale_value", "layer_scale", 1.0, NUMBER),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
    Field("drop_path_rate", "depth_dropout", 0.0, NUMBER),
)
FFNS = {False: "plain", True: "gated"}
BIASED = {"query_bias": True, "key_bias": False, "value_bias": True}
TOPS = {"DINOv3ViTModel": "none"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "dinov3_vit")
    stands = top(o, TOPS)
    # of backbones
    o.ignore("apply_layernorm", "reshape_hidden_states", "out_features", "out_indices", "stage_names")
    o.ignore("_out_features", "_out_indices", "return_class_token")
    o.expect(proj_bias=True, mlp_bias=True)
    o.ignore("pos_embed_shift", "pos_embed_jitter")  # of training
    return o.done(
        Config(
            **FIELDS.read(o),
            ffn=FFNS[o.take("use_gated_mlp", False)],
            biases=read_biases(o),
            stretch=o.number("pos_embed_rescale", 1.0 if "pos_embed_rescale" in values else 2.0),
            top=stands,
        )
    )


def read_biases(o: Options) -> str:
    given = tuple(o.take(name, default) for name, default in BIASED.items())
    found = next((name for name, biases in BIASES.items() if biases[:3] == given), None)
    if found is None:
        said = ", ".join(f"{name}={value}" for name, value in zip(BIASED, given, strict=True))
        raise UserError(f"{said} is not supported for dinov3_vit models", allowed="queries and values, all, or none")
    return found


def write_config(c: Config) -> dict[str, Any]:
    return {
        **architecture(c.top, TOPS, "dinov3_vit"),
        **FIELDS.write(c),
        "use_gated_mlp": c.ffn == "gated",
        **dict(zip(BIASED, BIASES[c.biases], strict=False)),
        "pos_embed_rescale": c.stretch if c.stretch > 1 else None,
    }


BLOCK = {
    "norm1": "attn.before",
    "attention.q_proj": "attn.body.q",
    "attention.k_proj": "attn.body.k",
    "attention.v_proj": "attn.body.v",
    "attention.o_proj": "attn.body.out",
    "norm2": "ffn.before",
    "mlp.gate_proj": "ffn.body.gate",
    "mlp.up_proj": "ffn.body.up",
    "mlp.down_proj": "ffn.body.down",
}


def keymap(c: Config) -> KeyMap:
    here = "stack.blocks.*"
    # files say layer, and models in memory model.layer
    blocks = tuple(
        rule
        for there in ("layer.*", "model.layer.*")
        for rule in (
            *linears(there, here, BLOCK),
            Rule(f"{there}.layer_scale1.lambda1", f"{here}.attn.inside.factor"),
            Rule(f"{there}.layer_scale2.lambda1", f"{here}.ffn.inside.factor"),
        )
    )
    return KeyMap(
        rules=(
            *linear("embeddings.patch_embeddings", "embed.patches.project"),
            Rule("embeddings.cls_token", "embed.token.token"),
            Rule("embeddings.register_tokens", "embed.token.registers"),
            *blocks,
            *linear("norm", "stack.norm"),
        ),
        ignored=("embeddings.mask_token",),  # of training
    )
