"""Laws of the operator: every way to evaluate attention equals the explicit text that defines it.

Axes:  B batch   H heads   G kv-heads   T queries   S keys   D head width
"""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from headway.ops import attention_map as maps
from headway.ops.attend import DOT, Additive, Bilinear, Cosine, Dot, Score, SoftCapped, attend
from headway.ops.attention_map import AttentionMap, JoinedMap, Weights
from headway.ops.pattern import Causal, Chunked, Full, Global, Pattern, Positions, Prefix, Window, both

PATTERNS: list[Pattern] = [
    Full(),
    Causal(),
    Causal(window=1),
    Causal(window=3),
    Window(2),
    Chunked(5),
    Prefix(4),
    Global(2),
    Causal() & Chunked(6),
    Window(1) | Global(2),
    Causal(window=2) | Global(1),
]
SCORES = {
    "dot": lambda: DOT,
    "unscaled": lambda: Dot(scale=1.0),
    "bilinear": lambda: Bilinear(torch.randn(8, 8)),
    "cosine": lambda: Cosine(torch.randn(4, 1, 1)),
    "capped": lambda: SoftCapped(0.8),
}

patterns = st.sampled_from(PATTERNS)
lengths = st.integers(1, 17)


def identity(weights: Tensor) -> Tensor:
    return weights


def qkv(T: int, S: int, G: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    shapes = ((2, 4, T, 8), (2, G, S, 8), (2, G, S, 8))
    q, k, v = (torch.randn(shape, generator=draw, requires_grad=True) for shape in shapes)
    return q, k, v


def hidden_at_random(T: int, S: int, seed: int = 0) -> Tensor:
    """A mask of which the second row's first query sees nothing at all."""
    keep = torch.rand(2, T, S, generator=torch.Generator().manual_seed(seed)) > 0.4
    keep[1, 0] = False
    return keep


OPTIONS = list(itertools.product((1, 2, 4), (False, True), ("none", "padding", "each"), (False, True), SCORES, (1, 7)))


@pytest.mark.parametrize(("G", "biased", "mask", "causal", "score", "T"), OPTIONS)
def test_fused_is_explicit(G: int, biased: bool, mask: str, causal: bool, score: str, T: int) -> None:
    """Values and gradients agree over every combination of options; a query that sees nothing gives zeros."""
    q, k, v = qkv(T, 7, G)
    bias = torch.randn(1, 4, T, 7, requires_grad=True) if biased else None
    keep = {"none": None, "padding": hidden_at_random(1, 7), "each": hidden_at_random(T, 7)}[mask]
    chosen: Score = SCORES[score]()
    fast, slow = (
        attend(q, k, v, keep=keep, bias=bias, causal=causal, score=chosen, edit=edit) for edit in (None, identity)
    )
    assert_close(fast, slow, atol=1e-5, rtol=1e-5)
    assert fast.isfinite().all()
    if keep is not None:
        assert fast[1, :, 0].eq(0).all()
    leaves = [q, k, v] if bias is None else [q, k, v, bias]
    pull = torch.randn_like(fast)
    for a, b in zip(*(torch.autograd.grad((y * pull).sum(), leaves) for y in (fast, slow)), strict=True):
        assert_close(a, b, atol=2e-5, rtol=1e-4)
        assert a.isfinite().all()


def test_explicit_is_softmax() -> None:
    """The definition itself, against the formula written out once more for one query."""
    q, k, v = qkv(3, 5)
    bias, keep = torch.randn(2, 4, 3, 5), torch.tensor([True, True, False, True, True]).expand(2, 3, 5)
    logits = torch.einsum("d,sd->s", q[1, 2, 1], k[1, 2]) / 8**0.5 + bias[1, 2, 1]
    e = logits.exp() * keep[1, 1]
    expected = (e / e.sum()) @ v[1, 2]
    assert_close(attend(q, k, v, keep=keep, bias=bias, edit=identity)[1, 2, 1], expected)


@pytest.mark.parametrize("edit", [None, identity])
def test_a_query_that_sees_nothing_gives_zeros(edit: None) -> None:
    q, k, v = qkv(3, 5)
    y = attend(q, k, v, keep=torch.zeros(2, 1, 5, dtype=torch.bool), edit=edit)
    assert y.eq(0).all()
    assert all(grad.eq(0).all() for grad in torch.autograd.grad(y.sum(), (q, k, v)))


@pytest.mark.parametrize("edit", [None, identity])
def test_an_empty_memory_gives_zeros(edit: None) -> None:
    q, k, v = qkv(3, 0)
    assert attend(q, k, v, edit=edit).eq(0).all()
    assert attend(q, k, v, keep=torch.ones(2, 3, 0, dtype=torch.bool), edit=edit).shape == (2, 4, 3, 8)


def test_kv_heads_are_repeated_heads() -> None:
    q, k, v = qkv(6, 7, G=2)
    repeated = (x.repeat_interleave(2, 1) for x in (k, v))
    assert_close(attend(q, k, v), attend(q, *repeated))


def test_additive_score_is_its_formula() -> None:
    q, k, v = qkv(3, 4)
    w = torch.randn(8)
    logits = Additive(w)(q, k)
    assert_close(logits[1, 2, 0, 3], w @ torch.tanh(q[1, 2, 0] + k[1, 2, 3]))
    assert_close(attend(q, k, v, score=Additive(w)), logits.softmax(-1) @ v)


def test_cosine_score_is_its_formula() -> None:
    q, k, _ = qkv(3, 4)
    factor = torch.tensor([0.0, 1.0, 2.0, 9.0])[:, None, None]
    angle = torch.nn.functional.cosine_similarity(q[:, :, :, None], k[:, :, None], dim=-1)
    assert_close(Cosine(factor)(q, k), angle * factor.exp().clamp(max=100.0))


def test_capped_score_is_its_formula() -> None:
    q, k, v = qkv(5, 7)
    logits = 0.8 * torch.tanh(q @ k.mT * 8**-0.5 / 0.8)
    assert logits.abs().max() < 0.8 < (q @ k.mT * 8**-0.5).abs().max()
    assert_close(attend(q, k, v, score=SoftCapped(0.8)), logits.softmax(-1) @ v)


def test_dropout_is_of_weights() -> None:
    """In training the kept weights are enlarged so that the mean stays: fused and explicit alike."""
    q, k, v = (x.detach() for x in qkv(4, 6))
    v = torch.ones_like(v)
    for edit in (None, identity):
        mean = torch.stack([attend(q, k, v, dropout=0.5, edit=edit) for _ in range(400)]).mean()
        assert abs(mean.item() - 1.0) < 0.05


# ---- patterns: what they say of positions, of spans, and in blocks


def seen(pattern: Pattern, q: int, k: int) -> bool:
    """Each pattern's meaning in words of single positions."""
    match pattern:
        case Full():
            return True
        case Causal(window):
            return q - k >= 0 and (window is None or q - k < window)
        case Window(radius):
            return abs(q - k) <= radius
        case Chunked(size):
            return q // size == k // size
        case Prefix(length):
            return k <= q or k < length
        case Global(tokens):
            return k < tokens or q < tokens
    joined = (seen(pattern.a, q, k), seen(pattern.b, q, k))  # type: ignore[attr-defined]
    return all(joined) if type(pattern).__name__ == "Both" else any(joined)


@given(patterns, lengths, lengths, st.integers(0, 9))
def test_keep_is_the_pattern(pattern: Pattern, T: int, S: int, start: int) -> None:
    queries, keys = Positions.run(start, T), Positions.run(0, S)
    keep = pattern.keep(queries.at, keys.at)
    keep = torch.ones(1, T, S, dtype=torch.bool) if keep is None else keep
    expected = [[seen(pattern, q, k) for k in range(S)] for q in range(start, start + T)]
    assert keep[0].tolist() == expected


@given(patterns, lengths, lengths, st.integers(0, 9))
def test_spans_tell_the_truth(pattern: Pattern, T: int, S: int, start: int) -> None:
    """Nothing is seen outside `reach`, everything inside what `covers` vouches for, nothing ahead unless it says so."""
    queries = range(start, start + T)
    reached = pattern.reach((start, start + T))
    covered = pattern.covers((start, start + T), (0, S))
    for q, k in itertools.product(queries, range(S)):
        inside = any(first <= k < last for first, last in reached)
        assert inside or not seen(pattern, q, k)
        assert seen(pattern, q, k) or not covered
        assert k <= q or pattern.looks_ahead() or not seen(pattern, q, k)


@pytest.mark.slow
@given(patterns, lengths, lengths, st.integers(0, 9), st.booleans(), st.booleans(), st.integers(1, 6))
def test_blocks_are_the_whole(
    pattern: Pattern, T: int, S: int, start: int, known: bool, padded: bool, block: int
) -> None:
    """By blocks, in one piece, with positions known or only as data: one result, and one gradient."""
    q, k, v = qkv(T, S, G=2)
    keep = hidden_at_random(1, S) if padded else None
    q_pos, k_pos = Positions.run(start, T), Positions.run(0, S)
    if not known:
        q_pos, k_pos = Positions(q_pos.at), Positions(k_pos.at)
    amap = AttentionMap(q, k, q_pos, k_pos, pattern, keep, bias=slope)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maps, "BLOCK", block)
        for again in (False, True):
            by_blocks = torch.cat([amap.part(*span).times(v, 0.0, again) for span in amap.blocks()], 2)
            seen_by = both(keep, pattern.keep(q_pos.at, k_pos.at))
            whole = attend(q, k, v, keep=seen_by, bias=slope(q, k, q_pos, k_pos), edit=identity)
            assert_close(by_blocks, whole, atol=1e-5, rtol=1e-5)
            grads = (torch.autograd.grad(y.square().sum(), (q, k, v), retain_graph=True) for y in (by_blocks, whole))
            for a, b in zip(*grads, strict=True):
                assert_close(a, b, atol=1e-4, rtol=1e-4)
        assert_close(amap.times(v), whole, atol=1e-5, rtol=1e-5)


def slope(q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
    """A bias that depends on all it is given."""
    distance = q_pos.at[:, None, :, None] - k_pos.at[:, None, None, :]
    return 0.1 * distance + q.mean(-1, keepdim=True) + k.mean((1, 3))[:, None, None, :]


@pytest.mark.slow
@given(patterns, lengths)
def test_a_window_as_long_as_the_input_is_full(pattern: Pattern, T: int) -> None:
    q, k, v = qkv(T, T)
    known = Positions.run(0, T)
    pairs: list[tuple[Pattern, Pattern]] = [
        (Causal(window=T), Causal()),
        (Window(T), Full()),
        (Chunked(T), Full()),
        (Prefix(T), Full()),
        (Global(T), Full()),
        (pattern & Window(T), pattern),
    ]
    for (wide, plain), run in itertools.product(pairs, (known, Positions(known.at))):
        assert_close(*(AttentionMap(q, k, run, run, p).times(v) for p in (wide, plain)), atol=1e-6, rtol=1e-5)


# ---- reading: every question put to a lazy map has the answer of the matrix written out


@pytest.mark.slow
@given(patterns, lengths, lengths, st.booleans(), st.integers(1, 40))
def test_reading_is_the_matrix(pattern: Pattern, T: int, S: int, padded: bool, cells: int) -> None:
    q, k, v = qkv(T, S, G=2)
    keep = hidden_at_random(T, S) if padded else None
    run, keys = Positions.run(0, T), Positions.run(0, S)
    seen_weights: list[Tensor] = []
    full_keep = both(keep, pattern.keep(run.at, keys.at))
    y = attend(q, k, v, keep=full_keep, edit=lambda w: seen_weights.append(w) or w)
    (matrix,) = seen_weights
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.ops.attention_map.CELLS", cells)
        for read in (AttentionMap(q, k, run, keys, pattern, keep), Weights(matrix), joined(matrix)):
            assert read.shape == matrix.shape
            assert_close(read.full(), matrix)
            assert_close(read.rows(T // 2, T), matrix[:, :, T // 2 :])
            assert_close(read.entropy(), torch.special.entr(matrix).sum(-1))
            assert_close(read.received(), matrix.sum(2))
            top = read.top(3)
            assert_close(top.weights, matrix.topk(min(3, S)).values)
            assert_close(matrix.gather(3, top.keys), top.weights)
            assert_close(read.full() @ v.repeat_interleave(2, 1), y, atol=1e-5, rtol=1e-5)


def joined(matrix: Tensor) -> JoinedMap:
    return JoinedMap([Weights(matrix[:, :, i : i + 1]) for i in range(matrix.shape[2])])


def test_received_counts_the_queries_it_is_told() -> None:
    q, k, _ = qkv(4, 4)
    run = Positions.run(0, 4)
    amap = AttentionMap(q, k, run, run)
    real = torch.tensor([[True, True, True, True], [True, True, False, False]])
    assert_close(amap.received(real)[1], amap.full()[1, :, :2].sum(1))


def test_the_exercise_of_the_lecture() -> None:
    x = torch.tensor([[0.0, 1, 1, 1, 1, 0], [1, 1, 0, -1, -1, 1]])
    q, k, v = (part[None, None] for part in x.split(2, 1))
    y = attend(q, k, v)
    assert_close(y[0, 0, 0], torch.tensor([0.608859, 0.195570]), atol=1e-6, rtol=0)
    run = Positions.run(0, 2)
    assert_close(
        AttentionMap(q, k, run, run).rows(0, 1)[0, 0, 0], torch.tensor([0.804430, 0.195570]), atol=1e-6, rtol=0
    )
