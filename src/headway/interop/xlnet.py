"""XLNet in Hugging Face's layout: the content stream, and hidden tokens for the query stream.

`attn_type="uni"` (Transformer-XL), `bi_data` and `clamp_len` are refused; the memory of former segments is the caller's
affair there, and left out.  So are answers to questions: these models read the context before the question, and their
other head searches for the end of an answer from each of the likeliest beginnings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, WITH_SEGMENTS, ConfigMap, Field, Options, without_aliases
from headway.interop.encoders import architecture, classes, labels, out, top
from headway.interop.keymap import KeyMap, Row, Rule, Transpose, Unstack, linear
from headway.nn.ffn import ffn_width
from headway.zoo.xlnet import Config

ARCHITECTURES = {
    "XLNetModel": "none",
    "XLNetLMHeadModel": "words",
    "XLNetForSequenceClassification": "rows",
    "XLNetForTokenClassification": "tokens",
}
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 32_000),
    Field("d_model", "dim", 1024),
    Field("n_layer", "layers", 24),
    Field("n_head", "heads", 16),
    Field("d_inner", "hidden", 4096),
    Field("ff_activation", "act", "gelu", ACTIVATION),
    Field("layer_norm_eps", "eps", 1e-12),
    Field("dropout", "dropout", 0.1),
)
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "n_token": "vocab_size",
}
SUMMARY = {"summary_type": "last", "summary_use_proj": True, "summary_activation": "tanh"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(without_aliases(values, ALIASES, "xlnet"), "xlnet")
    stands, fields = top(o, ARCHITECTURES), FIELDS.read(o)
    o.expect(attn_type="bi", bi_data=False, d_head=fields["dim"] // max(fields["heads"], 1))
    o.require("clamp_len", -1, 0, default=-1)
    o.ignore("mem_len", "reuse_len", "use_mems_eval", "use_mems_train", "same_length", "untie_r")
    o.ignore("start_n_top", "end_n_top", "tie_word_embeddings", "n_layers")  # the last is in no code there
    if stands == "rows":
        o.expect(**SUMMARY, summary_proj_to_labels=False)
    before = o.number("summary_last_dropout", 0.1)
    fields |= {"attention_dropout": fields["dropout"], "class_dropout": before}  # one rate for all layers there
    return o.done(Config(**fields, top=stands, classes=classes(o)))


def write_config(c: Config) -> dict[str, Any]:
    before = c.dropout if c.class_dropout is None else c.class_dropout
    return {
        **architecture(c.top, ARCHITECTURES, "xlnet"),
        **FIELDS.write(c),
        "d_inner": ffn_width(c.dim, c.hidden),
        "d_head": c.dim // c.heads,
        **{"attn_type": "bi", "bi_data": False, "clamp_len": -1, "mem_len": None, "untie_r": True},
        **{**SUMMARY, "summary_last_dropout": before},
        **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 5},
        **labels(c.top, c.classes),
    }


def write_tokenizer(values: Mapping[str, Any]) -> dict[str, Any]:
    """The last token of a row is read, so that padding stands before the first."""
    return {**WITH_SEGMENTS, "padding_side": "left"}


def settle(c: Config, names: Collection[str]) -> Config:
    """A file of the bare encoder may hold the head of words."""
    return replace(c, top="words") if c.top == "none" and "lm_loss.bias" in names else c


@dataclass(frozen=True)
class PerHead:
    """A matrix stored with an axis of heads: C × H × D."""

    heads: int

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        if any(x.dim() != 3 or x.shape[1] != self.heads for x in tensors):
            allowed = f"width × {self.heads} × width of a head, as the config says"
            raise UserError(f"a matrix of attention is {tuple(tensors[0].shape)}", allowed=allowed)
        return [x.flatten(1) for x in tensors]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.unflatten(1, (self.heads, -1)) for x in tensors]


def keymap(c: Config) -> KeyMap:
    there, here = "layer.*.rel_attn", "stack.blocks.*.attn"
    body, bias, heads = f"{here}.body", f"{here}.body.logit_bias", PerHead(c.heads)
    tops = {
        "none": (),
        "words": (Rule("lm_loss.bias", "head.bias", outside=True),),
        "rows": out("sequence_summary.summary", "head.inside") + out("logits_proj"),
        "tokens": out("classifier"),
    }
    return KeyMap(
        rules=(
            Rule("word_embedding.weight", "embed.token.weight"),
            Rule("mask_emb", "embed.hidden", (Row(), Row())),
            *(Rule(f"{there}.{part}", f"{body}.{part}.weight", (heads, Transpose())) for part in "qkv"),
            Rule(f"{there}.o", f"{body}.out.weight", (heads,)),
            Rule(f"{there}.r", f"{bias}.place.weight", (heads, Transpose())),
            Rule(f"{there}.r_w_bias", f"{bias}.u"),
            Rule(f"{there}.r_r_bias", f"{bias}.v"),
            Rule(f"{there}.r_s_bias", f"{body}.w"),
            Rule(f"{there}.seg_embed", (f"{body}.alike", f"{body}.unlike"), (Unstack(2),)),
            *linear(f"{there}.layer_norm", f"{here}.after"),
            *linear("layer.*.ff.layer_1", "stack.blocks.*.ffn.body.up"),
            *linear("layer.*.ff.layer_2", "stack.blocks.*.ffn.body.down"),
            *linear("layer.*.ff.layer_norm", "stack.blocks.*.ffn.after"),
            *tops[c.top],
        ),
        prefixes=("", "transformer.") if c.top == "none" else ("transformer.",),
        ties={"lm_loss.weight": "word_embedding.weight"} if c.top == "words" else None,
    )
