"""The mutation proof: for each law a deliberate defect, planted in memory, that must turn it red.

`python tests/laws/mutants.py [WORD …]` first sees every law green, then plants each defect (or those whose law
contains a WORD) and reports how many were killed.  `make proof` runs it; `test_mutants.py` sees that no law is
without a defect.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent.parent))

import pytest  # noqa: E402
import torch  # noqa: E402

from headway.nn.attention import Keys  # noqa: E402
from headway.nn.context import Context  # noqa: E402
from headway.ops.positions import Positions  # noqa: E402

Plant = Callable[[Callable[..., Any]], Callable[..., Any]]  # from the right function to a wrong one


@dataclass(frozen=True)
class Mutant:
    law: str  # file::test
    defect: str
    where: str  # module:attribute
    plant: Plant

    @contextmanager
    def planted(self) -> Iterator[None]:
        module, _, path = self.where.partition(":")
        *owners, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for part in owners:
            owner = getattr(owner, part)
        with patch.object(owner, name, self.plant(getattr(owner, name))):
            yield


def change(**options: Any) -> Plant:
    """The same function, some of its keyword arguments overruled."""
    return lambda right: lambda *given, **named: right(*given, **{**named, **options})


def result(wrong: Callable[[Any], Any]) -> Plant:
    """The same function, its result spoiled."""
    return lambda right: lambda *given, **named: wrong(right(*given, **named))


def instead(wrong: Callable[..., Any]) -> Plant:
    return lambda right: wrong


def told(wrong: Callable[[Context], Context]) -> Plant:
    """A part's forward or keys, called with a spoiled context as its last argument."""

    def plant(right: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *given: (
            right(self, *given[:-1], wrong(given[-1])) if len(given) > 1 else right(self, *given)
        )

    return plant


def leaking_gradient(right: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, x: torch.Tensor, *given: Any) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        return right(self, x, *given) + (mean - mean.detach())

    return forward


def one_too_early(right: Callable[..., Any]) -> Callable[..., Any]:
    def times(self: Any, v: torch.Tensor, **named: Any) -> torch.Tensor:
        q_pos = Positions(self.q_pos.at + 1)
        return right(replace(self, q_pos=q_pos), v, **named)

    return times


def sideways(axis: int) -> Plant:
    """Lets every output feel the mean over an axis of all outputs."""
    return result(lambda y: y + 0.01 * y.mean(axis, keepdim=True) if isinstance(y, torch.Tensor) else y)


def shuffled_state(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, rows: right(self, torch.zeros_like(rows))


def unpadded_keys(right: Callable[..., Any]) -> Callable[..., Any]:
    def keys(self: Any, *given: Any) -> Keys:
        return right(self, *given)._replace(keep=None)

    return keys


ATTEND, MAP, READING = "headway.ops.attend", "headway.ops.map", "headway.ops.reading"
ATTENTION, STATE, TRACE = "headway.nn.attention", "headway.nn.state", "headway.nn.trace"
OPERATOR, SEQUENCES, PARTS = "test_operator.py::", "test_sequences.py::", "test_parts.py::"

MUTANTS = [
    Mutant(
        OPERATOR + "test_fused_is_explicit", "the fused path forgets the bias", f"{ATTEND}:fused", change(bias=None)
    ),
    Mutant(
        OPERATOR + "test_explicit_is_softmax",
        "scores are not scaled",
        "headway.ops.score:Dot.dotted",
        result(lambda made: (*made[:2], 1.0)),
    ),
    Mutant(
        OPERATOR + "test_a_query_that_sees_nothing_gives_zeros",
        "softmax of nothing is NaN",
        f"{ATTEND}:softmax_over",
        instead(
            lambda logits, seen: (logits if seen is None else logits.masked_fill(~seen, float("-inf"))).softmax(-1)
        ),
    ),
    Mutant(
        OPERATOR + "test_an_empty_memory_gives_zeros",
        "an empty memory counts as one",
        f"{ATTEND}:fused",
        result(lambda y: y + 1),
    ),
    Mutant(
        OPERATOR + "test_kv_heads_are_repeated_heads",
        "kv-heads are taken in turn, not in groups",
        f"{ATTEND}:fused",
        lambda right: (
            lambda q, k, v, **named: right(q, *(x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v)), **named)
        ),
    ),
    Mutant(
        OPERATOR + "test_additive_score_is_its_formula",
        "the additive score has no tanh",
        "headway.ops.score:Additive.__call__",
        instead(lambda self, q, k: (q[:, :, :, None] + k[:, :, None]) @ self.v),
    ),
    Mutant(
        OPERATOR + "test_cosine_score_is_its_formula",
        "keys are not made unit length",
        "headway.ops.score:Cosine.dotted",
        lambda right: lambda self, q, k: (right(self, q, k)[0], k, 1.0),
    ),
    Mutant(
        OPERATOR + "test_dropout_is_of_weights",
        "dropped weights are not made up for",
        f"{ATTEND}:F.dropout",
        instead(lambda x, p: x * (torch.rand_like(x) > p)),
    ),
    Mutant(
        OPERATOR + "test_keep_is_the_pattern",
        "a window is one too wide",
        "headway.ops.pattern:Causal.keep",
        instead(lambda self, q, k: (q[:, :, None] >= k[:, None]) & (q[:, :, None] - k[:, None] <= (self.window or 99))),
    ),
    Mutant(
        OPERATOR + "test_spans_tell_the_truth",
        "a window's reach is one too short",
        "headway.ops.pattern:Window.reach",
        result(lambda spans: [(first, last - 1) for first, last in spans]),
    ),
    Mutant(
        OPERATOR + "test_blocks_are_the_whole",
        "a block takes its queries from the next position",
        f"{MAP}:Positions.cut",
        lambda right: lambda self, a, b: Positions(right(self, a, b).at + (a > 0)),
    ),
    Mutant(
        OPERATOR + "test_a_window_as_long_as_the_input_is_full",
        "a chunk ends one early",
        "headway.ops.pattern:Chunked.keep",
        instead(lambda self, q, k: q[:, :, None] // max(1, self.size - 1) == k[:, None] // max(1, self.size - 1)),
    ),
    Mutant(
        OPERATOR + "test_reading_is_the_matrix",
        "the bands are read in the wrong order",
        f"{READING}:Readable.bands",
        result(lambda bands: list(bands)[::-1]),
    ),
    Mutant(
        OPERATOR + "test_received_counts_the_queries_it_is_told",
        "padding queries are counted",
        f"{READING}:Readable.received",
        lambda right: lambda self, queries=None: right(self),
    ),
    Mutant(
        OPERATOR + "test_the_exercise_of_the_lecture",
        "scores are not scaled",
        "headway.ops.score:Dot.dotted",
        result(lambda made: (*made[:2], 1.0)),
    ),
    Mutant(
        SEQUENCES + "test_the_future_is_unseen", "a query sees one ahead", f"{MAP}:AttentionMap.times", one_too_early
    ),
    Mutant(
        SEQUENCES + "test_the_future_gets_no_gradient",
        "values stay, gradients leak",
        "headway.nn.ffn:FFN.forward",
        leaking_gradient,
    ),
    Mutant(
        SEQUENCES + "test_padding_on_the_right_changes_nothing",
        "attention forgets keep",
        f"{ATTENTION}:SelfAttention.keys",
        unpadded_keys,
    ),
    Mutant(
        SEQUENCES + "test_padding_on_the_left_changes_nothing",
        "given positions are ignored",
        "headway.nn.context:Context.locate",
        lambda right: lambda self, owner, x: right(replace(self, positions=None), owner, x),
    ),
    Mutant(
        SEQUENCES + "test_a_batch_is_its_rows",
        "rows of a batch feel one another",
        "headway.nn.block:Block.forward",
        sideways(0),
    ),
    Mutant(
        SEQUENCES + "test_packed_is_padded",
        "packed rows see each other's padding",
        "headway.ops.pattern:Pattern.looks_ahead",
        instead(lambda self: False),
    ),
    Mutant(
        SEQUENCES + "test_chunks_are_the_whole",
        "a state forgets where it stands",
        "headway.ops.positions:Positions.following",
        instead(lambda self, length: Positions.run(0, length, self.at.device)),
    ),
    Mutant(
        SEQUENCES + "test_padded_prompts_go_on_as_alone",
        "cached keys stand in the order of their slots",
        f"{STATE}:Positions.then",
        lambda right: lambda self, more: Positions.run(0, len(self) + len(more), self.at.device),
    ),
    Mutant(
        SEQUENCES + "test_reordered_rows_go_on_as_their_new_selves",
        "rows are not moved",
        f"{STATE}:State.reorder",
        shuffled_state,
    ),
    Mutant(
        SEQUENCES + "test_a_compiled_step_is_the_whole",
        "what is not filled yet is seen",
        f"{STATE}:FixedState.fill_whole",
        result(lambda seen: seen._replace(positions=Positions(torch.zeros_like(seen.positions.at)), keep=None)),
    ),
    Mutant(
        SEQUENCES + "test_a_model_is_captured_whole",
        "a forward branches on data",
        "headway.nn.block:Residual.forward",
        lambda right: lambda self, x, *given: right(self, x if x.sum() > -1e9 else x + 1, *given),
    ),
    Mutant(
        SEQUENCES + "test_traced_is_untraced",
        "reading changes the values",
        "headway.nn.context:Context.emit",
        lambda right: lambda self, *given: right(self, *given) * (1.001 if self.traces() else 1.0),
    ),
    Mutant(
        SEQUENCES + "test_an_identity_edit_changes_nothing",
        "edited weights lose a head",
        "headway.nn.context:Context.edited",
        result(
            lambda value: value * torch.arange(value.shape[1])[:, None, None].clamp(max=1) if value.dim() > 3 else value
        ),
    ),
    Mutant(
        SEQUENCES + "test_an_edit_is_felt",
        "edits are shown but not used",
        f"{ATTEND}:attend",
        change(edit=None),
    ),
    Mutant(
        SEQUENCES + "test_without_positions_order_is_carried_along",
        "a position slips in",
        "headway.nn.block:Stack.forward",
        lambda right: lambda self, x, *given: right(self, x + torch.arange(x.shape[1])[:, None] * 0.01, *given),
    ),
    Mutant(
        SEQUENCES + "test_with_positions_order_matters",
        "learned positions are all alike",
        "headway.nn.embed:LearnedPosition.marks",
        lambda right: lambda self, positions: right(self, Positions(torch.zeros_like(positions.at))),
    ),
    Mutant(
        SEQUENCES + "test_only_differences_of_positions_matter",
        "only queries are turned",
        f"{ATTENTION}:Attention.turn",
        lambda right: lambda self, x, positions: right(self, x, positions) if x.shape[1] == self.heads else x,
    ),
    Mutant(
        SEQUENCES + "test_gradients_are_those_of_finite_differences",
        "a gradient is cut off",
        "headway.nn.ffn:FFN.first",
        lambda right: lambda self, x: right(self, x) + right(self, x.detach()) - right(self, x),
    ),
    Mutant(
        PARTS + "test_self_attention_is_torch_multihead",
        "heads are laid out in turn, not side by side",
        f"{ATTENTION}:split",
        instead(lambda x, heads: x.unflatten(-1, (-1, heads)).movedim(-1, 1)),
    ),
    Mutant(
        PARTS + "test_cross_attention_is_torch_multihead",
        "keys are laid against the wrong values",
        f"{ATTENTION}:CrossAttention.keys_values",
        result(lambda made: (made[0].flip(2), made[1])),
    ),
    Mutant(
        PARTS + "test_grouped_heads_are_plain_heads_that_share",
        "kv-heads are taken in turn, not in groups",
        f"{ATTEND}:fused",
        lambda right: (
            lambda q, k, v, **named: right(q, *(x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v)), **named)
        ),
    ),
    Mutant(
        PARTS + "test_full_width_heads_are_pulled_back",
        "scores are scaled by the share of a head",
        "headway.ops.score:Dot.dotted",
        result(lambda made: (*made[:2], 0.5)),
    ),
    Mutant(
        PARTS + "test_a_memory_that_may_not_be_seen_gives_nothing",
        "cross-attention forgets memory_keep",
        f"{ATTENTION}:CrossAttention.keys",
        unpadded_keys,
    ),
    Mutant(
        PARTS + "test_dispatched_experts_are_all_experts",
        "gates are not sorted with their tokens",
        "headway.nn.moe:MoE.dispatched",
        lambda right: lambda self, tokens, gates, picks, *given: right(self, tokens, gates.flip(0), picks, *given),
    ),
    Mutant(
        PARTS + "test_one_expert_is_its_ffn",
        "gates are logits",
        "headway.nn.moe:MoE.dispatched",
        lambda right: lambda self, tokens, gates, *given: right(self, tokens, self.router(tokens), *given),
    ),
    Mutant(
        PARTS + "test_all_experts_are_a_weighted_sum",
        "gates do not sum to one",
        "headway.nn.moe:MoE.dispatched",
        lambda right: lambda self, tokens, gates, *given: right(self, tokens, gates * 0.9, *given),
    ),
    Mutant(
        PARTS + "test_an_even_router_has_balance_of_its_top",
        "the balance is not multiplied by the experts",
        "headway.nn.context:Context.emit",
        lambda right: (
            lambda self, site, what, value: right(self, site, what, value / 4 if what == "balance" else value)
        ),
    ),
    Mutant(
        PARTS + "test_router_losses_are_of_real_tokens",
        "padding is routed like the rest",
        "headway.nn.moe:seen_by_some",
        instead(lambda x, ctx: None),
    ),
    Mutant(
        PARTS + "test_swiglu_of_eight_thirds_is_as_large",
        "the gate has a bias whatever is asked",
        "headway.nn.ffn:nn.Linear.__init__",
        lambda right: lambda self, a, b, bias=True, **named: right(self, a, b, True, **named),
    ),
    Mutant(
        PARTS + "test_feed_forward_is_its_equation",
        "the gate is applied to the wrong branch",
        "headway.nn.ffn:GatedFFN.first",
        instead(lambda self, x: self.gate(x) * self.act(self.up(x))),
    ),
    Mutant(
        PARTS + "test_residual_is_its_equation",
        "the scale is applied to the whole",
        "headway.nn.block:Residual.forward",
        instead(lambda self, x, *ctx: self.after(self.scale(self.skip(x) + self.inside(self.body(self.before(x)))))),
    ),
    Mutant(
        PARTS + "test_repeated_blocks_are_copies_of_one",
        "one turn too few",
        "headway.nn.block:Repeat.__init__",
        lambda right: lambda self, block, times: right(self, block, times - 1),
    ),
    Mutant(
        PARTS + "test_stochastic_depth_drops_whole_rows_and_keeps_the_mean",
        "values are dropped one by one",
        "headway.nn.block:StochasticDepth.forward",
        instead(lambda self, x, *ctx: torch.nn.functional.dropout(x, self.probability, self.training)),
    ),
    Mutant(
        PARTS + "test_sinusoids_tell_near_from_far",
        "the waves are all as fast",
        "headway.nn.embed:sinusoid",
        instead(lambda positions, dim, *given: (positions[..., None] * torch.ones(dim)).sin()),
    ),
    Mutant(
        SEQUENCES + "test_one_token_is_enough",
        "a norm over tokens divides by zero",
        "headway.nn.block:Stack.forward",
        result(lambda y: (y - y.mean(1, keepdim=True)) / y.std(1, keepdim=True)),
    ),
]


def laws() -> list[str]:
    """Every test in this folder's law files, as file::test."""
    found = (line for file in sorted(FOLDER.glob("test_*.py")) for line in tests_in(file))
    return [law for law in found if not law.startswith("test_mutants.py")]


def tests_in(file: Path) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [f"{file.name}::{line[4:].partition('(')[0]}" for line in lines if line.startswith("def test_")]


class Failures:
    """A pytest plugin that remembers how tests failed."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def pytest_exception_interact(self, call: pytest.CallInfo[None]) -> None:
        self.kinds.append("" if call.excinfo is None else call.excinfo.typename)


def failure(law: str) -> str | None:
    """The kind of error by which a law fails as things are now, or None where all of its tests pass."""
    torch._dynamo.reset()
    failures = Failures()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "--hypothesis-seed=0"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main([*options, str(FOLDER / law)], plugins=[failures])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{law} could not be run: {code!r}")
    return None if code == pytest.ExitCode.OK else failures.kinds[0]


def main(words: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.law for word in words)]
    broken = [law for law in sorted({mutant.law for mutant in chosen}) if failure(law)]
    if broken:
        print("red without any defect:", *broken, sep="\n  ")
        return 1
    killed = 0
    for mutant in chosen:
        with mutant.planted():
            kind = failure(mutant.law)
        killed += kind is not None
        how = f"killed by {kind}" if kind else "SURVIVED"
        print(f"{mutant.law.partition('::')[2]}: {mutant.defect}: {how}", flush=True)
    print(f"{killed} of {len(chosen)} killed")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
