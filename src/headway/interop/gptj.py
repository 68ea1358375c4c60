"""GPT-J in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, NUMBER, ConfigMap, Field, Options, without_aliases
from headway.interop.decoders import HEAD, prefixes, read_top, settle, write_top
from headway.interop.gpt_neox import check
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.nn.attention import share
from headway.ops.rotary import UNSCALED
from headway.zoo.gpt_neox import Config
from headway.zoo.llama import Frequencies

__all__ = ["keymap", "read_config", "settle", "write_config"]

NAME, WORDS, BASE = "GPTJ", "GPTJForCausalLM", 10_000.0
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 50_400),
    Field("n_positions", "context", 2048),
    Field("n_embd", "dim", 4096),
    Field("n_layer", "layers", 28),
    Field("n_head", "heads", 16),
    Field("n_inner", "hidden", None),
    Field("activation_function", "act", "gelu_new", ACTIVATION),
    Field("layer_norm_epsilon", "eps", 1e-5),
    Field("resid_pdrop", "dropout", 0.0, NUMBER),
    Field("embd_pdrop", "embed_dropout", 0.0, NUMBER),
    Field("attn_pdrop", "attention_dropout", 0.0, NUMBER),
    Field("tie_word_embeddings", "tied", False),
)
ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(without_aliases(values, ALIASES, "gptj"), "gptj")
    o.expect(tie_word_embeddings=False)  # its output has a bias of its own
    o.ignore("rotary", "scale_attn_weights", "n_ctx")  # what early files tell of the only way it is computed
    fields = FIELDS.read(o)
    head_dim, turned = share(fields["dim"], fields["heads"]), o.take("rotary_dim", 64)
    if not 0 < turned <= head_dim or turned % 2:
        raise UserError(
            f"rotary_dim={turned} in config.json", allowed=f"even numbers up to {head_dim}, the head's width"
        )
    plain = {"order": "parallel, one norm", "layout": "pairs", "biases": "ffn"}
    top = read_top(o, NAME, WORDS, tied=fields["tied"])
    turns = Frequencies(BASE, part=turned / head_dim)
    return o.done(Config(**fields, **plain, **top, rotary=turns, head_bias=top["top"] == "words"))


def write_config(c: Config) -> dict[str, Any]:
    heads = {"head_bias": (c.top == "words",), "tied": (False,)}
    rest = {"layout": ("pairs",), "biases": ("ffn",), "embed_dropout": (c.embed_dropout,)}
    check(c, "GPT-J", order=("parallel, one norm",), **heads, **rest)
    if c.rotary.base != BASE or c.rotary.scaling != UNSCALED:
        do = "keep it in headway's own layout"
        raise UserError(f"there, a GPT-J turns by the base {BASE:g}, and this model by {c.rotary}", do=do)
    turned = {"rotary_dim": c.rotary.rotary(share(c.dim, c.heads)).width}
    return {**write_top(c, "gptj", NAME, WORDS), **FIELDS.write(c), **turned}


PARTS = {
    "ln_1": "attn.before",
    "attn.q_proj": "attn.body.q",
    "attn.k_proj": "attn.body.k",
    "attn.v_proj": "attn.body.v",
    "attn.out_proj": "attn.body.out",
    "mlp.fc_in": "ffn.body.up",
    "mlp.fc_out": "ffn.body.down",
}


def keymap(c: Config) -> KeyMap:
    return KeyMap(
        rules=(
            Rule("wte.weight", "embed.token.weight"),
            *linears("h.*", "stack.blocks.*", PARTS),
            *linear("ln_f", "stack.norm"),
            *HEAD,
            Rule("lm_head.bias", "head.bias", outside=True),
        ),
        prefixes=prefixes("transformer.", c.top),
        ignored=("h.*.attn.bias", "h.*.attn.masked_bias"),  # stored masks
    )
