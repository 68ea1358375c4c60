"""Centred kernel alignment: how similar two layers' representations of the same samples are.

    CKA(X, Y) = ‖Xᵀ Y‖² / (‖Xᵀ X‖ · ‖Yᵀ Y‖) = ⟨K, L⟩ / (‖K‖ · ‖L‖),  K = X Xᵀ,  L = Y Yᵀ,  X and Y centred

Kornblith et al. (2019, arXiv:1905.00414), with linear kernels and Frobenius norms.  1 is equality up to rotation and
scale.  With few samples wide layers always look similar: use several times as many samples as a layer has dimensions.

Axes:  N samples   C width   I J layers
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.errors import UserError
from headway.figures import HeatMap, Plot
from headway.inspect.activations import layer_means, samples_in
from headway.inspect.presentation import LazyModel, Result, format_number, resolve, table

FEW_SAMPLES = "with fewer samples than dimensions, layers look more similar than they are"
MAX_COLUMNS = 8  # layers side by side in a table


def cka(
    model: LazyModel, other: LazyModel | None, data: str | Path | Iterable[Any], *, most: int | None = None
) -> CKAResult:
    """Linear CKA of all layers of a model with each other, or with those of `other`, over at most `most` samples.

    `data` is a file or folder, or an iterable of inputs or records.
    """
    samples = samples_in(data, most)
    ours = layer_means(resolve(model), samples)
    theirs = ours if other is None else layer_means(resolve(other), samples)
    values = cka_matrix(list(ours.values()), list(theirs.values())).tolist()
    widest = max(layer.shape[1] for layer in (*ours.values(), *theirs.values()))
    return CKAResult(list(ours), list(theirs), values, len(samples), widest)


def linear_cka(x: Tensor, y: Tensor) -> float:
    """The CKA of two layers, N C each, from 0 to 1; NaN where a layer is constant."""
    return float(cka_matrix([x], [y])[0, 0])


def cka_matrix(ones: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """The CKA of each of I layers with each of J, I J.  All hold the same N samples; each kernel has N² numbers.

    By kernels, computed once for each layer: cross-covariances would be computed for each pair of layers.
    """
    counts = {len(layer) for layer in (*ones, *others)}
    if len(counts) != 1 or min(counts) < 2:
        said = f"layers of {' and '.join(str(count) for count in sorted(counts))} samples cannot be compared"
        raise UserError(said, allowed="the same samples in all, 2 or more")
    left, right = (torch.stack([kernel(layer) for layer in layers]) for layers in (ones, others))
    return left.flatten(1) @ right.flatten(1).mT


def kernel(x: Tensor) -> Tensor:
    """X Xᵀ of norm 1, N N, from N C."""
    x = x.double()  # small differences of large numbers are compared
    x = x - x.mean(0)
    gram = x @ x.mT
    return gram / gram.norm()


@dataclass(frozen=True, eq=False)
class CKAResult(Result):
    """`values` has a row for each layer of the model and a column for each of the other's, or of its own."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    samples: int
    widest: int

    def data(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "widest": self.widest,
            "rows": self.rows,
            "columns": self.columns,
            "cka": self.values,
        }

    def blocks(self) -> Iterator[str]:
        yield f"linear CKA of layers, over {self.samples:,} samples"
        for first in range(0, len(self.columns), MAX_COLUMNS):
            part = slice(first, first + MAX_COLUMNS)
            rows = [
                (name, *(format_number(value, ".2f") for value in values[part]))
                for name, values in zip(self.rows, self.values, strict=True)
            ]
            yield table(("", *self.columns[part]), rows)
        if self.samples < self.widest:
            yield f"note: {FEW_SAMPLES} ({self.samples} samples, up to {self.widest} dimensions)"

    def plot(self) -> Plot:
        title = f"linear CKA over {self.samples:,} samples"
        return Plot(title, [HeatMap("", self.values, self.rows, self.columns, limits=(0.0, 1.0))])
