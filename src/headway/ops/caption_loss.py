"""Auxiliary losses of captioning: doubly stochastic attention, and REINFORCE for hard attention.

Show, attend and tell (Xu et al. 2015), its equations 14 (soft attention) and 11 to 13 (hard attention).

Axes:  B captions   T words   S places of the image
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.errors import UserError
from headway.ops.attend import shape_text


def doubly_stochastic(weights: Tensor, real: Tensor | None = None) -> Tensor:
    """Σ over captions and places of (1 − Σ_t α_ti)²: weights that sum to one over places should over words too.

    `weights` is B T S or B 1 T S; `real` (B T) is True at words, False at padding.
    """
    weights = weights.squeeze(1) if weights.dim() == 4 else weights
    if weights.dim() != 3 or (real is not None and real.shape != weights.shape[:2]):
        given = shape_text(weights) + ("" if real is None else f" with words {shape_text(real)}")
        raise UserError(f"the weights of captions are {given}", allowed="B T S with words B T: one head")
    seen = weights if real is None else weights * real[..., None]
    return (1.0 - seen.sum(1)).square().sum()


@dataclass(frozen=True)
class Baseline:
    """What a caption's log-likelihood has been of late: an average that moves by `pace` at each batch."""

    value: float = 0.0
    pace: float = 0.1
    batches: int = 0

    def updated(self, log_likelihood: Tensor) -> Baseline:
        """The average after a batch, whose captions have these log-likelihoods (B)."""
        mean = float(log_likelihood.detach().mean())
        # from the first mean, not from 0, which would call the first hundred captions bad however good they are
        value = mean if self.batches == 0 else (1.0 - self.pace) * self.value + self.pace * mean
        return Baseline(value, self.pace, self.batches + 1)


def reinforce(
    log_likelihood: Tensor,
    log_chance: Tensor,
    entropy: Tensor,
    baseline: Baseline,
    *,
    reward: float = 1.0,
    curiosity: float = 0.01,
) -> tuple[Tensor, Baseline]:
    """−Σ (λ_r (log p(y|s) − b) log p(s) + λ_e H[s]) over captions, and the baseline after them.

    `log_likelihood` (B) is that of each caption's words, given the places s that were looked at; `log_chance` (B) that
    of these places, and `entropy` (B) that of the choices.  With the loss of the words, −Σ log p(y|s), its gradient is
    the paper's estimate: how good a caption became weighs how likely its glimpses shall be, and is itself no function
    of them.  `reward` is λ_r, `curiosity` λ_e.
    """
    if not log_likelihood.shape == log_chance.shape == entropy.shape or log_likelihood.dim() != 1:
        given = ", ".join(shape_text(x) for x in (log_likelihood, log_chance, entropy))
        raise UserError(f"captions were given as {given}", allowed="one number for each caption, B three times")
    # that of the batches before: one that had moved with a caption would hide a part of its own success
    before = baseline if baseline.batches else baseline.updated(log_likelihood)
    surplus = log_likelihood.detach() - before.value
    gained = reward * surplus * log_chance + curiosity * entropy
    return -gained.sum(), baseline.updated(log_likelihood)


def per_caption(values: Tensor, owners: Tensor, captions: int) -> Tensor:
    """The sum of what the words of each caption have (N), by its number (N): B."""
    return torch.zeros(captions, dtype=values.dtype, device=values.device).index_add(0, owners, values)
