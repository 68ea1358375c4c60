"""DeepSeek-V3 in Hugging Face's layout, and what DeepSeek-V2 shares with it.

The layer that foresees a second token (`num_nextn_predict_layers`) is in no model there, and not read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, NUMBER, ConfigMap, Field, Options, without_aliases, written_as
from headway.interop.keymap import KeyMap, Rule
from headway.interop.llama import decoder_keymap, linear
from headway.interop.qwen3_moe import GATED, expert_rules
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.ops.rotary import Yarn
from headway.zoo.deepseek import Config, Experts, Latent

DECODER = ConfigMap(
    Field("vocab_size", "vocab", 129_280),
    Field("max_position_embeddings", "context", 4096),
    Field("hidden_size", "dim", 7168),
    Field("num_hidden_layers", "layers", 61),
    Field("num_attention_heads", "heads", 128),
    Field("intermediate_size", "hidden", 18_432),
    Field("first_k_dense_replace", "dense_layers", 3),
    Field("hidden_act", "act", "silu", ACTIVATION),
    Field("rms_norm_eps", "eps", 1e-6),
    Field("tie_word_embeddings", "tied", False),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
)
LATENT = ConfigMap(
    Field("kv_lora_rank", "latent", 512),
    Field("qk_nope_head_dim", "plain", 128),
    Field("qk_rope_head_dim", "turned", 64),
    Field("v_head_dim", "value", 128),
    Field("attention_bias", "biased", False),
)
EXPERTS = ConfigMap(
    Field("n_routed_experts", "experts", 256),
    Field("num_experts_per_tok", "top", 8),
    Field("n_shared_experts", "shared", 1),
    Field("moe_intermediate_size", "expert_hidden", 2048),
    Field("routed_scaling_factor", "factor", 2.5, NUMBER),
)
GROUPS = ConfigMap(Field("n_group", "groups", 8), Field("topk_group", "kept", 4))
ALIASES = {"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"}
LAYOUTS = {True: "pairs", False: "halves"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(without_aliases(values, ALIASES, "deepseek_v3"), "deepseek_v3")
    o.expect(norm_topk_prob=True)
    o.require("topk_method", "noaux_tc", default="noaux_tc")
    o.require("scoring_func", "sigmoid", default="sigmoid")
    layout = LAYOUTS[o.take("rope_interleave", True)]
    found = read(o, "DeepseekV3", DECODER, Experts(**EXPERTS.read(o), **GROUPS.read(o), routing="sigmoid"), layout)
    return o.done(found)


def read(o: Options, name: str, fields: ConfigMap, mixture: Experts, layout: str) -> Config:
    refuse_quantised(o)
    o.architecture(f"{name}ForCausalLM", f"{name}Model")
    latent = Latent(**LATENT.read(o), rank=o.take("q_lora_rank", None), layout=layout)
    if "q_lora_rank" not in o.values:
        latent = replace(latent, rank=1536)
    found = fields.read(o)
    # of training, of a second token, and of how it is computed
    o.ignore("aux_loss_alpha", "seq_aux", "ep_size", "moe_layer_freq", "num_nextn_predict_layers")
    o.ignore("output_router_logits", "router_aux_loss_coef", "head_dim", "qk_head_dim")
    o.require("num_key_value_heads", found["heads"], default=found["heads"])
    o.require("moe_layer_freq", 1, default=1)
    return Config(**found, latent=latent, mixture=mixture, rotary=frequencies(o, found["context"]))


def refuse_quantised(o: Options) -> None:
    if (packed := o.values.get("quantization_config")) is not None:
        method = packed.get("quant_method") if isinstance(packed, Mapping) else packed
        do = "take a folder whose weights were dequantised"
        raise UserError(f"weights quantised by {method!r} are not read", allowed="weights in bf16, fp16 or fp32", do=do)


def frequencies(o: Options, context: int) -> Any:
    told = o.values.get("rope_scaling") or o.values.get("rope_parameters") or {}
    if isinstance(told, Mapping) and bool(told.get("mscale")) != bool(told.get("mscale_all_dim")):
        raise UserError(
            "a rope_scaling with one of mscale and mscale_all_dim is not supported", allowed="both, or none"
        )
    o.values.setdefault("rope_theta", None if "rope_theta" in told else 10_000.0)
    return read_frequencies(o, context)


def write_config(c: Config) -> dict[str, Any]:
    if c.mixture.routing != "sigmoid":
        said = f"there, a DeepSeek-V3 routes by sigmoid, and this model by {c.mixture.routing}"
        raise UserError(said, do=written_as("deepseek_v2"))
    marks = {"norm_topk_prob": True, "rope_interleave": c.latent.layout == "pairs"}
    return {**write(c, "deepseek_v3", "DeepseekV3"), **GROUPS.write(c.mixture), **marks}


def write(c: Config, family: str, name: str) -> dict[str, Any]:
    found = write_frequencies(c.rotary, c.context)
    if isinstance(scaling := c.rotary.scaling, Yarn) and scaling.mscale_all:
        found["rope_scaling"] |= {"mscale": scaling.mscale, "mscale_all_dim": scaling.mscale_all}
        if scaling.attention is None:
            del found["rope_scaling"]["attention_factor"]
    return {
        "model_type": family,
        "architectures": [f"{name}ForCausalLM"],
        **DECODER.write(c),
        **LATENT.write(c.latent),
        **EXPERTS.write(c.mixture),
        "q_lora_rank": c.latent.rank,
        "num_key_value_heads": c.heads,
        **found,
    }


def keymap(c: Config) -> KeyMap:
    ours, there = f"stack.blocks.*.ffn.body{'.routed' if c.mixture.shared > 0 else ''}", "layers.*.mlp"
    return decoder_keymap(
        c.tied,
        *(rule for theirs, part in ATTENTION.items() for rule in linear(f"self_attn.{theirs}", f"attn.body.{part}")),
        *expert_rules(ours, there, c.mixture.experts),
        Rule(f"{there}.gate.e_score_correction_bias", f"{ours}.routing.correction"),
        *(rule for part in GATED for rule in linear(f"mlp.shared_experts.{part}_proj", f"ffn.body.shared.{part}")),
        *(rule for part in GATED for rule in linear(f"mlp.{part}_proj", f"ffn.body.{part}")),
    )


ATTENTION = {
    "q_proj": "q",
    "q_a_proj": "q.down",
    "q_a_layernorm": "q.norm",
    "q_b_proj": "q.up",
    "kv_a_proj_with_mqa": "k",
    "kv_a_layernorm": "k_norm",
    "kv_b_proj": "v",
    "o_proj": "out",
}
