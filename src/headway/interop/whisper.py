"""Whisper in Hugging Face's layout, and in OpenAI's own.

OpenAI publishes one pickle for each size, `{"dims": ten numbers, "model_state_dict": tensors}`, without words: these
come with its package.  Both layouts hold the encoder's table of sines, which is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError, listed
from headway.interop.config_reader import ConfigMap, Field, Options
from headway.interop.fairseq import SIDES, blocks, check_sides
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.interop.weights import Tensors, check_asked, unpickled
from headway.ops.mel import WHISPER
from headway.ops.rotary import HALVES, sinusoid
from headway.zoo.whisper import STRIDES, Config

# ---- Hugging Face's

FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 51_865),
    Field("max_target_positions", "context", 448),
    Field("num_mel_bins", "mels", 80),
    Field("max_source_positions", "source_context", 1500),
    *SIDES.fields,
).with_defaults(
    dim=384,
    layers=4,
    decoder_layers=4,
    heads=6,
    decoder_heads=6,
    hidden=1536,
    decoder_hidden=1536,
    dropout=0.0,
)
MASKED = ("prob", "length", "min_masks")


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "whisper")
    o.architecture("WhisperForConditionalGeneration", "WhisperModel")
    o.expect(tie_word_embeddings=True)
    o.ignore("scale_embedding")  # which is not looked at there either
    o.ignore("median_filter_width", "forced_decoder_ids", "no_timestamps_token_id", "prev_sot_token_id")
    o.ignore("use_weighted_layer_sum", "classifier_proj_size")  # of a model with classes
    o.ignore("apply_spec_augment", *(f"mask_{axis}_{what}" for axis in ("time", "feature") for what in MASKED))
    check_sides(o)
    return o.done(Config(**FIELDS.read(o)))


def write_config(c: Config) -> dict[str, Any]:
    return {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        **FIELDS.write(c),
        "is_encoder_decoder": True,
    }


def keymap(c: Config) -> KeyMap:
    words = "decoder.embed_tokens.weight"
    return KeyMap(
        rules=(
            *linear("encoder.conv1", "encoder.embed.convs.0"),
            *linear("encoder.conv2", "encoder.embed.convs.1"),
            Rule(words, "decoder.embed.token.weight"),
            Rule("decoder.embed_positions.weight", "decoder.embed.position.table.weight"),
            *blocks("before"),
            *linear("encoder.layer_norm", "encoder.stack.norm"),
            *linear("decoder.layer_norm", "decoder.stack.norm"),
        ),
        prefixes=("model.", ""),
        ties={"proj_out.weight": words},
        fixed={"encoder.embed_positions.weight": sines(c)},
    )


def check_sound(values: Mapping[str, Any], c: Config) -> None:
    """Refuses a preprocessor_config.json that would make other frames of a sound than the model is given here."""
    for name, value in write_sound(c).items():
        if name in HEARD and values.get(name, value) != value:
            said = f"preprocessor_config.json has {name}={values[name]!r}"
            raise UserError(said, allowed=f"{value!r}, as Whisper's frames are made")
    if values.get("dither"):
        raise UserError(f"preprocessor_config.json has dither={values['dither']!r}", allowed="0: no noise is added")


HEARD = ("feature_size", "sampling_rate", "n_fft", "hop_length", "chunk_length", "padding_value")


def write_sound(c: Config) -> dict[str, Any]:
    """The preprocessor_config.json of a model."""
    frames = c.source_context * prod(STRIDES)
    samples = frames * WHISPER.hop
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": c.mels,
        "sampling_rate": WHISPER.rate,
        "n_fft": WHISPER.n_fft,
        "hop_length": WHISPER.hop,
        "chunk_length": samples // WHISPER.rate,
        "n_samples": samples,
        "nb_max_frames": frames,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


# ---- OpenAI's


class Dims(NamedTuple):
    """The sizes in OpenAI's files."""

    n_mels: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_vocab: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int


def read_openai(file: Path, *, unsafe: bool = False) -> tuple[Config, Tensors]:
    """The config and the tensors, under our names, of one of OpenAI's files, which are pickles (`unsafe`)."""
    check_asked(f"{file} is a PyTorch pickle", unsafe)
    held = unpickled(file)
    if not isinstance(held, Mapping) or not {"dims", "model_state_dict"} <= set(held):
        raise UserError(f"{file} is not one of OpenAI's Whisper files", allowed="dims and model_state_dict")
    config, tensors = openai_config(held["dims"]), held["model_state_dict"]
    if not isinstance(tensors, Mapping) or not all(isinstance(x, Tensor) for x in tensors.values()):
        raise UserError(f"{file}: its model_state_dict holds more than tensors")
    return config, openai_keymap(config).load(tensors)


def openai_config(dims: object) -> Config:
    known = Dims._fields
    if not isinstance(dims, Mapping) or set(dims) != set(known):
        raise UserError(f"Whisper's sizes are told as {dims!r:.80}", allowed=listed(known, len(known)))
    if not all(isinstance(size, int) and size > 0 for size in dims.values()):
        raise UserError(f"Whisper's sizes are told as {dims!r:.300}", allowed="whole numbers of 1 or more")
    d = Dims(**dims)
    if d.n_audio_state != d.n_text_state:
        raise UserError(f"a Whisper of width {d.n_audio_state} on one side and {d.n_text_state} on the other")
    return Config(
        vocab=d.n_vocab,
        context=d.n_text_ctx,
        mels=d.n_mels,
        source_context=d.n_audio_ctx,
        dim=d.n_audio_state,
        layers=d.n_audio_layer,
        decoder_layers=d.n_text_layer,
        heads=d.n_audio_head,
        decoder_heads=d.n_text_head,
        hidden=4 * d.n_audio_state,
        decoder_hidden=4 * d.n_text_state,
    )


def openai_dims(c: Config) -> dict[str, int]:
    """The sizes of a model as OpenAI's files tell them; what these have no word for is refused."""
    dims = Dims(
        c.mels, c.source_context, c.dim, c.heads, c.layers, c.vocab, c.context, c.dim, c.decoder_heads, c.decoder_layers
    )
    again = openai_config(dims._asdict())
    other = [
        f.name for f in fields(c) if not f.name.endswith("dropout") and getattr(c, f.name) != getattr(again, f.name)
    ]
    if other:
        raise UserError(f"OpenAI's layout has no place for {other[0]}={getattr(c, other[0])!r}", do="use to=hf")
    return dims._asdict()


def openai_keymap(c: Config) -> KeyMap:
    return KeyMap(
        rules=(
            *linear("encoder.conv1", "encoder.embed.convs.0"),
            *linear("encoder.conv2", "encoder.embed.convs.1"),
            Rule("decoder.token_embedding.weight", "decoder.embed.token.weight"),
            Rule("decoder.positional_embedding", "decoder.embed.position.table.weight"),
            *openai_side("encoder", {"attn": "attn"}),
            *openai_side("decoder", {"attn": "attn", "cross_attn": "cross"}),
            *linear("encoder.ln_post", "encoder.stack.norm"),
            *linear("decoder.ln", "decoder.stack.norm"),
        ),
        ignored=("alignment_heads", "decoder.mask"),
        fixed={"encoder.positional_embedding": sines(c)},
    )


def openai_side(name: str, attentions: Mapping[str, str]) -> tuple[Rule, ...]:
    projections = {"query": "q", "key": "k", "value": "v", "out": "out"}
    parts = {
        f"{theirs}.{part}": f"{ours}.body.{own}"
        for theirs, ours in attentions.items()
        for part, own in projections.items()
    }
    parts |= {f"{theirs}_ln": f"{ours}.before" for theirs, ours in attentions.items()}
    parts |= {"mlp.0": "ffn.body.up", "mlp.2": "ffn.body.down", "mlp_ln": "ffn.before"}
    return linears(f"{name}.blocks.*", f"{name}.stack.blocks.*", parts)


# ---- in both


def sines(c: Config) -> Callable[[], Tensor]:
    """The table of the encoder's positions."""
    return lambda: sinusoid(torch.arange(c.source_context), c.dim, layout=HALVES, steps=c.dim // 2 - 1)
