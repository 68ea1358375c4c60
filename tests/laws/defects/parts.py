"""Defects against the laws of single parts."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from headway.ops.pattern import Positions
from tests.laws.defects.planting import Mutant, instead, result, unpadded_keys

ATTEND = "headway.ops.attend"
ATTENTION = "headway.nn.attention"

MUTANTS = [
    Mutant(
        "test_parts.py::test_self_attention_is_torch_multihead",
        "heads are laid out in turn, not side by side",
        f"{ATTENTION}:split",
        instead(lambda x, heads: x.unflatten(-1, (-1, heads)).movedim(-1, 1)),
    ),
    Mutant(
        "test_parts.py::test_cross_attention_is_torch_multihead",
        "keys are laid against the wrong values",
        f"{ATTENTION}:CrossAttention.keys_values",
        result(lambda made: (made[0].flip(2), made[1])),
    ),
    Mutant(
        "test_parts.py::test_attention_may_be_wider_or_narrower_than_its_input",
        "heads are laid out in turn, not side by side",
        f"{ATTENTION}:split",
        instead(lambda x, heads: x.unflatten(-1, (-1, heads)).movedim(-1, 1)),
    ),
    Mutant(
        "test_parts.py::test_grouped_heads_are_plain_heads_that_share",
        "kv-heads are taken in turn, not in groups",
        f"{ATTEND}:fused",
        lambda right: (
            lambda q, k, v, **named: right(q, *(x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v)), **named)
        ),
    ),
    Mutant(
        "test_parts.py::test_full_width_heads_are_pulled_back",
        "scores are scaled by the share of a head",
        "headway.ops.attend:Dot.dotted",
        result(lambda made: (*made[:2], 0.5)),
    ),
    Mutant(
        "test_parts.py::test_a_memory_that_may_not_be_seen_gives_nothing",
        "cross-attention forgets memory_keep",
        f"{ATTENTION}:CrossAttention.keys",
        unpadded_keys,
    ),
    Mutant(
        "test_parts.py::test_dispatched_experts_are_all_experts",
        "gates are not sorted with their tokens",
        "headway.nn.moe:MoE.dispatched",
        lambda right: lambda self, tokens, gates, picks, *given: right(self, tokens, gates.flip(0), picks, *given),
    ),
    Mutant(
        "test_parts.py::test_one_expert_is_its_ffn",
        "gates are logits",
        "headway.nn.moe:MoE.dispatched",
        lambda right: lambda self, tokens, gates, *given: right(self, tokens, self.router(tokens), *given),
    ),
    Mutant(
        "test_parts.py::test_all_experts_are_a_weighted_sum",
        "gates do not sum to one",
        "headway.nn.moe:MoE.dispatched",
        lambda right: lambda self, tokens, gates, *given: right(self, tokens, gates * 0.9, *given),
    ),
    Mutant(
        "test_parts.py::test_an_even_router_has_balance_of_its_top",
        "the balance is not multiplied by the experts",
        "headway.nn.context:Context.emit",
        lambda right: (
            lambda self, site, what, value: right(self, site, what, value / 4 if what == "balance" else value)
        ),
    ),
    Mutant(
        "test_parts.py::test_router_losses_are_of_real_tokens",
        "padding is routed like the rest",
        "headway.nn.moe:visible_tokens",
        instead(lambda x, ctx: None),
    ),
    Mutant(
        "test_parts.py::test_segments_are_alike_or_unlike",
        "the number of a segment is a position",
        "headway.nn.segments:SegmentAttention.locate",
        lambda right: lambda self, x, ctx: Positions(ctx.positions),
    ),
    Mutant(
        "test_parts.py::test_segments_are_alike_or_unlike",
        "attention takes no notice of segments",
        "headway.nn.segments:SegmentAttention.queries_keys",
        lambda right: lambda self, x, positions, ctx: right(self, x, positions, replace(ctx, positions=None)),
    ),
    Mutant(
        "test_parts.py::test_hidden_tokens_are_unseen",
        "hidden tokens are keys as others are",
        "headway.nn.segments:both",
        instead(lambda keep, seen: keep),
    ),
    Mutant(
        "test_parts.py::test_hidden_tokens_are_unseen",
        "hidden tokens have their own vectors",
        "headway.nn.segments:HiddenTokenEmbed.forward",
        lambda right: lambda self, tokens, ctx, *marks: right(self, tokens, ctx),
    ),
    Mutant(
        "test_parts.py::test_swiglu_of_eight_thirds_is_as_large",
        "the gate has a bias whatever is asked",
        "headway.nn.ffn:nn.Linear.__init__",
        lambda right: lambda self, a, b, bias=True, **named: right(self, a, b, True, **named),
    ),
    Mutant(
        "test_parts.py::test_feed_forward_is_its_equation",
        "the gate is applied to the wrong branch",
        "headway.nn.ffn:GatedFFN.first",
        instead(lambda self, x: self.gate(x) * self.act(self.up(x))),
    ),
    Mutant(
        "test_parts.py::test_residual_is_its_equation",
        "the scale is applied to the whole",
        "headway.nn.block:Residual.forward",
        instead(lambda self, x, *ctx: self.after(self.scale(self.skip(x) + self.inside(self.body(self.before(x)))))),
    ),
    Mutant(
        "test_parts.py::test_repeated_blocks_are_copies_of_one",
        "one turn too few",
        "headway.nn.block:Repeat.__init__",
        lambda right: lambda self, block, times: right(self, block, times - 1),
    ),
    Mutant(
        "test_parts.py::test_stochastic_depth_drops_whole_rows_and_keeps_the_mean",
        "values are dropped one by one",
        "headway.nn.block:StochasticDepth.forward",
        instead(lambda self, x, *ctx: torch.nn.functional.dropout(x, self.probability, self.training)),
    ),
    Mutant(
        "test_parts.py::test_sinusoids_tell_near_from_far",
        "the waves are all as fast",
        "headway.nn.embed:sinusoid",
        instead(lambda positions, dim, *given: (positions[..., None] * torch.ones(dim)).sin()),
    ),
    Mutant(
        "test_parts.py::test_sinusoids_tell_near_from_far",
        "positions that are a turn of the fastest wave apart look alike",
        "headway.nn.embed:sinusoid",
        lambda right: lambda positions, dim, *given: right(positions % 6, dim, *given),
    ),
    Mutant(
        "test_parts.py::test_sinusoids_tell_near_from_far",
        "the fastest wave takes two positions for a turn: the third is as near as the first",
        "headway.nn.embed:sinusoid",
        lambda right: lambda positions, dim, *given: right(positions * math.pi, dim, 1.0),
    ),
]
