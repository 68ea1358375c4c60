"""Defects against the laws of the operator."""

from __future__ import annotations

import torch

from headway.ops.pattern import Positions
from tests.laws.defects.planting import Mutant, change, instead, result

ATTEND = "headway.ops.attend"
MAP = "headway.ops.attention_map"
READING = "headway.ops.attention_map"

MUTANTS = [
    Mutant(
        "test_operator.py::test_fused_is_explicit",
        "the fused path forgets the bias",
        f"{ATTEND}:fused",
        change(bias=None),
    ),
    Mutant(
        "test_operator.py::test_fused_is_explicit",
        "a bias that learns has half of its gradient",
        f"{ATTEND}:with_kept_weights",
        lambda right: lambda *given: right(*given[:4], (given[4] + given[4].detach()) / 2, *given[5:]),
    ),
    Mutant(
        "test_operator.py::test_explicit_is_softmax",
        "scores are not scaled",
        "headway.ops.attend:Dot.dotted",
        result(lambda made: (*made[:2], 1.0)),
    ),
    Mutant(
        "test_operator.py::test_a_query_that_sees_nothing_gives_zeros",
        "softmax of nothing is NaN",
        f"{ATTEND}:softmax_over",
        instead(
            lambda logits, seen: (logits if seen is None else logits.masked_fill(~seen, float("-inf"))).softmax(-1)
        ),
    ),
    Mutant(
        "test_operator.py::test_an_empty_memory_gives_zeros",
        "an empty memory counts as one",
        f"{ATTEND}:fused",
        result(lambda y: y + 1),
    ),
    Mutant(
        "test_operator.py::test_kv_heads_are_repeated_heads",
        "kv-heads are taken in turn, not in groups",
        f"{ATTEND}:fused",
        lambda right: (
            lambda q, k, v, **named: right(q, *(x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v)), **named)
        ),
    ),
    Mutant(
        "test_operator.py::test_additive_score_is_its_formula",
        "the additive score has no tanh",
        "headway.ops.attend:Additive.__call__",
        instead(lambda self, q, k: (q[:, :, :, None] + k[:, :, None]) @ self.v),
    ),
    Mutant(
        "test_operator.py::test_cosine_score_is_its_formula",
        "keys are not made unit length",
        "headway.ops.attend:Cosine.dotted",
        lambda right: lambda self, q, k: (right(self, q, k)[0], k, 1.0),
    ),
    Mutant(
        "test_operator.py::test_dropout_is_of_weights",
        "dropped weights are not made up for",
        f"{ATTEND}:drop",
        instead(lambda x, p: x * (torch.rand_like(x) > p)),
    ),
    Mutant(
        "test_operator.py::test_keep_is_the_pattern",
        "a window is one too wide",
        "headway.ops.pattern:Causal.keep",
        instead(lambda self, q, k: (q[:, :, None] >= k[:, None]) & (q[:, :, None] - k[:, None] <= (self.window or 99))),
    ),
    Mutant(
        "test_operator.py::test_spans_tell_the_truth",
        "a window's reach is one too short",
        "headway.ops.pattern:Window.reach",
        result(lambda spans: [(first, last - 1) for first, last in spans]),
    ),
    Mutant(
        "test_operator.py::test_blocks_are_the_whole",
        "a block takes its queries from the next position",
        f"{MAP}:Positions.cut",
        lambda right: lambda self, a, b: Positions(right(self, a, b).at + (a > 0)),
    ),
    Mutant(
        "test_operator.py::test_a_window_as_long_as_the_input_is_full",
        "a chunk ends one early",
        "headway.ops.pattern:Chunked.keep",
        instead(lambda self, q, k: q[:, :, None] // max(1, self.size - 1) == k[:, None] // max(1, self.size - 1)),
    ),
    Mutant(
        "test_operator.py::test_reading_is_the_matrix",
        "the bands are read in the wrong order",
        f"{READING}:Readable.bands",
        result(lambda bands: list(bands)[::-1]),
    ),
    Mutant(
        "test_operator.py::test_received_counts_the_queries_it_is_told",
        "padding queries are counted",
        f"{READING}:Readable.received",
        lambda right: lambda self, queries=None: right(self),
    ),
    Mutant(
        "test_operator.py::test_the_exercise_of_the_lecture",
        "scores are not scaled",
        "headway.ops.attend:Dot.dotted",
        result(lambda made: (*made[:2], 1.0)),
    ),
]
