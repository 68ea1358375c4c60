"""Encoders as graphs: plain tensors in, under Hugging Face's names, and plain tensors out.

Axes:  B batch   T tokens, frames or samples   F features of a frame   C width   K logits   P width of a vector
       Ch H W  an image
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context
from headway.nn.embed import TokenEmbed
from headway.nn.frames import ConvEmbed, WaveEmbed
from headway.nn.head import MeanPool, Pooler, main_head
from headway.nn.towers import FilledTrunk, Projection
from headway.nn.trunk import Forecaster, RereadingClassifier, Trunk
from headway.ops.losses import unit_vectors

Axes = tuple[str | int, ...]  # of an input: the name of one that may be of any length, or its length
BATCH, TOKENS = "batch_size", "sequence_length"


@dataclass(frozen=True)
class Reading:
    """What an encoder reads: the name and axes of its input, whether it takes a mask, and how our parts lay it."""

    name: str
    axes: Axes
    masked: bool = False
    segments: bool = False
    transposed: bool = False  # F T for our T F
    channel: bool = False  # ours has a last axis of 1
    vocab: int = 0  # of tokens
    least: int = 1  # along its second axis

    def names(self) -> list[str]:
        extra = {"attention_mask": self.masked, "token_type_ids": self.segments}
        return [self.name, *(name for name, there in extra.items() if there)]

    def call(self, given: Sequence[Tensor]) -> tuple[Tensor, Context, list[Tensor]]:
        """What our encoder is called with."""
        x, *rest = given
        x = x.mT if self.transposed else x[..., None] if self.channel else x
        keep = rest.pop(0).bool()[:, None] if self.masked else None
        if not self.vocab:
            return x, EMPTY if keep is None else Context(keep=keep), rest
        # as data, for a known run is written in shapes that no graph of any length has
        at = torch.arange(x.shape[1], device=x.device)[None]
        return x, Context(keep=keep, positions=at), rest


def reading_of(encoder: Trunk, config: Any, pixels: tuple[int, int] | None = None) -> Reading:
    """What an encoder reads, by its embedding and the sizes in its config; images of `pixels`, where that is given."""
    embed = encoder.embed
    if isinstance(embed, TokenEmbed):
        vocab = embed.token.num_embeddings
        segments = encoder.segments > 1  # RoBERTa's one needs no telling
        if isinstance(encoder, FilledTrunk):  # a mask would only hide what it fills up with
            return Reading("input_ids", (BATCH, encoder.context), vocab=vocab)
        recurrent = any(hasattr(part, "recurrent_unit") for part in encoder.modules())
        return Reading("input_ids", (BATCH, TOKENS), not recurrent, segments, vocab=vocab)
    if isinstance(embed, WaveEmbed):
        return Reading("input_values", (BATCH, "samples"), True, channel=True, least=embed.least())
    if isinstance(embed, ConvEmbed) and hasattr(config, "source_context"):  # Whisper: windows of one length, all read
        return Reading("input_features", (BATCH, config.mels, embed.factor * config.source_context), transposed=True)
    if hasattr(config, "frames"):  # AST: clips of one length
        return Reading("input_values", (BATCH, config.frames, config.features))
    if hasattr(config, "features"):
        return Reading("input_features", (BATCH, "frames", config.features), not isinstance(encoder, Forecaster))
    sizes = config if hasattr(config, "image") else getattr(config, "encoder", config)
    side = getattr(sizes, "image", None)
    if side is None:
        raise UserError(f"there is no ONNX input for what {type(embed).__name__} reads")
    return Reading("pixel_values", (BATCH, getattr(sizes, "channels", 3), *(pixels or (side, side))))


class EncoderGraph(nn.Module):
    """All that an encoder says of its input, as a tuple of `outputs`."""

    def __init__(self, model: Trunk | RereadingClassifier, reading: Reading):
        super().__init__()
        self.model, self.reading = model, reading
        self.outputs = outputs_of(model, reading)

    def forward(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        x, ctx, marks = self.reading.call(given)
        model = self.model
        if not isinstance(model, Trunk):
            return (model(x, ctx),)
        if self.outputs[0] != "last_hidden_state":
            return (model(x, ctx, *marks),)
        features = model.features(x, ctx, *marks)
        found = [features]
        if (pooler := pooler_of(model)) is not None:
            found.append(pooler(features, ctx))
        if "sentence_embedding" in self.outputs:
            found.append(unit_vectors(MeanPool()(features, ctx)))
        return tuple(found)


class MemoryGraph(nn.Module):
    """The encoder of an encoder–decoder: what its decoder reads, B M C, and which of it is no padding, B M."""

    def __init__(self, encoder: Trunk, reading: Reading, *, shortens: bool):
        super().__init__()
        self.encoder, self.reading, self.shortens = encoder, reading, shortens
        self.outputs = ("last_hidden_state", "encoder_attention_mask") if shortens else ("last_hidden_state",)

    def forward(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        x, ctx, marks = self.reading.call(given)
        memory = self.encoder(x, ctx, *marks)
        if not self.shortens:
            return (memory,)
        keep = self.encoder.inner(ctx).keep
        assert keep is not None
        return memory, keep[:, 0].long()


def outputs_of(model: nn.Module, reading: Reading) -> tuple[str, ...]:
    """The names of what an encoder gives, as Optimum has them."""
    if isinstance(model, Forecaster):
        return ("prediction",)
    if not isinstance(model, Trunk):
        return ("logits",)
    if isinstance(main_head(model.head), Projection):
        return ("text_embeds" if reading.vocab else "image_embeds",)
    if list(main_head(model.head).parameters()):
        return ("logits",)
    pooled = {"pooler_output": pooler_of(model) is not None, "sentence_embedding": bool(reading.vocab)}
    return ("last_hidden_state", *(name for name, there in pooled.items() if there))


def pooler_of(model: Trunk) -> Pooler | None:
    """BERT's pooler, which stands beside a head that is none."""
    return next((part for part in model.head.children() if isinstance(part, Pooler)), None)
