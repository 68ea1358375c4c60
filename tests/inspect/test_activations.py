"""What is pooled from each layer is what that layer gave, sample by sample."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.inspect.activations import FEATURES, layers_of, pooled_layers
from headway.nn.context import EMPTY, Context, PackedLengths
from headway.nn.trace import record
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.zoo import albert, bert, rnn, swin
from headway.zoo.build import build

SIZES = {"dim": 8, "layers": 2, "heads": 2, "hidden": 16}


def trunk_of(model: nn.Module) -> Trunk:
    assert isinstance(model, Trunk)
    return model.eval()


def test_packed_rows_are_pooled_as_each_alone() -> None:
    model = trunk_of(build(bert.Config(vocab=11, context=8, **SIZES)))
    rows = [torch.tensor([1, 5, 3]), torch.tensor([2, 4, 6, 7, 8])]
    packed = pooled_layers(model, model, torch.cat(rows)[None], Context(rows=PackedLengths.of([3, 5])))
    assert list(packed) == ["embed.out", "0.out", "1.out"]
    for at, row in enumerate(rows):
        with torch.no_grad(), record(model, "0.out") as trace:
            model.features(row[None])
        value = trace["0.out"]
        assert isinstance(value, Tensor)
        assert_close(packed["0.out"][at], value[0].mean(0))


def test_of_stages_the_blocks_are_taken_and_grids_pooled() -> None:
    config = swin.Config(image=16, patch=2, dim=8, layers=(2, 1), heads=(2, 2), windows=(2, 2), classes=3)
    model = trunk_of(build(config))
    found = pooled_layers(model, model, torch.randn(2, 3, 16, 16), EMPTY)
    assert list(found) == layers_of(model, model)
    assert "0.out" not in found  # a stage, which gives what its last block gives
    assert {"embed.out", "0.0.out", "0.1.out", "1.0.out"} <= set(found)
    assert all(len(value) == 2 and value.dim() == 2 for value in found.values())


def test_shared_layers_have_a_name_for_each_turn() -> None:
    model = trunk_of(build(albert.Config(vocab=11, context=8, width=4, **SIZES)))
    assert [name.partition("@")[2] for name in pooled_layers(model, model, torch.tensor([[1, 2, 3]]), EMPTY)] == [
        "",
        "0",
        "1",
    ]


def test_where_no_layer_shows_itself_the_features_are_taken() -> None:
    model = build(rnn.Config(vocab=11, dim=8, hidden=8)).eval()
    assert isinstance(model, EncoderDecoder)
    found = pooled_layers(model, model.encoder, torch.tensor([[1, 2, 3]]), EMPTY)
    assert list(found) == ["encoder.embed.out", FEATURES]
