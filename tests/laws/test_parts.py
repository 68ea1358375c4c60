"""Laws of single parts: each against the plain part that it generalises, or a reference from torch.

Axes:  B batch   T tokens   C width   N tokens   E experts   K experts of a token
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from headway.nn.attention import Biases, CrossAttention, SelfAttention
from headway.nn.block import Block, Repeat, Residual, Stack, StochasticDepth
from headway.nn.context import EMPTY, Context, PackedLengths
from headway.nn.embed import SinusoidalPosition
from headway.nn.ffn import FFN, GatedFFN
from headway.nn.moe import MoE
from headway.nn.segments import HiddenTokenEmbed, SegmentAttention, SegmentTrunk
from headway.nn.trace import Trace
from headway.ops.pattern import Causal

DIM, HEADS = 16, 4


def test_self_attention_is_torch_multihead() -> None:
    """Outputs and averaged weights of torch's own module, under a causal mask and padding."""
    ours, theirs = SelfAttention(DIM, HEADS, pattern=Causal()), nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    load_multihead(ours, theirs)
    x, pad = torch.randn(2, 7, DIM), torch.zeros(2, 7, dtype=torch.bool)
    pad[1, 5:] = True
    mask = torch.ones(7, 7, dtype=torch.bool).triu(1)
    expected, weights = theirs(x, x, x, attn_mask=mask, key_padding_mask=pad, average_attn_weights=False)
    trace = Trace(ours, "weights")
    y = ours(x, Context(keep=~pad[:, None], trace=trace))
    assert_close(y, expected, atol=1e-6, rtol=1e-5)
    assert_close(trace["weights"].full(), weights, atol=1e-6, rtol=1e-5)  # type: ignore[union-attr]


def test_cross_attention_is_torch_multihead() -> None:
    ours = CrossAttention(DIM, HEADS, kv_dim=10)
    theirs = nn.MultiheadAttention(DIM, HEADS, kdim=10, vdim=10, batch_first=True)
    load_multihead(ours, theirs)
    x, memory = torch.randn(2, 7, DIM), torch.randn(2, 5, 10)
    assert_close(ours(x, Context(memory=memory)), theirs(x, memory, memory)[0], atol=1e-6, rtol=1e-5)


def load_multihead(ours: SelfAttention | CrossAttention, theirs: nn.MultiheadAttention) -> None:
    weights = [theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight]
    weights = list(theirs.in_proj_weight.chunk(3)) if weights[0] is None else weights
    for part, weight, bias in zip((ours.q, ours.k, ours.v), weights, theirs.in_proj_bias.chunk(3), strict=True):
        part.load_state_dict({"weight": weight, "bias": bias})
    ours.out.load_state_dict(theirs.out_proj.state_dict())


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_heads_are_plain_heads_that_share(kv_heads: int) -> None:
    """Each kv-head's projection, written out for every head that uses it, gives plain multi-head attention."""
    grouped, plain = SelfAttention(DIM, HEADS, kv_heads=kv_heads), SelfAttention(DIM, HEADS)
    weights = grouped.state_dict()
    for name in ("k", "v"):
        for kind in ("weight", "bias"):
            heads = weights[f"{name}.{kind}"].unflatten(0, (kv_heads, -1))
            weights[f"{name}.{kind}"] = heads.repeat_interleave(HEADS // kv_heads, 0).flatten(0, 1)
    plain.load_state_dict(weights)
    x = torch.randn(2, 7, DIM)
    assert_close(grouped(x), plain(x))


def test_full_width_heads_are_pulled_back() -> None:
    """Σ over heads of softmax(q_h k_hᵀ / √C) v_h O_h, each head as wide as the model."""
    part = SelfAttention(DIM, HEADS, head_dim=DIM, bias=Biases(out=False))
    x = torch.randn(1, 5, DIM)
    total = torch.zeros(5, DIM)
    for head in range(HEADS):
        rows = slice(head * DIM, (head + 1) * DIM)
        q, k, v = (F.linear(x[0], p.weight[rows], p.bias[rows]) for p in (part.q, part.k, part.v))
        total += (q @ k.T / DIM**0.5).softmax(-1) @ v @ part.out.weight[:, rows].T
    assert_close(part(x)[0], total)


def test_a_memory_that_may_not_be_seen_gives_nothing() -> None:
    part = CrossAttention(DIM, HEADS, bias=Biases(out=False))
    x, nobody = torch.randn(2, 3, DIM), torch.zeros(2, 1, 5, dtype=torch.bool)
    assert part(x, Context(memory=torch.randn(2, 5, DIM), memory_keep=nobody)).eq(0).all()
    assert part(x, Context(memory=torch.randn(2, 0, DIM))).eq(0).all()


@pytest.mark.slow
@given(st.integers(0, 12), st.integers(1, 6), st.data())
def test_dispatched_experts_are_all_experts(tokens: int, experts: int, data: st.DataObject) -> None:
    top = data.draw(st.integers(1, experts))
    torch.manual_seed(tokens)
    part = MoE(lambda: FFN(DIM, 8), DIM, experts, top=top)
    x = torch.randn(tokens, DIM, requires_grad=True)
    leaves, results, grads = [x, *part.parameters()], [], []
    for mix in (part.dense, part.dispatched):
        gates, picks = part.router(x).topk(top, -1)
        results.append(mix(x, gates.softmax(-1), picks))
        grads.append(torch.autograd.grad(results[-1].square().sum(), leaves, materialize_grads=True))
    assert_close(*results, atol=1e-6, rtol=1e-5)
    assert_close(*grads, atol=1e-5, rtol=1e-4)


def test_one_expert_is_its_ffn() -> None:
    part = MoE(lambda: GatedFFN(DIM, 8), DIM, 1, top=1)
    x = torch.randn(2, 5, DIM)
    assert_close(part(x), part.experts[0](x))


def test_all_experts_are_a_weighted_sum() -> None:
    part = MoE(lambda: FFN(DIM, 8), DIM, 3, top=3)
    x = torch.randn(2, 5, DIM)
    gates = part.router(x).softmax(-1)
    assert_close(part(x), sum(gates[..., i, None] * expert(x) for i, expert in enumerate(part.experts)))


def test_an_even_router_has_balance_of_its_top() -> None:
    """E Σ (share of tokens) · (mean probability) = E · E · (K/E) · (1/E) = K; the z loss of equal logits is ln² E."""
    part = MoE(lambda: FFN(DIM, 8), DIM, 4, top=2)
    nn.init.zeros_(part.router.weight)
    trace = Trace(part, "*")
    part(torch.randn(2, 6, DIM), Context(trace=trace))
    assert_close(trace["balance"], torch.tensor(2.0))
    assert_close(trace["z"], torch.tensor(4.0).log().square())


def test_router_losses_are_of_real_tokens() -> None:
    part, x, rows = MoE(lambda: FFN(DIM, 8), DIM, 4), torch.randn(2, 6, DIM), PackedLengths.of([6, 2])
    padded, packed = Trace(part, "*"), Trace(part, "*")
    part(x, Context(keep=rows.keep, trace=padded))
    part(rows.pack(x), Context(rows=rows, trace=packed))
    for name in ("probs", "balance", "z"):
        assert_close(padded[name], packed[name])


def test_swiglu_of_eight_thirds_is_as_large() -> None:
    dim = 24
    gated, plain = GatedFFN(dim, 8 * dim // 3, bias=False), FFN(dim, 4 * dim, bias=False)
    assert size(gated) == size(plain) == 8 * dim * dim


def size(part: nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())


def test_feed_forward_is_its_equation() -> None:
    x = torch.randn(3, DIM)
    plain, gated, deep = FFN(DIM, 8, act=F.relu), GatedFFN(DIM, 8), FFN(DIM, 8, act=F.relu, layers=3)
    assert_close(plain(x), plain.down(F.relu(plain.up(x))))
    assert_close(gated(x), gated.down(F.silu(gated.gate(x)) * gated.up(x)))
    assert_close(deep(x), deep.down(F.relu(F.linear(F.relu(deep.up(x)), deep.middle.weight, deep.middle.bias))))


def test_residual_is_its_equation() -> None:
    """after(skip(x) + scale · drop(inside(body(before(x))))), every slot filled."""
    before, inside, after, skip = (nn.Linear(DIM, DIM) for _ in range(4))
    body, x = FFN(DIM, 8), torch.randn(2, 5, DIM)
    part = Residual(body, before=before, inside=inside, after=after, skip=skip, scale=0.5)
    assert_close(part(x), after(skip(x) + 0.5 * inside(body(before(x)))))
    assert_close(Residual(body)(x), x + body(x))


def test_repeated_blocks_are_copies_of_one() -> None:
    block = Block(attn=Residual(SelfAttention(DIM, HEADS)))
    x = torch.randn(2, 5, DIM)
    assert_close(Repeat(block, 3)(x), Stack([block, block, block])(x))


def test_stochastic_depth_drops_whole_rows_and_keeps_the_mean() -> None:
    part, rows = StochasticDepth(0.25), PackedLengths.of([3] * 400)
    kept = part(torch.ones(400, 3, DIM))
    assert_close(kept.unique(), torch.tensor([0.0, 4 / 3]))
    assert (kept == kept[:, :1, :1]).all()
    assert abs(kept.mean().item() - 1) < 0.1
    packed = rows.pad(part(rows.pack(torch.ones(400, 3, DIM)), Context(rows=rows)))
    assert (packed == packed[:, :1, :1]).all()
    assert part.eval()(torch.ones(4, DIM)).eq(1).all()


@pytest.mark.parametrize("dim", [32, 64, 128])
def test_sinusoids_tell_near_from_far(dim: int) -> None:
    """Of any two positions among 520: ‖p(i) − p(j)‖² = Σ over waves of 2 − 2 cos(ω (i − j)), whatever i is.

    So it grows with |i − j| up to 3, while the fastest wave (ω = 1) is in its first half turn, and no two positions
    that lie further apart are as near as that.
    """
    length, near = 520, 3
    marks = SinusoidalPosition(dim)(torch.zeros(1, length, dim))[0].double()
    distances = torch.cdist(marks, marks)
    apart = torch.arange(length, dtype=torch.float64)
    waves = 10_000.0 ** -(torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))
    expected = (2 - 2 * torch.cos(apart[:, None] * waves)).sum(-1).sqrt()
    assert_close(distances, expected[(apart[:, None] - apart).abs().long()], atol=1e-4, rtol=0)
    for step in range(1, near + 1):
        assert distances.diagonal(step).min() > distances.diagonal(step - 1).max()
    assert min(distances.diagonal(step).min() for step in range(near + 1, length)) > distances.diagonal(near).max()


def marked_trunk() -> SegmentTrunk:
    """XLNet's attention with numbers that tell its segments apart, under a head that shows every token."""
    attention = SegmentAttention(DIM, HEADS)
    for table in (attention.w, attention.alike, attention.unlike):
        nn.init.normal_(table)
    embed = HiddenTokenEmbed(9, DIM)
    nn.init.normal_(embed.hidden)
    return SegmentTrunk(embed, Stack([Block(attn=Residual(attention)) for _ in range(2)])).eval()


def test_segments_are_alike_or_unlike() -> None:
    """Their numbers say nothing; a segment apart changes what is seen, and one of all tokens nothing."""
    torch.manual_seed(0)
    model, ids = marked_trunk(), torch.randint(9, (2, 6))
    segments = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 0, 0]])
    y = model(ids, EMPTY, segments)
    assert_close(model(ids, EMPTY, 3 - 2 * segments), y)
    assert_close(model(ids, EMPTY, torch.zeros_like(segments)), model(ids))
    assert (model(ids) - y).abs().max() > 1e-3


def test_hidden_tokens_are_unseen() -> None:
    """What stands at hidden tokens changes nothing, nor does one of them change what another is given."""
    torch.manual_seed(0)
    model, ids = marked_trunk(), torch.randint(9, (2, 6))
    hidden = torch.tensor([[False, True, False, True, False, False], [True, False, False, False, True, False]])
    y = model(ids, EMPTY, torch.zeros_like(ids), hidden)
    assert_close(model(torch.where(hidden, (ids + 1) % 9, ids), EMPTY, torch.zeros_like(ids), hidden), y)
    first = hidden & (hidden.cumsum(1) == 1)  # the other as an ordinary key that nobody may see
    alone = model(ids, Context(keep=~hidden[:, None] | first[:, None]), torch.zeros_like(ids), first)
    assert_close(alone[first], y[first])
    assert_close(alone[~hidden], y[~hidden])


def test_attention_may_be_wider_or_narrower_than_its_input() -> None:
    """D_in → D_out: softmax(Q Kᵀ / √D) V W_O, whose W_O alone knows D_out; heads are cut from D_in."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    for out_dim in (8, 20):
        part = SelfAttention(12, 3, out_dim=out_dim).double()
        assert part(x).shape == (2, 5, out_dim)
        q, k, v = (layer(x).view(2, 5, 3, 4).transpose(1, 2) for layer in (part.q, part.k, part.v))
        seen = (q @ k.mT / 2).softmax(-1) @ v
        torch.testing.assert_close(part(x), seen.transpose(1, 2).flatten(2) @ part.out.weight.T + part.out.bias)
