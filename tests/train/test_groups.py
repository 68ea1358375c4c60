"""Groups: each parameter once, decay where it means something, depth as the model has it, freezing by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn

from headway.errors import UserError
from headway.training.groups import Depth, depths_of, freeze, groups
from tests.train.models import tiny_albert, tiny_gpt, tiny_mixtral, tiny_rnn, tiny_t5, tiny_transformer

MODELS = [tiny_gpt, tiny_transformer, tiny_t5, tiny_albert, tiny_rnn, tiny_mixtral]
each_model = pytest.mark.parametrize("build", MODELS)


@pytest.mark.slow
@each_model
@pytest.mark.parametrize("layer_decay", [1.0, 0.8])
def test_every_parameter_is_in_one_group_once(build: Callable[[], nn.Module], layer_decay: float) -> None:
    model = build()
    found = [name for group in groups(model, layer_decay=layer_decay) for name in group.parameters]
    assert sorted(found) == sorted(name for name, _ in model.named_parameters())
    keys = [(group.decays, group.share, group.hidden) for group in groups(model, layer_decay=layer_decay)]
    assert len(keys) == len(set(keys))


@each_model
def test_decay_is_for_matrices(build: Callable[[], nn.Module]) -> None:
    for group in groups(build()):
        for name, parameter in group.parameters.items():
            spared = parameter.dim() < 2 or "embed.token" in name or ".table" in name or "segment" in name
            assert group.decays != spared, name


def test_embeddings_decay_where_it_is_asked() -> None:
    decaying = {name for group in groups(tiny_t5(), spared=()) if group.decays for name in group.parameters}
    assert "encoder.embed.token.weight" in decaying
    assert "encoder.stack.blocks.0.attn.body.logit_bias.table" not in decaying


def test_depths_literally() -> None:
    def depth(model: nn.Module, name: str) -> Depth:
        return depths_of(model)[name]

    gpt = tiny_gpt()
    assert depth(gpt, "embed.position.table.weight") == Depth(0, 3)
    assert depth(gpt, "stack.blocks.0.attn.before.bias") == Depth(1, 3)
    assert depth(gpt, "stack.blocks.2.ffn.body.up.weight") == Depth(3, 3)
    assert depth(gpt, "stack.norm.weight") == Depth(4, 3)
    pair = tiny_transformer()
    assert depth(pair, "encoder.embed.token.weight") == Depth(0, 2)
    assert depth(pair, "encoder.stack.blocks.1.attn.before.bias") == Depth(2, 2)
    assert depth(pair, "decoder.stack.blocks.1.attn.before.bias") == Depth(2, 3)
    shared = tiny_albert()
    assert depth(shared, "embed.token.weight") == Depth(0, 4)
    assert depth(shared, "stack.blocks.0.block.blocks.0.attn.body.q.weight") == Depth(4, 4)
    assert depth(shared, "head.dense.weight") == Depth(5, 4)
    recurrent = tiny_rnn()
    assert depth(recurrent, "encoder.stack.rnn.weight_ih_l0_reverse") == Depth(1, 2)
    assert depth(recurrent, "encoder.stack.rnn.bias_hh_l1") == Depth(2, 2)
    assert depth(recurrent, "decoder.embed.token.weight") == Depth(0, 0)
    assert depth(recurrent, "decoder.stack.cell.weight_ih") == Depth(1, 0)
    assert depths_of(nn.Linear(2, 2)) == {"weight": Depth(1, 0), "bias": Depth(1, 0)}


@each_model
def test_shares_fall_from_the_top(build: Callable[[], nn.Module]) -> None:
    model = build()
    depths = depths_of(model)
    for group in groups(model, layer_decay=0.5):
        for name in group.parameters:
            assert group.share == 0.5 ** (depths[name].layers + 1 - depths[name].layer)
    assert max(group.share for group in groups(model, layer_decay=0.5)) == 1.0


def frozen(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


def test_layers_are_frozen_from_below() -> None:
    model = tiny_gpt()
    assert freeze(model, 0) == []
    names = freeze(model, 2)
    assert set(names) == frozen(model)
    below = ("embed.", "stack.blocks.0.", "stack.blocks.1.")
    assert frozen(model) == {name for name, _ in model.named_parameters() if name.startswith(below)}
    with pytest.raises(UserError, match=r"first 4 layers.*0 to 3"):
        freeze(tiny_gpt(), 4)


def test_shared_layers_are_frozen_when_all_their_turns_are() -> None:
    some, every = tiny_albert(), tiny_albert()
    assert all(name.startswith("embed.") for name in freeze(some, 3))
    assert any(name.startswith("stack.") for name in freeze(every, 4))


def test_parts_are_frozen_by_name() -> None:
    model = tiny_transformer()
    freeze(model, ("encoder.embed", "encoder.stack.blocks.0", "decoder.*.cross"))
    expected = {
        name
        for name, _ in model.named_parameters()
        if name.startswith(("encoder.embed.", "encoder.stack.blocks.0."))
        or (name.startswith("decoder.") and ".cross." in name)
    }
    assert frozen(model) == expected


def test_a_name_does_not_match_a_longer_one() -> None:
    model = nn.Module()
    model.blocks = nn.ModuleList(nn.Linear(1, 1) for _ in range(12))
    freeze(model, ("blocks.1",))
    assert frozen(model) == {"blocks.1.weight", "blocks.1.bias"}


def test_a_tied_parameter_is_frozen_by_any_of_its_names() -> None:
    model = tiny_transformer()
    assert freeze(model, ("decoder.head",)) == ["encoder.embed.token.weight"]


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no parameter is called 'encoder.embd'.*did you mean 'encoder.embed'"):
        freeze(tiny_transformer(), ("encoder.stack", "encoder.embd"))
    model = tiny_transformer()
    with pytest.raises(UserError):
        freeze(model, ("encoder.stack", "encoder.embd"))
    assert frozen(model) == set()


def test_something_must_be_left_to_train() -> None:
    model = tiny_gpt()
    freeze(model, ("*",))
    with pytest.raises(UserError, match="no parameter is left to train"):
        groups(model)
    with pytest.raises(UserError, match="layer_decay=0"):
        groups(tiny_gpt(), layer_decay=0.0)
