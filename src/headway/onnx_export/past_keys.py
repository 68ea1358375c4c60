"""Decoders whose past is plain tensors: what a decoding state holds, as inputs and outputs of a graph.

A call of the decoder shows what its parts keep in a state: keys and values to which each call appends, those of a
memory that stay the same, hidden vectors that each call replaces.  These become the inputs `past_key_values.…` and the
outputs `present.…` of its graph, under the names of Hugging Face Optimum.

Axes:  B batch   H heads   P past tokens   T new tokens   S all tokens   M tokens of the memory   D head width
       C width
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import Context
from headway.nn.state import CachedTensors, State, Tensors
from headway.nn.trunk import Trunk
from headway.ops.pattern import Positions

Owner = tuple[tuple[int, ...], nn.Module]  # the pass through shared parts, and the part


class Slot(NamedTuple):
    """What one part of a decoder keeps: `parts` tensors, to which calls append where it `grows`."""

    owner: Owner
    grows: bool
    carried: bool  # each call replaces it
    parts: int

    def names(self, at: int, beside_memory: bool) -> list[str]:
        """How its tensors are called behind `past_key_values` and `present`; `at` counts slots of its kind."""
        side = ("decoder." if self.grows else "encoder.") if beside_memory else ""
        if self.parts == 2 and not self.carried:
            return [f"{at}.{side}key", f"{at}.{side}value"]
        return [f"{at}.state.{n}" for n in range(self.parts)]


def slots_of(state: State, path: tuple[int, ...] = ()) -> list[tuple[Slot, Tensors]]:
    """What a state holds after a call, part by part."""
    seen = [(owner, one.tensors, True) for owner, one in state.seen.items() if one.tensors]
    kept = [(owner, tensors, False) for owner, tensors in state.kept.items()]
    found = [
        (Slot((path, owner), grows, owner in state.carried, len(tensors)), tensors)
        for owner, tensors, grows in (*seen, *kept)
    ]
    for key, child in state.children.items():
        found += slots_of(child, (*path, key))
    return found


class PastState(State):
    """A state that begins with tensors of the past; `at` is where all tokens stand, B|1 S, if that is known."""

    def __init__(
        self, at: Tensor | None, past: Mapping[Owner, tuple[bool, Tensors]], path: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        self.at, self.past, self.path = at, past, path
        self.kept = {owner: x for (where, owner), (grows, x) in past.items() if where == path and not grows}

    def next_positions(self, owner: nn.Module, length: int, device: torch.device) -> Positions:
        return Positions(self.places()[:, -length:])

    def append(self, owner: nn.Module, positions: Positions, *new: Tensor) -> CachedTensors:
        _, before = self.past.get((self.path, owner), (True, ()))
        if before:
            new = tuple(torch.cat(pair, 2) for pair in zip(before, new, strict=True))
        self.seen[owner] = CachedTensors(Positions(self.places()), new)
        return self.seen[owner]

    def child(self, key: int) -> State:
        if key not in self.children:
            self.children[key] = PastState(self.at, self.past, (*self.path, key))
        return self.children[key]

    def places(self) -> Tensor:
        if self.at is None:
            raise UserError("a recurrent decoder with positions cannot be written as ONNX")
        return self.at


@dataclass(frozen=True)
class DecoderInputs:
    """Which inputs a graph of a decoder has, in this order, before its past."""

    mask: bool  # attention_mask, B S
    memory: bool  # encoder_hidden_states, B M C
    memory_mask: bool  # encoder_attention_mask, B M

    def names(self) -> list[str]:
        chosen = {
            "attention_mask": self.mask,
            "encoder_attention_mask": self.memory_mask,
            "encoder_hidden_states": self.memory,
        }
        return ["input_ids", *(name for name, there in chosen.items() if there)]


class CachedDecoder(nn.Module):
    """(logits, all that the state holds after the call) of tokens B T, masks, a memory, and the `slots` of the past."""

    def __init__(self, decoder: Trunk, inputs: DecoderInputs, slots: Sequence[Slot] = ()):
        super().__init__()
        self.decoder, self.inputs, self.slots = decoder, inputs, tuple(slots)

    def forward(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        named = dict(zip(self.inputs.names(), given, strict=False))
        rest, past = iter(given[len(named) :]), dict[Owner, tuple[bool, Tensors]]()
        for slot in self.slots:
            past[slot.owner] = slot.grows, tuple(next(rest) for _ in range(slot.parts))
        tokens, mask, memory_mask = named["input_ids"], named.get("attention_mask"), named.get("encoder_attention_mask")
        state = PastState(self.places(tokens, mask, past), past)
        ctx = Context(
            keep=None if mask is None else mask.bool()[:, None],
            memory=named.get("encoder_hidden_states"),
            memory_keep=None if memory_mask is None else memory_mask.bool()[:, None],
            state=state,
        )
        logits = self.decoder(tokens, ctx)
        return logits, *(tensor for _, tensors in slots_of(state) for tensor in tensors)

    def places(self, tokens: Tensor, mask: Tensor | None, past: Mapping[Owner, tuple[bool, Tensors]]) -> Tensor | None:
        """Where all tokens stand: padding counts for nothing, on whichever side it is."""
        if mask is not None:
            return (mask.cumsum(1) - 1).clamp(min=0)
        if self.slots and not any(slot.grows for slot in self.slots):
            return None
        before = next((tensors[0].shape[2] for grows, tensors in past.values() if grows), 0)
        return torch.arange(before + tokens.shape[1], device=tokens.device)[None]
