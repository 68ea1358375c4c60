"""Defects against the laws of sequence models."""

from __future__ import annotations

from dataclasses import replace

import torch

from headway.ops.pattern import Positions
from tests.laws.defects.planting import (
    Mutant,
    change,
    instead,
    leaking_gradient,
    one_too_early,
    result,
    shuffled_state,
    sideways,
    unpadded_keys,
)

MAP = "headway.ops.attention_map"
ATTENTION = "headway.nn.attention"
STATE = "headway.nn.state"

MUTANTS = [
    Mutant(
        "test_sequences.py::test_the_future_is_unseen",
        "a query sees one ahead",
        f"{MAP}:AttentionMap.times",
        one_too_early,
    ),
    Mutant(
        "test_sequences.py::test_the_future_gets_no_gradient",
        "values stay, gradients leak",
        "headway.nn.ffn:FFN.forward",
        leaking_gradient,
    ),
    Mutant(
        "test_sequences.py::test_padding_on_the_right_changes_nothing",
        "attention forgets keep",
        f"{ATTENTION}:SelfAttention.keys",
        unpadded_keys,
    ),
    Mutant(
        "test_sequences.py::test_padding_on_the_left_changes_nothing",
        "given positions are ignored",
        "headway.nn.context:Context.locate",
        lambda right: lambda self, owner, x: right(replace(self, positions=None), owner, x),
    ),
    Mutant(
        "test_sequences.py::test_a_batch_is_its_rows",
        "rows of a batch feel one another",
        "headway.nn.block:Block.forward",
        sideways(0),
    ),
    Mutant(
        "test_sequences.py::test_packed_is_padded",
        "packed rows see each other's padding",
        "headway.ops.pattern:Pattern.looks_ahead",
        instead(lambda self: False),
    ),
    Mutant(
        "test_sequences.py::test_chunks_are_the_whole",
        "a state forgets where it stands",
        "headway.ops.pattern:Positions.following",
        instead(lambda self, length: Positions.run(0, length, self.at.device)),
    ),
    Mutant(
        "test_sequences.py::test_padded_prompts_go_on_as_alone",
        "cached keys stand in the order of their slots",
        f"{STATE}:Positions.then",
        lambda right: lambda self, more: Positions.run(0, len(self) + len(more), self.at.device),
    ),
    Mutant(
        "test_sequences.py::test_reordered_rows_go_on_as_their_new_selves",
        "rows are not moved",
        f"{STATE}:State.reorder",
        shuffled_state,
    ),
    Mutant(
        "test_sequences.py::test_what_is_taken_back_was_never_there",
        "one token too many stays",
        "headway.ops.pattern:Positions.cut",
        lambda right: lambda self, first, last: right(self, first, last + 1),
    ),
    Mutant(
        "test_sequences.py::test_what_is_carried_cannot_be_taken_back",
        "nobody notes that something was carried",
        f"{STATE}:State.carry",
        lambda right: lambda self, owner, *tensors: self.kept.update({owner: tensors}),
    ),
    Mutant(
        "test_sequences.py::test_a_compiled_step_is_the_whole",
        "what is not filled yet is seen",
        f"{STATE}:FixedState.fill_whole",
        result(lambda seen: seen._replace(positions=Positions(torch.zeros_like(seen.positions.at)), keep=None)),
    ),
    Mutant(
        "test_sequences.py::test_a_model_is_captured_whole",
        "a forward branches on data",
        "headway.nn.block:Residual.forward",
        lambda right: lambda self, x, *given: right(self, x if x.sum() > -1e9 else x + 1, *given),
    ),
    Mutant(
        "test_sequences.py::test_traced_is_untraced",
        "reading changes the values",
        "headway.nn.context:Context.emit",
        lambda right: lambda self, *given: right(self, *given) * (1.001 if self.traces() else 1.0),
    ),
    Mutant(
        "test_sequences.py::test_an_identity_edit_changes_nothing",
        "edited weights lose a head",
        "headway.nn.context:Context.edited",
        result(
            lambda value: value * torch.arange(value.shape[1])[:, None, None].clamp(max=1) if value.dim() > 3 else value
        ),
    ),
    Mutant(
        "test_sequences.py::test_an_edit_is_felt",
        "edits are shown but not used",
        f"{MAP}:attend",
        change(edit=None),
    ),
    Mutant(
        "test_sequences.py::test_without_positions_order_is_carried_along",
        "a position slips in",
        "headway.nn.block:Stack.forward",
        lambda right: (
            lambda self, x, *given: right(
                self, x * (1 + 0.1 * torch.arange(x.shape[1])[:, None] * (torch.arange(x.shape[2]) % 2)), *given
            )
        ),
    ),
    Mutant(
        "test_sequences.py::test_with_positions_order_matters",
        "learned positions are all alike",
        "headway.nn.embed:LearnedPosition.marks",
        lambda right: lambda self, positions: right(self, Positions(torch.zeros_like(positions.at))),
    ),
    Mutant(
        "test_sequences.py::test_only_differences_of_positions_matter",
        "only queries are turned",
        f"{ATTENTION}:Attention.turn",
        lambda right: lambda self, x, positions: right(self, x, positions) if x.shape[1] == self.heads else x,
    ),
    Mutant(
        "test_sequences.py::test_gradients_are_those_of_finite_differences",
        "a gradient is cut off",
        "headway.nn.ffn:FFN.first",
        lambda right: lambda self, x: right(self, x) + right(self, x.detach()) - right(self, x),
    ),
    Mutant(
        "test_sequences.py::test_one_token_is_enough",
        "a norm over tokens divides by zero",
        "headway.nn.block:Stack.forward",
        result(lambda y: (y - y.mean(1, keepdim=True)) / y.std(1, keepdim=True)),
    ),
]
