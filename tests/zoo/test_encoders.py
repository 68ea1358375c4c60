"""BERT and ALBERT: published sizes, what their tops give, and how they are used."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headway import Context, Rows, UserError, record
from headway.nn.head import MeanPool
from headway.nn.trunk import Trunk
from headway.zoo import albert, bert

C = TypeVar("C", bert.Config, albert.Config)

SMALL = bert.Config(vocab=23, context=16, dim=16, layers=2, heads=4)
ALBERT = albert.Config(vocab=23, context=16, width=8, dim=16, layers=3, heads=4)
SHAPES = {
    "none": (2, 7, 16),
    "pooler": (2, 7, 16),
    "words": (2, 7, 23),
    "pretraining": (2, 7, 23),
    "pair": (2, 5),
    "rows": (2, 5),
    "tokens": (2, 7, 5),
    "spans": (2, 7, 5),
}


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (bert.Config(dim=1024, layers=24, heads=16, top="pooler"), 335_141_888),  # BERT-large
        (bert.Config(top="pooler"), 109_482_240),
        (bert.Config(), 109_514_298),
        (bert.Config(50_265, segments=1, first=2, eps=1e-5), 124_697_433),  # RoBERTa-base
        (albert.Config(top="pooler"), 11_683_584),
        (albert.Config(dim=4096, heads=64, hidden=16_384, top="pooler"), 222_595_584),  # ALBERT-xxlarge
    ],
)
def test_published_sizes(config: bert.Config | albert.Config, parameters: int) -> None:
    with torch.device("meta"):
        model = bert.build(config) if isinstance(config, bert.Config) else albert.build(config)
    assert count(model) == parameters


@pytest.mark.parametrize("top", SHAPES)
def test_tops_and_what_they_give(top: str) -> None:
    ids = torch.randint(0, 23, (2, 7))
    for model in (bert.build(topped(SMALL, top)), albert.build(topped(ALBERT, top))):
        assert model(ids).shape == SHAPES[top]
        assert model.features(ids).shape == (2, 7, 16)


def topped(config: C, top: str) -> C:
    return replace(config, top=top, classes=5)


def test_an_unknown_top_is_told() -> None:
    with pytest.raises(UserError, match=r"no top of an encoder 'word'.*did you mean 'words'"):
        bert.build(topped(SMALL, "word"))


def test_segments_are_felt_and_default_to_the_first() -> None:
    model, ids = bert.build(SMALL).eval(), torch.randint(0, 23, (2, 7))
    first, second = torch.zeros_like(ids), torch.ones_like(ids)
    assert_close(model(ids, Context(), first), model(ids))
    assert (model(ids, Context(), second) - model(ids)).abs().max() > 1e-4
    rows = Rows.of([7, 4])
    marked = model(ids, Context(keep=rows.keep), second)
    packed = model(rows.pack(ids), Context(rows=rows), rows.pack(second))
    assert_close(packed, rows.pack(marked), atol=1e-5, rtol=1e-4)


def test_segments_without_a_table_are_refused() -> None:
    ids = torch.randint(0, 23, (1, 3))
    with pytest.raises(UserError, match="knows no segments"):
        bert.build(bert.Config(vocab=23, dim=16, layers=1, heads=4, segments=0))(ids, Context(), ids * 0)


def test_every_head_of_rows_sees_no_padding() -> None:
    ids, rows = torch.randint(0, 23, (2, 7)), Rows.of([7, 4])
    model = bert.build(topped(SMALL, "pooler")).eval()
    uses = [lambda ids, ctx: pooled(model, ids, ctx), lambda ids, ctx: MeanPool()(model(ids, ctx), ctx)]
    for use in [*uses, bert.build(topped(SMALL, "rows")).eval()]:
        alone = use(ids[1:, :4], Context())
        assert_close(use(ids, Context(keep=rows.keep))[1:], alone, atol=1e-5, rtol=1e-4)
        assert_close(use(rows.pack(ids), Context(rows=rows))[1:], alone, atol=1e-5, rtol=1e-4)


def pooled(model: Trunk, ids: torch.Tensor, ctx: Context) -> torch.Tensor:
    return model.head.pooler(model.features(ids, ctx), ctx)  # type: ignore[operator]


def test_positions_of_roberta_end_where_its_context_does() -> None:
    model = bert.build(bert.Config(vocab=23, context=16, dim=16, layers=1, heads=4, first=2))
    assert model(torch.zeros(1, 16, dtype=torch.long)).shape == (1, 16, 23)
    with pytest.raises(UserError, match="position 16 lies beyond the 16 positions"):
        model(torch.zeros(1, 17, dtype=torch.long))


def test_shared_layers_are_shown_turn_by_turn() -> None:
    model, ids = albert.build(ALBERT).eval(), torch.randint(0, 23, (2, 7))
    with record(model, "*") as trace:
        model(ids)
    assert len(trace.all("0.block.0.attn.weights")) == len(trace.all("0.block.0.out")) == 3
    assert count(model) < count(albert.build(albert.Config(23, 16, 8, 16, layers=3, groups=3, heads=4)))
