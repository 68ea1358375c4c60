"""The context of a call: mask, positions, memory, decoding state (KV cache) and trace, beside a sublayer's input.

Axes:  B batch   T queries   S keys   C width   N tokens of all packed rows
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.packed import PackedLengths
from headway.nn.state import State
from headway.nn.trace import Seen, Trace, ambient
from headway.ops.attend import shape_text
from headway.ops.pattern import both
from headway.ops.positions import Positions


@dataclass(frozen=True, eq=False)
class Context:
    """Frozen: a sublayer reads it, and makes a changed one for its children with `replace`."""

    keep: Tensor | None = None  # B T S  bool, an axis may be 1: True where a key may be seen, cached keys included
    positions: Tensor | None = None  # B|1 T  where the inputs stand; None: in order, after what `state` has seen
    memory: Tensor | None = None  # B S C  what cross-attention reads
    memory_keep: Tensor | None = None  # B T S
    state: State | None = None  # what was seen in earlier calls
    trace: Trace | None = None  # what to record or replace
    rows: PackedLengths | None = None  # the inputs are packed, 1 N C
    memory_rows: PackedLengths | None = None  # the memory is packed

    def locate(self, owner: nn.Module, x: Tensor) -> Positions:
        """Where the tokens of `x` (B T …) stand for this owner."""
        if self.positions is not None:
            return Positions(self.positions)
        if self.rows is not None:
            return Positions(self.rows.positions)
        if self.state is not None:
            return self.state.next_positions(owner, x.shape[1], x.device)
        return Positions.run(0, x.shape[1], x.device)

    def real(self, length: int) -> Tensor | None:
        """Which of the `length` tokens of the padded view are not padding, B|1 T; None: all."""
        keep = both(self.keep, None if self.rows is None else self.rows.keep)
        if keep is None:
            return None
        if keep.shape[1:] != (1, length):
            said, allowed = f"keep is {shape_text(keep)} for {length} tokens", f"B 1 {length}, True at real tokens"
            do = "this part sees all real tokens: what each query may see is for attention alone"
            raise UserError(said, allowed=allowed, do=do)
        return keep[:, 0]

    def emit(self, site: nn.Module, what: str, value: Tensor) -> Tensor:
        """Shows a value to whoever records this site, and returns it or what an edit puts in its place."""
        if not self.traces():
            return value
        value = self.edited(site, what, value)
        self.show(site, what, value)
        return value

    def show(self, site: nn.Module, what: str, value: Seen) -> None:
        for trace in self.traces():
            if (site, what) in trace.names:
                trace.show((site, what), value)

    def edits(self, site: nn.Module, what: str) -> bool:
        """Whether somebody will replace this site's value."""
        return any((site, what) in trace.edits for trace in self.traces())

    def edited(self, site: nn.Module, what: str, value: Tensor) -> Tensor:
        for trace in self.traces():
            if (site, what) in trace.edits:
                before, value = value, trace.edits[site, what](value)
                if value.shape != before.shape:
                    name = trace.names[site, what]
                    raise UserError(
                        f"the edit of {name!r} returned {tuple(value.shape)}",
                        allowed=f"the shape {tuple(before.shape)}",
                    )
        return value

    def traces(self) -> list[Trace]:
        # compiled code cannot read a context variable; there a trace reaches it in the context
        around = None if torch.compiler.is_compiling() else ambient()
        return [trace for trace in (self.trace, around) if trace is not None]


EMPTY = Context()
