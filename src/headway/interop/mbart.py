"""mBART in Hugging Face's layout, and what M2M-100 and Pegasus share with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.bart import tied
from headway.interop.config_reader import ConfigMap, Field, Options, written_as
from headway.interop.fairseq import SIDES, blocks, check_sides
from headway.interop.keymap import KeyMap, Rule, linear
from headway.zoo.mbart import Config

FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 50_265),
    Field("max_position_embeddings", "context", 1024),
    Field("scale_embedding", "scaled", False),
    *SIDES.fields,
)
CHOICES = {"positions": "learned", "embed_norm": True, "head_bias": True}


def read_config(values: Mapping[str, Any]) -> Config:
    return read(values, "mbart", "MBart", FIELDS, CHOICES)


def read(values: Mapping[str, Any], family: str, name: str, fields: ConfigMap, choices: Mapping[str, Any]) -> Config:
    o = Options(values, family)
    o.architecture(f"{name}ForConditionalGeneration", f"{name}Model")
    o.expect(tie_encoder_decoder=False, tie_word_embeddings=True, is_decoder=False)
    # what files tell of the only way it is computed, or changes training
    o.ignore("normalize_before", "add_final_layer_norm", "normalize_embedding", "static_position_embeddings")
    o.ignore("extra_pos_embeddings", "add_bias_logits", "save_step", "classif_dropout", "classifier_dropout")
    o.ignore("force_bos_token_to_be_generated", "_num_labels")
    check_sides(o)
    return o.done(Config(**fields.read(o), **choices))


def write_config(c: Config) -> dict[str, Any]:
    return write(c, "mbart", "MBart", CHOICES)


def write(c: Config, family: str, name: str, choices: Mapping[str, Any], **special: Any) -> dict[str, Any]:
    if any(getattr(c, field) != value for field, value in choices.items()):
        homes = {"learned": "mbart", "sinusoidal": "pegasus", "sinusoidal, fairseq": "m2m_100"}
        told = ", ".join(f"{field}={value!r}" for field, value in choices.items())
        raise UserError(
            f"there, a model of type {family} has {told}, unlike this one", do=written_as(homes[c.positions])
        )
    names = {"model_type": family, "architectures": [f"{name}ForConditionalGeneration"], "is_encoder_decoder": True}
    return {**names, **FIELDS.write(c), **special}


def keymap(c: Config) -> KeyMap:
    return tied(*rules(c), ignored=("encoder.version", "decoder.version"))


def rules(c: Config) -> tuple[Rule, ...]:
    """All but the words and the output."""
    sides = (
        rule
        for side in ("encoder", "decoder")
        for rule in (
            Rule(f"{side}.embed_positions.weight", f"{side}.embed.position.table.weight"),
            *linear(f"{side}.layernorm_embedding", f"{side}.embed.norm"),
            *linear(f"{side}.layer_norm", f"{side}.stack.norm"),
        )
        if c.positions == "learned" or "embed_positions" not in rule.theirs
    )
    return (*sides, *blocks("before"))
