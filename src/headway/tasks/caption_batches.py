"""Captions: write what is on an image.  A captioner learns its words, and a recurrent one where to look besides.

An image is encoded once for all its captions in a batch.

The same serves speech that a decoder writes down: what is seen is then heard, and has one text.

Axes:  N images   B captions   T words of a caption   M words of all   S places of an image   C width
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from headway.nn.context import Context, PackedLengths, owners_of
from headway.nn.head import word_head
from headway.nn.trace import Trace, record, sites_of
from headway.nn.trunk import Captioner, EncoderDecoder
from headway.ops.attention_map import Readable
from headway.ops.losses import Baseline, doubly_stochastic, per_caption, reinforce
from headway.tasks.batches import Batch, PackedBatch, TokenPrediction, ids
from headway.tasks.inputs import ModelInput

SITE = "decoder.attention"  # where a recurrent captioner looks at its image


@dataclass(frozen=True, eq=False)
class CaptionBatch(Batch):
    seen: ModelInput  # N images
    owners: Tensor  # B, the image of each caption
    read: PackedBatch  # by the decoder: the beginning, then the caption without its end
    wanted: Tensor  # M, what it should say after each of these, but for all tokens of the beginning before its last
    tokens: int  # images, or frames of sound
    prompt: int = 1  # tokens of the beginning

    def tokens_at(self, site: str) -> Tensor | None:
        return self.read.ids if site.startswith("decoder.") else None

    @property
    def captions(self) -> Tensor:
        """The caption of each word, M."""
        return owners_of(self.read.ids, self.read.rows)

    @property
    def said(self) -> Tensor:
        """Which of all tokens that are read a word of a caption follows, M."""
        at = self.read.context.locate(nn.Identity(), self.read.ids).at.expand_as(self.read.ids)
        return (at >= self.prompt - 1).flatten().nonzero()[:, 0]

    @property
    def real(self) -> Tensor | None:
        """Which words of the padded view are there, B T; None: all."""
        return None if self.read.rows is None else self.read.rows.keep[:, 0]


def caption_batch(
    seen: ModelInput, owners: Sequence[int], captions: Sequence[np.ndarray], begin: Sequence[int], tokens: int = 0
) -> CaptionBatch:
    """Images, and captions, each with its end token and its image's number, that are to be written after `begin`."""
    read = PackedBatch.of([ids(begin, caption[:-1]) for caption in captions])
    return CaptionBatch(seen, torch.tensor(owners), read, torch.from_numpy(ids(*captions)), tokens, len(begin))


def caption_predictions(model: nn.Module, batch: CaptionBatch, smoothing: float = 0.0) -> TokenPrediction:
    """What the decoder is to say, with the image before its eyes."""
    assert isinstance(model, EncoderDecoder)
    ctx = shared(model.remember(*batch.seen, batch.read.context), batch.owners)
    features = model.decoder.features(batch.read.ids, ctx).flatten(0, 1)
    if batch.prompt > 1:
        features = features[batch.said]
    return TokenPrediction(word_head(model.decoder.head), features, batch.wanted, smoothing)


def shared(ctx: Context, owners: Tensor) -> Context:
    """A context with the memory of each owner in the place of all memories."""
    memory, rows = ctx.memory, ctx.memory_rows
    assert memory is not None
    assert ctx.memory_keep is None
    if rows is None:
        return replace(ctx, memory=memory[owners])
    parts = [memory[0].split(rows.lengths)[owner] for owner in owners.tolist()]
    lengths = PackedLengths.of([len(part) for part in parts], memory.device)
    return replace(ctx, memory=torch.cat(parts)[None], memory_rows=lengths)


def has_soft_attention(model: nn.Module) -> bool:
    """Whether it looks at all places at once, as a recurrent captioner with soft attention."""
    return f"{SITE}.weights" in sites_of(model) and not has_hard_attention(model)


def has_hard_attention(model: nn.Module) -> bool:
    """Whether it draws where to look, as a recurrent captioner with hard attention."""
    return f"{SITE}.log_chance" in sites_of(model)


def soft_loss(model: Captioner, batch: CaptionBatch, *, smoothing: float = 0.0, evenness: float = 1.0) -> Tensor:
    """The loss of all words, and `evenness` (the paper's λ) × how far captions are from looking everywhere."""
    # an edit that changes nothing: the weights are then those that were used, and not computed once more to be read
    with record(model, edit={f"{SITE}.weights": unchanged}) as trace:
        said = caption_predictions(model, batch, smoothing)
    weights = trace[f"{SITE}.weights"]
    assert isinstance(weights, Readable)
    return said.loss() + evenness * doubly_stochastic(weights.full(), batch.real)


def hard_loss(
    model: Captioner,
    batch: CaptionBatch,
    baseline: Baseline,
    *,
    smoothing: float = 0.0,
    reward: float = 0.1,
    curiosity: float = 0.01,
) -> tuple[Tensor, Baseline]:
    """The loss of all words given the places that were drawn, and that of the draws; and the baseline after this batch.

    Draws are by torch's generator, which a learner seeds for each step; the baseline is all that is handed on.
    """
    with record(model, f"{SITE}.log_chance", f"{SITE}.entropy") as trace:
        said = caption_predictions(model, batch, smoothing)
    good = -per_caption(said.losses(), batch.captions, len(batch.owners))  # B
    chance, entropy = (summed(trace, what, batch.real) for what in ("log_chance", "entropy"))
    drawn, after = reinforce(good, chance, entropy, baseline, reward=reward, curiosity=curiosity)
    return said.loss() + drawn, after


def summed(trace: Trace, what: str, real: Tensor | None) -> Tensor:
    """What was shown of each word of a caption, together: B."""
    shown = trace[f"{SITE}.{what}"]
    assert isinstance(shown, Tensor)
    return (shown if real is None else shown * real).sum(1)


def unchanged(weights: Tensor) -> Tensor:
    return weights
