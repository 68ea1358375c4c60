"""The Transformer of fairseq, whose names of layers and of sizes BART, Marian and Whisper have inherited.

fairseq keeps its options in a pickle beside the weights; what they say about sizes is read off the tensors here.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headway.errors import UserError, listed
from headway.interop.config_reader import ACTIVATION, ConfigMap, Field, Options
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.zoo.choices import named
from headway.zoo.transformer import NORMS, TIES, Config

SOURCE, TARGET, OUTPUT = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "decoder.output_projection.weight",
)
FIRST = "encoder.layers.0.fc1.weight"
# fairseq's first ids, under the names of Hugging Face's configs; a target begins with the end of the one before
TOKENS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
UNUSED = ("version", "embed_positions._float_tensor")


def read_config(tensors: Mapping[str, Tensor], heads: int, act: str = "relu", dropout: float = 0.1) -> Config:
    """The sizes that the tensors show, and what they do not show."""
    absent = [name for name in (SOURCE, TARGET, FIRST) if name not in tensors]
    if absent:
        raise UserError(f"these are not the weights of a fairseq Transformer: there is no {listed(absent)}")
    hidden, dim = tensors[FIRST].shape
    return Config(
        vocab=len(tensors[TARGET]),
        source_vocab=len(tensors[SOURCE]),
        dim=dim,
        layers=count(tensors, "encoder"),
        decoder_layers=count(tensors, "decoder"),
        heads=heads,
        hidden=hidden,
        act=act,
        norms="pre" if "encoder.layer_norm.weight" in tensors else "post",
        tied=tie(tensors),
        layout="halves",
        steps=dim // 2 - 1,
        first=2,  # behind the padding's
        dropout=dropout,
    )


def count(tensors: Mapping[str, Tensor], side: str) -> int:
    return sum(name.startswith(f"{side}.layers.") and name.endswith(".fc1.weight") for name in tensors)


def tie(tensors: Mapping[str, Tensor]) -> str:
    if not torch.equal(tensors.get(OUTPUT, tensors[TARGET]), tensors[TARGET]):
        return "none, unbiased"
    return "all" if torch.equal(tensors[SOURCE], tensors[TARGET]) else "target"


def keymap(c: Config) -> KeyMap:
    norms, tied = named("norms", c.norms, NORMS), named("tie", c.tied, TIES)
    return KeyMap(
        rules=(
            Rule(SOURCE, "encoder.embed.token.weight"),
            Rule(TARGET, "decoder.embed.token.weight"),
            Rule(OUTPUT, "decoder.head.weight"),
            *blocks(norms.slot),
            *linear("encoder.layer_norm", "encoder.stack.norm"),
            *linear("decoder.layer_norm", "decoder.stack.norm"),
        ),
        ignored=tuple(f"{side}.{name}" for side in ("encoder", "decoder") for name in UNUSED),
        ties=({OUTPUT: TARGET} if tied.head else {}) | ({TARGET: SOURCE} if tied.sides else {}),
    )


def blocks(slot: str) -> tuple[Rule, ...]:
    """The layers of both sides; `slot` is where norms stand around our sublayers."""
    encoder = side("encoder", {"self_attn": "attn"}, slot)
    return (*encoder, *side("decoder", {"self_attn": "attn", "encoder_attn": "cross"}, slot))


def side(name: str, attentions: Mapping[str, str], slot: str) -> tuple[Rule, ...]:
    parts = dict[str, str]()
    for theirs, ours in attentions.items():
        parts |= {f"{theirs}.{part}_proj": f"{ours}.body.{part}" for part in ("q", "k", "v", "out")}
        parts[f"{theirs}_layer_norm"] = f"{ours}.{slot}"
    parts |= {"fc1": "ffn.body.up", "fc2": "ffn.body.down", "final_layer_norm": f"ffn.{slot}"}
    return linears(f"{name}.layers.*", f"{name}.stack.blocks.*", parts)


# the sizes of both sides in Hugging Face's configs, with BART's defaults
SIDES = ConfigMap(
    Field("d_model", "dim", 1024),
    Field("encoder_layers", "layers", 12),
    Field("decoder_layers", "decoder_layers", 12),
    Field("encoder_attention_heads", "heads", 16),
    Field("decoder_attention_heads", "decoder_heads", 16),
    Field("encoder_ffn_dim", "hidden", 4096),
    Field("decoder_ffn_dim", "decoder_hidden", 4096),
    Field("dropout", "dropout", 0.1),
    Field("attention_dropout", "attention_dropout", 0.0),
    Field("activation_dropout", "act_dropout", 0.0),
    Field("activation_function", "act", "gelu", ACTIVATION),
)


def check_sides(o: Options) -> None:
    """Refuses a config of one side; leaves what repeats others, or changes training."""
    o.expect(is_encoder_decoder=True)
    o.ignore("hidden_size", "num_hidden_layers", "num_attention_heads", "init_std")
    o.ignore("encoder_layerdrop", "decoder_layerdrop")
