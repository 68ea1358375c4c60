"""Learned scores: each equals its formula pair by pair, learns, and is evaluated by every way that attention has."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.attention import SelfAttention
from headway.nn.context import Context
from headway.nn.learned_score import AdditiveScore, BilinearScore, CosineScore
from headway.nn.trace import Trace
from headway.ops.attend import DotScore, attend

HEADS, WIDTH = 2, 6
Made = AdditiveScore | BilinearScore | CosineScore
SCORES: dict[str, Callable[[], Made]] = {
    "additive": lambda: AdditiveScore(WIDTH),
    "bilinear": lambda: BilinearScore(WIDTH),
    "cosine": lambda: CosineScore(HEADS),
}
every_score = pytest.mark.parametrize("make", SCORES.values(), ids=SCORES)


def pair(q: Tensor, k: Tensor, score: Made, head: int) -> Tensor:
    """The score of one query and one key, by its formula."""
    match score:
        case AdditiveScore():
            return sum((score.v[a] * torch.tanh(q[a] + k[a]) for a in range(WIDTH)), torch.zeros(()))
        case BilinearScore():
            return sum((q[a] * score.weight[a, b] * k[b] for a in range(WIDTH) for b in range(WIDTH)), torch.zeros(()))
        case CosineScore():
            factor = min(exp(score.log_factor[head, 0, 0].item()), score.most)
            return (q @ k) / q.norm() / k.norm() * factor


@every_score
def test_each_pair_has_the_score_of_its_formula(make: Callable[[], Made]) -> None:
    score = make()
    q, k = torch.randn(1, HEADS, 3, WIDTH), torch.randn(1, HEADS, 4, WIDTH)
    got = score(q, k)
    assert got.shape == (1, HEADS, 3, 4)
    for h in range(HEADS):
        for t in range(3):
            for s in range(4):
                assert_close(got[0, h, t, s], pair(q[0, h, t], k[0, h, s], score, h))


@every_score
def test_gradients_are_right(make: Callable[[], Made]) -> None:
    score = make().double()
    q, k = (torch.randn(1, HEADS, n, WIDTH, dtype=torch.double, requires_grad=True) for n in (2, 3))

    def loss(q: Tensor, k: Tensor, *_: Tensor) -> Tensor:
        return attend(q, k, k, score=score)

    assert torch.autograd.gradcheck(loss, (q, k, *score.parameters()))


@every_score
def test_an_identity_edit_changes_nothing(make: Callable[[], Made]) -> None:
    model, x = SelfAttention(HEADS * WIDTH, HEADS, score=make()), torch.randn(2, 5, HEADS * WIDTH)
    assert_close(model(x, Context(trace=Trace(model, edit={"weights": lambda w: w}))), model(x))


@pytest.mark.slow
@every_score
def test_attention_that_uses_it_is_captured_whole(make: Callable[[], Made]) -> None:
    model, x = SelfAttention(HEADS * WIDTH, HEADS, score=make()), torch.randn(2, 5, HEADS * WIDTH)
    assert_close(torch.compile(model, fullgraph=True, backend="eager")(x), model(x))


@every_score
def test_it_learns_and_lets_queries_and_keys_learn_from_the_start(make: Callable[[], Made]) -> None:
    model = SelfAttention(HEADS * WIDTH, HEADS, score=make())
    model(torch.randn(2, 5, HEADS * WIDTH)).square().sum().backward()
    parameters = dict(model.named_parameters())
    own = [name for name in parameters if name.startswith("score.")]
    assert own
    for name in [*own, "q.weight", "k.weight"]:
        gradient = parameters[name].grad
        assert gradient is not None
        assert gradient.abs().max() > 0


def test_those_that_are_dot_products_take_the_fused_kernel() -> None:
    assert isinstance(BilinearScore(4), DotScore)
    assert isinstance(CosineScore(4), DotScore)
    assert not isinstance(AdditiveScore(4), DotScore)


def test_bilinear_keys_may_have_their_own_width() -> None:
    score, q, k = BilinearScore(3, 5), torch.randn(1, 1, 2, 3), torch.randn(1, 1, 4, 5)
    assert_close(score(q, k), q @ score.weight @ k.mT)


def test_bilinear_logits_start_with_variance_one() -> None:
    logits = BilinearScore(64, 128)(torch.randn(1, 1, 300, 64), torch.randn(1, 1, 300, 128))
    assert 0.8 < logits.var().item() < 1.25


def test_cosine_starts_at_its_start_and_stops_at_most() -> None:
    q = torch.randn(1, HEADS, 1, WIDTH)
    assert_close(CosineScore(HEADS, start=7.0)(q, 3 * q), torch.full((1, HEADS, 1, 1), 7.0))
    score = CosineScore(HEADS, most=20.0)
    nn.init.constant_(score.log_factor, log(50.0))
    assert_close(score(q, q), torch.full((1, HEADS, 1, 1), 20.0))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: AdditiveScore(0), "AdditiveScore(width=0) is empty; allowed: sizes of 1 or more"),
        (lambda: BilinearScore(4, 0), "BilinearScore(dim=4, key_dim=0) is empty; allowed: sizes of 1 or more"),
        (lambda: CosineScore(0), "CosineScore(heads=0) is empty; allowed: sizes of 1 or more"),
        (
            lambda: CosineScore(2, most=10.0, start=20.0),
            "CosineScore(start=20, most=10) could not learn; allowed: 0 < start ≤ most",
        ),
        (
            lambda: CosineScore(2, start=0.0),
            "CosineScore(start=0, most=100) could not learn; allowed: 0 < start ≤ most",
        ),
    ],
)
def test_impossible_sizes_are_told(make: Callable[[], Made], told: str) -> None:
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == told
