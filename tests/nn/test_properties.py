"""Every part of every architecture declares what others need to know of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from headway.nn.attention import SelfAttention
from headway.nn.block import Residual, Stack, tokenwise, weight_decay
from headway.nn.convnet import BatchNorm
from headway.nn.ffn import GatedFFN
from headway.nn.moe import MoE
from headway.zoo.build import ARCHITECTURES, architecture, build
from tests.laws import grids, images
from tests.laws.subjects import SUBJECTS

TORCH = "torch.nn."


def architectures() -> Iterator[tuple[str, nn.Module]]:
    for name in ARCHITECTURES:
        with torch.device("meta"):
            yield name, build(architecture(name).Config())


def subjects_of_laws() -> Iterator[tuple[str, nn.Module]]:
    yield from ((subject.name, subject.build()) for subject in SUBJECTS)
    yield from ((name, make()) for name, make in {**grids.PARTS, **images.MODELS}.items())


def undeclared(model: nn.Module) -> set[str]:
    """Classes of a model's parts that must say something and do not."""
    found = set[type]()
    for part in model.modules():
        if isinstance(part, Residual):
            found |= {type(child) for child in part.children() if tokenwise(child) is None}
        if isinstance(part, Stack) and tokenwise(part.norm) is None:
            found.add(type(part.norm))
        holds_matrices = any(parameter.dim() > 1 for parameter in part.parameters(recurse=False))
        if holds_matrices and weight_decay(part) is None:
            found.add(type(part))
    return {kind.__name__ for kind in found}


@pytest.mark.long
@pytest.mark.parametrize("models", [architectures, subjects_of_laws])
def test_no_part_says_nothing(models: object) -> None:
    assert callable(models)
    assert {name: missing for name, model in models() if (missing := undeclared(model))} == {}


def test_a_forgotten_part_is_found() -> None:
    class Forgotten(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.zeros(2, 2))

    assert undeclared(Residual(Forgotten())) == {"Forgotten"}
    assert undeclared(Residual(nn.Linear(2, 2), before=Forgotten())) == {"Forgotten"}
    assert undeclared(Stack([], Forgotten())) == {"Forgotten"}


class ShiftedLinear(nn.Linear):
    tokenwise = False


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (GatedFFN(2, 2), True),
        (nn.LayerNorm(2), True),
        (BatchNorm(2), False),
        (MoE(lambda: GatedFFN(2, 2), 2, 1, top=1), False),
        (SelfAttention(2, 1), False),
        (ShiftedLinear(2, 2), False),
        (nn.Conv1d(1, 1, 1), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_nearest_class_decides(part: nn.Module, expected: bool | None) -> None:
    assert tokenwise(part) is expected
