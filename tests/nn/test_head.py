"""Heads: those of tokens work on any selection, those of rows see all real tokens and nothing else.

Axes:  B batch   T tokens   Y X grid   C width   V vocabulary   K classes
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.context import EMPTY, Context, PackedLengths
from headway.nn.head import (
    AttentionPool,
    Classifier,
    CTCHead,
    FirstToken,
    LastToken,
    LMHead,
    MeanPool,
    MLMHead,
    TanhLayer,
    TokenClassifier,
)
from headway.nn.trace import record
from headway.ops.attention_map import Readable

C, V, K, T = 8, 11, 4, 7
close = {"atol": 5e-6, "rtol": 1e-5}

TOKEN_HEADS: dict[str, Callable[[], nn.Module]] = {
    "lm": lambda: LMHead(C, V),
    "lm bias": lambda: LMHead(C, V, bias=True, tied=nn.Embedding(V, C), scale=C**-0.5),
    "mlm": lambda: MLMHead(C, V, norm=partial(nn.LayerNorm, eps=1e-12)),
    "token classes": lambda: TokenClassifier(C, K, dropout=0.1),
    "ctc": lambda: CTCHead(C, V),
}
POOLS: dict[str, Callable[[], nn.Module]] = {
    "first": FirstToken,
    "last": LastToken,
    "mean": MeanPool,
    "attention": lambda: AttentionPool(C, 2),
}
ROW_HEADS: dict[str, Callable[[], nn.Module]] = {
    **{
        name: lambda pool=pool: Classifier(C, K, pool=pool(), norm=nn.LayerNorm(C), inside=TanhLayer(C), dropout=0.1)
        for name, pool in POOLS.items()
    },
    "plain": lambda: Classifier(C, K),
}
token_heads = pytest.mark.parametrize("name", TOKEN_HEADS)
row_heads = pytest.mark.parametrize("name", ROW_HEADS)
every = pytest.mark.parametrize("name", [*TOKEN_HEADS, *ROW_HEADS])


def built(name: str) -> nn.Module:
    torch.manual_seed(1)
    head = (TOKEN_HEADS.get(name) or ROW_HEADS[name])().eval()
    for parameter in head.parameters():
        if parameter.abs().max() == 0:
            nn.init.normal_(parameter)
    return head


def vectors(*shape: int) -> Tensor:
    return torch.randn(*(shape or (3, T)), C, generator=torch.Generator().manual_seed(2))


# ---- heads of tokens


@token_heads
def test_any_selection_of_tokens(name: str) -> None:
    head, x = built(name), vectors()
    y, chosen = head(x), torch.rand(3, T) < 0.5
    assert_close(head(x[chosen]), y[chosen], **close)
    assert_close(head(x[1, 2]), y[1, 2], **close)
    assert_close(head(x[:, None, :, None]), y[:, None, :, None], **close)
    rows = PackedLengths.of([2, 5])
    assert_close(head(rows.pack(x[:2, :5]), Context(rows=rows)), rows.pack(y[:2, :5]), **close)


def test_tied_weights_are_one_parameter() -> None:
    words = nn.Embedding(V, C)
    for tied in (words, words.weight):
        assert isinstance(tied, nn.Embedding | nn.Parameter)
        head, masked = LMHead(C, V, tied=tied), MLMHead(C, V, tied=tied)
        assert head.weight is words.weight
        assert masked.words.weight is words.weight
    model = nn.ModuleDict({"words": words, "head": LMHead(C, V, tied=words)})
    assert len(list(model.parameters())) == 1
    model["head"](words(torch.tensor([3]))).sum().backward()
    assert words.weight.grad is not None
    assert words.weight.grad.ne(0).all()


def test_heads_by_hand() -> None:
    x = vectors()
    lm, mlm, ctc = built("lm bias"), built("mlm"), built("ctc")
    assert isinstance(lm, LMHead)
    assert isinstance(mlm, MLMHead)
    assert isinstance(ctc, CTCHead)
    assert_close(lm(x), x * C**-0.5 @ lm.weight.T + lm.bias)
    assert_close(mlm(x), mlm.norm(F.gelu(mlm.dense(x))) @ mlm.words.weight.T + mlm.words.bias)
    assert_close(ctc(x).exp().sum(-1), torch.ones(3, T))
    assert ctc.bfloat16()(x.bfloat16()).dtype == torch.float32


def test_ctc_loss_takes_the_blank_at_zero() -> None:
    ctc = built("ctc")
    with torch.no_grad():
        ctc.bias[0] = 50.0  # type: ignore[index]
    lengths, none = torch.tensor([T]), torch.tensor([0])
    logs = ctc(vectors(1, T)).transpose(0, 1)  # T B V
    assert F.ctc_loss(logs, torch.zeros(1, 0, dtype=torch.long), lengths, none) < 1e-4


# ---- heads of rows


def test_pools_by_eye() -> None:
    x = torch.tensor([[[1.0], [2.0], [4.0], [8.0]]])
    keep = torch.tensor([[[False, True, True, False]]])
    for pool, whole, part in ((FirstToken(), 1.0, 2.0), (LastToken(), 8.0, 4.0), (MeanPool(), 3.75, 3.0)):
        assert pool(x).item() == whole
        assert pool(x, Context(keep=keep)).item() == part


@row_heads
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("left", [0, 2])
def test_padding_on_either_side_changes_nothing(name: str, length: int, left: int) -> None:
    head, x, keep = built(name), vectors(), torch.ones(3, 1, T, dtype=torch.bool)
    keep[1, :, :left] = keep[1, :, left + length :] = False
    alone = torch.cat([head(x[:1]), head(x[1:2, left : left + length]), head(x[2:])])
    assert_close(head(x.masked_fill(~keep[:, 0, :, None], 9.0), Context(keep=keep)), alone, **close)


@row_heads
@given(lengths=st.lists(st.integers(1, T), min_size=1, max_size=4))
@settings(max_examples=10)
def test_packed_is_padded(name: str, lengths: list[int]) -> None:
    head, rows = built(name), PackedLengths.of(lengths)
    x = vectors(len(lengths), rows.longest)
    assert_close(head(rows.pack(x), Context(rows=rows)), head(x, Context(keep=rows.keep)), **close)


@row_heads
def test_a_grid_is_its_cells_in_a_row(name: str) -> None:
    head, x = built(name), vectors(2, 3, 4)
    assert head(x).shape == (2, K)
    assert_close(head(x), head(x.flatten(1, 2)))


@row_heads
def test_a_batch_is_its_rows(name: str) -> None:
    head, x = built(name), vectors()
    assert_close(head(x), torch.cat([head(x[i : i + 1]) for i in range(3)]), atol=5e-6, rtol=0)


def test_what_the_learned_query_sees_can_be_read() -> None:
    head, x = built("attention"), vectors()
    keep = torch.arange(T) < torch.tensor([7, 3, 1])[:, None]
    with record(head) as trace:
        head(x, Context(keep=keep[:, None]))
    amap = trace["pool.attention.weights"]
    assert isinstance(amap, Readable)
    assert amap.shape == (3, 2, 1, T)
    assert_close(amap.full().sum(-1), torch.ones(3, 2, 1))
    assert amap.full()[1, :, :, 3:].eq(0).all()


# ---- gradients, capture, errors


@every
@pytest.mark.parametrize("keep", [None, torch.tensor([[[1, 1, 0]], [[0, 1, 1]]]).bool()])
def test_gradients_are_those_of_finite_differences(name: str, keep: Tensor | None) -> None:
    head = built(name).double()
    names = [name for name, _ in head.named_parameters()]
    leaves = [leaf.double().detach().requires_grad_() for leaf in (vectors(2, 3), *head.parameters())]

    def call(x: Tensor, *weights: Tensor) -> Tensor:
        return torch.func.functional_call(head, dict(zip(names, weights, strict=True)), (x, Context(keep=keep)))

    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)


@pytest.mark.slow
@every
@pytest.mark.parametrize("keep", [None, torch.ones(3, 1, T).bool()])
def test_a_head_is_captured_whole(name: str, keep: Tensor | None) -> None:
    torch._dynamo.reset()
    head, x, ctx = built(name), vectors(), EMPTY if keep is None else Context(keep=keep)
    assert_close(torch.compile(head, backend="eager", fullgraph=True)(x, ctx), head(x, ctx), **close)


@every
def test_one_token_is_enough(name: str) -> None:
    assert built(name)(vectors(1, 1)).isfinite().all()


def test_errors_say_what_to_do() -> None:
    with pytest.raises(UserError, match="the tied weight is 11×4; allowed: 11×8, vocab × dim; tie the embedding"):
        LMHead(C, V, tied=nn.Embedding(V, 4))
    with pytest.raises(UserError, match="keep is 3×7×7 for 7 tokens; allowed: B 1 7"):
        Classifier(C, K)(vectors(), Context(keep=torch.ones(3, T, T, dtype=torch.bool)))
