"""OPT in Hugging Face's layout: a GPT-2 with ReLU, whose positions begin at row 2 of their table.

OPT-350m norms sums and has narrow word vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, NUMBER, ConfigMap, Field, Options, refuse_fields, written_as
from headway.interop.decoders import HEAD, prefixes, read_top, settle, write_top
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.nn.ffn import ffn_width
from headway.zoo.gpt2 import SLOTS, Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

NAME, WORDS, FIRST, EPS = "OPT", "OPTForCausalLM", 2, 1e-5
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 50_272),
    Field("max_position_embeddings", "context", 2048),
    Field("hidden_size", "dim", 768),
    Field("num_hidden_layers", "layers", 12),
    Field("num_attention_heads", "heads", 12),
    Field("ffn_dim", "hidden", 3072),
    Field("activation_function", "act", "relu", ACTIVATION),
    Field("dropout", "dropout", 0.1, NUMBER),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
    Field("tie_word_embeddings", "tied", True),
    Field("word_embed_proj_dim", "width", None),
)
ORDERS = {True: "pre", False: "post"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "opt")
    order = ORDERS[o.take("do_layer_norm_before", True)]
    o.expect(_remove_final_layer_norm=False)
    o.expect(enable_bias=True, layer_norm_elementwise_affine=True)
    o.ignore("layerdrop", "init_std")
    fields = FIELDS.read(o)
    top = read_top(o, NAME, WORDS, tied=fields["tied"])
    if fields["width"] == fields["dim"]:
        fields["width"] = None
    return o.done(Config(**fields, **top, order=order, first=FIRST, eps=EPS, embed_dropout=0.0))


def write_config(c: Config) -> dict[str, Any]:
    refuse_fields(c, NAME, dict.fromkeys(("window", "score", "biases"), "gpt_neo"))
    if c.first != FIRST or c.eps != EPS:
        said = f"there, OPT's positions begin at row {FIRST} and eps is {EPS}, and here {c.first} and {c.eps}"
        raise UserError(said, do=written_as("gpt2"))
    width = c.dim if c.width is None else c.width
    sizes = {"ffn_dim": ffn_width(c.dim, c.hidden), "word_embed_proj_dim": width, "pad_token_id": 1}
    return {**write_top(c, "opt", NAME, WORDS), **FIELDS.write(c), **sizes, "do_layer_norm_before": c.order == "pre"}


PARTS = {
    "self_attn.q_proj": "attn.body.q",
    "self_attn.k_proj": "attn.body.k",
    "self_attn.v_proj": "attn.body.v",
    "self_attn.out_proj": "attn.body.out",
    "fc1": "ffn.body.up",
    "fc2": "ffn.body.down",
}


def keymap(c: Config) -> KeyMap:
    slot, narrow = SLOTS[c.order], c.width not in (None, c.dim)
    norms = {"self_attn_layer_norm": f"attn.{slot}", "final_layer_norm": f"ffn.{slot}"}
    return KeyMap(
        rules=(
            Rule("decoder.embed_tokens.weight", "embed.token.weight"),
            Rule("decoder.embed_positions.weight", "embed.position.table.weight"),
            *linears("decoder.layers.*", "stack.blocks.*", PARTS | norms),
            *linear("decoder.final_layer_norm", "stack.norm.norm" if narrow else "stack.norm"),
            Rule("decoder.project_in.weight", "embed.widen.weight"),
            Rule("decoder.project_out.weight", "stack.norm.project.weight"),
            *HEAD,
        ),
        prefixes=prefixes("model.", c.top),
        ties={"lm_head.weight": "decoder.embed_tokens.weight"} if c.tied else None,
    )
