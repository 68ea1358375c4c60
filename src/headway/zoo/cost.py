"""What a model costs: parameters, multiplications and bytes, counted on a copy of it that has shapes and no numbers.

One forward pass on the meta device tells all of it: no size is too large, and nothing is known of any architecture.

FLOPs are 2 for each multiplication with its addition, in the matrices that each token meets (projections, feed-forward
layers, recurrent cells, the output layer) and in attention: for each pair of a query and a key that it may see, the
score's width and the value's width.  So a causal model's queries see half of the keys on average, and those of a window
at most the window.  Embeddings are looked up, norms and activations are small beside the rest: they count 0.
Training takes 3 × forward: the gradient of the inputs and that of the weights cost as much again, each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from headway.errors import UserError
from headway.zoo.build import build, config_of
from headway.zoo.dummy_inputs import reads
from headway.zoo.flops import Tally, tallied

TRAINING = 3  # × forward
ADAM = 2  # numbers for each parameter, in 32 bits


@dataclass(frozen=True)
class Cost:
    """The costs of a batch of `batch` rows of `length` tokens, with numbers of `bits` bits.

    In an encoder–decoder of texts, source and target have this length both, and a token is one of each.  Where a model
    reads something else, `unit` tells what is meant by tokens: images, one to a row; frames of sound; samples.
    """

    batch: int
    length: int
    bits: int
    layers: dict[str, Tally] = field(repr=False)
    unit: str = "token"

    @property
    def total(self) -> Tally:
        each = self.layers.values()
        return Tally(
            sum(x.parameters for x in each),
            sum(x.flops for x in each),
            sum(x.cache for x in each),
            sum(x.attention for x in each),
        )

    def per_token(self, flops: int) -> int:
        return round(flops / (self.batch * self.length))

    def bytes(self, numbers: int) -> int:
        return numbers * self.bits // 8

    @property
    def training_per_token(self) -> int:
        return TRAINING * self.per_token(self.total.flops)

    def plain(self) -> dict[str, object]:
        """As data, for JSON."""
        return {
            "parameters": self.total.parameters,
            "batch": self.batch,
            "length": self.length,
            "bits": self.bits,
            "unit": self.unit,
            f"flops_forward_per_{self.unit}": self.per_token(self.total.flops),
            f"flops_training_per_{self.unit}": self.training_per_token,
            "flops_forward": self.total.flops,
            "bytes": self.bytes_by_kind(),
            "layers": [{"name": name, **self.row(tally)} for name, tally in self.layers.items()],
        }

    def bytes_by_kind(self) -> dict[str, int]:
        total = self.total
        return {
            "weights": self.bytes(total.parameters),
            "gradients": self.bytes(total.parameters),
            "optimizer": ADAM * 4 * total.parameters,
            "kv_cache": self.bytes(total.cache),
            "attention": self.bytes(total.attention),
        }

    def row(self, tally: Tally) -> dict[str, int]:
        return {
            "parameters": tally.parameters,
            f"flops_forward_per_{self.unit}": self.per_token(tally.flops),
            "kv_cache": self.bytes(tally.cache),
            "attention": self.bytes(tally.attention),
        }


def cost(preset_or_config: object, *, batch: int = 1, length: int | None = None, bits: int = 32) -> Cost:
    """The costs of the model that a preset's name or a config tells of; `length` is its context unless given."""
    config = config_of(preset_or_config)
    if bits not in (8, 16, 32, 64):
        raise UserError(f"numbers of {bits} bits", allowed="8, 16, 32 or 64")
    with torch.device("meta"):
        model = build(config).eval()
    unit, length, tensors = reads(config, model, batch, length)
    return Cost(batch, length, bits, tallied(model, tensors), unit)
