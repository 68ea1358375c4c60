"""Contrastive losses (InfoNCE, sigmoid, NT-Xent), auxiliary ones of captioning (doubly stochastic, REINFORCE), and that
of distillation.

In a contrastive loss each vector is to find its partner among all candidates of the batch: a classification whose
classes are the rows and whose logits are scaled cosine similarities.  CLIP's and SimCLR's are sums over pairs, each
pair counting the mean of its two directions, so that loss / pairs is the published mean.

The losses of captioning are those of Show, Attend and Tell (Xu et al. 2015), its equations 14 (soft attention) and 11
to 13 (hard attention).

Axes:  N pairs   P width of the vectors that are compared   B captions   T words   S places of the image   M targets
V words or classes
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import UserError
from headway.ops.attend import shape_text
from headway.ops.mixed_precision import at_least_float32, no_autocast


def info_nce(a: Tensor, b: Tensor, scale: float | Tensor, owners: Tensor | None = None) -> Tensor:
    """½ Σ (−log p(bᵢ | aᵢ) − log p(aᵢ | bᵢ)), p over the batch: CLIP's loss, both ways.

    `a` and `b` are N P; `scale` is the inverse temperature.  Rows with the same number in `owners` (N), as two captions
    of one image, are not each other's wrong answers.
    """
    check(a, b)
    logits = at_least_float32(scale * cosines(a, b))  # N N
    if owners is not None:
        logits = logits.masked_fill(negatives_mask(owners).logical_not(), float("-inf"))
    right = torch.arange(len(logits), device=logits.device)
    there, back = (F.cross_entropy(x, right, reduction="sum") for x in (logits, logits.mT))
    return (there + back) / 2


def sigmoid_pairs(a: Tensor, b: Tensor, scale: Tensor, bias: Tensor, owners: Tensor | None = None) -> Tensor:
    """−Σ log σ(±(scale · cosine + bias)) over all pairs of a row of `a` and one of `b`, + for its own: SigLIP's loss.

    `a` and `b` are N P.  Rows with the same number in `owners` (N) are not each other's wrong answers.
    """
    check(a, b)
    logits = at_least_float32(scale * cosines(a, b) + bias)  # N N
    signs = 2 * torch.eye(len(logits), device=logits.device) - 1
    losses = -F.logsigmoid(signs * logits)
    return (losses if owners is None else losses * negatives_mask(owners)).sum()


def nt_xent(a: Tensor, b: Tensor, temperature: float = 0.5, *, reduction: str = "sum") -> Tensor:
    """½ Σ over all 2N views of −log p(its other view | the 2N − 1 others): SimCLR's loss of two views, N P each.

    With the reduction "none", half of that of each view, 2N.
    """
    check(a, b)
    if temperature <= 0.0:
        raise UserError(f"nt_xent(temperature={temperature:g})", allowed="a temperature above 0", do="try 0.5")
    views = torch.cat([a, b])  # 2N P
    logits = at_least_float32(cosines(views, views) / temperature).fill_diagonal_(float("-inf"))
    right = torch.arange(len(views), device=views.device).roll(len(a))  # i ↔ i + N
    return F.cross_entropy(logits, right, reduction=reduction) / 2


def distillation_loss(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² Σ KL(softmax(teacher / T) ‖ softmax(logits / T)) over targets, M V both: Hinton's loss of a student."""
    if logits.dim() != 2 or logits.shape != teacher.shape:
        said = f"logits {shape_text(logits)} of a student and {shape_text(teacher)} of its teacher"
        raise UserError(said, allowed="M×V both, of the same targets and words")
    if temperature <= 0.0:
        raise UserError(f"distillation_loss(temperature={temperature:g})", allowed="a temperature above 0", do="try 2")
    own, wanted = ((at_least_float32(x) / temperature).log_softmax(-1) for x in (logits, teacher))
    return temperature**2 * F.kl_div(own, wanted, reduction="sum", log_target=True)


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of each row of `a` with each row of `b`, in float32 or better: N P, M P → N M."""
    with no_autocast(a):
        return unit_vectors(a) @ unit_vectors(b).mT


def unit_vectors(x: Tensor) -> Tensor:
    """x / |x|, in float32 or better: a length of 1 is not one in bf16.  … P → … P"""
    return F.normalize(at_least_float32(x), dim=-1)


def negatives_mask(owners: Tensor) -> Tensor:
    """The candidates of each row, N N: the rows of other owners (negatives), and its own partner."""
    return (owners[:, None] != owners).logical_or_(torch.eye(len(owners), dtype=torch.bool, device=owners.device))


def check(a: Tensor, b: Tensor) -> None:
    if a.dim() != 2 or a.shape != b.shape or len(a) == 0:
        said = f"a contrastive loss of {shape_text(a)} and {shape_text(b)}"
        raise UserError(said, allowed="N×P both, row i of one belonging to row i of the other")


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


def per_caption(values: Tensor, owners: Tensor, captions: int) -> Tensor:
    """The sum of what the words of each caption have (N), by its number (N): B."""
    return torch.zeros(captions, dtype=values.dtype, device=values.device).index_add(0, owners, values)
