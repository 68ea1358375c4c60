"""Rotary embedding: its laws, and each scaling against the published formula written out for one frequency."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from headway.errors import UserError
from headway.ops.rotary import HALVES, PAIRS, UNSCALED, DynamicNtk, Linear, Llama3, LongRope, Ntk, Rotary, Scaling, Yarn

SCALINGS = [
    UNSCALED,
    Linear(3.0),
    Llama3(8.0, low=1.0, high=4.0, original_context=256),
    Yarn(4.0, original_context=512),
    Yarn(40.0, original_context=4096, beta_fast=16.0, beta_slow=2.0, mscale=0.707, mscale_all=1.0),
    Yarn(4.0, original_context=512, whole=False),
    Yarn(4.0, original_context=4, attention=0.9),  # every pair turns less than once: an empty ramp
    Ntk(4.0),
    DynamicNtk(2.0, original_context=64),
]
LONG = LongRope(8.0, (1.0, 1.1, 1.5, 2.0), (1.0, 2.0, 5.0, 9.0), original_context=64)
ROTARIES = [Rotary(8), Rotary(8, layout=PAIRS), Rotary(8, turned=4), Rotary(8, turned=2, layout=PAIRS)]
ROTARIES += [Rotary(8, base=500.0, scaling=scaling) for scaling in (*SCALINGS, LONG)]

every_rotary = pytest.mark.parametrize("rotary", ROTARIES, ids=str)
positions = st.integers(0, 2000)
seeds = st.integers(0, 2**31)


def heads(seed: int, length: int = 1, width: int = 8) -> torch.Tensor:
    return torch.randn(1, 1, length, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def at(*where: int) -> torch.Tensor:
    return torch.tensor([where])


def test_a_quarter_turn():
    """At base 1 every pair turns one radian per position; at position π/2 (not a position, but an angle) a ← −b."""
    quarter = torch.tensor([[math.pi / 2]])
    x = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    assert_close(Rotary(4, base=1.0)(x, quarter).flatten().tolist(), [-3.0, -4.0, 1.0, 2.0])
    assert_close(Rotary(4, base=1.0, layout=PAIRS)(x, quarter).flatten().tolist(), [-2.0, 1.0, -4.0, 3.0])
    assert_close(Rotary(4, base=1.0, turned=2)(x, quarter).flatten().tolist(), [-2.0, 1.0, 3.0, 4.0])


def test_frequencies_fall_from_one_to_nearly_one_over_base():
    assert_close(UNSCALED.frequencies(8, 10_000.0, at(0)), torch.tensor([1.0, 0.1, 0.01, 0.001]))


@every_rotary
def test_position_zero_stays_but_for_the_amplitude(rotary: Rotary):
    x = heads(0)
    expected = x.clone()
    expected[..., : rotary.width] *= rotary.scaling.amplitude()
    assert_close(rotary(x, at(0)), expected, rtol=1e-6, atol=0)


@pytest.mark.slow
@every_rotary
@given(seed=seeds, position=positions)
def test_norm_is_kept_but_for_the_amplitude(rotary: Rotary, seed: int, position: int):
    x = heads(seed)
    turned, rest = rotary(x, at(position)).split([rotary.width, 8 - rotary.width], -1)
    assert_close(turned.norm(), x[..., : rotary.width].norm() * rotary.scaling.amplitude(), rtol=1e-6, atol=0)
    assert torch.equal(rest, x[..., rotary.width :])


@pytest.mark.slow
@every_rotary
@given(seed=seeds, query=st.integers(0, 200), key=st.integers(0, 200), step=st.integers(1, 200))
def test_only_the_difference_of_positions_counts(rotary: Rotary, seed: int, query: int, key: int, step: int):
    q, k = heads(seed), heads(seed + 1)
    last = 400  # in every call, so that a scaling by length has one length

    def score(m: int, n: int) -> torch.Tensor:
        pair = rotary(torch.cat((q, k, q), 2), at(m, n, last))[0, 0]
        return pair[0] @ pair[1]

    # float32 angles up to 400 are exact to 400 · 2^−24
    assert_close(score(query, key), score(query + step, key + step), atol=1e-3, rtol=0)


@pytest.mark.slow
@given(seed=seeds, position=positions)
def test_pairs_are_halves_in_another_order(seed: int, position: int):
    x = heads(seed)
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])  # pair i of HALVES is (i, i + 4)
    assert torch.equal(Rotary(8, layout=PAIRS)(x[..., order], at(position)), Rotary(8)(x, at(position))[..., order])


@pytest.mark.parametrize("layout", [HALVES, PAIRS])
def test_join_mends_what_split_takes_apart(layout):
    x = heads(0, length=3)
    assert torch.equal(layout.join(*layout.split(x)), x)


def frequency(scaling: Scaling, i: int, width: int, base: float, length: int) -> float:
    """The published formula of each scaling for pair i, in Python's floats."""
    trained = base ** (-2 * i / width)
    wavelength = 2 * math.pi / trained
    match scaling:
        case Linear(factor):
            return trained / factor
        case Llama3(factor, low, high, context):
            if wavelength < context / high:
                return trained
            if wavelength > context / low:
                return trained / factor
            smooth = (context / wavelength - low) / (high - low)
            return (1 - smooth) * trained / factor + smooth * trained
        case Yarn(factor, context, fast, slow):
            low, high = (width / 2 * math.log(context / (turns * 2 * math.pi), base) for turns in (fast, slow))
            low, high = (math.floor(low), math.ceil(high)) if scaling.whole else (low, high)
            low, high = max(low, 0), min(high, width - 1)
            ramp = min(max((i - low) / ((high - low) or 0.001), 0), 1)
            return trained / factor * ramp + trained * (1 - ramp)
        case Ntk(factor):
            return (base * factor ** (width / (width - 2))) ** (-2 * i / width)
        case DynamicNtk(factor, context):
            grown = factor * max(length, context) / context - (factor - 1)
            return (base * grown ** (width / (width - 2))) ** (-2 * i / width)
    raise NotImplementedError(scaling)


@pytest.mark.slow
@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
@given(
    half=st.integers(2, 40), base=st.sampled_from([10_000.0, 500_000.0, 100.0]), length=st.sampled_from([1, 64, 1000])
)
def test_scaling_is_the_published_formula(scaling: Scaling, half: int, base: float, length: int):
    found = scaling.frequencies(2 * half, base, torch.arange(length)[None]).flatten()
    expected = [frequency(scaling, i, 2 * half, base, length) for i in range(half)]
    assert_close(found, torch.tensor(expected), rtol=2e-5, atol=0)


def test_static_ntk_slows_the_slowest_pair_by_the_factor():
    ratio = UNSCALED.frequencies(64, 1e4, at(0)) / Ntk(4.0).frequencies(64, 1e4, at(0))
    assert_close(ratio[[0, -1]], torch.tensor([1.0, 4.0]))


def test_dynamic_ntk_looks_at_each_row_alone():
    scaling = DynamicNtk(2.0, original_context=8)
    both = scaling.frequencies(8, 1e4, torch.tensor([[0, 3], [0, 30]]))
    assert_close(both[0, 0], UNSCALED.frequencies(8, 1e4, at(0)))
    assert_close(both[1], scaling.frequencies(8, 1e4, at(0, 30))[0])


def test_long_rope_has_factors_within_and_beyond_the_trained_context():
    trained = UNSCALED.frequencies(8, 1e4, at(0))
    rows = LONG.frequencies(8, 1e4, torch.tensor([[0, 63], [0, 64]]))  # each row by its own length
    assert_close(rows[0, 0], trained / torch.tensor(LONG.short))
    assert_close(rows[1, 0], trained / torch.tensor(LONG.long))
    assert LONG.amplitude() == pytest.approx(math.sqrt(1 + math.log(8) / math.log(64)))
    assert LongRope(8.0, (), (), 64, attention=1.2).amplitude() == 1.2
    with pytest.raises(UserError, match="4 short and 4 long factors for 6 turned dims; allowed: 3 of each"):
        Rotary(8, turned=6, scaling=LONG)


def test_yarn_amplitude():
    assert UNSCALED.amplitude() == 1
    assert Yarn(4.0, 512).amplitude() == pytest.approx(0.1 * math.log(4) + 1)
    assert Yarn(4.0, 512, attention=0.9).amplitude() == 0.9
    sharper, all_dims = 0.0707 * math.log(40) + 1, 0.1 * math.log(40) + 1
    assert Yarn(40.0, 512, mscale=0.707, mscale_all=1.0).amplitude() == pytest.approx(sharper / all_dims)


@every_rotary
def test_waves_are_shared_and_rows_have_their_own_positions(rotary: Rotary):
    x, where = torch.randn(2, 3, 5, 8), torch.randint(0, 50, (2, 5))
    together = rotary.turn(x, *rotary.waves(where))
    alone = torch.cat([rotary(x[i : i + 1], where[i : i + 1]) for i in range(2)])
    assert torch.equal(together, alone)


@pytest.mark.slow
@every_rotary
def test_compiles_in_one_graph(rotary: Rotary):
    torch._dynamo.reset()
    x, where = torch.randn(2, 3, 5, 8), torch.arange(5)[None]
    compiled = torch.compile(lambda x, where: rotary(x, where), fullgraph=True, backend="eager")
    assert_close(compiled(x, where), rotary(x, where))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_result_has_the_type_of_the_input_and_is_rounded_once(dtype: torch.dtype):
    x, where = torch.randn(1, 2, 5, 8).to(dtype), torch.arange(5)[None]
    turned = Rotary(8, turned=4)(x, where)
    assert turned.dtype == dtype
    assert_close(turned, Rotary(8, turned=4)(x.double(), where).to(dtype))


@every_rotary
def test_is_a_value(rotary: Rotary):
    assert rotary in {rotary}


@pytest.mark.parametrize(("head_dim", "turned"), [(7, None), (8, 3), (8, 10), (8, 0), (0, None)])
def test_widths_without_pairs_are_refused(head_dim: int, turned: int | None):
    with pytest.raises(UserError, match="even width"):
        Rotary(head_dim, turned=turned)


def test_other_mistakes_are_told():
    with pytest.raises(UserError, match="width 6"):
        Rotary(8)(torch.zeros(1, 1, 1, 6), at(0))
    with pytest.raises(UserError, match="factor of 1 or more"):
        Linear(0.5)
    with pytest.raises(UserError, match="low < high"):
        Llama3(8.0, low=4.0, high=1.0, original_context=8192)
