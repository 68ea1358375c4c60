"""The Transformer as courses write it: its parts by their definitions, and equal outputs in the zoo's layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway import lecture
from headway.errors import UserError
from headway.nn.attention import Attention
from headway.nn.context import Context
from headway.nn.ffn import FFN
from headway.ops.pattern import Causal, Positions
from headway.zoo import transformer
from headway.zoo.build import build, config_of, on_meta

SOURCE, TARGET = 29, 23
SMALL = transformer.Config(
    vocab=TARGET, source_vocab=SOURCE, dim=32, layers=2, heads=4, hidden=80, norm="unbiased", eps=1e-6
)


def small(norm: lecture.Norm | None = None, dropout: float = 0.1) -> lecture.EncoderDecoder:
    torch.manual_seed(0)
    model = lecture.make_model(SOURCE, TARGET, 2, 32, 80, 4, dropout, norm).eval()
    for parameter in model.parameters():  # norms and biases that a conversion could lose
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.5)
    return model


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sources of 9 and 6 tokens, targets of 7, and their masks."""
    drawn = torch.Generator().manual_seed(2)
    source = torch.randint(1, SOURCE, (2, 9), generator=drawn)
    target = torch.randint(1, TARGET, (2, 7), generator=drawn)
    source_mask = torch.ones(2, 1, 9, dtype=torch.bool)
    source_mask[1, :, 6:] = False
    return source, target, source_mask, lecture.subsequent_mask(7)


# in float64: logits of 4 in float32 may differ by more than 1e-6 where a processor sums in another order
def taught(model: lecture.EncoderDecoder) -> Tensor:
    exact = deepcopy(model).double()
    return exact.generator(exact(*batch()))


def ours(model: nn.Module) -> Tensor:
    source, target, keep, _ = batch()
    return F.log_softmax(deepcopy(model).double()(source, target, Context(keep=keep), Context()), dim=-1)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [None, partial(nn.LayerNorm, eps=1e-5)], ids=["its own norm", "torch's norm"])
def test_the_zoo_computes_the_same_and_gives_the_weights_back(norm: lecture.Norm | None) -> None:
    model = small(norm)
    config = lecture.zoo_config(model)
    same = lecture.to_zoo(model)
    torch.testing.assert_close(ours(same), taught(model), rtol=0, atol=1e-12)
    back = lecture.from_zoo(same, config)
    assert all(torch.equal(x, back.state_dict()[name]) for name, x in model.state_dict().items())
    assert lecture.zoo_config(back) == config


@pytest.mark.slow
def test_a_model_of_the_zoo_computes_the_same_here() -> None:
    torch.manual_seed(0)
    for config in (SMALL, replace(SMALL, norm="layer", attention_dropout=0.2, act_dropout=0.3)):
        model = transformer.build(config).eval()
        made = lecture.from_zoo(model, config)
        torch.testing.assert_close(taught(made), ours(model), rtol=0, atol=1e-12)
        assert lecture.zoo_config(made) == config


def test_the_two_norms_differ() -> None:
    """The reason why the zoo has both."""
    model = small()
    config = replace(lecture.zoo_config(model), norm="layer")
    other = transformer.build(config).eval()
    other.load_state_dict(lecture.to_zoo(model).state_dict())
    assert (ours(other) - taught(model)).abs().max() > 1e-3


@pytest.mark.slow
def test_it_has_as_many_parameters_as_the_base_model() -> None:
    with torch.device("meta"):
        model = lecture.make_model(37_000, 37_000)
    assert count(model) == count(on_meta("transformer-base")) == 101_009_544


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_its_norm_divides_by_the_unbiased_deviation_plus_epsilon() -> None:
    norm = lecture.LayerNorm(4, eps=0.5)
    x = torch.tensor([[1.0, 2.0, 3.0, 6.0]])  # mean 3, squares 14, deviation √(14/3)
    expected = (x - 3.0) / ((14 / 3) ** 0.5 + 0.5)
    torch.testing.assert_close(norm(x), expected)


def test_masks() -> None:
    assert lecture.subsequent_mask(3).int().tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]
    positions = Positions.run(0, 5, torch.device("cpu"))
    assert torch.equal(lecture.subsequent_mask(5), Causal().keep(positions.at, positions.at).expand(1, 5, 5))
    q, k, v = torch.randn(3, 1, 2, 4, 8)
    _, weights = lecture.attention(q, k, v, lecture.subsequent_mask(4)[:, None])
    assert weights.triu(1).abs().max() == 0.0
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 4))


def test_no_target_token_sees_a_later_one_and_none_sees_hidden_source_tokens() -> None:
    model, (source, target, source_mask, target_mask) = small(), batch()
    before = model(source, target, source_mask, target_mask)
    changed, later = source.clone(), target.clone()
    changed[1, 6:], later[:, 4:] = 1, 1
    after = model(changed, later, source_mask, target_mask)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


Parts = Callable[[Any], list[Any]]
PLACES: dict[str, tuple[Parts, Parts]] = {
    "embeddings": (
        lambda m: [m.src_embed[1].dropout, m.tgt_embed[1].dropout],
        lambda m: [(m.encoder.embed.drop, "p"), (m.decoder.embed.drop, "p")],
    ),
    "attention": (
        lambda m: [part.dropout for part in m.modules() if isinstance(part, lecture.MultiHeadedAttention)],
        lambda m: [(part, "dropout") for part in m.modules() if isinstance(part, Attention)],
    ),
    "feed-forward": (
        lambda m: [part.dropout for part in m.modules() if isinstance(part, lecture.PositionwiseFeedForward)],
        lambda m: [(part.drop, "p") for part in m.modules() if isinstance(part, FFN)],
    ),
    "sublayers": (
        lambda m: [layer.sublayer[1].dropout for layer in (*m.encoder.layers, *m.decoder.layers)],
        lambda m: [
            *((block.ffn.drop, "p") for block in m.encoder.stack.blocks),
            *((block.cross.drop, "p") for block in m.decoder.stack.blocks),
        ],
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_dropout_stands_where_the_zoo_has_it(place: str) -> None:
    """All values dropped in one place, and none elsewhere: the outputs are still equal, and others than before."""
    model: Any = small(dropout=0.0)
    same: Any = lecture.to_zoo(model)
    before = taught(model)
    theirs, here = PLACES[place]
    for part in theirs(model):
        part.p = 1.0
    for part, name in here(same):
        setattr(part, name, 1.0)
    model.train()
    same.train()
    torch.manual_seed(1)
    found, expected = taught(model), ours(same)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert (found - before).abs().max() > 1e-3


def test_every_rate_is_the_one_given() -> None:
    model = small(dropout=0.3)
    assert {part.p for part in model.modules() if isinstance(part, nn.Dropout)} == {0.3}
    config = lecture.zoo_config(model)
    assert (config.dropout, config.attention_dropout, config.act_dropout) == (0.3, 0.3, 0.3)


def test_clones_are_copies() -> None:
    first, second = (copy.state_dict(keep_vars=True) for copy in lecture.clones(nn.Linear(2, 2), 2))
    assert torch.equal(first["weight"], second["weight"])
    assert first["weight"] is not second["weight"]


@pytest.mark.slow
def test_it_learns_to_copy() -> None:
    torch.manual_seed(0)
    model = lecture.make_model(11, 11, 1, 32, 64, 4, dropout=0.0)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = list[float]()
    for _ in range(80):
        rows = torch.randint(1, 11, (32, 8))
        features = model(rows, rows[:, :-1], None, lecture.subsequent_mask(7))
        loss = F.nll_loss(model.generator(features).flatten(0, 1), rows[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] > 2.0
    assert losses[-1] < 0.5 * math.log(10)  # of what ten equally likely tokens cost


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"norms": "post"}, "norms='post' has no counterpart in headway.lecture; allowed: norms='pre'"),
        ({"act": "gelu"}, "act='gelu'"),
        ({"tied": "all"}, "tied='all'"),
        ({"decoder_layers": 1}, "decoder_layers=1"),
    ],
)
def test_what_courses_do_not_have_is_refused_by_name(change: dict[str, Any], told: str) -> None:
    config = replace(SMALL, source_vocab=None, **change)
    with pytest.raises(UserError) as caught:
        lecture.from_zoo(transformer.build(config), config)
    assert told in str(caught.value)


def test_other_mistakes_are_refused() -> None:
    with pytest.raises(UserError, match="h=5 does not divide d_model=32"):
        lecture.make_model(5, 5, 1, 32, 8, 5)
    with pytest.raises(UserError, match="RMSNorm has no counterpart"):
        lecture.to_zoo(small(nn.RMSNorm))
    with pytest.raises(UserError, match="5001 tokens, and positions for 5000"):
        lecture.PositionalEncoding(4, 0.0)(torch.zeros(1, 5001, 4))


def test_a_preset_of_the_zoo_takes_both_options() -> None:
    config = config_of("transformer-nano", norm="unbiased", act_dropout=0.1, vocab=9)
    model: Any = build(config)
    assert model.encoder.stack.blocks[0].ffn.body.drop.p == 0.1
    with pytest.raises(UserError, match="no norm 'layr'; allowed: layer, unbiased; did you mean 'layer'"):
        build("transformer-nano", norm="layr")
