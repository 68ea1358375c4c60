"""Phi-3 and Phi-4 in Hugging Face's layout: a Llama whose projections are stored together, and that may turn a part of
each head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options, written_as
from headway.interop.keymap import KeyMap, Portions, Rule, Split
from headway.interop.llama import decoder_keymap, named_top, read_decoder, refuse_others, settle, write_named
from headway.interop.rotary import ORIGINAL
from headway.nn.attention import share
from headway.ops.rotary import UNSCALED, LongRope
from headway.zoo.llama import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent; where it is null, kv_heads = heads
ABSENT = {
    "vocab_size": 32_064,
    "hidden_size": 3072,
    "max_position_embeddings": 4096,
    ORIGINAL: 4096,
    "rms_norm_eps": 1e-5,
    "intermediate_size": 8192,
    "rope_theta": 10_000.0,
}
OLD = ("su", "yarn")  # what the first files call longrope


def read_config(values: Mapping[str, Any]) -> Config:
    values = {**ABSENT, **values}
    told = values.get("rope_scaling")
    if isinstance(told, Mapping) and told.get("rope_type", told.get("type")) in OLD:
        values["rope_scaling"] = {**told, "rope_type": "longrope"}
    o = Options(values, "phi3")
    o.expect(full_attn_mod=1)
    o.ignore("resid_pdrop", "embd_pdrop", "interpolate_factor")
    config = Config(**read_decoder(o, parts=True), **named_top(o, "Phi3"), window=o.take("sliding_window", None))
    check(config)
    return o.done(config)


def write_config(c: Config) -> dict[str, Any]:
    check(c)
    refuse_others(c, "Phi-3", "biases", "window")
    if c.biases != "none":
        raise UserError(f"there, a Phi-3 has no bias vectors, and this model {c.biases!r}", do=written_as("llama"))
    scaling = c.rotary.scaling
    return {
        **write_named(c, "phi3", "Phi3", parts=True),
        ORIGINAL: scaling.original_context if isinstance(scaling, LongRope) else c.context,
        "sliding_window": c.window,
        "pad_token_id": None,  # else there is one of the published files, which may lie beyond the vocabulary
    }


def check(c: Config) -> None:
    scaling = c.rotary.scaling
    if scaling != UNSCALED and not isinstance(scaling, LongRope):
        said = f"{type(scaling).__name__} scaling is not supported for phi3 models"
        raise UserError(said, allowed="default or longrope, as in the other library")


def keymap(c: Config) -> KeyMap:
    there, here = "layers.*", "stack.blocks.*"
    head_dim = share(c.dim, c.heads) if c.head_dim is None else c.head_dim
    queries, keys = c.heads * head_dim, (c.heads if c.kv_heads is None else c.kv_heads) * head_dim
    projections = tuple(f"{here}.attn.body.{part}.weight" for part in "qkv")
    return decoder_keymap(
        c.tied,
        Rule(f"{there}.self_attn.qkv_proj.weight", projections, (Portions((queries, keys, keys)),)),
        Rule(f"{there}.self_attn.o_proj.weight", f"{here}.attn.body.out.weight"),
        Rule(
            f"{there}.mlp.gate_up_proj.weight",
            (f"{here}.ffn.body.gate.weight", f"{here}.ffn.body.up.weight"),
            (Split(2),),
        ),
        Rule(f"{there}.mlp.down_proj.weight", f"{here}.ffn.body.down.weight"),
        top=c.top,
    )
