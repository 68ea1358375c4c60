"""Weights that lie otherwise in memory are the same weights."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from headway.generate.layout import arrange
from headway.generate.loop import generate
from tests.generate.models import MODELS, PROMPTS, built, memory_of, told
from tests.laws.subjects import Subject

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("subject", MODELS, ids=str)
def test_arranged_is_the_same(subject: Subject) -> None:
    plain, model = built(subject), subject.build()
    arrange(model)
    moved = [name for name, weight in model.named_parameters() if not weight.is_contiguous()]
    assert moved
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert ours.shape == theirs.shape
        assert_close(ours, theirs, atol=0, rtol=0, msg=name)
    x, memory = torch.tensor([[1, 2, 3, 4]]), memory_of(subject, [0])
    with torch.no_grad():
        assert_close(model(x, memory), plain(x, memory), atol=1e-5, rtol=1e-5)
    memory = memory_of(subject, [0, 1, 2, 3])
    assert told(generate(model, PROMPTS, memory=memory)) == told(generate(plain, PROMPTS, memory=memory))  # type: ignore[arg-type]


def test_what_is_shared_stays_shared() -> None:
    gpt = next(subject for subject in MODELS if subject.name == "gpt").build()
    arrange(gpt)
    assert gpt.embed.token.weight is gpt.head.weight  # type: ignore[union-attr]
