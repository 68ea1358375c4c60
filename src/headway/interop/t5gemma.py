"""T5Gemma in Hugging Face's layout: a config for each side, which is a Gemma 2's; both sides have the same words.

Encoders alone and classes of texts are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options, refuse_fields
from headway.interop.gemma2 import ABSENT, read_sandwich, write_sandwich
from headway.interop.keymap import KeyMap, Rule
from headway.zoo import gemma
from headway.zoo.build import config_like
from headway.zoo.t5gemma import Config, sides

ARCHITECTURE = "T5GemmaForConditionalGeneration"
# what each side says; beside the sides the other library reads it for neither
OF_SIDES = (*ABSENT, "query_pre_attn_scalar", "attention_bias", "cache_implementation", "rope_parameters")
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "t5gemma")
    o.architecture(ARCHITECTURE, "T5GemmaModel")
    o.expect(is_encoder_decoder=True, tie_word_embeddings=True)
    o.ignore("classifier_dropout_rate", *OF_SIDES)
    rates = {"dropout": o.number("dropout_rate", 0.0), "attention_dropout": o.number("attention_dropout", 0.0)}
    source, target = (read_side(o, name, rates["attention_dropout"]) for name in ("encoder", "decoder"))
    if source.vocab != target.vocab:
        said = f"an encoder of {source.vocab} words and a decoder of {target.vocab}"
        raise UserError(said, allowed="the same words on both sides")
    source = replace(source, logit_cap=target.logit_cap)  # the encoder's caps nothing
    other = None if target == source else target
    return o.done(config_like(Config, source, **rates, decoder=other))


def read_side(o: Options, name: str, rate: float) -> gemma.Config:
    side = Options({**ABSENT, **o.take(name, dict[str, Any]())}, f"t5gemma {name}")
    side.expect(is_decoder=name == "decoder")
    side.ignore("dropout_rate", "classifier_dropout_rate")  # the whole's rates are taken
    return side.done(replace(gemma.Config(**read_sandwich(side)), attention_dropout=rate))


def write_config(c: Config) -> dict[str, Any]:
    source, target = sides(c)
    others = {"qk_norm": "", "local_rotary": "", "top": "", "norms": ""}
    refuse_fields(target, "T5Gemma's decoder", others)
    return {
        "model_type": "t5gemma",
        "architectures": [ARCHITECTURE],
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
        "vocab_size": c.vocab,
        "dropout_rate": c.dropout,
        "attention_dropout": c.attention_dropout,
        "encoder": {"model_type": "t5_gemma_module", "is_decoder": False, **write_side(source)},
        "decoder": {
            "model_type": "t5_gemma_module",
            "is_decoder": True,
            "cross_attention_hidden_size": source.dim,
            **write_side(target),
        },
    }


def write_side(c: gemma.Config) -> dict[str, Any]:
    """The other library makes masks of windows also where no layer has one."""
    usual = {"sliding_window": ABSENT["sliding_window"]} if c.window is None else {}
    return {**write_sandwich(c), **usual}


def read_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens that begin and end a text stand in the decoder's config, too."""
    told: Mapping[str, Any] = values.get("decoder") or {}
    return {name: told[name] for name in TOKENS if told.get(name) is not None}


def write_settings(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The decoder begins with its own bos token there."""
    tokens = {name: values[name] for name in TOKENS if values.get(name) is not None}
    start = values.get("decoder_start_token_id")
    begin = {} if start is None else {"bos_token_id": start}
    return {
        **values,
        "encoder": {**values["encoder"], **tokens},
        "decoder": {**values["decoder"], **tokens, **begin},
    }


SUBLAYERS = {"self_attn": "attn", "cross_attn": "cross", "feedforward": "ffn"}
PROJECTIONS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "out"}


def keymap(c: Config) -> KeyMap:
    return KeyMap(
        rules=(*side("encoder"), *side("decoder")),
        prefixes=("model.", ""),
        ties={"lm_head.out_proj.weight": "decoder.embed_tokens.weight"},
    )


def side(name: str) -> tuple[Rule, ...]:
    there, here = f"{name}.layers.*", f"{name}.stack.blocks.*"
    names = {
        **{
            f"{part}.{theirs}": f"{SUBLAYERS[part]}.body.{ours}"
            for part in ("self_attn", "cross_attn")
            for theirs, ours in PROJECTIONS.items()
        },
        **{f"mlp.{part}_proj": f"ffn.body.{part}" for part in ("gate", "up", "down")},
        **{f"pre_{theirs}_layernorm": f"{ours}.before" for theirs, ours in SUBLAYERS.items()},
        **{f"post_{theirs}_layernorm": f"{ours}.inside" for theirs, ours in SUBLAYERS.items()},
    }
    return (
        Rule(f"{name}.embed_tokens.weight", f"{name}.embed.token.weight"),
        *(Rule(f"{there}.{theirs}.weight", f"{here}.{ours}.weight") for theirs, ours in names.items()),
        Rule(f"{name}.norm.weight", f"{name}.stack.norm.weight"),
    )
