"""Parts that a family of published models needed: each is its formula."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import headway
from headway import Context, State
from headway.errors import UserError
from headway.interop.keymap import Grouped
from headway.look.grid_map import detail_of
from headway.nn.attention import SelfAttention
from headway.nn.bias import DisentangledBias, DistanceVectors, GatedT5Bias, T5Bias, TransformerXLBias
from headway.nn.block import IgnoreContext, LayerScale, ParallelBlock, Residual
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import ClampedGatedFFN
from headway.nn.head import CAPPED_TOKENS, ClassAndMean, SoftCappedHead
from headway.nn.image import RegisteredClassToken
from headway.nn.latent_attention import (
    ClippedAttention,
    GatedBiasAttention,
    GlobalTokenAttention,
    LatentAttention,
    SinkAttention,
)
from headway.nn.moe import GroupedSigmoid, GroupedSoftmax, SharedExpert
from headway.nn.norm import JointRMSNorm, OffsetRMSNorm
from headway.nn.segments import SegmentAttention
from headway.ops.pattern import Causal, Positions, Window
from headway.ops.relative import log_bucket
from headway.ops.rotary import Rotary
from headway.zoo import deberta
from headway.zoo.deberta import spaced_vectors


def rows(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def test_an_offset_norm_begins_as_a_plain_one_and_adds_one() -> None:
    norm, x = OffsetRMSNorm(4, eps=1e-6), rows(3, 4)
    assert_close(norm(x), nn.RMSNorm(4, eps=1e-6)(x))
    norm.weight.data[:] = torch.tensor([-1.0, 0.0, 1.0, 2.0])
    rms = (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    assert_close(norm(x), x / rms * torch.tensor([0.0, 1.0, 2.0, 3.0]))


def test_a_joint_norm_is_over_all_heads_of_a_token() -> None:
    norm, x = JointRMSNorm(2, 3, eps=1e-6), rows(1, 2, 5, 3)  # B H T D
    norm.weight.data = rows(6)
    rms = (x.square().mean((1, 3), keepdim=True) + 1e-6).sqrt()
    assert_close(norm(x), x / rms * norm.weight.view(1, 2, 1, 3))


def test_sublayers_side_by_side_read_the_same_input() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)

    class Sublayer(nn.Module):
        def __init__(self, body: nn.Module):
            super().__init__()
            self.body = body

        def forward(self, x: Tensor, ctx: object = None) -> Tensor:
            return self.body(x)

    norm = nn.LayerNorm(4)
    parts = {
        "attn": Residual(Sublayer(first), before=norm),
        "ffn": Residual(Sublayer(second), scale=LayerScale(4, 0.5)),
    }
    block, x = ParallelBlock(**parts), rows(2, 3, 4)
    assert_close(block(x), x + first(norm(x)) + 0.5 * second(x))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_capped_logits_is_their_cross_entropy(smoothing: float) -> None:
    head, x = SoftCappedHead(4, 7, cap=0.5), rows(CAPPED_TOKENS + 9, 4).requires_grad_()
    head.weight.data = 2 * rows(7, 4)
    targets = torch.arange(len(x)) % 7
    logits = 0.5 * torch.tanh(F.linear(x, head.weight) / 0.5)
    assert_close(head(x), logits)
    assert logits.abs().max() <= 0.5
    expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    loss = head.loss(x, targets, smoothing)
    assert_close(loss, expected)
    for found, there in zip(*(torch.autograd.grad(y, (x, head.weight)) for y in (loss, expected)), strict=True):
        assert_close(found, there)
    assert_close(head.losses(x, targets), F.cross_entropy(logits, targets, reduction="none"))


def test_registers_stand_behind_the_class_token_and_are_not_averaged() -> None:
    token, x = RegisteredClassToken(4, 2), rows(3, 5, 4)
    y = token(x)
    assert_close(y[:, 0], (token.token + token.position)[0].expand(3, 4))
    assert_close(y[:, 1:3], token.registers.expand(3, 2, 4))
    assert_close(y[:, 3:], x)
    assert_close(ClassAndMean(3)(y), torch.cat([y[:, 0], x.mean(1)], -1))


def test_near_distances_are_buckets_of_their_own_and_far_ones_share_them() -> None:
    near, far = torch.arange(-4, 5), torch.tensor([5, 6, 8, 11, 15, 31, 99])
    assert torch.equal(log_bucket(near, 8, 32), near)
    assert log_bucket(far, 8, 32).tolist() == [5, 5, 6, 6, 6, 7, 9]
    assert torch.equal(log_bucket(-far, 8, 32), -log_bucket(far, 8, 32))


def test_scores_tell_content_from_distance() -> None:
    distance, q_layer, k_layer = (
        spaced_vectors(deberta.Config(dim=6, buckets=4, farthest=8)),
        nn.Linear(6, 6),
        nn.Linear(6, 6),
    )
    bias, q, k = DisentangledBias(distance, q_layer, k_layer, 0.25), rows(1, 2, 3, 3), rows(1, 2, 5, 3)
    found = bias(q, k, Positions.run(2, 3, torch.device("cpu")), Positions.run(0, 5, torch.device("cpu")))
    vectors = distance.norm(distance.table.weight)
    for i, j in ((0, 0), (0, 4), (2, 1)):
        row = vectors[4 + int(log_bucket(torch.tensor(2 + i - j), 4, 8))]
        by_key, by_query = k_layer(row).view(2, 3), q_layer(row).view(2, 3)
        assert_close(found[0, :, i, j], 0.25 * (q[0, :, i] * by_key + k[0, :, j] * by_query).sum(-1))


def test_rows_of_groups_go_there_and_back() -> None:
    """Of two groups, each with two queries, a key and a value of width 1: q q k v q q k v."""
    change, there = Grouped(2, (2, 1, 1)), torch.arange(8)[:, None]
    q, k, v = change.load([there])
    assert (q.flatten().tolist(), k.flatten().tolist(), v.flatten().tolist()) == ([0, 1, 4, 5], [2, 6], [3, 7])
    assert_close(change.save([q, k, v])[0], there)


def test_each_distance_has_a_vector_until_they_share_the_last() -> None:
    distance, at = DistanceVectors(6, 2), Positions.run(0, 5)
    rows = [[2, 1, 0, 0, 0], [3, 2, 1, 0, 0], [3, 3, 2, 1, 0], [3, 3, 3, 2, 1], [3, 3, 3, 3, 2]]
    assert distance.rows(at, at)[0].tolist() == rows
    assert distance() is distance.table.weight


@torch.no_grad()
def test_a_sink_takes_its_share_of_the_attention() -> None:
    attention, x = SinkAttention(4, 2, pattern=Causal()), rows(1, 3, 4)
    plain = SelfAttention(4, 2, pattern=Causal())
    attention.sink.data[:] = -torch.inf
    plain.load_state_dict(attention.state_dict(), strict=False)
    assert_close(attention(x), plain(x))  # a sink that nobody looks at
    with headway.record(attention, "weights") as trace:
        attention.sink.data = torch.tensor([0.0, 50.0])
        attention(x)
    weights = trace["weights"].full()[0]
    q, k = (layer(x).view(3, 2, 2).transpose(0, 1) for layer in (attention.q, attention.k))
    masses = ((q @ k.mT) * 2**-0.5).exp().tril()  # a sink of logit 0 has the mass 1
    assert_close(weights[0], masses[0] / (masses[0].sum(-1, keepdim=True) + 1))
    assert float(weights[1].max()) < 1e-9


@torch.no_grad()
def test_a_latent_state_holds_few_numbers() -> None:
    attention = LatentAttention(8, 4, latent=3, plain=2, rotary=Rotary(2), value=5)
    x, state = rows(2, 6, 8), State()
    steps = [attention(part, Context(state=state)) for part in x.split([4, 1, 1], 1)]
    assert_close(torch.cat(steps, 1), attention(x))
    held = [x.shape[1] * x.shape[-1] for x in state.append(attention, Positions.run(6, 0), *empty(2, 3, 2)).tensors]
    assert held == [3, 2]


def empty(rows: int, *widths: int) -> list[Tensor]:
    return [torch.zeros(rows, 1, 0, width) for width in widths]


def test_experts_come_from_the_best_groups() -> None:
    scores = torch.tensor([[0.9, 0.1, 0.6, 0.5, 0.2, 0.3]])
    logits = scores.logit()
    gates, picks = GroupedSigmoid(6, groups=3, kept=1, factor=2.0)(logits, 2)
    assert sorted(picks[0].tolist()) == [2, 3]  # 0.6 + 0.5 is more than 0.9 + 0.1
    assert_close(gates, 2 * scores.gather(1, picks) / 1.1)
    routing = GroupedSigmoid(6, groups=3, kept=1, factor=1.0)
    routing.correction[4] = 2.0  # changes who is chosen, and no gate
    gates, picks = routing(logits, 2)
    assert sorted(picks[0].tolist()) == [4, 5]
    assert_close(gates.sum(), torch.tensor(1.0))
    gates, picks = GroupedSoftmax(groups=3, kept=1, factor=1.5)(scores.log(), 2)
    assert sorted(picks[0].tolist()) == [0, 1]
    assert_close(gates, 1.5 * scores.gather(1, picks) / scores.sum())
    with pytest.raises(UserError, match="routing to 4 of 3 groups"):
        GroupedSoftmax(3, 4, 1.0)


def test_a_clamped_expert_literally() -> None:
    ffn, x = ClampedGatedFFN(3, 5, limit=0.1), rows(2, 3)
    gate, up = ffn.gate(x).clamp(max=0.1), ffn.up(x).clamp(-0.1, 0.1)
    assert_close(ffn(x), ffn.down((up + 1) * gate * (1.702 * gate).sigmoid()))


def test_a_gate_multiplies_the_bias_of_a_query() -> None:
    """Head by head, with the gate written out, against plain attention with that bias."""
    torch.manual_seed(0)
    bias = GatedT5Bias(2, 8, 9)
    part, x = GatedBiasAttention(6, 2, logit_bias=bias), rows(2, 5, 6)
    part.scale.data = rows(1, 2, 1, 1)
    plain, at = T5Bias(2, 8, 9), Positions.run(0, 5)
    plain.load_state_dict(bias.state_dict())
    distances = plain(x, x, at, at)  # 1 H T T
    expected = torch.zeros(2, 5, 6)
    for head in range(2):
        share = slice(3 * head, 3 * head + 3)
        first, second = (part.gate(x[..., share])[..., four].sum(-1).sigmoid() for four in (slice(4), slice(4, 8)))
        gate = first * (second * part.scale[0, head, 0, 0] - 1) + 2
        q, k, v = (layer(x)[..., share] for layer in (part.q, part.k, part.v))
        weights = (q @ k.mT / 3**0.5 + gate[..., None] * distances[0, head]).softmax(-1)
        expected += weights @ v @ part.out.weight[:, share].T
    assert_close(part(x), expected + part.out.bias)


@torch.no_grad()
def test_clipped_attention_holds_what_it_projects() -> None:
    clipped, plain, x = ClippedAttention(4, 2, clip=0.25), SelfAttention(4, 2, pattern=Causal()), rows(1, 5, 4)
    plain.load_state_dict(clipped.state_dict())
    q, k, v = (layer(x).clamp(-0.25, 0.25).view(5, 2, 2).transpose(0, 1) for layer in (plain.q, plain.k, plain.v))
    hidden = torch.ones(5, 5).triu(1).bool()
    heads = ((q @ k.mT) * 2**-0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v
    assert_close(clipped(x), plain.out(heads.transpose(0, 1).flatten(1))[None])
    clipped.clip = 100.0  # which holds nothing
    assert_close(clipped(x), plain(x))


@torch.no_grad()
def test_words_are_widened_before_their_positions() -> None:
    part = TokenEmbed(7, 2, position=LearnedPosition(4, 6), widen=nn.Linear(2, 6, bias=False))
    ids = torch.tensor([[3, 5]])
    assert isinstance(part.position, LearnedPosition)
    assert_close(part(ids), part.token(ids) @ part.widen.weight.T + part.position.table.weight[:2])


@torch.no_grad()
def test_a_shared_expert_is_taken_as_much_as_each_token_says() -> None:
    part, x = SharedExpert(IgnoreContext(nn.Linear(2, 2)), 2), torch.tensor([[[50.0, 0.0], [-50.0, 0.0]]])
    part.gate.weight.copy_(torch.tensor([[1.0, 0.0]]))
    assert_close(part(x), torch.stack([part.expert(x)[0, 0], torch.zeros(2)])[None])


@torch.no_grad()
def test_the_first_tokens_look_with_projections_of_their_own() -> None:
    part, x = GlobalTokenAttention(4, 2, tokens=1, radius=1), rows(1, 5, 4)

    def heads(*layers: nn.Linear) -> list[Tensor]:
        return [layer(x[0]).view(5, 2, 2).transpose(0, 1) for layer in layers]

    q, k, v = heads(part.q, part.k, part.v)
    far_q, far_k, far_v = heads(part.global_q, part.global_k, part.global_v)
    seen = (torch.arange(5)[:, None] - torch.arange(5)).abs() <= 1
    seen[:, 0] = True
    near = (q @ k.mT * 2**-0.5).masked_fill(~seen, -torch.inf).softmax(-1)
    far = (far_q @ far_k.mT * 2**-0.5).softmax(-1)
    with headway.record(part, "*") as trace:
        found = part(x)
    sums = torch.cat([far[:, :1] @ far_v, near[:, 1:] @ v], 1)
    assert_close(found, part.out(sums.transpose(0, 1).flatten(1))[None])
    assert_close(trace["weights"].full(), torch.cat([far[:, :1], near[:, 1:]], 1)[None])
    assert_close(trace["heads"], sums[None])
    with pytest.raises(UserError, match="the details of tokens with projections of their own are not shown"):
        detail_of(part, trace["weights"], trace["values"], x, None)


@torch.no_grad()
def test_keys_of_another_segment_have_another_vector() -> None:
    part, x, segments = SegmentAttention(4, 2), rows(1, 5, 4), torch.tensor([[0, 0, 1, 1, 2]])
    part.w.data, part.alike.data, part.unlike.data = tables = rows(3, 2, 2)
    q, k = (layer(x[0]).view(5, 2, 2).transpose(0, 1) for layer in (part.q, part.k))
    bias, run = part.logit_bias, Positions.run(0, 5)
    assert isinstance(bias, TransformerXLBias)
    alike, unlike = ((q + part.w[:, None]) @ table[:, :, None] for table in tables[1:])
    by_segment = torch.where(segments.mT == segments, alike, unlike)
    logits = (q @ k.mT + by_segment) * 2**-0.5 + bias(q[None], k[None], run, run)[0]
    with headway.record(part, "weights") as trace:
        part(x, Context(positions=segments))
    assert_close(trace["weights"].full()[0], logits.softmax(-1))


@torch.no_grad()
def test_without_first_tokens_windows_are_all() -> None:
    part, plain = GlobalTokenAttention(4, 2, tokens=0, radius=1), SelfAttention(4, 2, pattern=Window(1))
    plain.load_state_dict({name: x for name, x in part.state_dict().items() if not name.startswith("global")})
    assert_close(part(rows(2, 6, 4)), plain(rows(2, 6, 4)))
