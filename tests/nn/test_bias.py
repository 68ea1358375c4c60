"""Logit biases: each equals its formula pair by pair, and any rows and columns of it are those of the whole.

Axes:  B batch   H heads   G kv-heads   T queries   S keys   D head width
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.attention import SelfAttention
from headway.nn.bias import (
    Alibi,
    ContinuousBias,
    DecomposedBias,
    GridBias,
    NeighbourBias,
    T5Bias,
    TransformerXLBias,
    WindowBias,
    bias_by_distance,
    skew,
)
from headway.nn.context import Context
from headway.nn.trace import Trace
from headway.ops.attend import DOT
from headway.ops.attention_map import AttentionMap, Bias
from headway.ops.pattern import Full, Positions
from headway.ops.relative import alibi_slopes, log_offsets, t5_bucket_backward, t5_bucket_both_ways
from headway.ops.rotary import HALVES, PAIRS

HEADS, WIDTH, DIM = 2, 4, 8
FULL = Full()


@dataclass(frozen=True)
class Case:
    """A bias, its formula for one pair, and how many cells each side has (None: as many as one likes)."""

    make: Callable[[], object]
    formula: Callable[[object, Tensor, Tensor, int, int, int], Tensor]  # (bias, q, k, head, q_pos, k_pos)
    queries: int | None = None
    keys: int | None = None
    grids: tuple[tuple[int, int], tuple[int, int]] | None = None

    def bound(self, made: object) -> Bias:
        return cast(Bias, made) if self.grids is None else cast(GridBias, made).on(*self.grids)

    def parameters(self, made: object) -> list[nn.Parameter]:
        return list(made.parameters()) if isinstance(made, nn.Module) else []


def t5(bias: object, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
    made = cast(T5Bias, bias)
    return made.table[int(made.bucket(torch.tensor(j - i), made.buckets, made.longest)), h]


def alibi(bias: object, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
    return -alibi_slopes(HEADS)[h] * abs(i - j)


def window(bias: object, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
    dy, dx = i // 4 - j // 4, i % 4 - j % 4  # a window of 3×4
    return cast(WindowBias, bias).table[(dy + 2) * 7 + dx + 3, h]


def continuous(bias: object, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
    made = cast(ContinuousBias, bias)

    def log_spaced(d: int, trained: int) -> float:
        far = d / (trained - 1) * 8
        return math.copysign(math.log2(abs(far) + 1) / 3, far)

    dy, dx = i // 4 - j // 4, i % 4 - j % 4
    offset = torch.tensor([log_spaced(dy, 5), log_spaced(dx, 6)], dtype=q.dtype)
    hidden = (made.up.weight @ offset + made.up.bias).clamp(min=0)
    return 16 / (1 + torch.exp(-made.down.weight[h] @ hidden))


def neighbour(bias: object, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
    dy, dx = j // 4 - i // 2, j % 4 - i % 2  # key minus query, from the corner of the 3×3 around the query
    return cast(NeighbourBias, bias).table[min(max(dy, 0), 2) * 3 + min(max(dx, 0), 2), h]


def decomposed(bias: object, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
    made = cast(DecomposedBias, bias)  # queries 4×6, keys 2×3: keys stand two cells of the queries apart
    down = i // 6 - 2 * (j // 3) + 2
    along = i % 6 - 2 * (j % 3) + 4
    return q @ made.rows[down] + q @ made.cols[along]


def transformer_xl(bias: object, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
    made = cast(TransformerXLBias, bias)
    angles = [(i - j) / 10_000 ** (2 * n / DIM) for n in range(DIM // 2)]
    pairs = [[math.sin(a), math.cos(a)] for a in angles]
    pairs = pairs if made.waves.layout == PAIRS else zip(*pairs, strict=True)  # XLNet: all sines first
    r = torch.tensor([number for group in pairs for number in group], dtype=q.dtype)
    place = made.place.weight[h * WIDTH : (h + 1) * WIDTH] @ r
    return (made.u[h] @ k + (q + made.v[h]) @ place) / math.sqrt(WIDTH)


CASES = {
    "t5 encoder": Case(lambda: T5Bias(HEADS, 8, 20), t5),
    "t5 decoder": Case(lambda: T5Bias(HEADS, 8, 20, t5_bucket_backward), t5),
    "alibi": Case(lambda: Alibi(HEADS), alibi),
    "window": Case(lambda: WindowBias(HEADS, 3, 4), window, 12, 12),
    "continuous": Case(lambda: ContinuousBias(HEADS, 3, 4, hidden=5, pretrained=(5, 6)), continuous, 12, 12),
    "neighbour": Case(lambda: NeighbourBias(HEADS, 3), neighbour, 4, 16, ((2, 2), (4, 4))),
    "decomposed": Case(lambda: DecomposedBias(WIDTH, (4, 6), (2, 3)), decomposed, 24, 6, ((4, 6), (2, 3))),
    "transformer-xl": Case(lambda: TransformerXLBias(HEADS, WIDTH, DIM), transformer_xl),
    "xlnet": Case(lambda: TransformerXLBias(HEADS, WIDTH, DIM, layout=HALVES), transformer_xl),
}
LINES = [name for name, case in CASES.items() if case.queries is None]  # over sequences of any length
every_bias = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_line = pytest.mark.parametrize("case", [CASES[name] for name in LINES], ids=LINES)


def inputs(case: Case, batch: int = 2, kv_heads: int = HEADS) -> tuple[Tensor, Tensor, Positions, Positions]:
    T, S = case.queries or 7, case.keys or 9
    q, k = torch.randn(batch, HEADS, T, WIDTH), torch.randn(batch, kv_heads, S, WIDTH)
    start = 0 if case.queries else 3
    return q, k, Positions.run(start, T), Positions.run(0, S)


def unknown(positions: Positions) -> Positions:
    return Positions(positions.at)


@every_bias
def test_each_pair_has_the_bias_of_its_formula(case: Case) -> None:
    made = case.make()
    q, k, q_pos, k_pos = inputs(case)
    got = case.bound(made)(q, k, q_pos, k_pos).expand(2, -1, -1, -1)
    assert got.shape == (2, HEADS, len(q_pos), len(k_pos))
    for b, h in ((0, 0), (1, 1)):
        for t, i in enumerate(q_pos.at[0].tolist()):
            for s, j in enumerate(k_pos.at[0].tolist()):
                assert_close(got[b, h, t, s], case.formula(made, q[b, h, t], k[b, h, s], h, i, j), atol=1e-5, rtol=1e-5)


@every_bias
def test_a_run_and_the_same_positions_as_data_agree(case: Case) -> None:
    bias = case.bound(case.make())
    q, k, q_pos, k_pos = inputs(case)
    assert_close(bias(q, k, q_pos, k_pos), bias(q, k, unknown(q_pos), unknown(k_pos)), atol=1e-5, rtol=1e-5)


@every_bias
@pytest.mark.parametrize("known", [True, False])
@settings(max_examples=15)
@given(data=st.data())
def test_rows_and_columns_are_those_of_the_whole(case: Case, known: bool, data: st.DataObject) -> None:
    bias = case.bound(case.make())
    q, k, q_pos, k_pos = inputs(case)
    if not known:
        q_pos, k_pos = unknown(q_pos), unknown(k_pos)
    a = data.draw(st.integers(0, len(q_pos) - 1))
    b = data.draw(st.integers(a if known else a + 1, len(q_pos)))
    c, d = sorted(data.draw(st.tuples(*[st.integers(0, len(k_pos))] * 2)))
    part = bias(q[:, :, a:b], k[:, :, c:d], q_pos.cut(a, b), k_pos.cut(c, d))
    assert_close(part, bias(q, k, q_pos, k_pos)[:, :, a:b, c:d])


@every_bias
def test_positions_in_any_order_and_for_each_row_of_the_batch(case: Case) -> None:
    bias = case.bound(case.make())
    q, k, q_pos, k_pos = inputs(case)
    whole = bias(q, k, q_pos, k_pos).expand(2, -1, -1, -1)
    rows, cols = (torch.stack([torch.randperm(len(p)) for _ in range(2)]) for p in (q_pos, k_pos))
    each = torch.arange(2)[:, None]
    mixed = bias(
        q.transpose(1, 2)[each, rows].transpose(1, 2),
        k.transpose(1, 2)[each, cols].transpose(1, 2),
        Positions(q_pos.at[0][rows]),
        Positions(k_pos.at[0][cols]),
    )
    for b in range(2):
        assert_close(mixed[b], whole[b][:, rows[b]][:, :, cols[b]], atol=1e-5, rtol=1e-5)


@every_line
@settings(max_examples=25)
@given(T=st.integers(0, 6), S=st.integers(0, 6), start=st.integers(-9, 9), shift=st.integers(-5, 50))
def test_only_distances_matter(case: Case, T: int, S: int, start: int, shift: int) -> None:
    bias = case.bound(case.make())
    q, k = torch.randn(1, HEADS, T, WIDTH), torch.randn(1, HEADS, S, WIDTH)
    here = bias(q, k, Positions.run(start, T), Positions.run(0, S))
    there = bias(q, k, Positions.run(start + shift, T), Positions.run(shift, S))
    assert here.shape == (1, HEADS, T, S)
    assert_close(here, there)


@every_bias
def test_shared_keys_count_as_one_for_each_head(case: Case) -> None:
    bias = case.bound(case.make())
    q, k, q_pos, k_pos = inputs(case, kv_heads=1)
    assert_close(bias(q, k, q_pos, k_pos), bias(q, k.repeat(1, HEADS, 1, 1), q_pos, k_pos))


@pytest.mark.slow
@every_bias
def test_gradients_are_right(case: Case) -> None:
    made = case.make()
    made = made.double() if isinstance(made, nn.Module) else made
    q, k, q_pos, k_pos = inputs(case, batch=1)
    q, k = q.double().requires_grad_(), k.double().requires_grad_()
    bias, v = case.bound(made), torch.randn(1, HEADS, len(k_pos), 1, dtype=torch.double)

    def attended(q: Tensor, k: Tensor, *_: Tensor) -> Tensor:
        return AttentionMap(q, k, q_pos, k_pos, bias=bias).times(v)

    assert torch.autograd.gradcheck(attended, (q, k, *case.parameters(made)))


@pytest.mark.parametrize("name", [name for name in CASES if name != "alibi"])
def test_all_that_is_learned_has_a_gradient(name: str) -> None:
    made = CASES[name].make()
    q, k, q_pos, k_pos = inputs(CASES[name])
    CASES[name].bound(made)(q, k, q_pos, k_pos).square().sum().backward()
    for parameter in CASES[name].parameters(made):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().sum() > 0


@pytest.mark.slow
@every_bias
def test_it_is_captured_whole(case: Case) -> None:
    bias = case.bound(case.make())
    q, k, q_pos, k_pos = inputs(case)

    def attended(q: Tensor, k: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        run = AttentionMap(q, k, q_pos, k_pos, FULL, None, bias, DOT).times(k)
        return run, AttentionMap(q, k, Positions(at), k_pos, FULL, None, bias, DOT).times(k)

    torch._dynamo.reset()  # else the sizes of the case before make these sizes symbols
    compiled = torch.compile(attended, fullgraph=True, backend="eager")
    assert_close(compiled(q, k, q_pos.at), attended(q, k, q_pos.at))


@every_bias
def test_the_map_reads_what_is_evaluated(case: Case) -> None:
    q, k, q_pos, k_pos = inputs(case)
    amap = AttentionMap(q, k, q_pos, k_pos, bias=case.bound(case.make()))
    assert_close(amap.full() @ k, amap.times(k))
    assert_close(amap.rows(2, 4), amap.full()[:, :, 2:4])
    data = replace(amap, q_pos=unknown(q_pos), k_pos=unknown(k_pos))
    assert_close(data.times(k), amap.times(k), atol=1e-5, rtol=1e-5)


@every_line
def test_inside_attention_an_identity_edit_changes_nothing(case: Case) -> None:
    model = SelfAttention(HEADS * WIDTH, HEADS, logit_bias=case.bound(case.make()))
    x = torch.randn(2, 5, HEADS * WIDTH)
    assert_close(model(x, Context(trace=Trace(model, edit={"weights": lambda w: w}))), model(x))


def test_half_precision_stays() -> None:
    q, k, q_pos, k_pos = inputs(CASES["transformer-xl"])
    bias = TransformerXLBias(HEADS, WIDTH, DIM).bfloat16()
    for at in (q_pos, unknown(q_pos)):
        assert bias(q.bfloat16(), k.bfloat16(), at, k_pos).dtype == torch.bfloat16


def test_alibi_by_eye() -> None:
    q = torch.zeros(1, 8, 3, 1)
    got = Alibi(8)(q, q, Positions.run(0, 3), Positions.run(0, 3))
    assert_close(got[0, 0], torch.tensor([[0.0, -0.5, -1.0], [-0.5, 0.0, -0.5], [-1.0, -0.5, 0.0]]))
    assert_close(got[0, 7, 2], torch.tensor([-2 / 256, -1 / 256, 0.0]))


def test_t5_encoder_tells_the_sides_apart_and_the_decoder_does_not_look_ahead() -> None:
    q = torch.zeros(1, 1, 3, 1)
    for bucket, expected in (
        (t5_bucket_both_ways, [[0.0, 17, 18], [1, 0, 17], [2, 1, 0]]),
        (t5_bucket_backward, [[0.0, 0, 0], [1, 0, 0], [2, 1, 0]]),
    ):
        bias = T5Bias(1, bucket=bucket)
        bias.table.data = torch.arange(32.0)[:, None]
        assert_close(bias(q, q, Positions.run(0, 3), Positions.run(0, 3))[0, 0], torch.tensor(expected))


def test_continuous_bias_has_its_own_window_where_none_was_trained() -> None:
    made = ContinuousBias(HEADS, 3, 4)
    values = 16 * made.down(made.up(log_offsets((3, 4))).relu()).sigmoid()
    cell = Positions.run(0, 1)
    assert_close(made(torch.zeros(1), torch.zeros(1), cell, cell)[0, :, 0, 0], values[len(values) // 2])


def test_decomposed_tables_stretch_to_other_grids() -> None:
    made = DecomposedBias(WIDTH, (3, 3), (3, 3))
    made.rows.data = torch.arange(5.0)[:, None].expand(5, WIDTH).clone()
    made.cols.data.zero_()
    q, k = torch.ones(1, 1, 36, WIDTH), torch.zeros(1, 1, 36, WIDTH)
    got = made.on((6, 6), (6, 6))(q, k, Positions.run(0, 36), Positions.run(0, 36))[0, 0] / WIDTH
    down = got[::6, ::6]  # one column: rows against rows
    # half-pixel centres, as torch's interpolation has them: 5 rows as 11
    expected = ((torch.arange(11) + 0.5) * 5 / 11 - 0.5).clamp(0, 4)
    assert_close(down, expected[torch.arange(6)[:, None] - torch.arange(6) + 5])


@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 4), (4, 1), (3, 5), (0, 3)])
def test_skewing_by_eye(T: int, S: int) -> None:
    x = torch.arange(T * (T + S + 1)).view(T, T + S + 1)
    expected = [[x[i, j - i + T].item() for j in range(S)] for i in range(T)]
    assert skew(x).tolist() == expected


def test_values_of_distances_are_computed_once_for_runs() -> None:
    asked: list[int] = []

    def values(distance: Tensor) -> Tensor:
        asked.append(distance.numel())
        return distance[None].float()

    got = bias_by_distance(values, Positions.run(4, 3), Positions.run(0, 2))
    assert got.tolist() == [[[[-4.0, -3.0], [-5.0, -4.0], [-6.0, -5.0]]]]
    assert asked == [6]


CELLS = Positions.run(0, 20)
Q = torch.zeros(1, HEADS, 20, WIDTH)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: Alibi(0), "Alibi(heads=0) is empty; allowed: sizes of 1 or more"),
        (lambda: WindowBias(2, 0, 3), "WindowBias(heads=2, rows=0, cols=3) is empty; allowed: sizes of 1 or more"),
        (
            lambda: ContinuousBias(2, 3, 3, hidden=0),
            "ContinuousBias(heads=2, rows=3, cols=3, hidden=0) is empty; allowed: sizes of 1 or more",
        ),
        (
            lambda: WindowBias(HEADS, 3, 4)(Q, Q, CELLS, CELLS),
            "a bias for windows of 3×4 was given 20 queries and 20 keys; allowed: 12 cells or fewer; "
            "put the attention into Windowed",
        ),
        (
            lambda: NeighbourBias(HEADS, 3).on((2, 2), (8, 8)),
            "a bias for 3×3 neighbours was given 8×8 keys; allowed: 4×4; make it of the size of its attention",
        ),
        (
            lambda: T5Bias(2, buckets=2),
            "1 buckets per direction cannot reach distance 128; allowed: 2 buckets or more per direction, and a "
            "longest distance above half of them",
        ),
        (
            lambda: TransformerXLBias(2, 4, 7),
            "Rotary(head_dim=7) has no pairs to turn; allowed: an even width from 2 to head_dim",
        ),
        (
            lambda: DecomposedBias(4, (0, 2), (1, 1)),
            "DecomposedBias(head_dim=4, q_rows=0, q_cols=2, k_rows=1, k_cols=1) is empty; allowed: sizes of 1 or more",
        ),
    ],
)
def test_mistakes_are_told(call: Callable[[], object], told: str) -> None:
    with pytest.raises(UserError) as error:
        call()
    assert str(error.value) == told
