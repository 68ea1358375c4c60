"""MPT in Hugging Face's layout: a BLOOM without bias vectors and without a norm behind the embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ConfigMap, Field, Options, without_aliases, written_as
from headway.interop.decoders import HEAD, prefixes, read_top, settle, write_top
from headway.interop.keymap import KeyMap, Rule, Split
from headway.nn.ffn import ffn_width
from headway.zoo.bloom import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

NAME, WORDS = "Mpt", "MptForCausalLM"
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 50_368),
    Field("max_seq_len", "context", 2048),
    Field("d_model", "dim", 2048),
    Field("n_layers", "layers", 24),
    Field("n_heads", "heads", 16),
    Field("layer_norm_epsilon", "eps", 1e-5),
    Field("tie_word_embeddings", "tied", True),
)
CLIP = ConfigMap(Field("clip_qkv", "clip", None))  # in attn_config
ALIASES = {"num_attention_heads": "n_heads", "hidden_size": "d_model", "num_hidden_layers": "n_layers"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(without_aliases(values, ALIASES, "mpt"), "mpt")
    o.ignore("attn_config", "resid_pdrop", "emb_pdrop", "hidden_dropout", "classifier_dropout")
    # what the other library does not read: it has no bias, no learned positions, four times the width inside
    o.ignore("no_bias", "learned_pos_emb", "expansion_ratio", "norm_type", "init_device", "embedding_fraction")
    o.ignore("logit_scale", "fc_type", "ffn_config", "init_config", "verbose", "attn_impl")
    inner = Options(o.values.get("attn_config") or {}, "mpt")
    inner.expect(attn_type="multihead_attention", alibi=True, alibi_bias_max=8)
    inner.expect(softmax_scale=None, prefix_lm=False, qk_ln=False, attn_uses_sequence_id=False)
    inner.ignore("attn_impl")
    clip = CLIP.read(inner)
    dropout = inner.done(inner.number("attn_pdrop", 0.0))
    fields = FIELDS.read(o)
    plain = {"act": "gelu", "biased": False, "embed_norm": False}
    top = read_top(o, NAME, WORDS, tied=fields["tied"])
    return o.done(Config(**fields, **plain, **top, **clip, dropout=dropout, attention_dropout=dropout))


def write_config(c: Config) -> dict[str, Any]:
    plain = c.act == "gelu" and ffn_width(c.dim, c.hidden) == 4 * c.dim
    if c.biased or c.embed_norm or not plain or c.dropout != c.attention_dropout:
        said = (
            "there, an MPT has no biases, no norm behind the embedding, gelu, hidden = 4 · dim and one rate of dropout"
        )
        raise UserError(f"{said}, unlike this model", do=written_as("bloom"))
    rate = {"attn_pdrop": c.dropout} if c.dropout else {}
    return {**write_top(c, "mpt", NAME, WORDS), **FIELDS.write(c), "attn_config": rate | CLIP.write(c)}


PARTS = {
    "norm_1": "attn.before",
    "attn.out_proj": "attn.body.out",
    "norm_2": "ffn.before",
    "ffn.up_proj": "ffn.body.up",
    "ffn.down_proj": "ffn.body.down",
}


def keymap(c: Config) -> KeyMap:
    here = "stack.blocks.*"
    return KeyMap(
        rules=(
            Rule("wte.weight", "embed.token.weight"),
            Rule("blocks.*.attn.Wqkv.weight", tuple(f"{here}.attn.body.{part}.weight" for part in "qkv"), (Split(3),)),
            *(Rule(f"blocks.*.{theirs}.weight", f"{here}.{ours}.weight") for theirs, ours in PARTS.items()),
            Rule("norm_f.weight", "stack.norm.weight"),
            *HEAD,
        ),
        prefixes=prefixes("transformer.", c.top),
        ties={"lm_head.weight": "wte.weight"} if c.tied else None,
    )
