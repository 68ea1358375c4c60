"""Attention of whole sequences by the library against its definition, on every instruction set."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import headway
from headway.native import sequence_attention as module
from headway.native.library import Unusable
from headway.native.sequence_attention import MIN_QUERIES, attend_packed, native_attend
from headway.nn.attention import SelfAttention
from headway.nn.context import Context, PackedLengths
from headway.ops.attend import DOT, attend, attention_weights, per_head
from headway.ops.pattern import Causal, Full, Pattern, Window
from headway.ops.rotary import Rotary
from tests.native.decoders import library, needs_library

pytestmark = needs_library
#         B  H  G  T   S   D
SIZES = [(1, 1, 1, 1, 1, 1), (2, 3, 1, 5, 7, 6), (1, 4, 2, 33, 33, 16), (3, 2, 2, 40, 65, 33), (1, 2, 1, 70, 31, 64)]


def definition(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, causal: bool) -> Tensor:
    weights = attention_weights(q.double(), k.double(), keep=keep, bias=None, causal=causal, score=DOT)
    return weights @ per_head(v, q.shape[1]).double()


def drawn(sizes: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as projections yield them: heads side by side in each token."""
    batch, heads, groups, queries, keys, width = sizes
    q = torch.randn(batch, queries, heads, width).transpose(1, 2)
    k, v = (torch.randn(batch, keys, groups, 2 * width)[..., :width].transpose(1, 2) for _ in "kv")
    return q, k, v


@pytest.mark.parametrize(("sizes", "causal", "masked"), list(product(SIZES, [False, True], [False, True])), ids=str)
def test_every_set_gives_the_definition(
    sizes: tuple[int, ...], causal: bool, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_QUERIES", 1)
    q, k, v = drawn(sizes)
    keep = torch.rand(sizes[0], 1, sizes[4]) < 0.6 if masked else None
    expected = definition(q, k, v, keep, causal)
    for instructions in range(len(library().sets)):
        monkeypatch.setattr(type(library()), "best", instructions)
        found = native_attend(q, k, v, keep=keep, causal=causal, scale=sizes[5] ** -0.5)
        assert found is not None
        assert_close(found.double(), expected, atol=2e-6, rtol=2e-6, msg=library().sets[instructions])


def test_a_query_without_keys_gives_zeros() -> None:
    q, k, v = drawn((2, 1, 1, 40, 40, 8))
    keep = torch.ones(2, 1, 40, dtype=torch.bool)
    keep[1] = False
    with torch.no_grad():
        found = attend(q, k, v, keep=keep)
    assert_close(found[1], torch.zeros(1, 40, 8))


def test_what_is_not_a_number_stays() -> None:
    q, k, v = drawn((1, 1, 1, 40, 40, 8))
    k[0, 0, 3, 1] = float("nan")
    found = native_attend(q, k, v, keep=None, causal=True, scale=1.0)
    assert found is not None
    assert found[0, 0, :3].isfinite().all()
    assert found[0, 0, 3:].isnan().all()


def test_packed_rows_give_the_bits_of_their_padded_view() -> None:
    lengths, (heads, groups, width) = [40, 1, 33, 7], (4, 2, 12)
    q, k, v = (torch.randn(sum(lengths), each, width) for each in (heads, groups, groups))
    rows = PackedLengths.of(lengths)
    for causal in (False, True):
        packed = attend_packed(library(), q, k, v, lengths, causal=causal, scale=0.3)
        wide = (rows.pad(x[None]).transpose(1, 2) for x in (q, k, v))
        padded = native_attend(*wide, keep=rows.keep, causal=causal, scale=0.3)
        assert padded is not None
        assert_close(rows.pack(padded.transpose(1, 2))[0], packed, atol=0, rtol=0)


@pytest.mark.parametrize("pattern", [Full(), Causal(), Window(3), Causal(window=3)], ids=str)
@pytest.mark.parametrize("rotary", [None, Rotary(8)], ids=["plain", "rotary"])
@pytest.mark.parametrize("lengths", [[40, 3, 33], [5, 4]], ids=str)
@torch.no_grad()
def test_layers_of_packed_rows(pattern: Pattern, rotary: Rotary | None, lengths: list[int]) -> None:
    """With the library, without it, and recorded: the same, the latter bit for bit."""
    part, x = SelfAttention(32, 4, pattern=pattern, rotary=rotary).eval(), torch.randn(1, sum(lengths), 32)
    rows = PackedLengths.of(lengths)
    found = part(x, Context(rows=rows))
    taken = part.attend_rows(x, rows, Context(rows=rows)) is not None
    assert taken == (rotary is None and pattern in (Full(), Causal()) and max(lengths) >= MIN_QUERIES)
    with headway.record(part, "*") as trace:
        assert_close(part(x, Context(rows=rows)), found, atol=0, rtol=0)
    assert trace.values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "native_library", lambda: Unusable("not built"))
        assert part.attend_rows(x, rows, Context(rows=rows)) is None
        assert_close(part(x, Context(rows=rows)), found, atol=2e-6, rtol=2e-6)


def test_what_the_library_cannot_do_is_for_torch() -> None:
    q, k, v = drawn((1, 2, 2, 40, 40, 8))

    def takes(q: Tensor = q, k: Tensor = k, v: Tensor = v, keep: Tensor | None = None, scale: float = 1.0) -> bool:
        return native_attend(q, k, v, keep=keep, causal=False, scale=scale) is not None

    assert takes()
    assert not takes(q=q[:, :, : MIN_QUERIES - 1])
    assert not takes(v=v[..., :5])
    assert not takes(q.double(), k.double(), v.double())
    assert not takes(keep=torch.ones(1, 40, 40, dtype=torch.bool))
    assert not takes(scale=-1.0)
    assert not takes(q=torch.randn(1, 2, 8, 40).mT)
    assert not takes(v=v.clone().requires_grad_())
    assert not takes(v=nn.Parameter(v.clone(), requires_grad=False))
    with torch.autocast("cpu"):
        assert not takes()
    with FlopCounterMode(display=False):
        assert not takes()


@pytest.mark.slow
def test_threads_give_the_same_bits() -> None:
    q, k, v = drawn((2, 5, 1, 64, 64, 8))
    before, found = torch.get_num_threads(), list[Tensor]()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            y = native_attend(q, k, v, keep=None, causal=True, scale=0.2)
            assert y is not None
            found.append(y)
    finally:
        torch.set_num_threads(before)
    assert_close(found[0], found[1], atol=0, rtol=0)
