"""One traced run of a model on one input: the call, the axes of every attention site, and how to read the outcome.

A task traces an input; what records, edits or shows the run does not know which task it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor, nn

from headway.nn.attention import Attention, CrossAttention
from headway.tasks.axes import Axis, items

if TYPE_CHECKING:
    from headway.tasks.forced_text import ForcedText
    from headway.tasks.outcome import InputImage, InputSound, OutcomeReader


@dataclass(frozen=True, eq=False)
class Axes:
    """The rows and columns of attention maps: `streams` by the first word of a site's name, "" for all others.

    Cross-attention has the columns of `memory` and the rows of `written`.
    """

    streams: Mapping[str, Axis] = field(default_factory=dict[str, Axis])
    memory: Axis | None = None
    written: Axis | None = None

    def of(self, name: str, part: Attention, queries: int, keys: int) -> tuple[Axis, Axis]:
        """The row and column axes of a site with this many queries and keys."""
        stream = self.streams.get(name.split(".")[0]) or self.streams.get("")
        if not isinstance(part, CrossAttention):
            return fitting(stream, queries), fitting(stream, keys)
        if self.memory is None:  # a learned query that pools the stream
            return items("query", queries), fitting(stream, keys)
        return fitting(self.written, queries), fitting(self.memory, keys)


@dataclass(frozen=True, eq=False)
class TracedRun:
    """`call` runs the model once; `reader` turns its result into an outcome; `text` is the output, if known before.

    `forced_text` is what the model read as its own output: what it wrote, or what another model wrote.
    """

    model: nn.Module
    call: Callable[[], Tensor]
    reader: OutcomeReader
    axes: Axes
    text: str | None = None
    picture: InputImage | None = None
    sound: InputSound | None = None
    forced_text: ForcedText | None = None


@dataclass(frozen=True)
class TraceOptions:
    """How an input is traced.

    A language model generates at most `max_tokens` (and at least one); an encoder–decoder writes to its end.  Either
    reads `forced_text`, if given, in place of its own output.  `context` is the model's context in tokens.
    """

    max_tokens: int
    context: int | None
    forced_text: ForcedText | None = None


def fitting(axis: Axis | None, count: int) -> Axis:
    """The axis if it has `count` labels, else an axis of plain numbers."""
    return axis if axis is not None and len(axis) == count else items(f"items-{count}", count)
